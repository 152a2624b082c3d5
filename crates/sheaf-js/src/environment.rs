//! The environment of one operation: implements
//! [`JavaScript`].

use std::collections::HashMap;
use std::fmt;

use parking_lot::Mutex;
use rquickjs::function::{Args, This};
use rquickjs::{Array, Function, Object, Value as JsValue};
use sheaf_bson::error_code::Result;
use sheaf_bson::{RawArray, RawDoc, RawValue, Value};
use sheaf_query::javascript::{FunctionId, JavaScript, Limits, SourceKind, StoredFunctions};

use crate::failure::{Failure, interpreter};
use crate::machine::{Machine, evaluate};
use crate::world::World;

/// An environment whose engine starts with the first script.
pub(crate) struct Environment {
    limits: Limits,
    stored: Box<dyn StoredFunctions>,
    running: Mutex<Option<Running>>,
}

struct Running {
    machine: Machine,
    compiled: HashMap<(String, SourceKind), FunctionId>,
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Environment")
    }
}

impl Environment {
    pub(crate) fn new(limits: Limits, stored: Box<dyn StoredFunctions>) -> Environment {
        Environment {
            limits,
            stored,
            running: Mutex::new(None),
        }
    }

    fn run<T>(&self, work: impl FnOnce(&mut Running) -> Result<T>) -> Result<T> {
        let mut running = self.running.lock();
        let running = match &mut *running {
            Some(running) => running,
            none => none.insert(self.start()?),
        };
        work(running)
    }

    fn start(&self) -> Result<Running> {
        let stored = self.stored.load()?;
        let machine = Machine::start(self.limits)?;
        machine.with(|world| {
            for (name, value) in &stored {
                match value.as_raw() {
                    RawValue::JavaScript(code) => {
                        let code = function_text(code);
                        world.run::<()>("stored", (name.as_str(), code))?;
                    }
                    // Code with a scope is ignored: scripts cannot use it.
                    RawValue::JavaScriptWithScope { .. } => {}
                    other => world.run::<()>("global", (name.as_str(), world.to_js(other)?))?,
                }
            }
            Ok(())
        })?;
        Ok(Running {
            machine,
            compiled: HashMap::new(),
        })
    }
}

impl JavaScript for Environment {
    fn compile(&self, source: &str, kind: SourceKind) -> Result<FunctionId> {
        self.run(|running| {
            if let Some(id) = running.compiled.get(&(source.to_owned(), kind)) {
                return Ok(*id);
            }
            let id = FunctionId(running.compiled.len());
            running.machine.with(|world| {
                let function = match kind {
                    SourceKind::Function => compile_function(world, source)?,
                    SourceKind::Where => compile_where(world, source)?,
                };
                let functions: Object<'_> = world.part("functions")?;
                functions.set(id.0 as u32, function)?;
                Ok(())
            })?;
            running.compiled.insert((source.to_owned(), kind), id);
            Ok(id)
        })
    }

    fn call(
        &self,
        function: FunctionId,
        this: Option<RawValue<'_>>,
        args: RawArray<'_>,
    ) -> Result<Value> {
        self.run(|running| {
            running.machine.with(|world| {
                let mut given = Args::new_unsized(world.ctx.clone());
                if let Some(this) = this {
                    given.this(world.to_js(this)?)?;
                }
                for arg in args.iter() {
                    given.push_arg(world.to_js(arg)?)?;
                }
                let result: JsValue<'_> = compiled(world, function)?.call_arg(given)?;
                world.to_bson(&result)
            })
        })
    }

    fn test(&self, function: FunctionId, doc: RawDoc<'_>) -> Result<bool> {
        self.run(|running| {
            running.machine.with(|world| {
                let doc = world.object(doc)?;
                world.ctx.globals().set("obj", doc.clone())?;
                let mut result: JsValue<'_> =
                    compiled(world, function)?.call((This(doc.clone()),))?;
                // The source was an arrow function, whose `this` is the document already.
                if let Some(inner) = result.as_function() {
                    result = inner.call((This(doc),))?;
                }
                if let Some(truth) = result.as_bool() {
                    return Ok(truth);
                }
                world.run("truth", (result,))
            })
        })
    }

    fn fold(
        &self,
        function: FunctionId,
        state: RawValue<'_>,
        calls: RawArray<'_>,
    ) -> Result<Value> {
        self.run(|running| {
            running.machine.with(|world| {
                let (state, calls) = (world.to_js(state)?, world.array(calls)?);
                let state: JsValue<'_> =
                    world.run("fold", (compiled(world, function)?, state, calls))?;
                world.to_bson(&state)
            })
        })
    }

    fn emit(&self, function: FunctionId, doc: RawValue<'_>) -> Result<Value> {
        self.run(|running| {
            running.machine.with(|world| {
                let doc = world.to_js(doc)?;
                let emitted: Array<'_> = world.run("emit", (compiled(world, function)?, doc))?;
                world.to_bson(emitted.as_value())
            })
        })
    }

    fn set_globals(&self, globals: RawDoc<'_>) -> Result<()> {
        self.run(|running| {
            running.machine.with(|world| {
                for element in globals.iter() {
                    let value = match element.value() {
                        RawValue::JavaScript(code) => compile_function(world, code)?.into_value(),
                        other => world.to_js(other)?,
                    };
                    world.run::<()>("global", (element.key(), value))?;
                }
                Ok(())
            })
        })
    }
}

fn compiled<'js>(
    world: &World<'js>,
    function: FunctionId,
) -> std::result::Result<Function<'js>, Failure> {
    let functions: Object<'js> = world.part("functions")?;
    Ok(functions.get(function.0 as u32)?)
}

/// The source of a function as an expression: without trailing semicolons.
fn function_text(source: &str) -> &str {
    source.trim_end_matches(|c: char| c == ';' || c.is_whitespace())
}

fn compile_function<'js>(
    world: &World<'js>,
    source: &str,
) -> std::result::Result<Function<'js>, Failure> {
    let text = function_text(source);
    let value = evaluate(&world.ctx, format!("({text}\n)"))?;
    match value.into_function() {
        Some(function) => Ok(function),
        None => Err(interpreter("a script must be a function: function(...) {...}").into()),
    }
}

/// `$where`: a function, an expression, or statements that return a value.
fn compile_where<'js>(
    world: &World<'js>,
    source: &str,
) -> std::result::Result<Function<'js>, Failure> {
    let text = source.trim_start();
    let is_function = text
        .strip_prefix("function")
        .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'));
    if is_function {
        return compile_function(world, source);
    }
    let expression = format!("(function() {{ return ({}\n) }})", function_text(source));
    match evaluate(&world.ctx, expression) {
        Ok(function) => Ok(function.get()?),
        Err(error) if error.is_exception() => {
            // The source is not an expression: report the error of parsing it as statements.
            drop(world.ctx.catch());
            let statements = format!("(function() {{ {source}\n }})");
            Ok(evaluate(&world.ctx, statements)?.get()?)
        }
        Err(error) => Err(error.into()),
    }
}
