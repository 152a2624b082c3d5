//! Operators on arrays, and the loops `$map`, `$filter`, `$reduce`.
//!
//! A loop binds the element. If the body uses the element's index, the loop binds that as well: to
//! the name in `arrayIndexAs`, or to `$$IDX`. Bodies that use neither do not pay for it.

use sheaf_bson::error_code::{ErrorCode, Result};
use sheaf_bson::json::shell;
use sheaf_bson::{ArrayBuilder, RawArray, RawValue, Value, values_equal_with};

use super::eval::{EvalContext, EvalValue, pair};
use super::operator::Operator;
use super::parser::{Arguments, Parser};
use super::{Expression, LoopKind, budget, location};

pub(super) fn parse_map(parser: &mut Parser<'_>, operand: RawValue<'_>) -> Result<Expression> {
    let args = Arguments::new(
        "$map",
        operand,
        &["input", "as", "arrayIndexAs", "in"],
        16878,
        16879,
    )?;
    let input = parser.operand(args.required("input", 16880)?)?;
    let body = args.required("in", 16882)?;
    let name = element_name(parser, &args, "$map")?;
    let (body, indexed) = loop_body(parser, &args, "$map", &[name], body)?;
    Ok(looped(LoopKind::Map, input, None, body, indexed))
}

pub(super) fn parse_filter(parser: &mut Parser<'_>, operand: RawValue<'_>) -> Result<Expression> {
    let args = Arguments::new(
        "$filter",
        operand,
        &["input", "as", "arrayIndexAs", "cond", "limit"],
        28646,
        28647,
    )?;
    let input = parser.operand(args.required("input", 28648)?)?;
    let body = args.required("cond", 28650)?;
    let limit = match args.get("limit") {
        Some(limit) => Some(parser.operand(limit)?),
        None => None,
    };
    let name = element_name(parser, &args, "$filter")?;
    let (body, indexed) = loop_body(parser, &args, "$filter", &[name], body)?;
    Ok(looped(LoopKind::Filter, input, limit, body, indexed))
}

pub(super) fn parse_reduce(parser: &mut Parser<'_>, operand: RawValue<'_>) -> Result<Expression> {
    let args = Arguments::new(
        "$reduce",
        operand,
        &["input", "initialValue", "arrayIndexAs", "in"],
        40075,
        40076,
    )?;
    let input = parser.operand(args.required("input", 40077)?)?;
    let initial = parser.operand(args.required("initialValue", 40078)?)?;
    let body = args.required("in", 40079)?;
    let (body, indexed) = loop_body(parser, &args, "$reduce", &["value", "this"], body)?;
    Ok(looped(
        LoopKind::Reduce,
        input,
        Some(initial),
        body,
        indexed,
    ))
}

/// The variable name in an argument; `None` if the argument is absent. Errors: not a string, or not
/// a valid name.
fn variable_name<'a>(
    parser: &Parser<'_>,
    args: &Arguments<'a>,
    operator: &str,
    argument: &str,
) -> Result<Option<&'a str>> {
    match args.get(argument) {
        None => Ok(None),
        Some(RawValue::String(name)) => {
            parser.check_name(name)?;
            Ok(Some(name))
        }
        Some(other) => Err(location(
            ErrorCode::FAILED_TO_PARSE.0,
            format!(
                "{operator}: '{argument}' must be a string, not {}",
                other.type_name()
            ),
        )),
    }
}

fn element_name<'a>(parser: &Parser<'_>, args: &Arguments<'a>, operator: &str) -> Result<&'a str> {
    Ok(variable_name(parser, args, operator, "as")?.unwrap_or("this"))
}

/// Parses the body of a loop with `names` bound. The flag reports whether the element's index is
/// bound after them.
fn loop_body(
    parser: &mut Parser<'_>,
    args: &Arguments<'_>,
    operator: &str,
    names: &[&str],
    body: RawValue<'_>,
) -> Result<(Expression, bool)> {
    let index = variable_name(parser, args, operator, "arrayIndexAs")?;
    if index.is_some_and(|index| names.contains(&index)) {
        return Err(location(
            ErrorCode::FAILED_TO_PARSE.0,
            format!("{operator}: 'arrayIndexAs' must not name a variable that is bound already"),
        ));
    }
    let index = index.or_else(|| mentions(body, "$$IDX").then_some("IDX"));
    let Some(index) = index else {
        return Ok((parser.with_locals(names, body)?, false));
    };
    let names: Vec<&str> = names.iter().copied().chain([index]).collect();
    Ok((parser.with_locals(&names, body)?, true))
}

/// Whether a string anywhere in `value` is this variable or a path into it. Recursion is bounded by
/// the nesting limit of documents.
fn mentions(value: RawValue<'_>, variable: &str) -> bool {
    match value {
        RawValue::String(text) => text
            .strip_prefix(variable)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.')),
        RawValue::Document(doc) => doc.iter().any(|e| mentions(e.value(), variable)),
        RawValue::Array(array) => array.iter().any(|v| mentions(v, variable)),
        _ => false,
    }
}

fn looped(
    kind: LoopKind,
    input: Expression,
    extra: Option<Expression>,
    body: Expression,
    indexed: bool,
) -> Expression {
    Expression::Loop {
        kind,
        input: Box::new(input),
        extra: extra.map(Box::new),
        body: Box::new(body),
        indexed,
    }
}

/// The array element at the position that `pick` returns, still borrowed if the operand is.
fn element_of<'e>(
    value: EvalValue<'e>,
    pick: impl FnOnce(RawArray<'_>) -> Option<usize>,
) -> EvalValue<'e> {
    match value {
        EvalValue::Raw(RawValue::Array(array)) => pick(array).and_then(|at| array.get(at)).into(),
        EvalValue::Owned(Value::Array(array)) => {
            let array = array.as_raw();
            match pick(array).and_then(|at| array.get(at)) {
                Some(found) => EvalValue::Owned(found.to_value()),
                None => EvalValue::Missing,
            }
        }
        _ => EvalValue::Missing,
    }
}

fn int32(value: RawValue<'_>) -> Option<i32> {
    value.as_i64_exact().and_then(|n| i32::try_from(n).ok())
}

/// The position of an index that counts from the end if negative; `None` if before the start.
fn position(index: i64, array: RawArray<'_>) -> Option<usize> {
    match usize::try_from(index) {
        Ok(at) => Some(at),
        Err(_) => array.count().checked_sub(index.unsigned_abs() as usize),
    }
}

pub(super) fn array_elem_at<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let (array, index) = pair(args, ctx)?;
    let (Some(found), Some(index)) = (array.non_null(), index.non_null()) else {
        return Ok(EvalValue::NULL);
    };
    if !matches!(found, RawValue::Array(_)) {
        return Err(operator.error(
            28689,
            format_args!(
                "takes an array as its first argument, not {}",
                found.type_name()
            ),
        ));
    }
    if !index.is_number() {
        return Err(operator.error(
            28690,
            format_args!(
                "takes a number as its second argument, not {}",
                index.type_name()
            ),
        ));
    }
    let Some(index) = int32(index) else {
        return Err(operator.error(
            28691,
            format_args!(
                "takes a 32-bit integer as its second argument, not {}",
                shell(index)
            ),
        ));
    };
    Ok(element_of(array, |array| position(i64::from(index), array)))
}

fn end<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
    index: i64,
) -> Result<EvalValue<'e>> {
    let value = args[0].evaluate(ctx)?;
    match value.non_null() {
        None => Ok(EvalValue::NULL),
        Some(RawValue::Array(_)) => Ok(element_of(value, |array| position(index, array))),
        Some(other) => Err(operator.error(
            28689,
            format_args!("takes an array, not {}", other.type_name()),
        )),
    }
}

pub(super) fn first<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    end(operator, args, ctx, 0)
}

pub(super) fn last<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    end(operator, args, ctx, -1)
}

/// The length. Unlike in most operators, null and missing are errors.
pub(super) fn size<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let value = args[0].evaluate(ctx)?;
    match value.as_raw() {
        Some(RawValue::Array(array)) => Ok(Value::Int32(array.count() as i32).into()),
        _ => Err(operator.error(
            17124,
            format_args!("takes an array, but was given: {}", value.type_name()),
        )),
    }
}

pub(super) fn in_array<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let (wanted, array) = pair(args, ctx)?;
    match array.as_raw() {
        Some(RawValue::Array(array)) => Ok(match wanted.as_raw() {
            None => false.into(),
            Some(wanted) => array
                .iter()
                .any(|v| values_equal_with(v, wanted, ctx.collator))
                .into(),
        }),
        _ => Err(operator.error(
            40081,
            format_args!(
                "takes an array as its second argument, found: {}",
                array.type_name()
            ),
        )),
    }
}

pub(super) fn index_of_array<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let array = args[0].evaluate(ctx)?;
    let ctx = ctx.holding(budget::heap_bytes(&array))?;
    let array = match array.non_null() {
        None => return Ok(EvalValue::NULL),
        Some(RawValue::Array(array)) => array,
        Some(other) => {
            return Err(operator.error(
                40090,
                format_args!(
                    "takes an array as its first argument, found: {}",
                    other.type_name()
                ),
            ));
        }
    };
    let wanted = args[1].evaluate(ctx)?;
    let bound = |at: usize, default: usize| -> Result<usize> {
        let Some(arg) = args.get(at) else {
            return Ok(default);
        };
        let value = arg.evaluate(ctx)?;
        match value.as_raw().and_then(int32) {
            Some(n) if n >= 0 => Ok(n as usize),
            Some(n) => Err(operator.error(
                9711601,
                format_args!("requires bounds that are not negative, found: {n}"),
            )),
            None => Err(operator.error(
                9711600,
                format_args!("takes integral bounds, found: {}", value.type_name()),
            )),
        }
    };
    let (from, to) = (bound(2, 0)?, bound(3, usize::MAX)?);
    let found = wanted.as_raw().and_then(|wanted| {
        array
            .iter()
            .enumerate()
            .skip(from)
            .take_while(|(at, _)| *at < to)
            .find(|(_, v)| values_equal_with(*v, wanted, ctx.collator))
    });
    Ok(Value::Int32(found.map_or(-1, |(at, _)| at as i32)).into())
}

pub(super) fn concat_arrays<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let mut out = ArrayBuilder::new();
    for arg in args {
        let value = arg.evaluate(ctx.holding(out.current_len())?)?;
        match value.non_null() {
            None => return Ok(EvalValue::NULL),
            Some(RawValue::Array(array)) => {
                budget::check_value(out.current_len() + array.len_bytes())?;
                array.elements().for_each(|e| {
                    out.push_element(e);
                });
            }
            Some(other) => {
                return Err(operator.error(
                    28664,
                    format_args!("only supports arrays, not {}", other.type_name()),
                ));
            }
        }
    }
    Ok(Value::Array(out.finish()).into())
}

pub(super) fn reverse_array<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let value = args[0].evaluate(ctx)?;
    match value.non_null() {
        None => Ok(EvalValue::NULL),
        Some(RawValue::Array(array)) => {
            let elements: Vec<_> = array.elements().collect();
            let mut out = ArrayBuilder::new();
            for element in elements.into_iter().rev() {
                out.push_element(element);
            }
            Ok(Value::Array(out.finish()).into())
        }
        Some(other) => Err(operator.error(
            34435,
            format_args!("takes an array, not {}", other.type_name()),
        )),
    }
}

/// `[array, n]`: the first n elements, or the last -n. `[array, position, n]`: n elements from a
/// position.
pub(super) fn slice<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let (value, second) = pair(args, ctx)?;
    let ctx = ctx.holding(budget::heap_bytes(&value))?;
    let (Some(found), Some(second)) = (value.non_null(), second.non_null()) else {
        return Ok(EvalValue::NULL);
    };
    let RawValue::Array(array) = found else {
        return Err(operator.error(
            28724,
            format_args!(
                "takes an array as its first argument, not {}",
                found.type_name()
            ),
        ));
    };
    let integer = |value: RawValue<'_>, ordinal: &str, not_number: i32, not_integer: i32| {
        if !value.is_number() {
            let message = format!(
                "takes a number as its {ordinal} argument, not {}",
                value.type_name()
            );
            return Err(operator.error(not_number, message));
        }
        int32(value).map(i64::from).ok_or_else(|| {
            let message = format!(
                "takes a 32-bit integer as its {ordinal} argument, not {}",
                shell(value)
            );
            operator.error(not_integer, message)
        })
    };
    let second = integer(second, "second", 28725, 28726)?;
    let (from, count) = match args.get(2) {
        None if second >= 0 => (0, second as usize),
        None => (
            array.count().saturating_sub(second.unsigned_abs() as usize),
            usize::MAX,
        ),
        Some(third) => {
            let third = third.evaluate(ctx)?;
            let Some(third) = third.non_null() else {
                return Ok(EvalValue::NULL);
            };
            let count = integer(third, "third", 28727, 28728)?;
            if count <= 0 {
                return Err(operator.error(
                    28729,
                    format_args!("takes a positive number as its third argument, not {count}"),
                ));
            }
            let from = match usize::try_from(second) {
                Ok(from) => from,
                Err(_) => array.count().saturating_sub(second.unsigned_abs() as usize),
            };
            (from, count as usize)
        }
    };
    let mut out = ArrayBuilder::new();
    for element in array.elements().skip(from).take(count) {
        out.push_element(element);
    }
    Ok(Value::Array(out.finish()).into())
}

/// `[start, end, step]`: the integers from start up to, but not including, end.
pub(super) fn range<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let mut numbers = [0i32, 0, 1];
    let roles = [
        ("start", 34443, 34444),
        ("end", 34445, 34446),
        ("step", 34447, 34448),
    ];
    for ((arg, number), (role, not_number, not_integer)) in args.iter().zip(&mut numbers).zip(roles)
    {
        let value = arg.evaluate(ctx)?;
        let raw = value.as_raw().unwrap_or(RawValue::Null);
        if !raw.is_number() {
            return Err(operator.error(
                not_number,
                format_args!("takes a number as its {role}, found: {}", value.type_name()),
            ));
        }
        *number = int32(raw).ok_or_else(|| {
            operator.error(
                not_integer,
                format_args!(
                    "takes a 32-bit integer as its {role}, found: {}",
                    shell(raw)
                ),
            )
        })?;
    }
    let [start, end, step] = numbers.map(i64::from);
    if step == 0 {
        return Err(operator.error(34449, "takes a step other than 0"));
    }
    let count = if step > 0 {
        (end - start + step - 1) / step
    } else {
        (end - start + step + 1) / step
    };
    // An element has a type byte, a 4-byte number, the digits of its key, and a zero.
    budget::check_value(usize::try_from(count).map_or(0, |count| count.saturating_mul(13)))?;
    // A loop may build many ranges.
    budget::steps(u64::try_from(count).unwrap_or(0))?;
    let mut out = ArrayBuilder::new();
    let mut at = start;
    while (step > 0 && at < end) || (step < 0 && at > end) {
        out.push(at as i32);
        at += step;
    }
    Ok(Value::Array(out.finish()).into())
}
