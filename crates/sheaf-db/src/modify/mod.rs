//! Statements that change what a query finds: update, delete, findAndModify.
//!
//! ```text
//!   statement ──> plan (or express) ──matches──> write::update / write::delete ──> units of work
//!        └─ nothing matched, upsert ──> document from query and update ──> insert
//! ```
//!
//! The plan runs on a snapshot and the writes behind it, so an update never
//! meets its own results again. What another writer changed in between is
//! matched again under its lock; when that leaves a statement for one document
//! without one, it begins anew.

mod delete;
pub mod explain;
mod update;
mod would_write;

use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode};
use sheaf_bson::{DateTime, DocBuf, DocBuilder, RawDoc, RecordId};
use sheaf_query::canonical::{CanonicalQuery, FindSpec};
use sheaf_query::expression::VariableScope;
use sheaf_query::matcher::ParseContext;
use sheaf_query::planner::index_entry::IndexEntry;
use sheaf_query::projection::{Metadata, Projection};

pub use delete::{DeleteReport, DeleteStatement, delete};
pub use update::{UpdateReport, UpdateStatement, update};

use crate::catalog::ReadView;
use crate::catalog::collection::Collection;
use crate::exec::{Member, PlanExecutor, WorkCounts, express};
use crate::find::{self, PlanDigest, QueryOptions};
use crate::op_context::OpContext;
use crate::write::{MatchedRecord, RecordSource};

/// The matches of a statement, and what it took to find them.
pub(crate) struct Matches {
    source: Source,
    /// Some match was handed out.
    found: bool,
}

enum Source {
    Express(Option<MatchedRecord>, WorkCounts, Arc<IndexEntry>),
    Plan(Box<PlanExecutor>, PlanDigest),
}

impl Matches {
    pub(crate) fn start(
        view: &ReadView,
        collection: &Arc<Collection>,
        op: &OpContext,
        query: &Arc<CanonicalQuery>,
        options: &QueryOptions,
    ) -> Result<Self, Error> {
        let source = match find::express_key(view, collection, query) {
            Some(key) => {
                let found = express::find(collection, &view.snapshot, key)?;
                let counts = WorkCounts {
                    keys_examined: found.keys_examined,
                    docs_examined: found.docs_examined,
                };
                let record = found
                    .record
                    .map(|(id, document)| MatchedRecord { id, document });
                Source::Express(record, counts, found.index)
            }
            None => {
                let (executor, digest) = find::start(view, op, query, options)?;
                Source::Plan(Box::new(executor), digest)
            }
        };
        Ok(Matches {
            source,
            found: false,
        })
    }

    pub(crate) fn counts(&self) -> WorkCounts {
        match &self.source {
            Source::Express(_, counts, _) => *counts,
            Source::Plan(executor, _) => executor.counts(),
        }
    }

    /// `express` names the stage that the express path ends in.
    pub(crate) fn plan(&self, express: &'static str) -> PlanDigest {
        match &self.source {
            Source::Express(_, _, index) => PlanDigest::express_write(index, express),
            Source::Plan(_, digest) => digest.clone(),
        }
    }
}

impl RecordSource for Matches {
    fn next(&mut self, op: &OpContext) -> Result<Option<MatchedRecord>, Error> {
        let record = match &mut self.source {
            Source::Express(record, ..) => record.take(),
            Source::Plan(executor, _) => match executor.next(op)? {
                Some(member) => Some(matched_record(member)?),
                None => None,
            },
        };
        self.found |= record.is_some();
        Ok(record)
    }
}

/// A result of a plan without a projection: a record with its document.
/// Errors: `InternalError` when it is none.
pub(crate) fn matched_record(member: Member) -> Result<MatchedRecord, Error> {
    match (member.record_id, member.doc) {
        (Some(id), Some(doc)) => Ok(MatchedRecord {
            id,
            document: doc.into_bytes(),
        }),
        _ => Err(Error::new(
            ErrorCode::INTERNAL_ERROR,
            "a plan of a write returned no record with its document",
        )),
    }
}

/// Which document findAndModify gives back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReturnDocument {
    /// None: it is an update or delete command.
    #[default]
    None,
    /// As it was.
    Before,
    /// As it is now.
    After,
}

/// What parsing a statement's parts depends on: its `let`, the time, and the collation: the statement's
/// or else the collection's.
pub(crate) fn parse_context(
    spec: &FindSpec<'_>,
    now: DateTime,
    view: &ReadView,
) -> Result<ParseContext, Error> {
    let collator = view.collator(&spec.collation);
    let mut variables = VariableScope::new(now).with_collator(collator);
    if let Some(vars) = spec.let_vars {
        variables = variables.with_let(vars)?;
    }
    Ok(ParseContext { variables })
}

/// The query of a statement. For one document of several in an order the first is enough.
fn parse_query(
    spec: &FindSpec<'_>,
    multi: bool,
    context: &ParseContext,
) -> Result<Arc<CanonicalQuery>, Error> {
    let mut spec = spec.clone();
    if !multi && spec.sort.is_some() {
        spec.limit = Some(1);
    }
    CanonicalQuery::with_context(spec, context).map(Arc::new)
}

/// `fields` of findAndModify.
pub(crate) fn parse_projection(
    spec: Option<RawDoc<'_>>,
    context: &ParseContext,
) -> Result<Option<Projection>, Error> {
    spec.filter(|spec| !spec.is_empty())
        .map(|spec| Projection::parse(spec, context))
        .transpose()
}

/// A document to give back, through the command's `fields`.
pub(crate) fn project(
    projection: Option<&Projection>,
    doc: RawDoc<'_>,
    record_id: Option<&RecordId>,
) -> Result<DocBuf, Error> {
    let Some(projection) = projection else {
        return Ok(doc.to_buf());
    };
    let mut out = DocBuilder::new();
    let meta = Metadata {
        record_id,
        ..Default::default()
    };
    projection.apply(doc, None, meta, &mut out)?;
    Ok(out.finish())
}
