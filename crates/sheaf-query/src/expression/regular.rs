//! `$regexMatch`, `$regexFind`, `$regexFindAll`: `{input, regex, options}`.
//!
//! The pattern may differ from document to document, so each thread caches the most recently used
//! compiled patterns.

use std::cell::RefCell;
use std::sync::Arc;

use sheaf_bson::error_code::Result;
use sheaf_bson::{ArrayBuilder, DocBuf, DocBuilder, RawValue, Value};

use crate::regex::{CompiledRegex, PATTERN_BYTES_MAX};

use super::eval::{EvalContext, EvalValue};
use super::operator::Operator;
use super::{Expression, budget};

/// Maximum number of compiled patterns cached per thread.
const KEPT_MAX: usize = 16;

thread_local! {
    /// Most recently used first.
    static KEPT: RefCell<Vec<Arc<CompiledRegex>>> = const { RefCell::new(Vec::new()) };
}

/// Errors: 51109 for a zero byte in the pattern, 51110 for one in the options.
fn check_no_zeros(operator: &'static Operator, pattern: &str, options: &str) -> Result<()> {
    for (text, role, code) in [(pattern, "pattern", 51109), (options, "options", 51110)] {
        if text.contains('\0') {
            return Err(operator.error(
                code,
                format_args!("does not accept a zero byte in its {role}"),
            ));
        }
    }
    Ok(())
}

/// Compiles a pattern, or takes it from the cache. Errors: 51111 for an invalid pattern, 51108 for
/// an unknown option.
fn compiled(
    operator: &'static Operator,
    pattern: &str,
    options: &str,
) -> Result<Arc<CompiledRegex>> {
    let known = KEPT.with_borrow_mut(|kept| {
        let at = kept
            .iter()
            .position(|r| r.pattern() == pattern && r.options() == options)?;
        let regex = kept.remove(at);
        kept.insert(0, Arc::clone(&regex));
        Some(regex)
    });
    if let Some(regex) = known {
        return Ok(regex);
    }
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(operator.error(
            51111,
            format_args!(
                "does not accept a pattern of {} bytes: the limit is {PATTERN_BYTES_MAX}",
                pattern.len()
            ),
        ));
    }
    let regex = CompiledRegex::new(pattern, options).map_err(|e| match e.code().0 {
        51108 => e,
        _ => operator.error(51111, e.message()),
    })?;
    let regex = Arc::new(regex);
    KEPT.with_borrow_mut(|kept| {
        kept.insert(0, Arc::clone(&regex));
        kept.truncate(KEPT_MAX);
    });
    Ok(regex)
}

/// Calls `then` with the text and the compiled pattern. Returns `otherwise` if the text or the
/// pattern is null.
fn with_operands<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
    otherwise: Value,
    then: impl FnOnce(&str, &CompiledRegex) -> Result<Value>,
) -> Result<EvalValue<'e>> {
    let input = args[0].evaluate(ctx)?;
    let ctx = ctx.holding(budget::heap_bytes(&input))?;
    let regex = args[1].evaluate(ctx)?;
    let options = args[2].evaluate(ctx.holding(budget::heap_bytes(&regex))?)?;
    let (pattern, own) = match regex.non_null() {
        None => (None, ""),
        Some(RawValue::String(pattern)) => (Some(pattern), ""),
        Some(RawValue::Regex { pattern, options }) => (Some(pattern), options),
        Some(other) => {
            return Err(operator.error(
                51105,
                format_args!(
                    "needs 'regex' to be of type string or regex, not {}",
                    other.type_name()
                ),
            ));
        }
    };
    let options = match options.non_null() {
        None => own,
        Some(RawValue::String(options)) if own.is_empty() => options,
        Some(RawValue::String(_)) => {
            return Err(operator.error(
                51107,
                "found options in both 'regex' and 'options'; use one of them",
            ));
        }
        Some(other) => {
            return Err(operator.error(
                51106,
                format_args!(
                    "needs 'options' to be of type string, not {}",
                    other.type_name()
                ),
            ));
        }
    };
    check_no_zeros(operator, pattern.unwrap_or(""), options)?;
    let text = match input.non_null() {
        None => None,
        Some(RawValue::String(text) | RawValue::Symbol(text)) => Some(text),
        Some(other) => {
            return Err(operator.error(
                51104,
                format_args!(
                    "needs 'input' to be of type string, not {}",
                    other.type_name()
                ),
            ));
        }
    };
    let Some(pattern) = pattern else {
        return Ok(otherwise.into());
    };
    // An invalid pattern is an error even if the text is null.
    let regex = compiled(operator, pattern, options)?;
    match text {
        None => Ok(otherwise.into()),
        Some(text) => then(text, &regex).map(EvalValue::from),
    }
}

pub(super) fn regex_match<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    with_operands(operator, args, ctx, Value::Boolean(false), |text, regex| {
        Ok(Value::Boolean(regex.is_match(text)?))
    })
}

/// A match as `{match, idx, captures}`, and its `idx`, which counts characters: `passed` of them
/// precede byte `from`.
fn found(
    text: &str,
    groups: &[Option<(usize, usize)>],
    from: usize,
    passed: usize,
) -> (DocBuf, usize) {
    let (start, end) = groups.first().copied().flatten().unwrap_or((from, from));
    let index = passed + text[from..start].chars().count();
    let mut out = DocBuilder::new();
    out.append("match", &text[start..end])
        .append("idx", index as i32);
    out.begin_array("captures");
    for group in groups.iter().skip(1) {
        match group {
            Some((start, end)) => out.push(&text[*start..*end]),
            None => out.push(RawValue::Null),
        };
    }
    out.end();
    (out.finish(), index)
}

pub(super) fn regex_find<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    with_operands(operator, args, ctx, Value::Null, |text, regex| {
        Ok(match regex.captures_at(text, 0)? {
            Some(groups) => Value::Document(found(text, &groups, 0, 0).0),
            None => Value::Null,
        })
    })
}

/// All matches that do not overlap. After an empty match the search continues one character later,
/// and it stops at the end of the text: only an empty text is matched at its end.
pub(super) fn regex_find_all<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let none = Value::Array(ArrayBuilder::new().finish());
    with_operands(operator, args, ctx, none, |text, regex| {
        let mut out = ArrayBuilder::new();
        // Count characters on from the previous match, not from the start of a long text each time.
        let (mut counted, mut passed) = (0, 0);
        let mut start = 0;
        let mut searcher = regex.searcher(text);
        while let Some(groups) = searcher.captures_at(start)? {
            budget::step()?;
            if searcher.validates() {
                budget::steps((text.len() - start) as u64 / budget::BYTES_A_STEP as u64)?;
            }
            let (begin, end) = groups.first().copied().flatten().unwrap_or((start, start));
            let (doc, index) = found(text, &groups, counted, passed);
            out.push(doc.as_raw());
            budget::check_value(out.current_len())?;
            (counted, passed) = (begin, index);
            start = if end > begin {
                end
            } else {
                end + text[end..].chars().next().map_or(1, char::len_utf8)
            };
            if start >= text.len() {
                break;
            }
        }
        Ok(Value::Array(out.finish()))
    })
}
