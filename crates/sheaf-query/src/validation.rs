//! Reports why a document fails a validator, in the form of `errInfo.details`.
//!
//! ```text
//!   {a: {$gt: 3}, $or: [{b: 1}, {c: 1}]}   on {a: 1, b: 2}
//!
//!   {operatorName: "$and", clausesNotSatisfied: [
//!      {index: 0, details: {operatorName: "$gt", specifiedAs: {a: {$gt: 3}}, reason: "comparison failed",
//!                           consideredValue: 1}},
//!      {index: 1, details: {operatorName: "$or", clausesNotSatisfied: [..]}}]}
//! ```
//!
//! Below `$not` and `$nor`, details explain why a condition matched: reasons and names are
//! inverted. The validator is used in its original form and its clauses are matched individually;
//! this code only runs after a document has failed.

use std::ops::ControlFlow;

use sheaf_bson::path::{FieldPath, LeafArrayBehavior, for_each_value};
use sheaf_bson::{DocBuf, DocBuilder, Error, RawDoc, RawElement, RawValue};

use crate::expression::BoundExpression;
use crate::matcher::{ParseContext, parse};
use crate::schema::JsonSchema;

/// Maximum nesting depth of details, as for a schema.
const DEPTH_MAX: usize = 40;
/// Maximum size of details, in bytes; larger details omit the values of the document.
const BYTES_MAX: usize = 4 << 20;

/// Reports why the document does not match the filter. `context` must be the one with which the
/// filter was parsed.
///
/// Errors: those of matching.
pub fn failure_details(
    filter: RawDoc<'_>,
    context: &ParseContext,
    doc: RawDoc<'_>,
) -> Result<DocBuf, Error> {
    let told = tell(filter, context, doc, true)?;
    if told.as_bytes().len() <= BYTES_MAX {
        return Ok(told);
    }
    let told = tell(filter, context, doc, false)?;
    if told.as_bytes().len() <= BYTES_MAX {
        return Ok(told);
    }
    let mut out = DocBuilder::new();
    out.append("reason", "the details are too large to be returned");
    Ok(out.finish())
}

fn tell(
    filter: RawDoc<'_>,
    context: &ParseContext,
    doc: RawDoc<'_>,
    values: bool,
) -> Result<DocBuf, Error> {
    let teller = Teller {
        context,
        doc,
        values,
    };
    let mut out = DocBuilder::new();
    teller.filter(filter, false, 0, &mut out)?;
    Ok(out.finish())
}

/// One condition of a filter, as a separate filter.
struct Clause {
    alone: DocBuf,
}

/// The conditions of a filter, in order.
fn clauses(filter: RawDoc<'_>) -> Vec<Clause> {
    let mut found = Vec::new();
    for element in filter {
        match element.value() {
            _ if element.key() == "$comment" => {}
            RawValue::Document(operators)
                if !element.key().starts_with('$') && is_operators(operators) =>
            {
                found.extend(operators_of(element.key(), operators));
            }
            _ => {
                let mut alone = DocBuilder::new();
                alone.append_raw_element(element);
                found.push(Clause {
                    alone: alone.finish(),
                });
            }
        }
    }
    found
}

fn is_operators(doc: RawDoc<'_>) -> bool {
    let dollar = doc.first().is_some_and(|e| e.key().starts_with('$'));
    dollar && !(doc.get("$ref").is_some() && doc.get("$id").is_some())
}

/// Splits `{a: {$gt: 1, $lt: 5}}` into two conditions; `$options` belongs to its `$regex`.
fn operators_of(path: &str, operators: RawDoc<'_>) -> Vec<Clause> {
    let own = |operator: &RawElement<'_>| operator.key() != "$options";
    let clause = |operator: RawElement<'_>| {
        let mut alone = DocBuilder::new();
        alone.begin_document(path);
        alone.append_raw_element(operator);
        if operator.key() == "$regex"
            && let Some(options) = operators.get("$options")
        {
            alone.append("$options", options);
        }
        alone.end();
        Clause {
            alone: alone.finish(),
        }
    };
    operators.iter().filter(own).map(clause).collect()
}

struct Teller<'t> {
    context: &'t ParseContext,
    doc: RawDoc<'t>,
    values: bool,
}

impl Teller<'_> {
    fn matches(&self, filter: RawDoc<'_>) -> Result<bool, Error> {
        parse(filter, self.context)?.matches(self.doc)
    }

    /// Writes why the filter is not satisfied; if `turned`, why it is.
    fn filter(
        &self,
        filter: RawDoc<'_>,
        turned: bool,
        depth: usize,
        out: &mut DocBuilder,
    ) -> Result<(), Error> {
        let clauses = clauses(filter);
        if let [only] = clauses.as_slice() {
            return self.clause(only.alone.as_raw(), turned, depth, out);
        }
        let alone = clauses.iter().map(|clause| clause.alone.as_raw());
        self.list("$and", alone, turned, turned, depth, out)
    }

    /// Writes the conditions of a list that are satisfied, or those that are not.
    fn list<'f>(
        &self,
        name: &str,
        clauses: impl Iterator<Item = RawDoc<'f>>,
        satisfied: bool,
        turned: bool,
        depth: usize,
        out: &mut DocBuilder,
    ) -> Result<(), Error> {
        out.append("operatorName", name);
        out.begin_array(match satisfied {
            true => "clausesSatisfied",
            false => "clausesNotSatisfied",
        });
        for (index, clause) in clauses.enumerate() {
            if depth >= DEPTH_MAX || self.matches(clause)? != satisfied {
                continue;
            }
            out.push_begin_document();
            out.append("index", index as i32);
            out.begin_document("details");
            self.filter(clause, turned, depth + 1, out)?;
            out.end();
            out.end();
        }
        out.end();
        Ok(())
    }

    fn clause(
        &self,
        clause: RawDoc<'_>,
        turned: bool,
        depth: usize,
        out: &mut DocBuilder,
    ) -> Result<(), Error> {
        let Some(element) = clause.first() else {
            return Ok(());
        };
        let (name, value) = (element.key(), element.value());
        match (name, value) {
            ("$and" | "$or", RawValue::Array(list)) => {
                let filters = list.iter().filter_map(|value| value.as_document());
                self.list(name, filters, turned, turned, depth, out)
            }
            ("$nor", RawValue::Array(list)) => {
                let filters = list.iter().filter_map(|value| value.as_document());
                self.list(name, filters, !turned, !turned, depth, out)
            }
            ("$jsonSchema", RawValue::Document(spec)) if !turned => {
                JsonSchema::parse(spec, &|| Ok(()))?.explain(self.doc, self.values, out)
            }
            ("$jsonSchema", _) => {
                told(name, clause, "schema matched", out);
                Ok(())
            }
            ("$expr", spec) => self.expression(clause, spec, turned, out),
            (name, _) if name.starts_with('$') => {
                told(name, clause, constant_reason(turned), out);
                Ok(())
            }
            (path, RawValue::Document(operators)) if is_operators(operators) => {
                self.operator(path, operators, clause, turned, depth, out)
            }
            (path, RawValue::Regex { .. }) => self.leaf("$regex", path, clause, turned, out),
            (path, _) => self.leaf("$eq", path, clause, turned, out),
        }
    }

    fn expression(
        &self,
        clause: RawDoc<'_>,
        spec: RawValue<'_>,
        turned: bool,
        out: &mut DocBuilder,
    ) -> Result<(), Error> {
        let reason = match turned {
            true => "expression did match",
            false => "expression did not match",
        };
        told("$expr", clause, reason, out);
        let bound = BoundExpression::parse(spec, &self.context.variables)?;
        let result = bound.expression().evaluate_on(self.doc)?;
        if let Some(result) = result.as_raw().filter(|_| self.values) {
            out.append("expressionResult", result);
        }
        Ok(())
    }

    fn operator(
        &self,
        path: &str,
        operators: RawDoc<'_>,
        clause: RawDoc<'_>,
        turned: bool,
        depth: usize,
        out: &mut DocBuilder,
    ) -> Result<(), Error> {
        let Some(operator) = operators.first() else {
            return Ok(());
        };
        match (operator.key(), operator.value()) {
            ("$not", inner) if depth < DEPTH_MAX => {
                let mut positive = DocBuilder::new();
                positive.append(path, inner);
                let positive = positive.finish();
                out.append("operatorName", "$not");
                out.begin_document("details");
                self.filter(positive.as_raw(), !turned, depth + 1, out)?;
                out.end();
                Ok(())
            }
            (name, _) => self.leaf(name, path, clause, turned, out),
        }
    }

    /// Writes `{operatorName, specifiedAs, reason, consideredValue}` of a condition on one path.
    fn leaf(
        &self,
        name: &str,
        path: &str,
        clause: RawDoc<'_>,
        turned: bool,
        out: &mut DocBuilder,
    ) -> Result<(), Error> {
        let values = self.considered(name, path);
        let asks_for_presence = name == "$exists";
        if values.is_empty() && !turned && !asks_for_presence && !is_negative(name) {
            told(name, clause, "field was missing", out);
            return Ok(());
        }
        told(name, clause, reason(name, clause, path, turned), out);
        if !self.values || asks_for_presence {
            return Ok(());
        }
        match values.as_slice() {
            [] => {}
            [only] => {
                out.append("consideredValue", *only);
            }
            several => {
                out.begin_array("consideredValues");
                for value in several {
                    out.push(*value);
                }
                out.end();
            }
        }
        if name == "$type" {
            match values.as_slice() {
                [] => {}
                [only] => {
                    out.append("consideredType", only.type_name());
                }
                several => {
                    out.begin_array("consideredTypes");
                    for value in several {
                        out.push(value.type_name());
                    }
                    out.end();
                }
            }
        }
        Ok(())
    }

    /// The values that the operator tested.
    fn considered(&self, name: &str, path: &str) -> Vec<RawValue<'_>> {
        let Ok(path) = FieldPath::parse_lenient(path) else {
            return Vec::new();
        };
        let leaf = match name {
            "$size" | "$elemMatch" | "$exists" | "$all" => LeafArrayBehavior::NoTraverse,
            _ => LeafArrayBehavior::Traverse,
        };
        let mut values = Vec::new();
        let _: ControlFlow<()> = for_each_value(self.doc, &path, leaf, |item| {
            values.extend(item.value());
            ControlFlow::Continue(())
        });
        values
    }
}

/// Whether a missing field satisfies the operator.
fn is_negative(name: &str) -> bool {
    matches!(name, "$ne" | "$nin")
}

fn told(name: &str, clause: RawDoc<'_>, reason: &str, out: &mut DocBuilder) {
    out.append("operatorName", name);
    out.append("specifiedAs", RawValue::Document(clause));
    out.append("reason", reason);
}

fn constant_reason(turned: bool) -> &'static str {
    match turned {
        true => "expression always evaluates to true",
        false => "expression always evaluates to false",
    }
}

fn reason(name: &str, clause: RawDoc<'_>, path: &str, turned: bool) -> &'static str {
    let (failed, succeeded) = match name {
        "$eq" | "$gt" | "$gte" | "$lt" | "$lte" => ("comparison failed", "comparison succeeded"),
        "$ne" => ("comparison succeeded", "comparison failed"),
        "$in" => (
            "no matching value found in array",
            "matching value found in array",
        ),
        "$nin" => (
            "matching value found in array",
            "no matching value found in array",
        ),
        "$type" => ("type did not match", "type did match"),
        "$regex" => (
            "regular expression did not match",
            "regular expression did match",
        ),
        "$mod" => (
            "$mod did not evaluate to expected remainder",
            "$mod did evaluate to expected remainder",
        ),
        "$size" => (
            "array length was not equal to given size",
            "array length was equal to given size",
        ),
        "$elemMatch" => (
            "array did not satisfy the child predicate",
            "array did satisfy the child predicate",
        ),
        "$all" => (
            "array did not contain all specified values",
            "array did contain all specified values",
        ),
        "$exists" => {
            let operators = clause.get(path).and_then(|value| value.as_document());
            let wanted = operators
                .and_then(|operators| operators.get("$exists"))
                .is_some_and(|value| value.is_truthy());
            match wanted {
                true => ("path does not exist", "path does exist"),
                false => ("path does exist", "path does not exist"),
            }
        }
        _ => ("operator failed to match", "operator matched"),
    };
    match turned {
        true => succeeded,
        false => failed,
    }
}

/// The name of a condition in a parsed filter that validators do not allow, if any: one that needs
/// an index, or that depends on more than the document.
pub fn not_in_validators(filter: RawDoc<'_>) -> Option<&'static str> {
    const REFUSED: [&str; 7] = [
        "$near",
        "$nearSphere",
        "$geoNear",
        "$text",
        "$where",
        "$function",
        "$_internalJsEmit",
    ];
    for element in filter {
        if let Some(name) = REFUSED.iter().find(|name| **name == element.key()) {
            return Some(name);
        }
        let below = match element.value() {
            RawValue::Document(doc) => not_in_validators(doc),
            RawValue::Array(array) => not_in_validators(array.as_doc()),
            _ => None,
        };
        if below.is_some() {
            return below;
        }
    }
    None
}
