//! A runtime with its only context, in which scripts run.

use std::sync::Arc;

use parking_lot::Mutex;
use rquickjs::context::{EvalOptions, intrinsic};
use rquickjs::{Context, Ctx, Exception, Object, Runtime, Value as JsValue};
use sheaf_bson::error_code::{Error, Result};
use sheaf_query::interrupt::check as check_interrupt;
use sheaf_query::javascript::Limits;

use crate::failure::{Failure, describe, interpreter};
use crate::world::World;

/// Maximum stack size of scripts, in bytes.
const STACK_BYTES_MAX: usize = 256 * 1024;
/// Maximum duration of a step of `sleep` between two interruption checks, in milliseconds.
const SLEEP_MILLIS_MAX: f64 = 5.0;

/// The built-in objects of a context: the language without high-resolution clocks, shared memory
/// and proxies. With a proxy, a script could cause endless loops within the engine, which cannot be
/// interrupted.
type Intrinsics = (
    intrinsic::Date,
    intrinsic::Eval,
    intrinsic::RegExpCompiler,
    intrinsic::RegExp,
    intrinsic::Json,
    intrinsic::MapSet,
    intrinsic::TypedArrays,
    intrinsic::Promise,
);

/// A running engine.
pub(crate) struct Machine {
    context: Context,
    /// The error with which the operation was interrupted, if it was.
    interrupted: Arc<Mutex<Option<Error>>>,
}

impl Machine {
    /// Starts an engine. Errors: no memory.
    pub(crate) fn start(limits: Limits) -> Result<Machine> {
        let failed = |e: rquickjs::Error| interpreter(format!("cannot start JavaScript: {e}"));
        let runtime = Runtime::new().map_err(failed)?;
        runtime.set_max_stack_size(STACK_BYTES_MAX);
        let context = Context::custom::<Intrinsics>(&runtime).map_err(failed)?;
        let interrupted = Arc::new(Mutex::new(None));
        let machine = Machine {
            context,
            interrupted: Arc::clone(&interrupted),
        };
        machine.begin()?;
        // Set last: the engine does not survive a failure while a context is made.
        runtime.set_memory_limit(limits.heap_bytes.max(1));
        runtime.set_interrupt_handler(Some(Box::new(move || match check_interrupt() {
            Ok(()) => false,
            Err(error) => {
                interrupted.lock().get_or_insert(error);
                true
            }
        })));
        Ok(machine)
    }

    fn begin(&self) -> Result<()> {
        self.context.with(|ctx| {
            let begun = (|| {
                let globals = ctx.globals();
                let md5 = rquickjs::Function::new(ctx.clone(), hex_md5)?;
                globals.set("hex_md5", md5)?;
                globals.set("sleep", rquickjs::Function::new(ctx.clone(), sleep)?)?;
                let inner: Object<'_> = ctx.eval(include_str!("prelude.js"))?;
                ctx.store_userdata(inner)
                    .map_err(|_| rquickjs::Error::Unknown)?;
                Ok(())
            })();
            begun.map_err(|error| describe(&ctx, &error))
        })
    }

    /// Calls `work` in the context. Errors: those of `work`; if the operation was interrupted, its
    /// error instead.
    pub(crate) fn with<T>(
        &self,
        work: impl for<'js> FnOnce(&World<'js>) -> std::result::Result<T, Failure>,
    ) -> Result<T> {
        self.context.with(|ctx| {
            let done = world(&ctx).and_then(|world| work(&world));
            done.map_err(|failure| match failure {
                Failure::Client(error) => error,
                Failure::Script(error) => {
                    let described = describe(&ctx, &error);
                    match self.interrupted.lock().take() {
                        Some(interrupted) => interrupted,
                        None => check_interrupt().err().unwrap_or(described),
                    }
                }
            })
        })
    }
}

fn world<'js>(ctx: &Ctx<'js>) -> std::result::Result<World<'js>, Failure> {
    let inner = ctx.userdata::<Object<'js>>();
    let inner = inner.ok_or(Failure::Script(rquickjs::Error::Unknown))?;
    World::new(ctx, inner.clone())
}

/// Evaluates source text in the global scope, not in strict mode.
pub(crate) fn evaluate<'js>(ctx: &Ctx<'js>, text: String) -> rquickjs::Result<JsValue<'js>> {
    let mut options = EvalOptions::default();
    options.strict = false;
    ctx.eval_with_options(text, options)
}

fn hex_md5(text: String) -> String {
    use md5::Digest;
    let mut out = String::with_capacity(32);
    for byte in md5::Md5::digest(text.as_bytes()) {
        out.push_str(&format!("{byte:02x}"));
    }
    out
}

fn sleep(ctx: Ctx<'_>, millis: f64) -> rquickjs::Result<()> {
    let mut left = if millis.is_finite() { millis } else { 0.0 };
    while left > 0.0 {
        let step = left.min(SLEEP_MILLIS_MAX);
        std::thread::sleep(std::time::Duration::from_secs_f64(step / 1000.0));
        left -= step;
        if check_interrupt().is_err() {
            return Err(Exception::throw_message(&ctx, "interrupted"));
        }
    }
    Ok(())
}
