//! The server's log: one JSON object a line, with MongoDB's fields.
//!
//! ```text
//!  any thread ── line ──┬──> ring of the last 1024 lines     (getLog)
//!                       ├──> startup warnings                (getLog)
//!                       └──> bounded queue ──> writer thread ──> stdout or file
//! ```
//!
//! Invariant: logging neither blocks on the disk nor fails. The calling thread formats the line.
//! When the writer cannot keep up or the disk is full, lines are dropped; their number is logged as
//! soon as a line can be written.
//!
//! Ids are MongoDB's where the message is MongoDB's, so that tools that select lines by id keep
//! working. Ids of sheaf's own messages are in [`events`].

mod component;
pub mod events;
mod format;
mod redact;
mod ring;
mod sink;
mod truncate;
mod verbosity;

use std::borrow::Cow;
use std::cell::RefCell;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sheaf_bson::{DocBuf, DocBuilder, RawDoc};

pub use component::{Component, Severity};
pub use sink::{Destination, Rotation};

use ring::Ring;
use sink::Sink;
use verbosity::Verbosity;

/// Number of lines kept for `getLog: "global"`.
const RECENT_LINES: usize = 1024;

/// Number of startup warnings kept; further ones are only logged.
const STARTUP_WARNINGS: usize = 128;

/// The server's log. Shared by every thread.
pub struct Log {
    verbosity: Verbosity,
    format: format::Format,
    recent: Mutex<Ring>,
    startup_warnings: Mutex<Ring>,
    sink: Sink,
    redacts: AtomicBool,
}

/// How a log is set up.
#[derive(Clone, Debug, Default)]
pub struct LogOptions {
    /// Where the lines go.
    pub destination: Destination,
    /// Timestamps in UTC (`Z`) instead of local time with its offset.
    pub utc: bool,
    /// The default verbosity, 0 to 5.
    pub verbosity: u8,
    /// What `logRotate` does to a log file.
    pub rotation: Rotation,
}

impl Log {
    /// Opens the destination and starts the writer.
    ///
    /// Errors: the log file cannot be opened.
    pub fn open(options: LogOptions) -> io::Result<Arc<Log>> {
        let log = Log {
            verbosity: Verbosity::new(options.verbosity),
            format: format::Format::new(options.utc),
            recent: Mutex::new(Ring::new(RECENT_LINES)),
            startup_warnings: Mutex::new(Ring::new(STARTUP_WARNINGS)),
            sink: Sink::open(options.destination, options.rotation)?,
            redacts: AtomicBool::new(false),
        };
        Ok(Arc::new(log))
    }

    /// A log that keeps its recent lines in memory and writes nothing.
    pub fn in_memory() -> Arc<Log> {
        Arc::new(Log {
            verbosity: Verbosity::new(0),
            format: format::Format::new(true),
            recent: Mutex::new(Ring::new(RECENT_LINES)),
            startup_warnings: Mutex::new(Ring::new(STARTUP_WARNINGS)),
            sink: Sink::none(),
            redacts: AtomicBool::new(false),
        })
    }

    /// Replaces values that clients sent in lines that follow (`redactClientLogData`).
    pub fn set_redacts(&self, redacts: bool) {
        self.redacts.store(redacts, Ordering::Relaxed);
    }

    /// A document that a client sent, or that contains such values, as lines may show it.
    pub fn client_document<'a>(&self, document: &'a DocBuf) -> Cow<'a, DocBuf> {
        match self.redacts.load(Ordering::Relaxed) {
            true => Cow::Owned(redact::document(document.as_raw())),
            false => Cow::Borrowed(document),
        }
    }

    /// A text that may contain values that a client sent, such as an error message, as lines may
    /// show it.
    pub fn client_text<'a>(&self, text: &'a str) -> &'a str {
        match self.redacts.load(Ordering::Relaxed) {
            true => redact::REDACTED,
            false => text,
        }
    }

    /// Whether a line of this severity and component would be logged. Cheap enough to call once
    /// per operation.
    pub fn enabled(&self, severity: Severity, component: Component) -> bool {
        match severity {
            Severity::Debug(level) => level <= self.verbosity.of(component),
            _ => true,
        }
    }

    /// Logs a line, if its severity is enabled for its component.
    ///
    /// `attr` fills in the attributes; it is not called for a line that is not
    /// logged, and a line without attributes has no `attr`.
    pub fn line(
        &self,
        severity: Severity,
        component: Component,
        id: u32,
        message: &str,
        attr: impl FnOnce(&mut DocBuilder),
    ) {
        if self.enabled(severity, component) {
            let mut builder = DocBuilder::new();
            attr(&mut builder);
            self.line_with(
                severity,
                component,
                id,
                message,
                builder.finish().as_raw(),
                &[],
            );
        }
    }

    /// An informational line.
    pub fn info(
        &self,
        component: Component,
        id: u32,
        message: &str,
        attr: impl FnOnce(&mut DocBuilder),
    ) {
        self.line(Severity::Info, component, id, message, attr);
    }

    /// A warning.
    pub fn warning(
        &self,
        component: Component,
        id: u32,
        message: &str,
        attr: impl FnOnce(&mut DocBuilder),
    ) {
        self.line(Severity::Warning, component, id, message, attr);
    }

    /// An error.
    pub fn error(
        &self,
        component: Component,
        id: u32,
        message: &str,
        attr: impl FnOnce(&mut DocBuilder),
    ) {
        self.line(Severity::Error, component, id, message, attr);
    }

    /// A warning that `getLog: "startupWarnings"` also returns; mongosh shows these when it
    /// connects.
    pub fn startup_warning(&self, id: u32, message: &str, attr: impl FnOnce(&mut DocBuilder)) {
        let mut builder = DocBuilder::new();
        attr(&mut builder);
        self.line_with(
            Severity::Warning,
            Component::Control,
            id,
            message,
            builder.finish().as_raw(),
            &[STARTUP_WARNINGS_TAG],
        );
    }

    /// Logs a line with attributes already built, regardless of the verbosity.
    pub fn line_with(
        &self,
        severity: Severity,
        component: Component,
        id: u32,
        message: &str,
        attr: RawDoc<'_>,
        tags: &[&str],
    ) {
        let line: Arc<str> = CONTEXT.with_borrow(|name| {
            let context = match name {
                Some(name) => name.as_str(),
                None => "-",
            };
            self.format
                .line(severity, component, id, context, message, attr, tags)
                .into()
        });
        if tags.contains(&STARTUP_WARNINGS_TAG) {
            self.startup_warnings.lock().push(Arc::clone(&line));
        }
        self.recent.lock().push(Arc::clone(&line));
        self.sink.write(line);
    }

    /// Number of lines logged since the start, and the most recent ones, oldest first.
    pub fn recent(&self) -> (u64, Vec<Arc<str>>) {
        self.recent.lock().lines()
    }

    /// Number of startup warnings since the start, and the most recent ones, oldest first.
    pub fn startup_warnings(&self) -> (u64, Vec<Arc<str>>) {
        self.startup_warnings.lock().lines()
    }

    /// Clears the lines of `getLog: "global"` (`clearLog`).
    pub fn clear_recent(&self) {
        self.recent.lock().clear();
    }

    /// The verbosity of every component, as `getParameter` shows it:
    /// `{verbosity: 0, accessControl: {verbosity: -1}, ...}`, -1 for inherited.
    pub fn component_verbosity(&self) -> DocBuf {
        self.verbosity.document()
    }

    /// Changes the verbosity of the components named in a document of the form that
    /// [`component_verbosity`](Log::component_verbosity) returns. On an error nothing changes.
    pub fn set_component_verbosity(
        &self,
        document: RawDoc<'_>,
    ) -> sheaf_bson::error_code::Result<()> {
        self.verbosity.set(document)
    }

    /// Sets the verbosity of one component by its dotted name; -1 inherits.
    pub fn set_verbosity(&self, component: Component, level: i8) {
        self.verbosity.set_one(component, level);
    }

    /// The default verbosity (`logLevel`).
    pub fn default_verbosity(&self) -> u8 {
        self.verbosity.of(Component::Default)
    }

    /// Sets the limit of an attribute's size in a line (`maxLogSizeKB`).
    pub fn set_attribute_bytes_max(&self, bytes: usize) {
        self.format.set_attribute_bytes_max(bytes);
    }

    /// Renames the log file and begins a new one, or reopens its path, according to
    /// [`LogOptions::rotation`]. Does nothing to a log on stdout.
    ///
    /// Errors: the file could not be renamed or opened; the old one stays in use.
    pub fn rotate(&self) -> io::Result<()> {
        self.sink.rotate()
    }

    /// Waits until the lines logged so far are written, at most for `limit`.
    pub fn flush(&self, limit: Duration) {
        self.sink.flush(limit);
    }

    /// The log file; `None` for stdout.
    pub fn path(&self) -> Option<PathBuf> {
        self.sink.path()
    }
}

/// The tag of lines that are startup warnings.
const STARTUP_WARNINGS_TAG: &str = "startupWarnings";

thread_local! {
    static CONTEXT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Names this thread in the `ctx` of the lines it logs: `conn12`, `listener`.
pub fn set_context(name: impl Into<String>) {
    CONTEXT.set(Some(name.into()));
}

/// No attributes.
pub fn none(_: &mut DocBuilder) {}

#[cfg(test)]
mod tests;
