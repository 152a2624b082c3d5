//! The command table is the only list of commands by name.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use sheaf_server::command::{find, is_compressible, rows};
use sheaf_server::command_facts::{Kind, Names, Target, Waits};

/// Adjacent command names that are allowed because they mean something else.
const ALLOWED: &[(&str, &str, &str)] = &[
    (
        "sheaf-server/src/observe/metrics.rs",
        "\"update\", \"delete\"",
        "names of opcounters",
    ),
    (
        "sheaf-wire/src/decode.rs",
        "\"hello\" | \"isMaster\"",
        "the protocol: which commands may come as OP_QUERY",
    ),
    (
        "sheaf-wire/src/decode.rs",
        "\"isMaster\" | \"ismaster\"",
        "the same",
    ),
    (
        "sheafd/src/config/options.rs",
        "\"setParameter\", \"setParameter\"",
        "an option of the command line",
    ),
];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Adjacent string literals of `text` that only a separator divides.
fn neighbours(text: &str) -> Vec<(&str, &str, &str)> {
    let parts: Vec<&str> = text.split('"').collect();
    let mut pairs = Vec::new();
    for at in (1..parts.len().saturating_sub(2)).step_by(2) {
        let between = parts[at + 1].trim();
        if between == "|" || between == "," {
            pairs.push((parts[at], between, parts[at + 2]));
        }
    }
    pairs
}

#[test]
fn no_other_list_of_commands_exists() {
    let mut names = HashSet::new();
    for row in rows() {
        names.insert(row.command.name);
        names.extend(row.command.aliases);
    }
    let mut files = Vec::new();
    for folder in ["sheaf-server/src", "sheafd/src", "sheaf-wire/src"] {
        sources(&crates().join(folder), &mut files);
    }
    assert!(
        files.len() > 100,
        "the sources are not in the expected place"
    );
    let mut wrong = Vec::new();
    for file in files {
        let path = file.strip_prefix(crates()).unwrap();
        let path = path.to_str().unwrap().to_owned();
        if path.starts_with("sheaf-server/src/command/table/") || path.ends_with("/tests.rs") {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        // Comments may quote; the quotes of a line pair up.
        let code: Vec<&str> = text
            .lines()
            .take_while(|line| !line.starts_with("#[cfg(test)]"))
            .filter(|line| !line.trim_start().starts_with("//") && !line.contains("'\"'"))
            .collect();
        let code = code.join("\n").replace("\\\"", "");
        for (one, between, other) in neighbours(&code) {
            let pair = match between {
                "," => format!("\"{one}\", \"{other}\""),
                _ => format!("\"{one}\" | \"{other}\""),
            };
            let allowed = ALLOWED
                .iter()
                .any(|(file, allowed, _)| *file == path && *allowed == pair);
            if names.contains(one) && names.contains(other) && !allowed {
                wrong.push(format!("{path}: {pair}"));
            }
        }
        for asked in [
            "command.name ==",
            "command.name {",
            "cx.name() ==",
            "name() {\n        \"",
        ] {
            if code.contains(asked) {
                wrong.push(format!("{path}: asks for a name with '{asked}'"));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "make it a column of the table:\n{wrong:#?}"
    );
}

#[test]
fn columns_are_consistent() {
    let mut names = HashSet::new();
    for row in rows() {
        let command = &row.command;
        let name = command.name;
        for name in std::iter::once(&name).chain(command.aliases) {
            assert!(names.insert(*name), "{name} is listed twice");
            let found = find(name).expect("a row");
            assert!(std::ptr::eq(found, row), "{name}");
        }
        let first = command.help.chars().next().unwrap();
        assert!(first.is_ascii_uppercase(), "{name}: {}", command.help);
        assert!(!command.help.ends_with('.'), "{name}: {}", command.help);
        if command.retryable {
            assert_eq!(command.kind, Kind::Write, "{name}");
        }
        if command.kind == Kind::Write || command.changes_catalog {
            assert_eq!(command.write_concern, Waits::OrDefault, "{name}");
            assert!(!command.only_replies, "{name} would be cut short");
        }
        if command.collection == Names::Nothing {
            assert_eq!(command.target, nothing_named(name), "{name}");
        }
    }
}

/// `explain` names its collection in the command that it explains.
fn nothing_named(name: &str) -> Target {
    match name == "explain" {
        true => Target::View,
        false => Target::Collection,
    }
}

#[test]
fn a_handshake_is_not_compressed() {
    for name in [
        "hello",
        "isMaster",
        "ismaster",
        "saslStart",
        "no such command",
    ] {
        assert!(!is_compressible(name), "{name}");
    }
    assert!(is_compressible("find"));
}
