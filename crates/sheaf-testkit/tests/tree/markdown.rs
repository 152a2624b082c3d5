//! Links, anchors and line width of every Markdown file.

use std::path::Path;

use crate::{files, read, root};

/// Generated files, whose lines may be longer.
const GENERATED: &[&str] = &["COMPAT.md", "manual/commands.md"];

/// The lines outside fenced and indented code, with their numbers.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced && !line.starts_with("    ") {
            lines.push((at + 1, line));
        }
    }
    lines
}

/// The anchor of a heading: lower case, without punctuation, spaces as dashes.
fn anchor(heading: &str) -> String {
    heading
        .trim()
        .to_lowercase()
        .chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
            _ => None,
        })
        .collect()
}

fn has_anchor(path: &Path, wanted: &str) -> bool {
    let text = read(path);
    prose(&text)
        .iter()
        .any(|(_, line)| line.starts_with('#') && anchor(line.trim_start_matches('#')) == wanted)
}

/// The targets of `[text](target)` in a line.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
}

#[test]
fn links_lead_somewhere() {
    let mut wrong = String::new();
    for path in files(&[".md"]) {
        let text = read(&path);
        let folder = path.parent().expect("a file has a folder");
        for (number, line) in prose(&text) {
            for target in targets(line) {
                if target.contains("://") || target.starts_with("mailto:") {
                    continue;
                }
                let (file, fragment) = target.split_once('#').unwrap_or((target, ""));
                let there = match file {
                    "" => path.clone(),
                    file => folder.join(file),
                };
                let found = root().join(&there).exists()
                    && (fragment.is_empty() || has_anchor(&there, fragment));
                if !found {
                    wrong += &format!("{}:{number}: {target}\n", path.display());
                }
            }
        }
    }
    assert!(wrong.is_empty(), "links that lead nowhere:\n{wrong}");
}

#[test]
fn paragraphs_are_wrapped_at_100() {
    let mut wrong = String::new();
    for path in files(&[".md"]) {
        let exempt = |ends: &&str| path.ends_with(ends);
        if GENERATED.iter().any(exempt) {
            continue;
        }
        let text = read(&path);
        for (number, line) in prose(&text) {
            let row = line.trim_start().starts_with('|');
            if !row && line.chars().count() > 100 && !line.contains("](http") {
                wrong += &format!("{}:{number}\n", path.display());
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "lines of more than 100 characters:\n{wrong}"
    );
}

#[test]
fn the_index_names_every_page() {
    let index = read("docs/README.md");
    let missing: Vec<String> = files(&[".md"])
        .into_iter()
        .filter_map(|path| Some(path.strip_prefix("docs").ok()?.to_path_buf()))
        .filter(|path| path.components().count() == 2 && !path.starts_with("manual"))
        .map(|path| path.to_string_lossy().into_owned())
        .filter(|path| !index.contains(&format!("({path})")))
        .collect();
    assert!(missing.is_empty(), "docs/README.md lacks: {missing:?}");
    let manual = read("docs/manual/README.md");
    for path in files(&[".md"]) {
        if let Ok(page) = path.strip_prefix("docs/manual")
            && page != Path::new("README.md")
        {
            let page = page.to_string_lossy();
            assert!(
                manual.contains(&format!("({page})")),
                "docs/manual/README.md lacks {page}"
            );
        }
    }
}

#[test]
fn every_decision_has_a_date_and_a_status() {
    for path in files(&[".md"]) {
        if !path.starts_with("docs/decisions") {
            continue;
        }
        let text = read(&path);
        let line = text.lines().nth(2).unwrap_or("");
        let (date, status) = line
            .strip_prefix("Decided: ")
            .and_then(|rest| rest.split_once(". Status: "))
            .unwrap_or_else(|| panic!("{}: no date and status: {line}", path.display()));
        let dated = date.len() == 10 && date.bytes().filter(|b| *b == b'-').count() == 2;
        let known = ["in force.", "superseded", "proposed"]
            .iter()
            .any(|word| status.starts_with(word));
        assert!(dated && known, "{}: {line}", path.display());
    }
}
