//! The manual's page of log events lists exactly the ids that the code uses.

use std::collections::BTreeSet;

use crate::{files, read};

/// Ids of our own begin here.
const FIRST: u64 = 9_000_001;
const LAST: u64 = 9_000_999;

/// Numbers written as `9_000_0NN`, outside tests.
fn used() -> BTreeSet<u64> {
    let mut ids = BTreeSet::new();
    for file in files(&[".rs"]) {
        let path = file.to_string_lossy();
        if !path.contains("/src/") || path.ends_with("tests.rs") {
            continue;
        }
        for line in read(&file).lines() {
            let code = line.split("//").next().unwrap_or("");
            for word in code.split(|c: char| !(c.is_ascii_digit() || c == '_')) {
                let id: Option<u64> = word.replace('_', "").parse().ok();
                ids.extend(id.filter(|id| (FIRST..=LAST).contains(id)));
            }
        }
    }
    ids
}

#[test]
fn the_manual_lists_every_event() {
    let page = read("docs/manual/log-events.md");
    let listed: BTreeSet<u64> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" |").next()?.parse().ok())
        .collect();
    let used = used();
    assert!(!used.is_empty());
    let missing: Vec<_> = used.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&used).collect();
    assert!(missing.is_empty(), "log-events.md lacks {missing:?}");
    assert!(gone.is_empty(), "log-events.md lists unused {gone:?}");
}
