//! Test scripts: text in, text out, in `testdata/`.
//!
//! A line without indentation is a question; the indented lines that follow are its answer.
//! `UPDATE_EXPECT=1` rewrites computed answers; truth tables are only checked.

use std::fmt::Write;
use std::path::PathBuf;

use sheaf_bson::DocBuf;
use sheaf_bson::json::{parse_doc, parse_prefix};

/// The path of a script.
pub(crate) fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("testdata")
        .join(name)
}

/// Parses a document in shell syntax.
pub(crate) fn read(text: &str) -> DocBuf {
    parse_doc(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// Parses a document at the start of a text; also returns the remaining text.
pub(crate) fn read_prefix(text: &str) -> (DocBuf, &str) {
    let (_, end) = parse_prefix(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    (read(text[..end].trim_end()), text[end..].trim_start())
}

/// A question and its answer in the script.
pub(crate) struct Block {
    pub(crate) word: String,
    pub(crate) rest: String,
    pub(crate) answer: Vec<String>,
}

/// Runs a script. Calls `answer` for each question, and compares the result with the answer in the
/// script, or replaces it. `None` skips the comparison.
pub(crate) fn run(name: &str, mut answer: impl FnMut(&Block) -> Option<Vec<String>>) {
    let text = std::fs::read_to_string(path(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    let mut out = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let _ = writeln!(out, "{line}");
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let mut block = Block {
            word: word.to_owned(),
            rest: rest.to_owned(),
            answer: Vec::new(),
        };
        while let Some(next) =
            lines.next_if(|next| next.starts_with("  ") || next.starts_with("= "))
        {
            block.answer.push(next.to_owned());
        }
        match answer(&block) {
            None => block.answer.iter().for_each(|line| {
                let _ = writeln!(out, "{line}");
            }),
            Some(lines) => lines.iter().for_each(|line| {
                let _ = writeln!(out, "  {line}");
            }),
        }
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(path(name), out).unwrap();
    } else if out != text {
        let pairs = text.lines().zip(out.lines()).enumerate();
        let different = pairs.into_iter().find(|(_, (old, new))| old != new);
        panic!("{name}: answers differ (UPDATE_EXPECT=1 rewrites them): {different:?}");
    }
}
