//! Command line and configuration file, parsed into one typed [`Settings`].
//!
//! ```text
//!  argv ──command_line──┐
//!                       ├──> [Given] ──settings──> Settings
//!  YAML ──yaml──────────┘       └───parsed──> getCmdLineOpts
//! ```
//!
//! One table ([`options`]) lists every option, its two spellings, and whether the server supports
//! it. Invariant: an option takes effect, is reported at startup as having no effect, or is refused
//! by name; none is silently ignored. The command line overrides the file.

mod command_line;
mod key_file;
pub mod options;
mod parsed;
mod settings;
mod tls;
mod yaml;

use std::ffi::OsString;
use std::fmt;
use std::path::Path;

pub use settings::{LogSettings, Net, Settings, UnixSocket};

use options::{Opt, Value};

/// An option that was given, with its value.
#[derive(Clone, Debug)]
struct Given {
    option: &'static Opt,
    /// The variable part of the key: a server parameter's or log component's name, else empty.
    name: String,
    value: Value,
    origin: Origin,
}

/// Where an option was given.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Origin {
    CommandLine,
    File { line: usize },
}

/// The action that the command line requests.
#[derive(Debug)]
pub enum Request {
    /// Run the server.
    Run(Box<Settings>),
    /// Stop the server that runs on the settings' `db_path`.
    Shutdown(Box<Settings>),
    /// Print this and exit cleanly: help, or the version.
    Print(String),
}

/// An error in the options. The text names the option, or the line of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError(String);

impl ConfigError {
    fn new(message: impl Into<String>) -> Self {
        ConfigError(message.into())
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

/// Reads the command line (the program's name first) and the configuration
/// file it names.
pub fn read(arguments: &[OsString]) -> Result<Request, ConfigError> {
    read_with(arguments, &|path| std::fs::read_to_string(path))
}

/// Like [`read`], with the file reader as an argument.
fn read_with(
    arguments: &[OsString],
    read_file: &dyn Fn(&Path) -> std::io::Result<String>,
) -> Result<Request, ConfigError> {
    let line = match command_line::parse(arguments)? {
        command_line::Parsed::Print(text) => return Ok(Request::Print(text)),
        command_line::Parsed::Given(line) => line,
    };
    let mut given = Vec::new();
    if let Some(path) = &line.config {
        let text = read_file(Path::new(path)).map_err(|e| {
            ConfigError::new(format!("cannot read the configuration file {path}: {e}"))
        })?;
        given = yaml::parse(&text)
            .map_err(|e| ConfigError::new(format!("configuration file {path}: {e}")))?;
    }
    // Options of the command line replace those of the file.
    for item in line.given {
        given.retain(|g: &Given| {
            g.origin == Origin::CommandLine
                || g.option.target() != item.option.target()
                || g.name != item.name
        });
        given.push(item);
    }
    let settings = settings::assemble(&given, &line.config, &line.arguments)?;
    Ok(match line.shutdown {
        true => Request::Shutdown(Box::new(settings)),
        false => Request::Run(Box::new(settings)),
    })
}

#[cfg(test)]
mod tests;
