//! Builds executable stages from a query solution.
//!
//! Members keep their keys only where a stage above reads them: a covered projection, a sort below
//! FETCH, RETURN_KEY. Otherwise a scan returns bare record ids and copies nothing.

use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode};
use sheaf_query::canonical::CanonicalQuery;
use sheaf_query::planner::lazy::LazyNode;
use sheaf_query::planner::solution::{ProjectionKind, SolutionNode};
use sheaf_query::projection::MetaField;
use sheaf_storage::Snapshot;

use super::and_hash::AndHash;
use super::and_sorted::AndSorted;
use super::clustered_ixscan::ClusteredScan;
use super::collscan::CollScan;
use super::count_scan::CountScan;
use super::distinct_scan::DistinctScan;
use super::eof::Eof;
use super::fetch::Fetch;
use super::ixscan::IndexScan;
use super::limit::Limit;
use super::or::{Child, Or};
use super::projection::ProjectionStage;
use super::return_key::ReturnKey;
use super::skip::Skip;
use super::sort::{Sort, SpillOptions};
use super::sort_merge::SortMerge;
use super::subplan::Subplan;
use super::{Node, PlanStage};
use crate::collection::Collection;
use crate::records::{RecordCursor, RecordReader};
use crate::storage_error::IntoClientError;

/// What the stages of one operation share.
#[derive(Clone)]
pub struct BuildContext {
    /// The snapshot that all stages read from.
    pub snapshot: Arc<dyn Snapshot>,
    /// The collection at that snapshot; only EOF can do without.
    pub collection: Option<Arc<Collection>>,
    /// The query; positional projections read its filter.
    pub query: Arc<CanonicalQuery>,
    /// Spill settings of blocking stages.
    pub spill: SpillOptions,
    /// Measures the time of every step, for explain.
    pub timed: bool,
}

impl BuildContext {
    fn collection(&self) -> Result<&Arc<Collection>, Error> {
        match &self.collection {
            Some(collection) => Ok(collection),
            None => Err(Error::new(
                ErrorCode::INTERNAL_ERROR,
                "a plan over a collection that does not exist",
            )),
        }
    }
}

/// Builds the stages of a solution.
pub fn build(cx: &BuildContext, node: &SolutionNode) -> Result<Node, Error> {
    build_node(cx, node, false)
}

fn build_node(cx: &BuildContext, node: &SolutionNode, keep_key: bool) -> Result<Node, Error> {
    let stage: Box<dyn PlanStage> = match node {
        SolutionNode::Eof => Box::new(Eof),
        SolutionNode::CollScan { direction, filter } => Box::new(CollScan::new(
            RecordCursor::new(&cx.snapshot, cx.collection()?)?,
            *direction,
            filter.clone(),
        )),
        SolutionNode::ClusteredScan(scan) => Box::new(ClusteredScan::new(
            cx.snapshot
                .cursor(cx.collection()?.table())
                .into_client_error()?,
            scan,
        )),
        SolutionNode::IndexScan(scan) => Box::new(IndexScan::new(cx, scan, keep_key)?),
        SolutionNode::Fetch { filter, child } => Box::new(Fetch::new(
            RecordReader::new(cx.snapshot.clone(), cx.collection()?.clone()),
            filter.clone(),
            build_node(cx, child, keep_key)?,
        )),
        SolutionNode::Sort {
            pattern,
            limit,
            child,
        } => Box::new(Sort::new(
            pattern.clone(),
            *limit,
            cx.spill.clone(),
            gives_document(child),
            build_node(cx, child, keep_key || !gives_document(child))?,
        )),
        SolutionNode::SortMerge {
            pattern,
            dedup,
            children,
            prefixes,
        } => {
            let children = children
                .iter()
                .map(|child| build_node(cx, child, keep_key || !gives_document(child)))
                .collect::<Result<_, _>>()?;
            let prefixes = prefixes.clone();
            Box::new(SortMerge::new(pattern.clone(), *dedup, children, prefixes))
        }
        SolutionNode::Or {
            dedup,
            filter,
            children,
        } => {
            let children = children
                .iter()
                .map(|child| match child {
                    SolutionNode::Lazy(lazy) => Ok(Child::Waiting(lazy.clone())),
                    child => build_node(cx, child, keep_key).map(Child::Open),
                })
                .collect::<Result<_, Error>>()?;
            let opener = Opener {
                cx: cx.clone(),
                keep_key,
            };
            Box::new(Or::new(children, opener, *dedup, filter.clone()))
        }
        SolutionNode::Lazy(lazy) => return build_node(cx, lazy.node(), keep_key),
        SolutionNode::Limit { limit, child } => {
            Box::new(Limit::new(*limit, build_node(cx, child, keep_key)?))
        }
        SolutionNode::Skip { skip, child } => {
            Box::new(Skip::new(*skip, build_node(cx, child, keep_key)?))
        }
        SolutionNode::Projection {
            kind,
            projection,
            child,
        } => Box::new(ProjectionStage::new(
            *kind,
            projection.clone(),
            cx.query.filter.clone(),
            match gives_document(child) || cx.query.null_serves {
                true => None,
                false => Some(RecordReader::new(
                    cx.snapshot.clone(),
                    cx.collection()?.clone(),
                )),
            },
            cx.query.sort.as_deref(),
            build_node(
                cx,
                child,
                *kind == ProjectionKind::Covered
                    || !gives_document(child)
                    || projection.needs(MetaField::IndexKey),
            )?,
        )),
        SolutionNode::Subplan { child } => Box::new(Subplan::new(build_node(cx, child, keep_key)?)),
        SolutionNode::ReturnKey { child } => Box::new(ReturnKey::new(build_node(cx, child, true)?)),
        SolutionNode::CountScan(scan) => Box::new(CountScan::new(cx, scan)?),
        SolutionNode::DistinctScan {
            scan,
            fields,
            passes_null,
        } => Box::new(DistinctScan::new(cx, scan, *fields, *passes_null)?),
        SolutionNode::AndSorted { children } => Box::new(AndSorted::new(build_all(cx, children)?)),
        SolutionNode::AndHash { children } => Box::new(AndHash::new(build_all(cx, children)?)),
    };
    Ok(Node::new(stage, cx.timed))
}

/// Builds stages on demand, with the context they would have had if built eagerly.
pub struct Opener {
    cx: BuildContext,
    keep_key: bool,
}

impl Opener {
    /// Builds the stages of a deferred part of the plan.
    pub fn open(&self, lazy: &LazyNode) -> Result<Node, Error> {
        build_node(&self.cx, lazy.node(), self.keep_key)
    }
}

fn build_all(cx: &BuildContext, nodes: &[SolutionNode]) -> Result<Vec<Node>, Error> {
    nodes
        .iter()
        .map(|node| build_node(cx, node, false))
        .collect()
}

/// Whether members that `node` returns hold a document.
fn gives_document(node: &SolutionNode) -> bool {
    match node {
        SolutionNode::CollScan { .. }
        | SolutionNode::ClusteredScan(_)
        | SolutionNode::Fetch { .. }
        | SolutionNode::Projection { .. }
        | SolutionNode::ReturnKey { .. } => true,
        SolutionNode::Sort { child, .. }
        | SolutionNode::Limit { child, .. }
        | SolutionNode::Subplan { child }
        | SolutionNode::Skip { child, .. } => gives_document(child),
        SolutionNode::Or { children, .. } | SolutionNode::SortMerge { children, .. } => {
            children.iter().all(gives_document)
        }
        SolutionNode::Lazy(lazy) => lazy.gives_document(),
        SolutionNode::Eof
        | SolutionNode::IndexScan(_)
        | SolutionNode::CountScan(_)
        | SolutionNode::DistinctScan { .. }
        | SolutionNode::AndSorted { .. }
        | SolutionNode::AndHash { .. } => false,
    }
}
