//! Operators that select or order elements of an array: `$firstN`, `$lastN`, `$minN`, `$maxN`,
//! `$sortArray`, `$zip`.

use std::cmp::Ordering;

use sheaf_bson::error_code::Result;
use sheaf_bson::json::shell;
use sheaf_bson::{ArrayBuilder, Collator, RawArray, RawValue, Value, compare_values_with};

use crate::sort::chunks::Chunks;

use super::eval::{EvalContext, EvalValue};
use super::operator::{Operator, is_absent};
use super::ordered_value::OrderedValue;
use super::{Expression, budget, location};

/// Evaluates `{n, input}` and returns what `pick` selects from the array.
fn of_n<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
    pick: impl FnOnce(RawArray<'_>, usize) -> ArrayBuilder,
) -> Result<EvalValue<'e>> {
    let input = args[1].evaluate(ctx)?;
    let n = args[0].evaluate(ctx.holding(budget::heap_bytes(&input))?)?;
    let Some(number) = n.as_raw().filter(|n| n.is_number()) else {
        return Err(operator.error(
            5787902,
            format_args!("requires 'n' to be a number, found: {}", n.type_name()),
        ));
    };
    let n = match number.as_i64_exact() {
        None => {
            return Err(operator.error(
                5787903,
                format_args!("requires 'n' to be an integer, found: {}", shell(number)),
            ));
        }
        Some(n) if n <= 0 => {
            return Err(operator.error(
                5787908,
                format_args!("requires 'n' to be greater than 0, found: {n}"),
            ));
        }
        Some(n) => usize::try_from(n).unwrap_or(usize::MAX),
    };
    match input.as_raw() {
        Some(RawValue::Array(array)) => Ok(Value::Array(pick(array, n).finish()).into()),
        _ => Err(operator.error(
            5788200,
            format_args!(
                "requires 'input' to be an array, found: {}",
                input.type_name()
            ),
        )),
    }
}

pub(super) fn first_n<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    of_n(operator, args, ctx, |array, n| {
        let mut out = ArrayBuilder::new();
        for element in array.elements().take(n) {
            out.push_element(element);
        }
        out
    })
}

pub(super) fn last_n<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    of_n(operator, args, ctx, |array, n| {
        let mut out = ArrayBuilder::new();
        for element in array.elements().skip(array.count().saturating_sub(n)) {
            out.push_element(element);
        }
        out
    })
}

/// The n smallest or largest values that are not null, the most extreme first.
fn best_n<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
    greatest: bool,
) -> Result<EvalValue<'e>> {
    of_n(operator, args, ctx, |array, n| {
        let not_null = |v: &RawValue<'_>| !matches!(v, RawValue::Null | RawValue::Undefined);
        let values = array.iter().filter(not_null);
        let mut values: Vec<_> = values.map(|v| OrderedValue(v, ctx.collator)).collect();
        match greatest {
            true => values.sort_by(|a, b| b.cmp(a)),
            false => values.sort(),
        }
        let mut out = ArrayBuilder::new();
        for value in values.into_iter().take(n) {
            out.push(value.0);
        }
        out
    })
}

pub(super) fn min_n<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    best_n(operator, args, ctx, false)
}

pub(super) fn max_n<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    best_n(operator, args, ctx, true)
}

/// The order of `$sortArray`.
enum ArrayOrder {
    /// `1` and `-1`: by the elements themselves. True is ascending.
    Whole(bool),
    /// By fields of the elements: their paths, and true for ascending.
    Fields(Vec<(Box<str>, bool)>),
}

/// Parses `sortBy`. Errors: 2942505 for a document that is not a valid sort, 2942506 for a number
/// other than 1 and -1, 2942507 for another type.
fn array_order(spec: RawValue<'_>) -> Result<ArrayOrder> {
    let direction = |value: RawValue<'_>| match value.as_i64_exact() {
        Some(1) if value.is_number() => Some(true),
        Some(-1) if value.is_number() => Some(false),
        _ => None,
    };
    match spec {
        RawValue::Document(doc) => {
            let refuse = |why: String| Err(location(2942505, why));
            let mut fields = Vec::new();
            for element in doc {
                let path = element.key();
                let Some(ascending) = direction(element.value()) else {
                    return refuse("The $sort element value must be either 1 or -1".to_owned());
                };
                if path.is_empty() {
                    return refuse("The $sort field cannot be empty".to_owned());
                }
                if path.split('.').any(str::is_empty) {
                    return refuse(format!(
                        "The $sort field is a dotted field but has an empty part: {path}"
                    ));
                }
                fields.push((path.into(), ascending));
            }
            match fields.is_empty() {
                true => refuse(
                    "The $sort pattern is empty when it should be a set of fields.".to_owned(),
                ),
                false => Ok(ArrayOrder::Fields(fields)),
            }
        }
        _ if spec.is_number() => match direction(spec) {
            Some(ascending) => Ok(ArrayOrder::Whole(ascending)),
            None => Err(location(
                2942506,
                "The $sort element value must be either 1 or -1",
            )),
        },
        _ => Err(location(
            2942507,
            "The $sort is invalid: use 1/-1 to sort the whole element, or {field:1/-1} to sort embedded fields",
        )),
    }
}

/// The value of a path, in which a number is a position in an array; null if there is none. Arrays
/// are not traversed.
fn at_path<'a>(value: RawValue<'a>, path: &str) -> RawValue<'a> {
    let mut found = value;
    for name in path.split('.') {
        let next = match found {
            RawValue::Document(doc) => doc.get(name),
            RawValue::Array(array) => name.parse().ok().and_then(|at| array.get(at)),
            _ => None,
        };
        match next {
            Some(next) => found = next,
            None => return RawValue::Null,
        }
    }
    found
}

/// `{input, sortBy}`. The sort is stable. `sortBy` is literal, not an expression.
pub(super) fn parse_sort_array(
    parser: &mut super::parser::Parser<'_>,
    operand: RawValue<'_>,
) -> Result<Expression> {
    static SORT_ARRAY: Operator = Operator {
        name: "$sortArray",
        arity: super::operator::Arity::Exactly(2),
        eval: sort_array,
    };
    let args = super::parser::Arguments::new(
        "$sortArray",
        operand,
        &["input", "sortBy"],
        2942500,
        2942501,
    )?;
    let input = parser.operand(args.required("input", 2942502)?)?;
    let order = args.required("sortBy", 2942503)?;
    array_order(order)?;
    Ok(Expression::Call {
        operator: &SORT_ARRAY,
        args: vec![input, Expression::constant(order.to_value())],
    })
}

fn sort_array<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let input = args[0].evaluate(ctx)?;
    let array = match input.non_null() {
        None => return Ok(EvalValue::NULL),
        Some(RawValue::Array(array)) => array,
        Some(other) => {
            return Err(operator.error(
                2942504,
                format_args!(
                    "requires 'input' to be an array, but it is of type {}",
                    other.type_name()
                ),
            ));
        }
    };
    let order = args[1].evaluate(ctx)?;
    let order = array_order(order.as_raw().unwrap_or(RawValue::Null))?;
    let mut rows = Chunks::default();
    for (at, value) in array.iter().enumerate() {
        budget::step()?;
        rows.push(Row {
            keys: match (&order, value) {
                (ArrayOrder::Whole(_), _) => Vec::new(),
                (ArrayOrder::Fields(fields), RawValue::Document(_)) => {
                    let keys = fields.iter().map(|(path, _)| at_path(value, path));
                    keys.collect()
                }
                (ArrayOrder::Fields(fields), _) => vec![RawValue::Null; fields.len()],
            },
            value,
            at,
            order: &order,
            collator: ctx.collator,
        });
    }
    let mut out = ArrayBuilder::new();
    for row in rows.take() {
        budget::step()?;
        out.push(row.value);
    }
    Ok(Value::Array(out.finish()).into())
}

/// An element with its sort keys.
struct Row<'a> {
    /// The keys by field; empty if elements are sorted by themselves.
    keys: Vec<RawValue<'a>>,
    value: RawValue<'a>,
    /// The position in the input, which makes the sort stable.
    at: usize,
    order: &'a ArrayOrder,
    collator: Option<&'a Collator>,
}

impl Ord for Row<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let compare = |a: RawValue<'_>, b: RawValue<'_>, ascending: bool| {
            let order = compare_values_with(a, b, self.collator);
            if ascending { order } else { order.reverse() }
        };
        match self.order {
            ArrayOrder::Whole(ascending) => compare(self.value, other.value, *ascending),
            ArrayOrder::Fields(fields) => {
                let keys = self.keys.iter().zip(&other.keys);
                let parts = fields.iter().zip(keys);
                parts
                    .map(|((_, ascending), (a, b))| compare(*a, *b, *ascending))
                    .find(|order| order.is_ne())
                    .unwrap_or(Ordering::Equal)
            }
        }
        .then(self.at.cmp(&other.at))
    }
}

impl PartialOrd for Row<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Row<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Row<'_> {}

/// `{inputs: [a, b], useLongestLength, defaults}`: `[[a0, b0], [a1, b1], ...]`.
pub(super) fn parse_zip(
    parser: &mut super::parser::Parser<'_>,
    operand: RawValue<'_>,
) -> Result<Expression> {
    static ZIP: Operator = Operator {
        name: "$zip",
        arity: super::operator::Arity::Exactly(3),
        eval: zip,
    };
    let args = super::parser::Arguments::new(
        "$zip",
        operand,
        &["inputs", "useLongestLength", "defaults"],
        34460,
        34464,
    )?;
    let inputs = match args.required("inputs", 34465)? {
        RawValue::Array(inputs) if inputs.is_empty() => {
            return Err(ZIP.error(34465, "requires at least one input array"));
        }
        RawValue::Array(inputs) => inputs,
        other => {
            return Err(ZIP.error(
                34461,
                format_args!(
                    "requires 'inputs' to be an array, found {}",
                    other.type_name()
                ),
            ));
        }
    };
    let longest = match args.get("useLongestLength") {
        None => false,
        Some(RawValue::Boolean(longest)) => longest,
        Some(other) => {
            return Err(ZIP.error(
                34463,
                format_args!(
                    "requires 'useLongestLength' to be a bool, found {}",
                    other.type_name()
                ),
            ));
        }
    };
    let defaults = match args.get("defaults") {
        None => Expression::Constant(None),
        Some(RawValue::Array(_)) if !longest => {
            return Err(ZIP.error(
                34466,
                "takes 'defaults' only when 'useLongestLength' is true",
            ));
        }
        Some(RawValue::Array(defaults)) if defaults.count() != inputs.count() => {
            return Err(ZIP.error(34467, "requires as many defaults as inputs"));
        }
        Some(RawValue::Array(defaults)) => {
            let parsed = defaults.iter().map(|v| parser.operand(v));
            Expression::Array(parsed.collect::<Result<_>>()?)
        }
        Some(other) => {
            return Err(ZIP.error(
                34462,
                format_args!(
                    "requires 'defaults' to be an array, found {}",
                    other.type_name()
                ),
            ));
        }
    };
    let parsed = inputs.iter().map(|v| parser.operand(v));
    let mut all: Vec<Expression> = vec![Expression::constant(longest), defaults];
    for input in parsed {
        all.push(input?);
    }
    Ok(Expression::Call {
        operator: &ZIP,
        args: all,
    })
}

fn zip<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let longest = args[0].evaluate(ctx)?.is_truthy();
    let mut values = Vec::with_capacity(args.len() - 2);
    let mut held = 0;
    for arg in &args[2..] {
        let value = arg.evaluate(ctx.holding(held)?)?;
        match value.non_null() {
            None => return Ok(EvalValue::NULL),
            Some(RawValue::Array(_)) => {}
            Some(other) => {
                return Err(operator.error(
                    34468,
                    format_args!("requires arrays as inputs, found: {}", shell(other)),
                ));
            }
        }
        held += budget::heap_bytes(&value);
        values.push(value);
    }
    let defaults = match is_absent(&args[1]) {
        true => EvalValue::Missing,
        false => args[1].evaluate(ctx.holding(held)?)?,
    };
    let arrays: Vec<RawArray<'_>> = values
        .iter()
        .filter_map(|v| v.as_raw().and_then(|raw| raw.as_array()))
        .collect();
    let lengths = arrays.iter().map(|a| a.count());
    let rows = match longest {
        true => lengths.max(),
        false => lengths.min(),
    };
    let default = |at: usize| {
        let found = defaults.as_raw().and_then(|d| d.as_array()?.get(at));
        found.unwrap_or(RawValue::Null)
    };
    let mut columns: Vec<_> = arrays.iter().map(|a| a.iter()).collect();
    let mut out = ArrayBuilder::new();
    for _ in 0..rows.unwrap_or(0) {
        let mut row = ArrayBuilder::new();
        for (at, column) in columns.iter_mut().enumerate() {
            row.push(column.next().unwrap_or_else(|| default(at)));
        }
        let row = row.finish();
        out.push(RawValue::Array(row.as_raw()));
        budget::check_value(out.current_len())?;
    }
    Ok(Value::Array(out.finish()).into())
}
