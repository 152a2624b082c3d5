//! Serializes a filter to a document, in the form that explain prints.
//!
//! ```text
//!   Comparison e = 42            {e: {$eq: 42}}
//!   And[e = 42, r > 10]          {$and: [{e: {$eq: 42}}, {r: {$gt: 10}}]}
//!   Not(a = 3)                   {a: {$not: {$eq: 3}}}
//!   Not(And[a > 1, a < 5])       {$nor: [{$and: [{a: {$gt: 1}}, {a: {$lt: 5}}]}]}
//!   ElemMatchObject a (b = 1)    {a: {$elemMatch: {b: {$eq: 1}}}}
//!   And[]                        {}
//! ```
//!
//! Parsing the result yields the same predicate.

use sheaf_bson::{DocBuf, DocBuilder, RawValue};

use super::{MatchExpression, RegexMatch};

impl MatchExpression {
    /// The filter as a document; see the module.
    pub fn serialize(&self) -> DocBuf {
        let mut out = DocBuilder::new();
        write_filter(self, &mut out);
        out.finish()
    }
}

/// Appends the fields of this filter to the open document.
fn write_filter(expression: &MatchExpression, out: &mut DocBuilder) {
    match expression {
        MatchExpression::And(children) if children.is_empty() => {}
        MatchExpression::And(children) => write_list("$and", children, out),
        MatchExpression::Or(children) => write_list("$or", children, out),
        MatchExpression::Nor(children) => write_list("$nor", children, out),
        MatchExpression::Not(child) => match child.path() {
            Some(path) => {
                out.begin_document(path.dotted()).begin_document("$not");
                write_operator(child, out);
                out.end().end();
            }
            None => write_list("$nor", std::slice::from_ref(child), out),
        },
        MatchExpression::Expr(bound) => {
            match bound.where_function() {
                Some(function) => out.append("$where", function),
                None => out.append("$expr", bound.spec()),
            };
        }
        MatchExpression::JsonSchema(schema) => {
            out.append("$jsonSchema", RawValue::Document(schema.spec()));
        }
        MatchExpression::AlwaysTrue => {
            out.append("$alwaysTrue", 1);
        }
        MatchExpression::AlwaysFalse => {
            out.append("$alwaysFalse", 1);
        }
        leaf => {
            out.begin_document(leaf.path().map_or("", |path| path.dotted()));
            write_operator(leaf, out);
            out.end();
        }
    }
}

fn write_list(name: &str, children: &[MatchExpression], out: &mut DocBuilder) {
    out.begin_array(name);
    for child in children {
        out.push_begin_document();
        write_filter(child, out);
        out.end();
    }
    out.end();
}

/// Appends operators to one document. A document has only one `$regex` with `$options`, so several
/// patterns are written as `$in` with one element each.
fn write_operators(children: &[MatchExpression], out: &mut DocBuilder) {
    let is_regex = |child: &&MatchExpression| matches!(child, MatchExpression::Regex(_));
    let one_regex = children.iter().filter(is_regex).count() <= 1;
    for child in children {
        match child {
            MatchExpression::Regex(regex) if !one_regex => {
                out.begin_array("$in");
                out.push(RawValue::Regex {
                    pattern: &regex.pattern,
                    options: &regex.options,
                });
                out.end();
            }
            _ => write_operator(child, out),
        }
    }
}

/// Appends the operator under a path, such as `$gt: 3`, to the open document.
fn write_operator(expression: &MatchExpression, out: &mut DocBuilder) {
    match expression {
        MatchExpression::Comparison(c) => {
            out.append_value(c.op.name(), &c.value);
        }
        MatchExpression::ExprComparison(c) => {
            out.append_value(c.name(), &c.value);
        }
        MatchExpression::In(list) => {
            out.begin_array("$in");
            for value in list.equalities.iter() {
                out.push_value(value);
            }
            for regex in &list.regexes {
                out.push(RawValue::Regex {
                    pattern: &regex.pattern,
                    options: &regex.options,
                });
            }
            out.end();
        }
        MatchExpression::Regex(RegexMatch {
            pattern, options, ..
        }) => {
            out.append("$regex", &**pattern);
            if !options.is_empty() {
                out.append("$options", &**options);
            }
        }
        MatchExpression::Mod {
            divisor, remainder, ..
        } => {
            out.begin_array("$mod");
            out.push(*divisor).push(*remainder);
            out.end();
        }
        MatchExpression::Exists { .. } => {
            out.append("$exists", true);
        }
        MatchExpression::Type { types, .. } => {
            out.begin_array("$type");
            if types.has_number_alias() {
                out.push("number");
            }
            for single in types.single_types() {
                out.push(single.type_code());
            }
            out.end();
        }
        MatchExpression::Size { size, .. } => {
            match i32::try_from(*size) {
                Ok(size) => out.append("$size", size),
                Err(_) => out.append("$size", *size),
            };
        }
        MatchExpression::ElemMatchObject { child, .. } => {
            out.begin_document("$elemMatch");
            write_filter(child, out);
            out.end();
        }
        MatchExpression::ElemMatchValue { children, .. } => {
            out.begin_document("$elemMatch");
            write_operators(children, out);
            if children.is_empty() {
                // An empty document would match only elements that are documents.
                out.begin_array("$nin").end();
            }
            out.end();
        }
        MatchExpression::Bits(bits) => {
            out.begin_array(bits.op.name());
            for position in bits.positions.iter() {
                out.push(*position as i32);
            }
            out.end();
        }
        // Only operators on elements have these without a path.
        MatchExpression::Not(child) => {
            out.begin_document("$not");
            write_operator(child, out);
            out.end();
        }
        MatchExpression::And(children) => write_operators(children, out),
        MatchExpression::AlwaysFalse => {
            out.begin_array("$in").end();
        }
        MatchExpression::AlwaysTrue => {
            out.begin_array("$nin").end();
        }
        // Operators on elements contain no lists and no $expr.
        MatchExpression::Or(_)
        | MatchExpression::Nor(_)
        | MatchExpression::Expr(_)
        | MatchExpression::JsonSchema(_) => {}
    }
}
