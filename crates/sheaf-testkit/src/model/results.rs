//! Whether what a find gave is one of the answers it may give.
//!
//! Documents that sort alike may come in any order, and which of them a limit
//! leaves out is open; nothing else is.

use sheaf_bson::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::{compare_tuples, matches, project, sort_key};

/// A find as the model understands it.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// Empty matches everything.
    pub filter: DocBuf,
    /// Empty means no order.
    pub sort: DocBuf,
    /// Empty keeps whole documents.
    pub projection: DocBuf,
    /// Documents passed over.
    pub skip: u64,
    /// 0 is no limit.
    pub limit: u64,
}

/// The documents that match.
pub fn matching<'d>(docs: &'d [DocBuf], filter: RawDoc<'_>) -> Vec<&'d DocBuf> {
    docs.iter()
        .filter(|doc| matches(filter, doc.as_raw()))
        .collect()
}

/// How many results there are of so many matches.
pub fn wanted_count(query: &Query, matching: usize) -> usize {
    let after_skip = matching.saturating_sub(query.skip as usize);
    match query.limit {
        0 => after_skip,
        limit => after_skip.min(limit as usize),
    }
}

/// Checks the results of a find over `docs`: `Err` results mean that the query
/// was refused with this code. The error says in words what is wrong.
pub fn check(docs: &[DocBuf], query: &Query, got: Result<&[DocBuf], i32>) -> Result<(), String> {
    check_shown(docs, query, got, &|doc| doc)
}

/// Compares results as `shown` shows them.
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
    let got = got.map_err(|code| format!("refused with code {code}"))?;
    let wanted = wanted_count(query, rows.len());
    if got.len() != wanted {
        return Err(format!(
            "{} results instead of {wanted}; {} match: {found:?}",
            got.len(),
            rows.len()
        ));
    }
    // Without a sort all tuples are empty, and all rows one group.
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
                        "result {} is {doc:?}, which is none of {left:?}",
                        place - query.skip as usize
                    ));
                }
            }
        }
    }
    Ok(())
}

/// As [`check`], for projections out of index keys, which know the values but
/// not the order in which a document has its fields.
pub fn check_in_any_field_order(
    docs: &[DocBuf],
    query: &Query,
    got: Result<&[DocBuf], i32>,
) -> Result<(), String> {
    check_shown(docs, query, got, &|doc| sorted(doc.as_raw()))
}

/// With the fields of the document, and of documents directly within, by name.
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

/// Such a sort is refused with BadValue.
fn parallel_arrays(got: Result<&[DocBuf], i32>, doc: &DocBuf) -> Result<(), String> {
    match got {
        Err(2) => Ok(()),
        other => Err(format!(
            "parallel arrays in {doc:?} should refuse the sort, but: {other:?}"
        )),
    }
}
