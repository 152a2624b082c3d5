//! Server-side JavaScript: the interface to an engine. This crate contains no engine.
//!
//! ```text
//!   sheafd ── Engine ──> sheaf-server ── enter(host, db) ──> this thread, for one command
//!                                                                │ first script of the command
//!   $where, $function, $accumulator, mapReduce                   ▼
//!        Script ── compile, call, test, fold, emit ──> JavaScript (one isolated environment)
//! ```
//!
//! Invariant: an environment belongs to one operation. Scripts of one operation share its globals
//! and its memory limit; scripts of two operations share nothing. A cursor keeps the environment of
//! the command that opened it.

use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, OnceLock};

use sheaf_bson::error_code::{Error, Result};
use sheaf_bson::{RawArray, RawDoc, RawValue, Value};

use crate::location::location;

/// A JavaScript engine.
pub trait Engine: Send + Sync + fmt::Debug {
    /// The engine's name, for `buildInfo.javascriptEngine`.
    fn name(&self) -> &'static str;

    /// An environment for one operation. Cheap: the engine starts with the first script.
    fn operation(&self, limits: Limits, stored: Box<dyn StoredFunctions>) -> Arc<dyn JavaScript>;
}

/// Limits of one environment.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum size of its heap, in bytes.
    pub heap_bytes: usize,
}

/// The functions of a database's `system.js`.
pub trait StoredFunctions: Send + Sync {
    /// Name and value of each. Errors: those of reading the collection.
    fn load(&self) -> Result<Vec<(String, Value)>>;
}

/// A database without stored functions.
#[derive(Debug, Clone, Copy)]
pub struct NoStoredFunctions;

impl StoredFunctions for NoStoredFunctions {
    fn load(&self) -> Result<Vec<(String, Value)>> {
        Ok(Vec::new())
    }
}

/// How the text of a script becomes a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SourceKind {
    /// An expression whose value is a function: `function(x) { return x; }`, `x => x`.
    Function,
    /// A function, or an expression or statements over `this` and `obj`: `this.a > 1`.
    Where,
}

/// A compiled function of one environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionId(pub usize);

/// The environment of one operation.
///
/// Errors of all calls: 139 (JSInterpreterFailure) for an exception or an exceeded limit, the
/// operation's own error if it was interrupted, 10334 for a result that is too large.
pub trait JavaScript: Send + Sync + fmt::Debug {
    /// Compiles a script; the same text has the same function.
    fn compile(&self, source: &str, kind: SourceKind) -> Result<FunctionId>;

    /// Calls a function. `this` is undefined if it is not given.
    fn call(
        &self,
        function: FunctionId,
        this: Option<RawValue<'_>>,
        args: RawArray<'_>,
    ) -> Result<Value>;

    /// Whether the function returns a true value for this document, which is `this` and the global
    /// `obj`.
    fn test(&self, function: FunctionId, doc: RawDoc<'_>) -> Result<bool>;

    /// Calls `state = function(state, ...call)` for each array of `calls`; returns the last state.
    fn fold(&self, function: FunctionId, state: RawValue<'_>, calls: RawArray<'_>)
    -> Result<Value>;

    /// Calls the map function of mapReduce; returns what it emitted: an array of `{k, v}`.
    fn emit(&self, function: FunctionId, doc: RawValue<'_>) -> Result<Value>;

    /// Sets global variables: the `scope` of mapReduce.
    fn set_globals(&self, globals: RawDoc<'_>) -> Result<()>;
}

/// Provides the environments for a server's commands.
pub trait Host: Send + Sync {
    /// The environment for an operation on a database; `None` if JavaScript is switched off.
    fn operation(&self, db: &str) -> Option<Arc<dyn JavaScript>>;
}

/// Bytes that the name of a database has at most.
const DATABASE_NAME_BYTES_MAX: usize = 63;

/// The host that applies to a thread. One value serves all commands of the thread in turn, so that
/// a command without scripts does not allocate.
#[derive(Default)]
struct Current {
    host: Option<Arc<dyn Host>>,
    db: String,
    environment: Option<Arc<dyn JavaScript>>,
}

thread_local! {
    static CURRENT: RefCell<Current> = RefCell::default();
}

/// A guard; when dropped, restores the previous host of the thread.
#[must_use = "scripts of this thread belong to the operation as long as this lives"]
pub struct Entered {
    before: Option<Current>,
}

/// Sets the host that provides the environment of this thread's operation, until the guard is
/// dropped.
pub fn enter(host: Arc<dyn Host>, db: &str) -> Entered {
    CURRENT.with_borrow_mut(|current| {
        let before = (current.host.is_some()).then(|| std::mem::take(current));
        current.host = Some(host);
        current.db.clear();
        current.db.push_str(db);
        Entered { before }
    })
}

impl Drop for Entered {
    fn drop(&mut self) {
        let ended = CURRENT.with_borrow_mut(|current| match self.before.take() {
            Some(before) => {
                let ended = std::mem::replace(current, before);
                (ended.host, ended.environment)
            }
            None => {
                // A longer name is none; its memory is not kept.
                current.db.shrink_to(DATABASE_NAME_BYTES_MAX);
                (current.host.take(), current.environment.take())
            }
        });
        // Outside the borrow: an environment ends here if no cursor keeps it.
        drop(ended);
    }
}

/// The environment of the thread's operation, made on first use; `None` without an engine, or if
/// JavaScript is switched off.
pub fn current() -> Option<Arc<dyn JavaScript>> {
    CURRENT.with_borrow_mut(|current| {
        let host = current.host.as_ref()?;
        if current.environment.is_none() {
            current.environment = host.operation(&current.db);
        }
        current.environment.clone()
    })
}

/// A user's function, with the environment in which it runs. Compiled on first use.
#[derive(Debug, Clone)]
pub struct Script {
    source: Arc<str>,
    kind: SourceKind,
    environment: Option<Arc<dyn JavaScript>>,
    compiled: Arc<OnceLock<FunctionId>>,
}

impl Script {
    /// A script of the current operation.
    pub fn new(source: &str, kind: SourceKind) -> Script {
        Script {
            source: source.into(),
            kind,
            environment: current(),
            compiled: Arc::default(),
        }
    }

    /// The text of an operand that holds a function: a string or Code. `None` for other types.
    pub fn source_of(value: RawValue<'_>) -> Option<&str> {
        match value {
            RawValue::String(text) | RawValue::JavaScript(text) => Some(text),
            _ => None,
        }
    }

    /// The environment. Errors: 31264 without one.
    pub fn environment(&self) -> Result<&dyn JavaScript> {
        match &self.environment {
            Some(environment) => Ok(&**environment),
            None => Err(no_engine()),
        }
    }

    fn function(&self) -> Result<(&dyn JavaScript, FunctionId)> {
        let environment = self.environment()?;
        let id = match self.compiled.get() {
            Some(id) => *id,
            None => {
                let id = environment.compile(&self.source, self.kind)?;
                *self.compiled.get_or_init(|| id)
            }
        };
        Ok((environment, id))
    }

    /// See [`JavaScript::call`].
    pub fn call(&self, this: Option<RawValue<'_>>, args: RawArray<'_>) -> Result<Value> {
        let (environment, id) = self.function()?;
        environment.call(id, this, args)
    }

    /// See [`JavaScript::test`].
    pub fn test(&self, doc: RawDoc<'_>) -> Result<bool> {
        let (environment, id) = self.function()?;
        environment.test(id, doc)
    }

    /// See [`JavaScript::fold`].
    pub fn fold(&self, state: RawValue<'_>, calls: RawArray<'_>) -> Result<Value> {
        let (environment, id) = self.function()?;
        environment.fold(id, state, calls)
    }

    /// See [`JavaScript::emit`].
    pub fn emit(&self, doc: RawValue<'_>) -> Result<Value> {
        let (environment, id) = self.function()?;
        environment.emit(id, doc)
    }
}

/// The error for a script if JavaScript is switched off or not built in.
pub fn no_engine() -> Error {
    location(
        31264,
        "Cannot run server-side javascript without the javascript engine enabled",
    )
}
