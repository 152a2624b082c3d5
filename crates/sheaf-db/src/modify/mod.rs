//! Statements that modify what a query finds: update, delete, findAndModify.
//!
//! ```text
//!   statement ──> plan (or express) ──matches──> write::update / write::delete ──> units of work
//!        └─ nothing matched, upsert ──> document from query and update ──> insert
//! ```
//!
//! The plan reads a snapshot that precedes the writes, so an update never sees its own results. A
//! document that another writer changed in between is matched again under its lock. If that leaves
//! a single-document statement without a document, the statement starts over.

mod delete;
pub mod explain;
mod update;
mod would_write;

use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode};
use sheaf_bson::{DocBuf, DocBuilder, RawDoc, RecordId};
use sheaf_query::canonical::{CanonicalQuery, FindSpec};
use sheaf_query::matcher::{MatchDetails, MatchExpression, ParseContext};
use sheaf_query::planner::index_entry::IndexEntry;
use sheaf_query::projection::{MetaField, Metadata, Projection};

pub use delete::{DeleteReport, DeleteStatement, delete};
pub use update::{UpdateReport, UpdateStatement, update};

use crate::catalog::ReadView;
use crate::collection::Collection;
use crate::exec::{Member, PlanExecutor, WorkCounts, express};
use crate::op_context::OpContext;
use crate::planning::{self, PlanDigest, QueryOptions};
use crate::statement::Constants;
use crate::write::document_rules::DOCUMENT_BYTES_MAX;
use crate::write::{MatchedRecord, RecordSource};

/// The matches of a statement, and the work done to find them.
pub(crate) struct Matches {
    source: Source,
    /// Whether a match was returned.
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
        let source = match planning::express_key(view, collection, query, options) {
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
                let (executor, digest) = planning::start(view, op, query, options)?;
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

    /// `express` is the name of the final stage on the express path.
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

/// Converts a result of a plan without a projection to a record with its document.
/// Errors: `InternalError` if either is missing.
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

/// The document that findAndModify returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReturnDocument {
    /// None: for update and delete commands.
    #[default]
    None,
    /// The document before the change.
    Before,
    /// The document after the change.
    After,
}

/// Context for parsing a statement: its `let` variables, the time, and the collation of the
/// statement or, by default, the collection.
pub(crate) fn parse_context(
    spec: &FindSpec<'_>,
    constants: Constants,
    view: &ReadView,
) -> Result<ParseContext, Error> {
    let (now, cluster_time) = constants;
    let mut variables = view
        .variables(now, &spec.collation)
        .with_cluster_time(cluster_time)
        .allowing_where();
    if let Some(vars) = spec.let_vars {
        variables = variables.with_let(vars)?;
    }
    Ok(ParseContext { variables })
}

/// The query of a statement. A sorted statement on a single document needs only the first match.
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

/// Parses `fields` of findAndModify.
///
/// Errors: those of projections; `BadValue` for `{$meta: "sortKey"}`, which the plan of a write
/// cannot provide.
pub(crate) fn parse_projection(
    spec: Option<RawDoc<'_>>,
    context: &ParseContext,
) -> Result<Option<Projection>, Error> {
    let Some(spec) = spec.filter(|spec| !spec.is_empty()) else {
        return Ok(None);
    };
    let projection = Projection::parse(spec, context)?;
    if projection.needs(MetaField::SortKey) {
        return Err(Error::bad_value(
            "Cannot use a $meta sortKey projection in findAndModify commands.",
        ));
    }
    Ok(Some(projection))
}

/// The filter and the document it matched, for a positional projection.
pub(crate) struct Matched<'a> {
    pub(crate) filter: &'a MatchExpression,
    /// The document before the update.
    pub(crate) doc: RawDoc<'a>,
}

/// The document to return, through the command's `fields`. A positional projection keeps the
/// element by whose position in its array `matched` holds; an upsert has matched none.
///
/// Errors: those of the projection (51246, 51247 and expressions'), BSONObjectTooLarge for a
/// result over the limit of a document. The caller reports them before it writes.
pub(crate) fn project(
    projection: Option<&Projection>,
    doc: RawDoc<'_>,
    record_id: Option<&RecordId>,
    matched: Option<Matched<'_>>,
) -> Result<DocBuf, Error> {
    let Some(projection) = projection else {
        return Ok(doc.to_buf());
    };
    let details = match matched.filter(|_| projection.needs_match_details()) {
        None => None,
        Some(matched) => {
            let mut details = MatchDetails::default();
            matched
                .filter
                .matches_with_details(matched.doc, &mut details)?;
            Some(details)
        }
    };
    let mut out = DocBuilder::new();
    let meta = Metadata {
        record_id,
        ..Default::default()
    };
    projection.apply(doc, details.as_ref(), meta, &mut out)?;
    let out = out.finish();
    if out.len_bytes() > DOCUMENT_BYTES_MAX.max(doc.len_bytes()) {
        return Err(Error::new(
            ErrorCode::BSON_OBJECT_TOO_LARGE,
            format!(
                "the projected document of {} bytes is larger than the limit of {DOCUMENT_BYTES_MAX}",
                out.len_bytes()
            ),
        ));
    }
    Ok(out)
}
