//! Values as text: extended JSON and the notation of the shell, printed and parsed.
//!
//! Printing recurses no deeper than a valid document can be nested and truncates below that.

mod date;
mod extended;
mod parse;
mod shell;
mod wrapper;

pub use date::{format as format_date, parse as parse_date};
pub use extended::{to_canonical, to_relaxed, write_canonical, write_relaxed};
pub use parse::{parse, parse_doc, parse_prefix};
pub use shell::{shell, shell_doc, typed, typed_doc, write_shell};

/// Deeper than any valid document.
pub(crate) const DEPTH_MAX: u32 = 250;
