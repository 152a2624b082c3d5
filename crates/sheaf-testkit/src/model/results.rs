//! Whether the results of a find are among the valid ones.
//!
//! Documents with equal sort keys may be in any order, and a limit may leave out any of them.
//! Everything else is determined.

use sheaf_bson::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::{compare_tuples, matches, project, sort_key};

/// A find that the model implements.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// The empty filter matches everything.
    pub filter: DocBuf,
    /// The empty sort leaves the order open.
    pub sort: DocBuf,
    /// The empty projection keeps whole documents.
    pub projection: DocBuf,
    /// Number of documents to skip.
    pub skip: u64,
    /// Maximum number of results; 0 is no limit.
    pub limit: u64,
}

/// The documents that match.
pub fn matching<'d>(docs: &'d [DocBuf], filter: RawDoc<'_>) -> Vec<&'d DocBuf> {
    docs.iter()
        .filter(|doc| matches(filter, doc.as_raw()))
        .collect()
}

/// The number of results of a query that `matching` documents match.
pub fn wanted_count(query: &Query, matching: usize) -> usize {
    let after_skip = matching.saturating_sub(query.skip as usize);
    match query.limit {
        0 => after_skip,
        limit => after_skip.min(limit as usize),
    }
}

/// Checks the results of a find over `docs`. An `Err` result means that the query was rejected with
/// this error code. Errors: a description of what is wrong.
pub fn check(docs: &[DocBuf], query: &Query, got: Result<&[DocBuf], i32>) -> Result<(), String> {
    check_shown(docs, query, got, &|doc| doc)
}

/// As [`check`], comparing documents after `shown` was applied to them.
fn check_shown(
    docs: &[DocBuf],
    query: &Query,
    got: Result<&[DocBuf], i32>,
    shown: &dyn Fn(DocBuf) -> DocBuf,
) -> Result<(), String> {
    let found = matching(docs, query.filter.as_raw());
    let sort = query.sort.as_raw();
    let mut rows = Vec::new();
    for doc in &found {
        match sort_key(sort, doc.as_raw()) {
            Some(tuple) => {
                let projected = project(query.projection.as_raw(), doc.as_raw());
                rows.push((tuple, shown(projected)));
            }
            None => return parallel_arrays(got, doc),
        }
    }
    let got = got.map_err(|code| format!("rejected with error code {code}"))?;
    let wanted = wanted_count(query, rows.len());
    if got.len() != wanted {
        return Err(format!(
            "{} results instead of {wanted}; {} match: {found:?}",
            got.len(),
            rows.len()
        ));
    }
    // Without a sort, all tuples are empty and all rows form one group.
    rows.sort_by(|a, b| compare_tuples(sort, &a.0, &b.0));
    let (mut at, window_end) = (0, query.skip as usize + wanted);
    for group in rows.chunk_by(|a, b| compare_tuples(sort, &a.0, &b.0).is_eq()) {
        let from = at.max(query.skip as usize);
        at += group.len();
        let to = at.min(window_end);
        if from >= to {
            continue;
        }
        let mut left: Vec<&DocBuf> = group.iter().map(|row| &row.1).collect();
        for place in from..to {
            let doc = shown(got[place - query.skip as usize].clone());
            match left.iter().position(|wanted| **wanted == doc) {
                Some(one) => drop(left.swap_remove(one)),
                None => {
                    return Err(format!(
                        "result {} is {doc:?}, expected one of {left:?}",
                        place - query.skip as usize
                    ));
                }
            }
        }
    }
    Ok(())
}

/// As [`check`], for projections from index keys, which do not record the order of the fields in
/// the document.
pub fn check_in_any_field_order(
    docs: &[DocBuf],
    query: &Query,
    got: Result<&[DocBuf], i32>,
) -> Result<(), String> {
    check_shown(docs, query, got, &|doc| sorted(doc.as_raw()))
}

/// Sorts by name the fields of the document, and of documents nested in it without an array
/// between.
fn sorted(doc: RawDoc<'_>) -> DocBuf {
    let mut elements: Vec<_> = doc.iter().collect();
    elements.sort_by_key(|element| element.key());
    let mut out = DocBuilder::new();
    for element in elements {
        match element.value() {
            RawValue::Document(inner) => {
                out.append(element.key(), RawValue::Document(sorted(inner).as_raw()));
            }
            _ => {
                out.append_raw_element(element);
            }
        }
    }
    out.finish()
}

/// A sort over parallel arrays must be rejected with BadValue.
fn parallel_arrays(got: Result<&[DocBuf], i32>, doc: &DocBuf) -> Result<(), String> {
    match got {
        Err(2) => Ok(()),
        other => Err(format!(
            "the sort must be rejected because of parallel arrays in {doc:?}, but the result is {other:?}"
        )),
    }
}
