//! The distinct values of a path among the documents that match.
//!
//! From the keys of an index that begins with the path, one seek a value,
//! where there is such an index; from the documents elsewhere. An array
//! counts by its elements, a missing field not at all.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode};
use sheaf_bson::keystring::KeyStringBuilder;
use sheaf_bson::path::{FieldPath, LeafArrayBehavior, for_each_value};
use sheaf_bson::{ArrayBuf, ArrayBuilder, RawDoc, RawValue};
use sheaf_query::canonical::CanonicalQuery;

use crate::exec::{Member, PlanExecutor, WorkCounts};
use crate::exec::key_document::values_of;
use crate::catalog::ReadView;
use crate::find::{self, PlanDigest, QueryOptions};
use crate::op_context::OpContext;

/// The reply must fit a document.
const VALUES_BYTES_MAX: usize = 16 * 1024 * 1024 - 16 * 1024;

/// What distinct found, and what it read for it.
#[derive(Debug, Default)]
pub struct Distinct {
    /// The values, each once, in the order met.
    pub values: ArrayBuf,
    /// What was read.
    pub counts: WorkCounts,
    /// How.
    pub plan: PlanDigest,
}

/// Runs it.
pub fn distinct(
    view: &ReadView,
    op: &OpContext,
    key: &FieldPath,
    query: Arc<CanonicalQuery>,
    options: &QueryOptions,
) -> Result<Distinct, Error> {
    let (mut executor, plan) = start(view, op, key, &query, options, false)?;
    let mut values = Values::default();
    while let Some(member) = executor.next(op)? {
        match member_values(&member, key, &mut values)? {
            ControlFlow::Continue(()) => {}
            ControlFlow::Break(error) => return Err(error),
        }
    }
    Ok(Distinct {
        values: values.list.finish(),
        counts: executor.counts(),
        plan,
    })
}

/// The plan: DISTINCT_SCAN where an index allows it, the query's own elsewhere.
pub fn start(
    view: &ReadView,
    op: &OpContext,
    key: &FieldPath,
    query: &Arc<CanonicalQuery>,
    options: &QueryOptions,
    timed: bool,
) -> Result<(PlanExecutor, PlanDigest), Error> {
    if view.collection.is_some()
        && let Some(solution) =
            sheaf_query::planner::plan_distinct(query, key, &find::params(view, options))?
    {
        let cx = find::build_context(view, query, options, timed);
        let executor =
            PlanExecutor::new(&cx, vec![solution], find::budget(view, query, options)?, op)?;
        let plan = PlanDigest::solution(executor.solution());
        return Ok((executor, plan));
    }
    find::start(view, op, query, options)
}

#[derive(Default)]
struct Values {
    seen: HashSet<Box<[u8]>>,
    key: KeyStringBuilder,
    list: ArrayBuilder,
}

impl Values {
    fn add(&mut self, value: RawValue<'_>) -> ControlFlow<Error> {
        self.key.reset();
        self.key.append(value);
        if self.seen.contains(self.key.as_bytes()) {
            return ControlFlow::Continue(());
        }
        self.seen.insert(self.key.as_bytes().into());
        self.list.push(value);
        if self.list.current_len() > VALUES_BYTES_MAX {
            return ControlFlow::Break(Error::new(
                ErrorCode(17217),
                "distinct too big, 16mb cap; use an aggregation with $group instead",
            ));
        }
        ControlFlow::Continue(())
    }
}

fn member_values(
    member: &Member,
    key: &FieldPath,
    values: &mut Values,
) -> Result<ControlFlow<Error>, Error> {
    if let Some(doc) = &member.doc {
        return Ok(document_values(doc.as_raw(), key, values));
    }
    let Some(index_key) = &member.key else {
        return Ok(ControlFlow::Continue(()));
    };
    let field = index_key.index.fields.iter().position(|f| *f.path == *key);
    let parts = values_of(&index_key.index, &index_key.key, &index_key.type_bits)?;
    Ok(match field.and_then(|at| parts.get(at)) {
        // An empty array's key: the document has no element to give.
        Some(sheaf_bson::Value::Undefined) | None => ControlFlow::Continue(()),
        Some(value) => values.add(value.as_raw()),
    })
}

/// An array at the end of the path gives its elements and not itself.
fn document_values(doc: RawDoc<'_>, key: &FieldPath, values: &mut Values) -> ControlFlow<Error> {
    for_each_value(doc, key, LeafArrayBehavior::NoTraverse, |item| {
        match item.value() {
            None => ControlFlow::Continue(()),
            Some(RawValue::Array(array)) => array.iter().try_for_each(|value| values.add(value)),
            Some(value) => values.add(value),
        }
    })
}
