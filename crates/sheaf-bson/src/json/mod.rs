//! Text forms of values.
//!
//! | style     | `{a: Long 5, b: [1.0]}`                      | where |
//! |-----------|----------------------------------------------|-------|
//! | shell     | `{ a: 5, b: [ 1.0 ] }`                       | explain bounds, messages, golden tests |
//! | typed     | `{ a: NumberLong(5), b: [ 1.0 ] }`           | `Debug`; reads back to the same bytes |
//! | relaxed   | `{"a":5,"b":[1.0]}`                          | log lines |
//! | canonical | `{"a":{"$numberLong":"5"},"b":[...]}`        | exact interchange |
//!
//! Printing recurses no deeper than a valid document can and cuts off below.

mod date;
mod extended;
mod parse;
mod shell;
mod wrapper;

pub use extended::{to_canonical, to_relaxed, write_canonical, write_relaxed};
pub use parse::{parse, parse_doc, parse_prefix};
pub use shell::{shell, shell_doc, typed, typed_doc, write_shell};

/// Deeper than any valid document.
pub(crate) const DEPTH_MAX: u32 = 250;
