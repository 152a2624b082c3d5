//! The manual's page of log events lists exactly the ids of the registry.

use std::collections::BTreeSet;

use crate::read;

/// The ids of the registry, written `NAME = 9_000_0NN;`.
fn registered() -> BTreeSet<u64> {
    read("crates/sheaf-server/src/log/events.rs")
        .lines()
        .filter_map(|line| line.strip_suffix(';')?.split_once(" = "))
        .filter_map(|(_, id)| id.replace('_', "").parse().ok())
        .collect()
}

#[test]
fn the_manual_lists_every_event() {
    let page = read("docs/manual/log-events.md");
    let listed: BTreeSet<u64> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" |").next()?.parse().ok())
        .collect();
    let used = registered();
    assert!(!used.is_empty());
    let missing: Vec<_> = used.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&used).collect();
    assert!(missing.is_empty(), "log-events.md lacks {missing:?}");
    assert!(gone.is_empty(), "log-events.md lists unknown {gone:?}");
}
