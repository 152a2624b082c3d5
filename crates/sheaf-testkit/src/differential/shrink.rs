//! Shrinks a failing round to the parts that it needs to fail.

use sheaf_bson::{DocBuf, DocBuilder};

use crate::model::Query;

use super::{Round, Step};

/// The round without the steps, documents, indexes and fields that it does not need to fail, and
/// the error of that round.
pub(super) fn smaller(
    mut round: Round,
    mut error: String,
    carry_out: &mut dyn FnMut(&Round) -> Result<(), String>,
) -> (Round, String) {
    loop {
        let before = round.clone();
        let mut keep_if_it_fails = |round: &mut Round, without: Round| match carry_out(&without) {
            Ok(()) => false,
            Err(other) => {
                (*round, error) = (without, other);
                true
            }
        };
        // Remove chunks: half, a quarter, ..., one.
        for part in 0..3 {
            let len = |round: &Round| match part {
                0 => round.steps.len(),
                1 => round.docs.len(),
                _ => round.indexes.len(),
            };
            let mut chunk = len(&round).next_power_of_two();
            while chunk > 0 {
                let mut at = 0;
                while at < len(&round) {
                    let mut without = round.clone();
                    let end = (at + chunk).min(len(&round));
                    match part {
                        0 => drop(without.steps.drain(at..end)),
                        1 => drop(without.docs.drain(at..end)),
                        _ => drop(without.indexes.drain(at..end)),
                    }
                    if !keep_if_it_fails(&mut round, without) {
                        at += chunk;
                    }
                }
                chunk /= 2;
            }
        }
        for at in 0..round.steps.len() {
            for simpler in simpler_steps(&round.steps[at]) {
                let mut without = round.clone();
                without.steps[at] = simpler;
                if keep_if_it_fails(&mut round, without) {
                    break;
                }
            }
        }
        for at in 0..round.docs.len() {
            let names: Vec<String> = round.docs[at].iter().map(|e| e.key().to_owned()).collect();
            for name in names.iter().filter(|name| *name != "_id") {
                let mut without = round.clone();
                without.docs[at] = without_field(&round.docs[at], name);
                keep_if_it_fails(&mut round, without);
            }
        }
        let count = |round: &Round| {
            let bytes: usize = round.docs.iter().map(DocBuf::len_bytes).sum();
            let steps = format!("{:?}", round.steps);
            (steps, round.indexes.len(), bytes)
        };
        if count(&before) == count(&round) {
            return (round, error);
        }
    }
}

/// Variants of a step with one part removed, to try in turn.
pub(super) fn simpler_steps(step: &Step) -> Vec<Step> {
    let without_one = |doc: &DocBuf| -> Vec<DocBuf> {
        let names: Vec<String> = doc.iter().map(|e| e.key().to_owned()).collect();
        names.iter().map(|name| without_field(doc, name)).collect()
    };
    match step {
        Step::Find(query) => {
            let empty = DocBuf::new;
            let mut simpler = vec![
                Query {
                    sort: empty(),
                    ..query.clone()
                },
                Query {
                    projection: empty(),
                    ..query.clone()
                },
                Query {
                    skip: 0,
                    ..query.clone()
                },
                Query {
                    limit: 0,
                    ..query.clone()
                },
            ];
            let filters = without_one(&query.filter).into_iter();
            simpler.extend(filters.map(|filter| Query {
                filter,
                ..query.clone()
            }));
            let sorts = without_one(&query.sort).into_iter();
            simpler.extend(sorts.map(|sort| Query {
                sort,
                ..query.clone()
            }));
            simpler.retain(|other| format!("{other:?}") != format!("{query:?}"));
            simpler.into_iter().map(Step::Find).collect()
        }
        Step::By(collation, step) => {
            let inner = simpler_steps(step).into_iter();
            inner
                .map(|step| Step::By(collation.clone(), Box::new(step)))
                .collect()
        }
        Step::Distinct { path, filter } => without_one(filter)
            .into_iter()
            .map(|filter| Step::Distinct {
                path: path.clone(),
                filter,
            })
            .collect(),
        Step::Projected { filter, projection } => without_one(filter)
            .into_iter()
            .map(|filter| Step::Projected {
                filter,
                projection: projection.clone(),
            })
            .collect(),
        Step::Pipeline(stages) => (0..stages.len())
            .map(|at| {
                let mut fewer = stages.clone();
                fewer.remove(at);
                Step::Pipeline(fewer)
            })
            .collect(),
        Step::Update { .. } | Step::Delete { .. } | Step::Insert(_) => Vec::new(),
    }
}

pub(super) fn without_field(doc: &DocBuf, name: &str) -> DocBuf {
    let mut out = DocBuilder::new();
    for element in doc.iter().filter(|element| element.key() != name) {
        out.append_raw_element(element);
    }
    out.finish()
}
