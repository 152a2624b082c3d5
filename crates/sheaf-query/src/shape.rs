//! Query shapes: what similar queries have in common, for the plan cache.
//!
//! ```text
//!   {e: 42, r: {$gt: 10}} sort {s: 1}      an[eq(1:e),gt(1:r),]~sa(1:s)
//!   {e: 7,  r: {$gt: 99}} sort {s: 1}      the same
//!   {e: 7,  r: {$lt: 99}} sort {s: 1}      different
//! ```
//!
//! A shape contains the operators and paths of the normalised filter, the sort, the fields that the
//! projection reads (nothing if it needs whole documents), the part that the remaining stages of a
//! pipeline add, and the collation, but no constants. It is hashed to eight hex digits for explain
//! and the log (`queryHash`, `planCacheShapeHash`). The plan cache key also includes decisions
//! about indexes that depend on constants: a sparse index cannot serve `{a: null}`, a partial index
//! on `{b: {$gt: 5}}` cannot serve `{b: {$gt: 3}}`.
//!
//! Invariant: path names cannot make different shapes equal, because each path is preceded by its
//! length.

use std::fmt::Write;
use std::sync::Arc;

use sheaf_bson::{RawArray, RawValue};

use crate::canonical::{CanonicalQuery, Hint};
use crate::matcher::{BitsOp, ComparisonOp, MatchExpression};
use crate::planner::index_entry::IndexEntry;

/// The shape as text. Use it only for comparison and hashing.
pub fn encode(query: &CanonicalQuery) -> String {
    let mut out = encode_query(query);
    out.push_str(&query.follows);
    out
}

/// The shape of the query without the part that remaining pipeline stages add. Index filters apply
/// to this shape.
pub fn encode_query(query: &CanonicalQuery) -> String {
    let mut out = String::with_capacity(128);
    write_filter(&query.filter, &mut out);
    if let Some(sort) = &query.sort {
        out.push_str("~s");
        for part in &sort.parts {
            out.push(if part.ascending { 'a' } else { 'd' });
            write_path(part.path.dotted(), &mut out);
        }
    }
    if let Some(found) = query.projection.as_ref().and_then(|p| p.dependencies()) {
        out.push_str("|p");
        found
            .paths
            .iter()
            .for_each(|path| write_path(path, &mut out));
    }
    if let Some(collator) = &query.collator {
        out.push_str("#c");
        let collation = collator.collation().to_doc();
        write_path(&sheaf_bson::json::typed_doc(collation.as_raw()), &mut out);
    }
    out
}

/// The hash of the shape; formatted as eight hex digits, it is `queryHash` and
/// `planCacheShapeHash`.
pub fn shape_number(query: &CanonicalQuery) -> u32 {
    hash(encode(query).as_bytes()) as u32
}

/// Eight hex digits: `queryHash`, `planCacheShapeHash`.
pub fn shape_hash(query: &CanonicalQuery) -> String {
    format!("{:08X}", shape_number(query))
}

/// The plan cache key: a hash of the shape and everything else that decides which plans are
/// possible. Its lower half, as eight hex digits, is explain's `planCacheKey`.
pub fn plan_cache_key(query: &CanonicalQuery, indexes: &[Arc<IndexEntry>]) -> u64 {
    hash(plan_cache_text(query, indexes).as_bytes())
}

/// The text that [`plan_cache_key`] hashes. Queries with the same text have the same candidates
/// except for constants.
pub fn plan_cache_text(query: &CanonicalQuery, indexes: &[Arc<IndexEntry>]) -> String {
    let mut text = encode(query);
    crate::planner::write_discriminators(query, indexes, &mut text);
    match &query.hint {
        None => {}
        Some(Hint::Name(name)) => write_path(name, &mut text),
        Some(Hint::KeyPattern(pattern)) => {
            text.push_str(&sheaf_bson::json::typed_doc(pattern.as_raw()))
        }
        Some(Hint::Natural(direction)) => {
            let _ = write!(text, "natural{direction}");
        }
    }
    text.push_str(if query.return_key { "k" } else { "" });
    // The shape contains the fields that a projection reads, but not whether there is a projection.
    text.push_str(if query.projection.is_some() { "p" } else { "" });
    // A limit decides how long a sort blocks, and thereby which plan is best.
    text.push_str(if query.limit.is_some() { "l" } else { "" });
    text
}

fn write_path(path: &str, out: &mut String) {
    out.push('(');
    // Hot path: runs for every predicate in every plan cache lookup.
    match path.len() {
        len @ 0..10 => out.push((b'0' + len as u8) as char),
        len => {
            let _ = write!(out, "{len}");
        }
    }
    out.push(':');
    out.push_str(path);
    out.push(')');
}

fn write_list(name: &str, children: &[MatchExpression], out: &mut String) {
    out.push_str(name);
    out.push('[');
    for child in children {
        write_filter(child, out);
        out.push(',');
    }
    out.push(']');
}

pub(crate) fn write_filter(filter: &MatchExpression, out: &mut String) {
    let name = match filter {
        MatchExpression::And(children) => return write_list("an", children, out),
        MatchExpression::Or(children) => return write_list("or", children, out),
        MatchExpression::Nor(children) => return write_list("nr", children, out),
        MatchExpression::Not(child) => {
            return write_list("nt", std::slice::from_ref(child), out);
        }
        MatchExpression::ElemMatchObject { path, child } => {
            write_path(path.dotted(), out);
            return write_list("eo", std::slice::from_ref(child), out);
        }
        MatchExpression::ElemMatchValue { path, children } => {
            write_path(path.dotted(), out);
            return write_list("ev", children, out);
        }
        MatchExpression::Expr(bound) => {
            out.push_str("xp");
            return write_expression(bound.spec(), out);
        }
        MatchExpression::JsonSchema(schema) => {
            let spec = sheaf_bson::json::typed_doc(schema.spec());
            out.push_str("js");
            return write_path(&spec, out);
        }
        MatchExpression::AlwaysTrue => return out.push_str("at"),
        MatchExpression::AlwaysFalse => return out.push_str("af"),
        MatchExpression::Comparison(c) => match c.op {
            ComparisonOp::Eq => "eq",
            ComparisonOp::Lte => "le",
            ComparisonOp::Lt => "lt",
            ComparisonOp::Gt => "gt",
            ComparisonOp::Gte => "ge",
        },
        MatchExpression::ExprComparison(c) => match c.op {
            ComparisonOp::Eq => "xeq",
            ComparisonOp::Lte => "xle",
            ComparisonOp::Lt => "xlt",
            ComparisonOp::Gt => "xgt",
            ComparisonOp::Gte => "xge",
        },
        MatchExpression::In(list) if list.regexes.is_empty() => "in",
        MatchExpression::In(_) => "inre",
        // A pattern with a prefix has tight bounds, one without has none.
        MatchExpression::Regex(regex) => match regex.compiled.prefix() {
            Some(found) if found.exact => "rex",
            Some(_) => "rep",
            None => "re",
        },
        MatchExpression::Mod { .. } => "mo",
        MatchExpression::Exists { .. } => "ex",
        MatchExpression::Type { .. } => "ty",
        MatchExpression::Size { .. } => "sz",
        MatchExpression::Bits(bits) => match bits.op {
            BitsOp::AllSet => "bas",
            BitsOp::AllClear => "bac",
            BitsOp::AnySet => "bns",
            BitsOp::AnyClear => "bnc",
        },
    };
    out.push_str(name);
    write_path(filter.path().map_or("", |path| path.dotted()), out);
}

/// Writes the operators, fields and variables of an expression. No plan depends on its constants:
/// the predicates that plans use are separate comparisons in the filter.
fn write_expression(expression: RawValue<'_>, out: &mut String) {
    let list = |array: RawArray<'_>, out: &mut String| {
        out.push('[');
        for element in array {
            write_expression(element, out);
        }
        out.push(']');
    };
    match expression {
        RawValue::Document(doc) => {
            out.push('{');
            for element in doc.iter() {
                write_path(element.key(), out);
                write_expression(element.value(), out);
            }
            out.push('}');
        }
        RawValue::Array(array) => list(array, out),
        RawValue::String(path) if path.starts_with('$') => write_path(path, out),
        _ => out.push('?'),
    }
}

/// FNV-1a with a finalizer, so that every bit of the result depends on the whole input. Implemented
/// here because its values appear in logs and must be stable.
pub fn hash(bytes: &[u8]) -> u64 {
    let mut state = 0xcbf2_9ce4_8422_2325u64;
    for byte in bytes {
        state ^= u64::from(*byte);
        state = state.wrapping_mul(0x0000_0100_0000_01b3);
    }
    state ^= state >> 32;
    state = state.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    state ^ (state >> 29)
}
