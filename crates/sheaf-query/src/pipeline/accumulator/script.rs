//! Accumulators that run a user's functions: `$accumulator`, and the reduce of mapReduce.
//!
//! ```text
//!   {$accumulator: {init, initArgs, accumulate, accumulateArgs, merge, finalize, lang}}
//!      start(_id)   state = init(...initArgs)
//!      add          calls are batched, then state = accumulate(state, ...args) for all at once
//!      merge        state = merge(state, other)
//!      finish       finalize(state)
//!
//!   {$_internalJsReduce: {data: {k, v}, eval}}
//!      values are batched, then value = eval(k, values); a single value is not reduced
//! ```
//!
//! Calls are batched to reduce the number of calls into the engine: the state is passed once for
//! many documents.

use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::{ArrayBuf, ArrayBuilder, DocBuilder, RawDoc, RawValue, Value};

use super::size;
use crate::expression::operand::{document, required};
use crate::expression::script_parser::{check_language, function_source};
use crate::expression::{Expression, VariableScope, location, parse};
use crate::javascript::{Script, SourceKind};

/// Maximum number of batched calls or values before the engine is called.
const GATHERED_MAX: usize = 1000;
/// Maximum size in bytes of batched calls or values before the engine is called.
const GATHERED_BYTES_MAX: usize = 1 << 20;

/// The functions of an accumulator.
#[derive(Debug)]
pub(crate) enum ScriptSpec {
    /// `$accumulator`.
    Accumulate {
        init: Script,
        init_args: Option<Expression>,
        accumulate: Script,
        merge: Script,
        finalize: Option<Script>,
    },
    /// `$_internalJsReduce`.
    Reduce(Script),
}

/// The state of a group.
#[derive(Debug)]
pub(crate) struct ScriptState {
    spec: Arc<ScriptSpec>,
    /// The key of a reduction.
    key: Value,
    /// The state, or the values reduced so far; `None` for a reduction without any.
    state: Option<Value>,
    /// No document has been added yet.
    fresh: bool,
    gathered: ArrayBuilder,
}

/// Parses `$accumulator`; returns its functions and the expression of its arguments.
pub(super) fn parse_accumulator(
    operand: RawValue<'_>,
    scope: &VariableScope,
) -> Result<(ScriptSpec, Expression)> {
    const NAME: &str = "$accumulator";
    const KNOWN: &[&str] = &[
        "init",
        "initArgs",
        "accumulate",
        "accumulateArgs",
        "merge",
        "finalize",
        "lang",
    ];
    let doc = document(NAME, operand, KNOWN, 4544703, 4544706)?;
    let function = |field: &str| -> Result<Option<Script>> {
        let Some(value) = doc.get(field) else {
            return Ok(None);
        };
        let source = function_source(&format!("{NAME} '{field}'"), value, 4544701)?;
        Ok(Some(Script::new(source, SourceKind::Function)))
    };
    let needed =
        |field: &str| -> Result<Script> { function(field)?.ok_or_else(|| missing(NAME, field)) };
    let spec = ScriptSpec::Accumulate {
        init: needed("init")?,
        init_args: doc.get("initArgs").map(|v| parse(v, scope)).transpose()?,
        accumulate: needed("accumulate")?,
        merge: needed("merge")?,
        finalize: function("finalize")?,
    };
    let args = doc.get("accumulateArgs");
    let args = parse(args.ok_or_else(|| missing(NAME, "accumulateArgs"))?, scope)?;
    if doc.get("lang").is_none() {
        return Err(missing(NAME, "lang"));
    }
    check_language(doc.get("lang"))?;
    Ok((spec, args))
}

fn missing(name: &str, field: &str) -> Error {
    location(
        4544710,
        format!("{name} missing required argument '{field}'"),
    )
}

/// Parses `$_internalJsReduce`; returns its function and the expression of the pairs.
pub(super) fn parse_reduce(
    operand: RawValue<'_>,
    scope: &VariableScope,
) -> Result<(ScriptSpec, Expression)> {
    const NAME: &str = "$_internalJsReduce";
    let doc = document(NAME, operand, &["data", "eval"], 31326, 31243)?;
    let source = required(NAME, doc, "eval", 31245)?;
    let source = function_source("The reduce function", source, 31244)?;
    let data = parse(required(NAME, doc, "data", 31245)?, scope)?;
    let reduce = Script::new(source, SourceKind::Function);
    Ok((ScriptSpec::Reduce(reduce), data))
}

impl ScriptState {
    /// The state of the group with this `_id`. Errors: those of the scripts; 4544711 if `initArgs`
    /// is not an array.
    pub(super) fn start(spec: &Arc<ScriptSpec>, id: RawValue<'_>) -> Result<ScriptState> {
        let state = match &**spec {
            ScriptSpec::Reduce(_) => None,
            ScriptSpec::Accumulate {
                init, init_args, ..
            } => {
                let empty = ArrayBuf::new();
                let id = id.as_document().unwrap_or(RawDoc::EMPTY);
                let args = match init_args {
                    Some(args) => args.evaluate_on(id)?.into_value(),
                    None => None,
                };
                let args = match args.as_ref().map(Value::as_raw) {
                    None => empty.as_raw(),
                    Some(RawValue::Array(args)) => args,
                    Some(other) => {
                        return Err(location(
                            4544711,
                            format!(
                                "$accumulator initArgs must evaluate to an array, not {}",
                                other.type_name()
                            ),
                        ));
                    }
                };
                Some(init.call(None, args)?)
            }
        };
        Ok(ScriptState {
            spec: Arc::clone(spec),
            key: Value::Null,
            state,
            fresh: true,
            gathered: ArrayBuilder::new(),
        })
    }

    /// Adds the arguments, or the pair, of one document; returns by how many bytes the state grew.
    /// Errors: those of the scripts; 4544712 if the arguments are not an array.
    pub(super) fn add(&mut self, value: Option<RawValue<'_>>) -> Result<usize> {
        let before = self.bytes();
        match (&*self.spec, value) {
            (ScriptSpec::Accumulate { .. }, Some(args @ RawValue::Array(_))) => {
                self.gathered.push(args);
            }
            (ScriptSpec::Accumulate { .. }, other) => {
                return Err(location(
                    4544712,
                    format!(
                        "$accumulator accumulateArgs must evaluate to an array, not {}",
                        other.map_or("missing", |v| v.type_name())
                    ),
                ));
            }
            (ScriptSpec::Reduce(_), Some(RawValue::Document(pair))) => {
                if self.fresh {
                    self.key = pair.get("k").unwrap_or(RawValue::Null).to_value();
                }
                self.gathered
                    .push(pair.get("v").unwrap_or(RawValue::Undefined));
            }
            (ScriptSpec::Reduce(_), _) => return Err(damaged()),
        }
        self.fresh = false;
        if self.gathered.len() >= GATHERED_MAX || self.gathered.current_len() > GATHERED_BYTES_MAX {
            self.flush()?;
        }
        Ok(self.bytes().saturating_sub(before))
    }

    fn bytes(&self) -> usize {
        let state = self.state.as_ref().map_or(0, |state| size(state.as_raw()));
        state + self.gathered.current_len()
    }

    /// Passes the batched calls or values to the engine.
    fn flush(&mut self) -> Result<()> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        let gathered = std::mem::take(&mut self.gathered).finish();
        self.state = Some(match (&*self.spec, self.state.take()) {
            (ScriptSpec::Accumulate { accumulate, .. }, state) => {
                let state = state.unwrap_or(Value::Undefined);
                accumulate.fold(state.as_raw(), gathered.as_raw())?
            }
            (ScriptSpec::Reduce(reduce), state) => {
                let mut values = ArrayBuilder::new();
                if let Some(state) = &state {
                    values.push(state.as_raw());
                }
                for value in gathered.as_raw() {
                    values.push(value);
                }
                let values = values.finish();
                match (values.as_raw().count(), values.as_raw().get(0)) {
                    (1, Some(only)) => only.to_value(),
                    _ => {
                        let args = [self.key.as_raw(), RawValue::Array(values.as_raw())];
                        reduce.call(None, ArrayBuf::from_values(args).as_raw())?
                    }
                }
            }
        });
        Ok(())
    }

    /// The state in the form that [`ScriptState::merge`] accepts.
    pub(super) fn into_partial(self) -> Value {
        let mut out = DocBuilder::new();
        out.append_value("k", &self.key);
        if let Some(state) = &self.state {
            out.append_value("s", state);
        }
        out.append("f", self.fresh);
        let gathered = self.gathered.finish();
        out.append("g", RawValue::Array(gathered.as_raw()));
        Value::Document(out.finish())
    }

    /// Merges the state of later documents; returns by how many bytes this one grew.
    /// Errors: those of the scripts; InternalError for a damaged state.
    pub(super) fn merge(&mut self, partial: RawValue<'_>) -> Result<usize> {
        let before = self.bytes();
        let partial = partial.as_document().ok_or_else(damaged)?;
        let gathered = partial.get("g").and_then(|g| g.as_array());
        let gathered = gathered.ok_or_else(damaged)?;
        if self.fresh {
            self.key = partial.get("k").ok_or_else(damaged)?.to_value();
            self.state = partial.get("s").map(RawValue::to_value);
            self.fresh = partial.get("f") == Some(RawValue::Boolean(true));
            gathered.iter().for_each(|value| {
                self.gathered.push(value);
            });
            return Ok(self.bytes().saturating_sub(before));
        }
        let spec = Arc::clone(&self.spec);
        match &*spec {
            ScriptSpec::Reduce(_) => {
                for value in partial.get("s").into_iter().chain(gathered) {
                    self.gathered.push(value);
                }
                self.flush()?;
            }
            ScriptSpec::Accumulate {
                accumulate, merge, ..
            } => {
                self.flush()?;
                let state = partial.get("s").unwrap_or(RawValue::Undefined);
                let other = match gathered.is_empty() {
                    true => state.to_value(),
                    false => accumulate.fold(state, gathered)?,
                };
                let own = self.state.take().unwrap_or(Value::Undefined);
                let args = ArrayBuf::from_values([own.as_raw(), other.as_raw()]);
                self.state = Some(merge.call(None, args.as_raw())?);
            }
        }
        Ok(self.bytes().saturating_sub(before))
    }

    /// The result. Errors: those of the scripts.
    pub(super) fn finish(mut self) -> Result<Value> {
        self.flush()?;
        let state = self.state.take().unwrap_or(Value::Undefined);
        match &*self.spec {
            ScriptSpec::Accumulate {
                finalize: Some(finalize),
                ..
            } => finalize.call(None, ArrayBuf::from_values([state.as_raw()]).as_raw()),
            _ => Ok(state),
        }
    }
}

fn damaged() -> Error {
    Error::new(
        ErrorCode::INTERNAL_ERROR,
        "a partial state of an accumulator is damaged",
    )
}
