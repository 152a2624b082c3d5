//! Rounds that query `_id`, with values of several types, where other rounds query `d`.

use sheaf_bson::{ArrayBuf, DocBuf, DocBuilder, RawValue, Value};

use super::collated::with_match;
use super::{Round, Step};

/// Replaces `_id`s by values of several types, and `d` by `_id` in filters, sorts and distincts.
pub(super) fn by_id(mut round: Round) -> Round {
    let inserted = round.steps.iter_mut().filter_map(|step| match step {
        Step::Insert(docs) => Some(docs),
        _ => None,
    });
    for doc in std::iter::once(&mut round.docs).chain(inserted).flatten() {
        *doc = with_mixed_id(doc);
    }
    for step in &mut round.steps {
        ask_by_id(step);
    }
    round
}

pub(super) fn ask_by_id(step: &mut Step) {
    match step {
        Step::Find(query) => {
            query.filter = filter_by_id(&query.filter, false);
            let mut sort = DocBuilder::new();
            let by_id = query.sort.get("_id").is_some();
            for part in query.sort.iter() {
                let path = match part.key() {
                    "d" if !by_id => "_id",
                    path => path,
                };
                sort.append(path, part.value());
            }
            query.sort = sort.finish();
        }
        Step::Distinct { path, filter } => {
            if path == "d" {
                *path = "_id".to_owned();
            }
            *filter = filter_by_id(filter, false);
        }
        Step::Update { filter, .. }
        | Step::Delete { filter, .. }
        | Step::Projected { filter, .. } => {
            *filter = filter_by_id(filter, false);
        }
        Step::Pipeline(stages) => {
            for stage in stages {
                *stage = with_match(stage, |filter| filter_by_id(filter, false));
            }
        }
        Step::By(_, step) => ask_by_id(step),
        Step::Insert(_) => {}
    }
}

/// Maps n to an `_id` of one of four types. Different n map to different `_id`s.
pub(super) fn mixed(n: i32) -> Value {
    match n.rem_euclid(4) {
        0 => Value::Int32(n),
        1 => Value::String(["x", "Y", "z"][n as usize / 4 % 3].repeat(1 + n as usize / 12)),
        2 => Value::DateTime(sheaf_bson::DateTime(i64::from(n))),
        _ => Value::Document(sheaf_bson::doc! {"d": n}),
    }
}

pub(super) fn with_mixed_id(doc: &DocBuf) -> DocBuf {
    let mut out = DocBuilder::new();
    for element in doc.iter() {
        match (element.key(), element.value()) {
            ("_id", RawValue::Int32(n)) => drop(out.append_value("_id", &mixed(n))),
            _ => drop(out.append_raw_element(element)),
        }
    }
    out.finish()
}

/// Moves the predicates on `d` to `_id` and maps their numbers like `_id`s. `operands` is true
/// inside such a predicate.
pub(super) fn filter_by_id(filter: &DocBuf, operands: bool) -> DocBuf {
    let mut out = DocBuilder::new();
    for element in filter.iter() {
        let (name, value) = (element.key(), element.value());
        let is_id = name == "d" && !operands;
        let path = if is_id { "_id" } else { name };
        let of_values = matches!(
            name,
            "$eq" | "$ne" | "$gt" | "$gte" | "$lt" | "$lte" | "$in" | "$nin" | "$all" | "$not"
        );
        let new = match (value, name) {
            (RawValue::Array(clauses), "$and" | "$or" | "$nor") => {
                let clauses = clauses.iter().map(|clause| match clause {
                    RawValue::Document(clause) => {
                        Value::Document(filter_by_id(&clause.to_buf(), operands))
                    }
                    other => other.to_value(),
                });
                Value::Array(ArrayBuf::from_values(&clauses.collect::<Vec<_>>()))
            }
            (RawValue::Document(inner), _)
                if (is_id || operands && of_values)
                    && inner.first().is_some_and(|e| e.key().starts_with('$')) =>
            {
                Value::Document(filter_by_id(&inner.to_buf(), true))
            }
            (RawValue::Int32(n @ 0..), _) if is_id || operands && of_values => mixed(n),
            (RawValue::Array(values), "$in" | "$nin") if operands => {
                let values = values.iter().map(|value| match value {
                    RawValue::Int32(n @ 0..) => mixed(n),
                    other => other.to_value(),
                });
                Value::Array(ArrayBuf::from_values(&values.collect::<Vec<_>>()))
            }
            (value, _) => value.to_value(),
        };
        out.append_value(path, &new);
    }
    out.finish()
}
