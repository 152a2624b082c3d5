//! find: runs a canonical query.
//!
//! ```text
//!   CanonicalQuery ──> a unique key alone? ── yes ──> express: one seek, one record
//!                            └── no ──> planning::start ──> PlanExecutor
//! ```

use std::sync::Arc;

use bytes::Bytes;
use sheaf_bson::error_code::{Error, ErrorCode};
use sheaf_bson::{DateTime, DocBuf, DocBuilder, RecordId};
use sheaf_query::canonical::{CanonicalQuery, FindSpec};
use sheaf_query::matcher::ParseContext;
use sheaf_query::planner::solution::QuerySolution;
use sheaf_query::projection::Metadata;

use crate::catalog::ReadView;
use crate::exec::{Doc, Member, PlanExecutor, WorkCounts, express};
use crate::explain::exec_stats;
use crate::op_context::OpContext;
use crate::planning::{self, PlanDigest, QueryOptions};
use crate::result_source::ResultSource;

/// Canonicalizes a find on a collection. Without a collation in `spec`, the collection's applies.
/// `$$NOW` is the system clock.
/// Errors: those of [`CanonicalQuery::with_context`].
pub fn canonicalize(view: &ReadView, spec: FindSpec<'_>) -> Result<CanonicalQuery, Error> {
    let context = ParseContext {
        variables: view
            .variables(DateTime::now(), &spec.collation)
            .allowing_where(),
    };
    CanonicalQuery::with_context(spec, &context)
}

/// A find in execution.
pub struct Find {
    state: State,
    show_record_id: bool,
}

enum State {
    Express(express::Found, Option<Member>),
    Plan(Box<PlanExecutor>, PlanDigest),
}

/// Starts a find. A collection that does not exist returns no documents.
pub fn find(
    view: &ReadView,
    op: &OpContext,
    query: Arc<CanonicalQuery>,
    options: &QueryOptions,
) -> Result<Find, Error> {
    // Keys of an index are returned without the id of their record.
    let show_record_id = query.show_record_id && query.projection.is_none() && !query.return_key;
    if let Some(collection) = &view.collection
        && let Some(key) = planning::express_key(view, collection, &query, options)
    {
        let mut found = express::find(collection, &view.snapshot, key)?;
        collection.record_index_use(found.index.ident);
        let member = match found.record.take() {
            Some((record_id, bytes)) => Some(member_of(&query, record_id, bytes)?),
            None => None,
        };
        return Ok(Find {
            state: State::Express(found, member),
            show_record_id,
        });
    }
    let (executor, digest) = planning::start(view, op, &query, options)?;
    Ok(Find {
        state: State::Plan(Box::new(executor), digest),
        show_record_id,
    })
}

/// The result for a record found without a plan.
fn member_of(query: &CanonicalQuery, record_id: RecordId, bytes: Bytes) -> Result<Member, Error> {
    let mut doc = Doc::Shared(bytes);
    if let Some(projection) = &query.projection {
        let mut out = DocBuilder::new();
        let meta = Metadata {
            record_id: Some(&record_id),
            ..Default::default()
        };
        projection.apply(doc.as_raw(), None, meta, &mut out)?;
        doc = Doc::Owned(out.finish_into());
    }
    Ok(Member {
        record_id: Some(record_id),
        doc: Some(doc),
        ..Default::default()
    })
}

impl Find {
    /// Name of the index that the express path used, if any.
    pub fn express_index(&self) -> Option<&str> {
        match &self.state {
            State::Express(found, _) => Some(&found.index.name),
            State::Plan(..) => None,
        }
    }

    /// The plan, if it was the only candidate: neither tried nor cached.
    pub(crate) fn only_solution(&self) -> Option<&Arc<QuerySolution>> {
        match &self.state {
            State::Plan(executor, digest)
                if executor.trial().is_empty() && !digest.from_cache && !digest.replanned =>
            {
                Some(executor.solution())
            }
            _ => None,
        }
    }

    /// The plan; `None` on the express path.
    pub fn solution(&self) -> Option<&Arc<QuerySolution>> {
        match &self.state {
            State::Express(..) => None,
            State::Plan(executor, _) => Some(executor.solution()),
        }
    }
}

impl ResultSource for Find {
    fn next(&mut self, op: &OpContext) -> Result<Option<Doc>, Error> {
        let member = match &mut self.state {
            State::Express(_, member) => member.take(),
            State::Plan(executor, _) => executor.next(op)?,
        };
        let Some(member) = member else {
            return Ok(None);
        };
        let doc = member.doc.ok_or_else(|| {
            let message = "a plan of a find returned a record without its document";
            Error::new(ErrorCode::INTERNAL_ERROR, message)
        })?;
        match member.record_id {
            Some(record_id) if self.show_record_id => {
                let mut out = DocBuilder::from_doc(doc.as_raw());
                out.append("$recordId", record_id.as_raw());
                Ok(Some(Doc::Owned(out.finish_into())))
            }
            _ => Ok(Some(doc)),
        }
    }

    fn is_exhausted(&self) -> bool {
        match &self.state {
            State::Express(_, member) => member.is_none(),
            State::Plan(executor, _) => executor.is_eof(),
        }
    }

    fn suspend(&mut self) {
        if let State::Plan(executor, _) = &mut self.state {
            executor.suspend();
        }
    }

    fn counts(&self) -> WorkCounts {
        match &self.state {
            State::Express(found, _) => WorkCounts {
                keys_examined: found.keys_examined,
                docs_examined: found.docs_examined,
            },
            State::Plan(executor, _) => executor.counts(),
        }
    }

    fn plan(&self) -> PlanDigest {
        match &self.state {
            State::Express(found, _) => PlanDigest::express(&found.index),
            State::Plan(_, digest) => digest.clone(),
        }
    }

    fn exec_stats(&self) -> Option<DocBuf> {
        match &self.state {
            State::Express(..) => None,
            State::Plan(executor, _) => Some(exec_stats(executor)),
        }
    }
}
