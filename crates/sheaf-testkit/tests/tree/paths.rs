//! Checks that the paths named in documents and comments exist.

use crate::{files, read, root};

/// Documents whose paths in backticks are checked.
const DOCUMENTS: &[&str] = &[
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "docs/glossary.md",
];

/// The text between backticks in a line.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// The path in this tree that a word in backticks names; `None` if it is not a path.
fn as_path(word: &str) -> Option<String> {
    let plain = word
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    if !plain || !word.contains('/') || word.starts_with(['/', '.']) {
        return None;
    }
    let first = word.split('/').next()?;
    match first {
        "crates" | "docs" | "tests" | "fuzz" | "examples" => Some(word.to_string()),
        _ if first.starts_with("sheaf") => Some(format!("crates/{word}")),
        _ => None,
    }
}

#[test]
fn named_paths_exist() {
    let mut wrong = String::new();
    for document in DOCUMENTS {
        for (at, line) in read(document).lines().enumerate() {
            for path in quoted(line).filter_map(as_path) {
                if !root().join(&path).exists() {
                    wrong += &format!("{document}:{}: {path}\n", at + 1);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "paths that do not exist:\n{wrong}");
}

#[test]
fn documents_that_comments_name_exist() {
    let mut wrong = String::new();
    for file in files(&[".rs", ".toml", ".sh", ".py"]) {
        for (at, line) in read(&file).lines().enumerate() {
            for rest in line.split("docs/").skip(1) {
                let name = rest
                    .split(|c: char| !(c.is_ascii_alphanumeric() || "/._-".contains(c)))
                    .next()
                    .unwrap_or("");
                if name.ends_with(".md") && !root().join("docs").join(name).exists() {
                    wrong += &format!("{}:{}: docs/{name}\n", file.display(), at + 1);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "documents that do not exist:\n{wrong}");
}
