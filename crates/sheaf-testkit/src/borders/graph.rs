//! Circles of a directed graph: its strongly connected components (Tarjan, 1972).

use std::collections::{BTreeMap, BTreeSet};

/// The circles of two or more files, largest first; files in each are sorted.
pub fn circles<'a>(edges: impl Iterator<Item = &'a (String, String)>) -> Vec<BTreeSet<String>> {
    let mut graph: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (from, to) in edges {
        graph.entry(from).or_default().push(to);
        graph.entry(to).or_default();
    }
    let mut search = Search {
        graph: &graph,
        next: 0,
        seen: BTreeMap::new(),
        stack: Vec::new(),
        found: Vec::new(),
    };
    for file in graph.keys() {
        if !search.seen.contains_key(file) {
            search.visit(file);
        }
    }
    let mut found = search.found;
    found.sort_by_key(|files| std::cmp::Reverse(files.len()));
    found
}

struct Search<'a> {
    graph: &'a BTreeMap<&'a str, Vec<&'a str>>,
    next: usize,
    /// The order of the first visit and the lowest visit that is reachable.
    seen: BTreeMap<&'a str, (usize, usize)>,
    stack: Vec<&'a str>,
    found: Vec<BTreeSet<String>>,
}

impl<'a> Search<'a> {
    fn visit(&mut self, file: &'a str) -> usize {
        let index = self.next;
        self.next += 1;
        self.seen.insert(file, (index, index));
        self.stack.push(file);
        let mut low = index;
        let graph = self.graph;
        for to in &graph[file] {
            low = match self.seen.get(to) {
                None => low.min(self.visit(to)),
                Some((first, _)) if self.stack.contains(to) => low.min(*first),
                Some(_) => low,
            };
        }
        self.seen.insert(file, (index, low));
        if low == index {
            let at = self.stack.iter().position(|on| *on == file);
            let files = self.stack.split_off(at.expect("the file is on the stack"));
            if files.len() > 1 {
                self.found
                    .push(files.into_iter().map(String::from).collect());
            }
        }
        low
    }
}
