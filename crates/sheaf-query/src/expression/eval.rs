//! Evaluation: a recursive walk, with variables on the call stack.
//!
//! Variables are frames linked from the innermost outward. A frame lives on the stack of the
//! operator that binds it. The result of a body may borrow from the frame, so it is made owned
//! before the frame is dropped.

use sheaf_bson::error_code::Result;
use sheaf_bson::{
    ArrayBuilder, Collator, DocBuilder, RawDoc, RawValue, Value, compare_values_with,
};

use super::{Expression, LoopKind, budget, location};
use crate::interrupt;

/// The result of an evaluation.
#[derive(Debug, Clone)]
pub enum EvalValue<'e> {
    /// No value: an absent field.
    Missing,
    /// Borrowed from the document, the expression or a variable.
    Raw(RawValue<'e>),
    /// A computed value.
    Owned(Value),
}

impl<'e> EvalValue<'e> {
    /// A borrowed view of the value; `None` if missing.
    #[inline]
    pub fn as_raw(&self) -> Option<RawValue<'_>> {
        match self {
            EvalValue::Missing => None,
            EvalValue::Raw(raw) => Some(*raw),
            EvalValue::Owned(value) => Some(value.as_raw()),
        }
    }

    /// A borrowed view of the value; `None` for null, undefined and missing, which most operators
    /// treat alike.
    #[inline]
    pub fn non_null(&self) -> Option<RawValue<'_>> {
        self.as_raw()
            .filter(|v| !matches!(v, RawValue::Null | RawValue::Undefined))
    }

    /// An owned copy; `None` if missing.
    pub fn into_value(self) -> Option<Value> {
        match self {
            EvalValue::Missing => None,
            EvalValue::Raw(raw) => Some(raw.to_value()),
            EvalValue::Owned(value) => Some(value),
        }
    }

    /// The same value without borrows, so that it can outlive a frame: a borrowed value is copied.
    pub fn detach<'x>(self) -> EvalValue<'x> {
        match self {
            EvalValue::Missing => EvalValue::Missing,
            EvalValue::Raw(raw) => EvalValue::Owned(raw.to_value()),
            EvalValue::Owned(value) => EvalValue::Owned(value),
        }
    }

    /// Truth in expressions: false, 0, null, undefined and missing are false, everything else is
    /// true.
    #[inline]
    pub fn is_truthy(&self) -> bool {
        self.as_raw().is_some_and(|v| v.is_truthy())
    }

    /// MongoDB's name of the type, or "missing".
    pub fn type_name(&self) -> &'static str {
        self.as_raw().map_or("missing", |v| v.type_name())
    }

    /// Null.
    pub const NULL: EvalValue<'static> = EvalValue::Owned(Value::Null);
}

impl From<Value> for EvalValue<'_> {
    fn from(value: Value) -> Self {
        EvalValue::Owned(value)
    }
}

impl From<bool> for EvalValue<'_> {
    fn from(value: bool) -> Self {
        EvalValue::Owned(Value::Boolean(value))
    }
}

impl<'e> From<Option<RawValue<'e>>> for EvalValue<'e> {
    fn from(value: Option<RawValue<'e>>) -> Self {
        value.map_or(EvalValue::Missing, EvalValue::Raw)
    }
}

/// Variables bound together, in slots `base..base + values.len()`.
#[derive(Debug)]
pub struct Frame<'e> {
    outer: Option<&'e Frame<'e>>,
    base: usize,
    values: &'e [EvalValue<'e>],
}

/// The context of an evaluation: a document and the visible variables.
#[derive(Debug, Clone, Copy)]
pub struct EvalContext<'e> {
    /// `$$ROOT`.
    pub root: RawDoc<'e>,
    /// How text compares; `None`: by bytes.
    pub collator: Option<&'e Collator>,
    frame: Option<&'e Frame<'e>>,
    /// Bytes held by enclosing operators during this evaluation.
    held: usize,
}

impl<'e> EvalContext<'e> {
    /// A context with a document and no variables. Resets the step count of the thread's budget.
    pub fn new(root: RawDoc<'e>) -> EvalContext<'e> {
        budget::begin();
        EvalContext {
            root,
            collator: None,
            frame: None,
            held: 0,
        }
    }

    /// The same context with text compared by a collation.
    pub fn with_collator(self, collator: Option<&'e Collator>) -> EvalContext<'e> {
        EvalContext { collator, ..self }
    }

    fn next_slot(&self) -> usize {
        self.frame.map_or(0, |f| f.base + f.values.len())
    }

    /// The value in a slot. The parser only assigns slots that are bound at evaluation.
    pub(super) fn slot(&self, slot: usize) -> Option<&'e EvalValue<'e>> {
        let mut frame = self.frame?;
        while slot < frame.base {
            frame = frame.outer?;
        }
        frame.values.get(slot - frame.base)
    }

    /// Evaluates `body` with `values` in the next slots. Errors: those of the body; the variables
    /// hold too much memory.
    pub(crate) fn with_slots<T>(
        &self,
        values: &[EvalValue<'_>],
        body: impl FnOnce(EvalContext<'_>) -> Result<T>,
    ) -> Result<T> {
        let own = values.iter().map(budget::heap_bytes).sum();
        let held = self.holding(own)?.held;
        let frame = Frame {
            outer: self.frame,
            base: self.next_slot(),
            values,
        };
        body(EvalContext {
            root: self.root,
            collator: self.collator,
            frame: Some(&frame),
            held,
        })
    }

    /// The context for evaluating the next operand while `bytes` are held. Errors:
    /// ExceededMemoryLimit if this and the enclosing operators hold too much.
    #[inline]
    pub(super) fn holding(&self, bytes: usize) -> Result<EvalContext<'e>> {
        let held = self.held + bytes;
        budget::check_held(held)?;
        Ok(EvalContext { held, ..*self })
    }
}

/// Evaluates the first two operands.
pub(super) fn pair<'e>(
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<(EvalValue<'e>, EvalValue<'e>)> {
    let first = args[0].evaluate(ctx)?;
    let second = args[1].evaluate(ctx.holding(budget::heap_bytes(&first))?)?;
    Ok((first, second))
}

impl Expression {
    /// Evaluates the expression on the document of `ctx`. Errors: invalid operands of an operator;
    /// exceeded budgets; interruption.
    pub fn evaluate<'e>(&'e self, ctx: EvalContext<'e>) -> Result<EvalValue<'e>> {
        match self {
            Expression::Constant(value) => {
                budget::walk(Ok(value.as_ref().map(|v| v.as_raw()).into()))
            }
            Expression::FieldPath(path) => budget::walk(Ok(path.evaluate(ctx))),
            Expression::Call { operator, args } => {
                budget::walk((operator.eval)(operator, args, ctx))
            }
            Expression::Object(fields) => {
                let mut out = DocBuilder::new();
                for (name, value) in fields {
                    let inner = ctx.holding(out.current_len())?;
                    if let Some(value) = value.evaluate(inner)?.as_raw() {
                        out.append(name, value);
                        budget::check_value(out.current_len())?;
                    }
                }
                Ok(Value::Document(out.finish()).into())
            }
            Expression::Array(values) => {
                let mut out = ArrayBuilder::new();
                for value in values {
                    let value = value.evaluate(ctx.holding(out.current_len())?)?;
                    out.push(value.as_raw().unwrap_or(RawValue::Null));
                    budget::check_value(out.current_len())?;
                }
                Ok(Value::Array(out.finish()).into())
            }
            Expression::Let { values, body } => {
                let mut bound = Vec::with_capacity(values.len());
                let mut held = 0;
                for value in values {
                    let value = value.evaluate(ctx.holding(held)?)?;
                    held += budget::heap_bytes(&value);
                    bound.push(value);
                }
                ctx.with_slots(&bound, |inner| body.evaluate(inner).map(EvalValue::detach))
            }
            Expression::InSet { value, set } => {
                let value = value.evaluate(ctx)?;
                let found = value.as_raw().is_some_and(|wanted| {
                    let order = |held: &Value| {
                        interrupt::count(1);
                        compare_values_with(held.as_raw(), wanted, ctx.collator)
                    };
                    set.binary_search_by(order).is_ok()
                });
                Ok(found.into())
            }
            Expression::Script(script) => script.evaluate(ctx),
            Expression::Collated { collator, body } => {
                body.evaluate(ctx.with_collator(Some(collator)))
            }
            Expression::Switch { branches, default } => {
                for (case, then) in branches {
                    if case.evaluate(ctx)?.is_truthy() {
                        return then.evaluate(ctx);
                    }
                }
                match default {
                    Some(default) => default.evaluate(ctx),
                    None => Err(location(
                        40066,
                        "$switch could not find a matching branch for an input, and no default was specified.",
                    )),
                }
            }
            Expression::Loop {
                kind,
                input,
                extra,
                body,
                indexed,
            } => {
                let input = input.evaluate(ctx)?;
                evaluate_loop(*kind, input, extra.as_deref(), body, *indexed, ctx)
            }
        }
    }
}

fn evaluate_loop<'e>(
    kind: LoopKind,
    input: EvalValue<'e>,
    extra: Option<&'e Expression>,
    body: &'e Expression,
    indexed: bool,
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let bound = usize::from(indexed);
    let array = match input.non_null() {
        None => return Ok(EvalValue::NULL),
        Some(RawValue::Array(array)) => array,
        Some(other) => return Err(not_an_array(kind, other)),
    };
    let ctx = ctx.holding(budget::heap_bytes(&input))?;
    match kind {
        LoopKind::Map => {
            let mut out = ArrayBuilder::new();
            for (at, value) in array.iter().enumerate() {
                budget::step()?;
                let ctx = ctx.holding(out.current_len())?;
                let slots = [EvalValue::Raw(value), place(at)];
                ctx.with_slots(&slots[..1 + bound], |inner| {
                    out.push(body.evaluate(inner)?.as_raw().unwrap_or(RawValue::Null));
                    budget::check_value(out.current_len())
                })?;
            }
            Ok(Value::Array(out.finish()).into())
        }
        LoopKind::Filter => {
            let limit = filter_limit(extra, ctx)?;
            let mut out = ArrayBuilder::new();
            for (at, value) in array.iter().enumerate() {
                if out.len() >= limit {
                    break;
                }
                budget::step()?;
                let ctx = ctx.holding(out.current_len())?;
                let slots = [EvalValue::Raw(value), place(at)];
                let keep = ctx.with_slots(&slots[..1 + bound], |inner| {
                    body.evaluate(inner).map(|v| v.is_truthy())
                })?;
                if keep {
                    out.push(value);
                }
            }
            Ok(Value::Array(out.finish()).into())
        }
        LoopKind::Reduce => {
            let mut value = match extra {
                Some(initial) => initial.evaluate(ctx)?.detach(),
                None => EvalValue::NULL,
            };
            for (at, this) in array.iter().enumerate() {
                budget::step()?;
                let slots = [value, EvalValue::Raw(this), place(at)];
                value = ctx.with_slots(&slots[..2 + bound], |inner| {
                    body.evaluate(inner).map(EvalValue::detach)
                })?;
            }
            Ok(value)
        }
    }
}

/// The index of an element, from 0, as an int: no array has more elements.
fn place(at: usize) -> EvalValue<'static> {
    EvalValue::Owned(Value::Int32(at as i32))
}

fn filter_limit<'e>(limit: Option<&'e Expression>, ctx: EvalContext<'e>) -> Result<usize> {
    let Some(limit) = limit else {
        return Ok(usize::MAX);
    };
    let limit = limit.evaluate(ctx)?;
    let Some(value) = limit.non_null() else {
        return Ok(usize::MAX);
    };
    match value.as_i64_exact() {
        Some(n) if i32::try_from(n).is_err() => Err(location(
            327391,
            format!(
                "$filter: 'limit' must be a 32-bit integer, not {}",
                sheaf_bson::json::shell(value)
            ),
        )),
        Some(n) if n < 1 => Err(location(
            327392,
            format!("$filter: 'limit' must be greater than 0, not {n}"),
        )),
        Some(n) => Ok(n as usize),
        None => Err(location(
            327391,
            format!(
                "$filter: 'limit' must be a 32-bit integer, not {}",
                sheaf_bson::json::shell(value)
            ),
        )),
    }
}

fn not_an_array(kind: LoopKind, found: RawValue<'_>) -> sheaf_bson::error_code::Error {
    let (code, name) = match kind {
        LoopKind::Map => (16883, "$map"),
        LoopKind::Filter => (28651, "$filter"),
        LoopKind::Reduce => (40080, "$reduce"),
    };
    location(
        code,
        format!(
            "{name}: 'input' must be an array, not {}",
            found.type_name()
        ),
    )
}
