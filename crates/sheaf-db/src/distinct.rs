//! The distinct values of a path among the documents that match.
//!
//! Reads one key per value from an index that begins with the path, if there is one; reads
//! documents otherwise. An array counts as its elements, and a missing field as nothing. Values are
//! returned in BSON order, text ordered by the query's collation, independent of the plan. Of
//! values that compare equal the first is returned.
//!
//! ```text
//!   index a_1    null   1   "x"          keys of {}, {a: null} and {a: [null]} are alike,
//!                  │    └────┴─> values  so are those of {a: []} and {a: undefined}
//!                  └─> does a document hold one? ── a separate query
//! ```

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode};
use sheaf_bson::keystring::KeyStringBuilder;
use sheaf_bson::path::{FieldPath, LeafArrayBehavior, for_each_value};
use sheaf_bson::{ArrayBuf, ArrayBuilder, Collator, ElementType, RawDoc, RawValue, Value, doc};
use sheaf_query::canonical::CanonicalQuery;
use sheaf_query::matcher::{self, MatchExpression, ParseContext};
use sheaf_query::planner::solution::SolutionNode;

use crate::catalog::ReadView;
use crate::exec::key_document::values_of;
use crate::exec::{Member, PlanExecutor, WorkCounts};
use crate::op_context::OpContext;
use crate::planning::{self, PlanDigest, QueryOptions};
use crate::write::document_rules::DOCUMENT_BYTES_MAX;

/// Maximum size of the array of values, which must fit the reply. The array of one value taken from
/// a document is at most one byte longer than that document, and distinct must be able to return
/// any document that a find returns.
const VALUES_BYTES_MAX: usize = DOCUMENT_BYTES_MAX + 16;

/// The result of a distinct, and the work it took.
#[derive(Debug, Default)]
pub struct Distinct {
    /// The values, deduplicated, in BSON order.
    pub values: ArrayBuf,
    /// Work done.
    pub counts: WorkCounts,
    /// The plan used.
    pub plan: PlanDigest,
}

/// Runs a distinct.
pub fn distinct(
    view: &ReadView,
    op: &OpContext,
    key: &FieldPath,
    query: Arc<CanonicalQuery>,
    options: &QueryOptions,
) -> Result<Distinct, Error> {
    let (mut executor, plan) = start(view, op, key, &query, options, false)?;
    let mut values = Values {
        collator: query.collator.clone(),
        by_key: matches!(
            &executor.solution().root,
            SolutionNode::Fetch { child, .. } if matches!(**child, SolutionNode::DistinctScan { .. })
        ),
        ..Values::default()
    };
    let mut looked = WorkCounts::default();
    while let Some(member) = executor.next(op)? {
        match member_values(&member, key, &mut values)? {
            ControlFlow::Continue(()) => {}
            ControlFlow::Break(error) => return Err(error),
        }
        if let Some(doubtful) = values.doubtful.take() {
            let counts = add_if_held(view, op, key, &query, options, doubtful, &mut values)?;
            looked.keys_examined += counts.keys_examined;
            looked.docs_examined += counts.docs_examined;
        }
    }
    let counts = executor.counts();
    Ok(Distinct {
        values: values.sorted(),
        counts: WorkCounts {
            keys_examined: counts.keys_examined + looked.keys_examined,
            docs_examined: counts.docs_examined + looked.docs_examined,
        },
        plan,
    })
}

/// Adds a value whose index key may also represent a missing field or an empty array, if some
/// matching document holds it.
fn add_if_held(
    view: &ReadView,
    op: &OpContext,
    key: &FieldPath,
    query: &CanonicalQuery,
    options: &QueryOptions,
    value: Value,
    values: &mut Values,
) -> Result<WorkCounts, Error> {
    let code = value.element_type() as i32;
    let held = matcher::parse(
        doc! {key.dotted(): {"$type": code}}.as_raw(),
        &ParseContext::default(),
    )?;
    let both = MatchExpression::And(vec![(*query.filter).clone(), held]);
    let query = Arc::new(CanonicalQuery {
        filter: Arc::new(both.normalize()),
        ..query.clone()
    });
    let (mut executor, _) = planning::start(view, op, &query, options)?;
    while let Some(member) = executor.next(op)? {
        let Some(doc) = &member.doc else { continue };
        let found = each_value(doc.as_raw(), key, &mut |one| match one.element_type() {
            found if found == value.element_type() => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        });
        if found.is_break() {
            if let ControlFlow::Break(error) = values.add(value.as_raw()) {
                return Err(error);
            }
            break;
        }
    }
    Ok(executor.counts())
}

/// The distinct values of a path among documents, in BSON order; an array counts as its elements.
/// Errors: 17217 if they are too large for a reply.
pub fn values_of_documents<'d>(
    docs: impl IntoIterator<Item = RawDoc<'d>>,
    key: &FieldPath,
    collator: Option<Arc<Collator>>,
) -> Result<ArrayBuf, Error> {
    let mut values = Values {
        collator,
        ..Values::default()
    };
    for doc in docs {
        if let ControlFlow::Break(error) = document_values(doc, key, &mut values) {
            return Err(error);
        }
    }
    Ok(values.sorted())
}

/// Starts the plan: DISTINCT_SCAN if an index allows it, otherwise the query's own.
pub fn start(
    view: &ReadView,
    op: &OpContext,
    key: &FieldPath,
    query: &Arc<CanonicalQuery>,
    options: &QueryOptions,
    timed: bool,
) -> Result<(PlanExecutor, PlanDigest), Error> {
    let indexes = planning::planning_indexes(view, query, options)?;
    if view.collection.is_some()
        && let Some(solution) =
            sheaf_query::planner::plan_distinct(query, key, &options.params(&indexes, None))?
    {
        let cx = options.build_context(view, query, timed);
        let executor =
            PlanExecutor::new(&cx, vec![solution], options.trial_budget(view, query)?, op)?;
        let plan = PlanDigest::solution(executor.solution());
        return Ok((executor, plan));
    }
    planning::start(view, op, query, options)
}

#[derive(Default)]
struct Values {
    /// Positions in `list`, keyed by the values' KeyStrings, which compare as the values do.
    found: HashMap<Box<[u8]>, usize>,
    key: KeyStringBuilder,
    /// The values in order of occurrence.
    list: ArrayBuilder,
    /// A value whose index key also represents documents without it.
    doubtful: Option<Value>,
    /// Types of such values already checked.
    doubted: Vec<ElementType>,
    /// Collation; `None` for byte order.
    collator: Option<Arc<Collator>>,
    /// Documents are read instead of keys, one per key: an index with a collation lacks the text.
    by_key: bool,
}

impl Values {
    fn add(&mut self, value: RawValue<'_>) -> ControlFlow<Error> {
        self.key.reset();
        self.key.append_with(value, self.collator.as_deref());
        if self.found.contains_key(self.key.as_bytes()) {
            return ControlFlow::Continue(());
        }
        self.found
            .insert(self.key.as_bytes().into(), self.found.len());
        self.list.push(value);
        if self.list.current_len() > VALUES_BYTES_MAX {
            return ControlFlow::Break(Error::new(
                ErrorCode(17217),
                "distinct too big, 16mb cap; use an aggregation with $group instead",
            ));
        }
        ControlFlow::Continue(())
    }

    /// The values in BSON order.
    fn sorted(self) -> ArrayBuf {
        let met = self.list.finish();
        let met: Vec<RawValue<'_>> = met.as_raw().iter().collect();
        debug_assert_eq!(met.len(), self.found.len(), "a value for every KeyString");
        let mut found: Vec<_> = self.found.into_iter().collect();
        found.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let mut sorted = ArrayBuilder::new();
        for (_, position) in found {
            sorted.push(met[position]);
        }
        sorted.finish()
    }
}

fn member_values(
    member: &Member,
    key: &FieldPath,
    values: &mut Values,
) -> Result<ControlFlow<Error>, Error> {
    if let Some(doc) = &member.doc
        && !(values.by_key && has_doubtful_key(member, key)?)
    {
        return Ok(document_values(doc.as_raw(), key, values));
    }
    let Some(index_key) = &member.key else {
        return Ok(ControlFlow::Continue(()));
    };
    let field = index_key.index.fields.iter().position(|f| *f.path == *key);
    let parts = values_of(&index_key.index, &index_key.key, &index_key.type_bits)?;
    Ok(match field.and_then(|at| parts.get(at)) {
        Some(doubtful @ (Value::Null | Value::Undefined)) => {
            if !values.doubted.contains(&doubtful.element_type()) {
                values.doubted.push(doubtful.element_type());
                values.doubtful = Some(doubtful.clone());
            }
            ControlFlow::Continue(())
        }
        Some(value) => values.add(value.as_raw()),
        None => ControlFlow::Continue(()),
    })
}

/// Whether the member's key may represent documents without the value.
fn has_doubtful_key(member: &Member, key: &FieldPath) -> Result<bool, Error> {
    let Some(found) = &member.key else {
        return Ok(false);
    };
    let field = found.index.fields.iter().position(|f| *f.path == *key);
    let parts = values_of(&found.index, &found.key, &found.type_bits)?;
    Ok(matches!(
        field.and_then(|at| parts.get(at)),
        Some(Value::Null | Value::Undefined)
    ))
}

fn document_values(doc: RawDoc<'_>, key: &FieldPath, values: &mut Values) -> ControlFlow<Error> {
    each_value(doc, key, &mut |value| values.add(value))
}

/// Visits the values at the path; an array at its end contributes its elements, not itself.
fn each_value<'d, B>(
    doc: RawDoc<'d>,
    key: &FieldPath,
    visit: &mut dyn FnMut(RawValue<'d>) -> ControlFlow<B>,
) -> ControlFlow<B> {
    for_each_value(doc, key, LeafArrayBehavior::NoTraverse, |item| {
        match item.value() {
            None => ControlFlow::Continue(()),
            Some(RawValue::Array(array)) => array.iter().try_for_each(&mut *visit),
            Some(value) => visit(value),
        }
    })
}
