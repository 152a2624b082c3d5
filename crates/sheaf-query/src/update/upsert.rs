//! Upserts: builds the document to insert if no document matched.
//!
//! ```text
//!   query {a: 1, "b.c": 2, d: {$gt: 3}}     {a: 1, b: {c: 2}}      the equalities
//!   update {$set: {e: 5}}                   {a: 1, b: {c: 2}, e: 5}
//!   no _id yet                              {_id: ObjectId(...), a: 1, ...}
//! ```

use std::collections::BTreeMap;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::path::is_path_prefix;
use sheaf_bson::{DocBuf, DocBuilder, ObjectId, RawDoc, RawValue, Value};

use crate::matcher::{ComparisonOp, MatchExpression};

use super::{ApplyContext, Form, UpdateDriver, document_rules, pipeline_form, replacement};

/// The values of the query's equalities, by path.
type Equalities<'m> = BTreeMap<&'m str, RawValue<'m>>;

/// The document that the equalities of a query describe, with fields in the order of their paths,
/// `_id` first.
///
/// Errors: NotSingleValueField for two equalities on a path, or on a path and one below it;
/// NotExactValueField for a path below `_id`, unless `_id` may be built from its parts.
pub fn document_from_query(query: &MatchExpression, id_of_parts: bool) -> Result<DocBuf> {
    let mut equalities = Equalities::new();
    collect(query, &mut equalities)?;
    for path in equalities.keys() {
        let mut prefixes = path.match_indices('.').map(|(dot, _)| &path[..dot]);
        if let Some(above) = prefixes.find(|above| equalities.contains_key(above)) {
            return Err(not_single(format!(
                "both paths '{above}' and '{path}' are matched"
            )));
        }
        if !id_of_parts && *path != "_id" && is_path_prefix("_id", path) {
            return Err(Error::new(
                ErrorCode::NOT_EXACT_VALUE_FIELD,
                format!(
                    "the field '_id' must be exactly specified for an upsert, found the sub-path '{path}'"
                ),
            ));
        }
    }
    let mut out = DocBuilder::new();
    if let Some(id) = equalities.remove("_id") {
        out.append("_id", id);
    }
    let of_id = |(path, _): &(&str, RawValue<'_>)| is_path_prefix("_id", path);
    let (id, others): (Vec<_>, Vec<_>) = equalities.into_iter().partition(of_id);
    write_nested(&mut out, &id, 0);
    write_nested(&mut out, &others, 0);
    Ok(out.finish())
}

fn not_single(what: String) -> Error {
    Error::new(
        ErrorCode::NOT_SINGLE_VALUE_FIELD,
        format!("cannot infer query fields to set, {what}"),
    )
}

fn collect<'m>(query: &'m MatchExpression, found: &mut Equalities<'m>) -> Result<()> {
    match query {
        MatchExpression::And(children) => {
            children.iter().try_for_each(|child| collect(child, found))
        }
        // A disjunction with one alternative contributes equalities; one with several does not.
        MatchExpression::Or(children) => match &children[..] {
            [only] => collect(only, found),
            _ => Ok(()),
        },
        MatchExpression::Comparison(comparison) if comparison.op == ComparisonOp::Eq => {
            add(comparison.path.dotted(), comparison.value.as_raw(), found)
        }
        MatchExpression::In(list) if list.regexes.is_empty() => match &list.equalities[..] {
            [only] => add(list.path.dotted(), only.as_raw(), found),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

fn add<'m>(path: &'m str, value: RawValue<'m>, found: &mut Equalities<'m>) -> Result<()> {
    match found.insert(path, value) {
        None => Ok(()),
        Some(_) => Err(not_single(format!("path '{path}' is matched twice"))),
    }
}

/// Writes the values at nested paths, from component `depth` on.
fn write_nested(out: &mut DocBuilder, paths: &[(&str, RawValue<'_>)], depth: usize) {
    let part = |path: &str| path.split('.').nth(depth).unwrap_or("").to_owned();
    let mut rest = paths;
    // Paths with the same parent are not always adjacent ("a.b", "a-c", "a.d"): group by name.
    let mut written: Vec<String> = Vec::new();
    while let Some(((path, value), after)) = rest.split_first() {
        rest = after;
        let name = part(path);
        if written.contains(&name) {
            continue;
        }
        if path.split('.').count() == depth + 1 {
            out.append(&name, *value);
        } else {
            let below: Vec<_> = paths
                .iter()
                .copied()
                .filter(|(p, _)| part(p) == name)
                .collect();
            out.begin_document(&name);
            write_nested(out, &below, depth + 1);
            out.end();
        }
        written.push(name);
    }
}

impl UpdateDriver<'_> {
    /// The document that an upsert inserts: the query's equalities with the update applied, and an
    /// `_id` from `new_id` if there is none. `_id` is the first field.
    ///
    /// Errors: those of [`document_from_query`] and [`UpdateDriver::apply`], and an invalid `_id`.
    pub fn upsert_document(
        &self,
        query: &MatchExpression,
        context: &ApplyContext,
        new_id: impl FnOnce() -> ObjectId,
    ) -> Result<DocBuf> {
        let context = ApplyContext {
            is_insert: true,
            ..*context
        };
        // A replacement is the whole document, so its `_id` must be known exactly.
        let id_of_parts = !matches!(self.form, Form::Replacement(_));
        let from_query = document_from_query(query, id_of_parts)?;
        let new = match &self.form {
            Form::Replacement(replacement) => {
                // Only _id is taken from the query.
                let mut base = DocBuilder::new();
                if let Some(id) = from_query.get_element("_id") {
                    base.append_raw_element(id);
                }
                let base = base.finish();
                replacement::apply(*replacement, base.as_raw(), &context)?.0
            }
            Form::Operators(operators) => {
                let new = operators.apply(from_query.as_raw(), &context)?.0;
                if operators.touches("_id") {
                    document_rules::check_id_unchanged(from_query.as_raw(), new.as_raw())?;
                }
                new
            }
            Form::Pipeline(pipeline) => {
                let new = pipeline_form::apply(pipeline, from_query.as_raw())?.0;
                document_rules::check_id_unchanged(from_query.as_raw(), new.as_raw())?;
                new
            }
        };
        let new = id_first(new.as_raw(), &context, new_id);
        if let Some(id) = new.get("_id") {
            document_rules::check_id(id)?;
        }
        document_rules::check_size(new.as_raw(), document_rules::REPLACEMENT_TOO_LARGE)?;
        Ok(new)
    }
}

/// Makes `_id` the first field, generating one if there is none, and replaces zero timestamps.
fn id_first(doc: RawDoc<'_>, context: &ApplyContext, new_id: impl FnOnce() -> ObjectId) -> DocBuf {
    let mut out = DocBuilder::with_vec(Vec::with_capacity(doc.len_bytes() + 24));
    match doc.get_element("_id") {
        Some(id) => {
            out.append_raw_element(id);
        }
        None => {
            out.append("_id", Value::ObjectId(new_id()).as_raw());
        }
    }
    for element in doc.iter().filter(|e| e.key_bytes() != b"_id") {
        replacement::append_stamped(&mut out, element, context);
    }
    out.finish()
}
