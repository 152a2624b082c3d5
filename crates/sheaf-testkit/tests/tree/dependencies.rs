//! Checks of the dependencies: licences, versions, and the minimum compiler version.
//!
//! `deny.toml` holds the list of licences for cargo-deny; this test reads the same list, so that
//! it is checked where cargo-deny is not installed.

use std::process::Command;

use serde_json::Value;

use crate::{read, root};

/// Every package of the lock file that is built on Linux.
fn packages() -> Vec<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--locked", "--offline"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata: {error}");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("metadata is JSON");
    metadata["packages"].as_array().expect("packages").clone()
}

/// The entries of one list of strings in `deny.toml`.
fn list(name: &str) -> Vec<String> {
    let text = read("deny.toml");
    let start = format!("\n{name} = [");
    let (_, rest) = text.split_once(&start).expect("the list is in deny.toml");
    let (entries, _) = rest.split_once("\n]").expect("the list ends");
    entries
        .lines()
        .map(|line| line.split('#').next().unwrap_or("").trim())
        .filter(|line| !line.is_empty())
        .map(|line| line.trim_matches([',', '"']).to_string())
        .collect()
}

/// Whether an SPDX expression can be satisfied by the licences in `allowed`. Adds each licence
/// that is relied on to `used`. `OR` needs one side, `AND` both; `AND` has higher precedence.
fn satisfied(expression: &str, allowed: &[String], used: &mut Vec<String>) -> bool {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let ok = either(&words, &mut at, allowed, used);
    ok && at == words.len()
}

fn either(words: &[&str], at: &mut usize, allowed: &[String], used: &mut Vec<String>) -> bool {
    let mut ok = both(words, at, allowed, used);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        ok |= both(words, at, allowed, used);
    }
    ok
}

fn both(words: &[&str], at: &mut usize, allowed: &[String], used: &mut Vec<String>) -> bool {
    let mut ok = one(words, at, allowed, used);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        ok &= one(words, at, allowed, used);
    }
    ok
}

fn one(words: &[&str], at: &mut usize, allowed: &[String], used: &mut Vec<String>) -> bool {
    let Some(&word) = words.get(*at) else {
        return false;
    };
    *at += 1;
    if word == "(" {
        let ok = either(words, at, allowed, used);
        *at += 1;
        return ok;
    }
    let mut name = word.to_string();
    if words.get(*at) == Some(&"WITH") {
        name = format!("{word} WITH {}", words.get(*at + 1).unwrap_or(&""));
        *at += 2;
    }
    let ok = allowed.contains(&name);
    if ok {
        used.push(name);
    }
    ok
}

#[test]
fn expressions_of_licences() {
    let allowed = ["MIT".to_string(), "Apache-2.0".to_string()];
    let ok = |expression| satisfied(expression, &allowed, &mut Vec::new());
    assert!(ok("MIT"));
    assert!(ok("GPL-3.0 OR MIT"));
    assert!(ok("GPL-3.0/MIT"));
    assert!(ok("(GPL-3.0 OR MIT) AND Apache-2.0"));
    assert!(!ok("GPL-3.0 AND MIT"));
    assert!(!ok("Apache-2.0 WITH LLVM-exception"));
    assert!(!ok("MIT AND (GPL-3.0 OR LGPL-3.0)"));
    assert!(!ok(""));
    assert!(!ok("MIT )"));
}

#[test]
fn every_licence_is_allowed_by_deny_toml() {
    let allowed = list("allow");
    let mut used = Vec::new();
    let mut wrong = String::new();
    for package in packages() {
        let licence = package["license"].as_str().unwrap_or("none given");
        if !satisfied(licence, &allowed, &mut used) {
            wrong += &format!("{} {}: {licence}\n", package["name"], package["version"]);
        }
    }
    assert!(
        wrong.is_empty(),
        "licences that deny.toml does not allow:\n{wrong}"
    );
    let unused: Vec<&String> = allowed.iter().filter(|name| !used.contains(name)).collect();
    assert!(
        unused.is_empty(),
        "deny.toml allows licences that no dependency has: {unused:?}"
    );
}

#[test]
fn every_dependency_builds_with_the_oldest_compiler() {
    let parse = |version: &str| -> Vec<u64> {
        version
            .split('.')
            .map(|part| part.parse().expect("a version of numbers"))
            .collect()
    };
    let manifest = read("Cargo.toml");
    let line = manifest
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = "));
    let oldest = line.expect("rust-version").trim_matches('"').to_string();
    let mut newer = String::new();
    for package in packages() {
        if let Some(needs) = package["rust_version"].as_str()
            && parse(needs) > parse(&oldest)
        {
            newer += &format!("{} {}: {needs}\n", package["name"], package["version"]);
        }
    }
    assert!(newer.is_empty(), "these need more than {oldest}:\n{newer}");
    let readme = read("README.md");
    assert!(
        readme.contains(&format!("Rust {oldest}")),
        "README.md does not name Rust {oldest}"
    );
}

#[test]
fn versions_are_exact() {
    let manifest = read("Cargo.toml");
    let (_, rest) = manifest
        .split_once("[workspace.dependencies]")
        .expect("dependencies");
    let (section, _) = rest.split_once("\n[").expect("a section after it");
    for line in section.lines() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let exact = line.contains("\"=") || line.contains("{ path = ");
        assert!(exact, "not an exact version: {line}");
    }
}
