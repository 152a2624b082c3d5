//! Checks the import order inside a crate: which folder may import which.
//!
//! Cargo keeps the borders between crates. Inside a crate nothing does, so each crate's tests
//! call [`check`] with the order of its folders.
//!
//! ```text
//!   src/**/*.rs ──source──> imports of each file ──graph──> circles, imports against the order
//! ```
//!
//! A *circle* is a strongly connected set of files. An *upward import* is an import of a file by
//! one of a lower rank. Re-exports are followed to the file that defines the name, and a
//! re-export by a parent module does not count as an import: a facade creates no circle.
//! Code under `#[cfg(test)]` does not count.
//!
//! Approximations: paths built by macros are not seen, and a name that a glob import brings in
//! counts for the module of the glob.

mod graph;
mod source;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use self::graph::circles;
use self::source::{Crate, Import};

/// The rules for a crate's imports.
pub struct Rules<'a> {
    /// Folders and files relative to `src`, lowest first. Each element is one rank and may name
    /// several, separated by white space. The longest name that matches a file counts, and each
    /// file of the crate must match one.
    pub order: &'a [&'a str],
    /// Largest number of files in a circle.
    pub circle_files_max: usize,
    /// Upward imports that are allowed.
    pub upward: &'a [Upward<'a>],
}

/// An allowed import of a higher file by a lower one, and why.
pub struct Upward<'a> {
    /// The importing file, relative to `src`.
    pub from: &'a str,
    /// The imported file, relative to `src`.
    pub to: &'a str,
    /// Why the import stays.
    pub reason: &'a str,
}

/// Compares the sources in `src` with `rules`.
///
/// Returns a report with the counts. Fails with the offending files when a circle is too large,
/// an upward import is not allowed or an allowed one no longer exists, or a file has no rank.
pub fn check(src: &Path, rules: &Rules<'_>) -> Result<String, String> {
    let sources = Crate::read(src).map_err(|error| format!("{}: {error}", src.display()))?;
    let imports = sources.imports();
    let mut report = format!(
        "{} files, {} imports\n",
        sources.files().count(),
        imports.len()
    );
    let mut wrong = String::new();
    check_circles(&imports, rules.circle_files_max, &mut report, &mut wrong);
    check_order(&sources, &imports, rules, &mut report, &mut wrong);
    if wrong.is_empty() {
        Ok(report)
    } else {
        Err(report + &wrong)
    }
}

/// Describes the sources in `src` without rules: the circles with the imports that tie them.
pub fn survey(src: &Path) -> Result<String, String> {
    let sources = Crate::read(src).map_err(|error| format!("{}: {error}", src.display()))?;
    let imports = sources.imports();
    let mut report = format!(
        "{} files, {} imports\n",
        sources.files().count(),
        imports.len()
    );
    let mut ties = String::new();
    check_circles(&imports, 1, &mut report, &mut ties);
    Ok(report + &ties)
}

fn check_circles(
    imports: &BTreeMap<(String, String), Import>,
    files_max: usize,
    report: &mut String,
    wrong: &mut String,
) {
    let found = circles(imports.keys());
    let sizes: Vec<String> = found.iter().map(|files| files.len().to_string()).collect();
    let _ = writeln!(report, "circles (files in each): {}", sizes.join(" "));
    for files in found.iter().filter(|files| files.len() > files_max) {
        let _ = writeln!(
            wrong,
            "a circle of {} files, {files_max} are allowed:",
            files.len()
        );
        for ((from, to), import) in imports {
            if files.contains(from) && files.contains(to) {
                let _ = writeln!(wrong, "  {from} -> {to}: {}", import.names());
            }
        }
    }
}

fn check_order(
    sources: &Crate,
    imports: &BTreeMap<(String, String), Import>,
    rules: &Rules<'_>,
    report: &mut String,
    wrong: &mut String,
) {
    for file in sources.files() {
        if rank(rules.order, file).is_none() {
            let _ = writeln!(wrong, "{file} has no rank in the order of folders");
        }
    }
    let mut unused: Vec<&Upward<'_>> = rules.upward.iter().collect();
    let mut count = 0;
    for ((from, to), import) in imports {
        if rank(rules.order, from) >= rank(rules.order, to) {
            continue;
        }
        count += 1;
        let known = unused
            .iter()
            .position(|allowed| allowed.from == from && allowed.to == to);
        match known {
            Some(at) => {
                let allowed = unused.remove(at);
                let _ = writeln!(report, "upward: {from} -> {to} ({})", allowed.reason);
            }
            None => {
                let _ = writeln!(wrong, "upward import: {from} -> {to}: {}", import.names());
            }
        }
    }
    let _ = writeln!(report, "upward imports: {count}");
    for allowed in unused {
        let _ = writeln!(
            wrong,
            "allowed, but no longer imported upward: {} -> {}",
            allowed.from, allowed.to
        );
    }
}

/// The position in `order` of the longest name that covers `file`.
fn rank(order: &[&str], file: &str) -> Option<usize> {
    order
        .iter()
        .enumerate()
        .flat_map(|(at, names)| {
            names
                .split_whitespace()
                .map(move |name| (name.len(), at, name))
        })
        .filter(|(_, _, name)| file == *name || (name.ends_with('/') && file.starts_with(name)))
        .max()
        .map(|(_, at, _)| at)
}

#[cfg(test)]
mod tests;
