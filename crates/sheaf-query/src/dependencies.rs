//! The paths of a document that a filter, an expression or a stage reads.

use std::collections::BTreeSet;

use crate::interrupt;

/// The dotted paths that a filter, expression or stage reads; a path includes all paths below it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dependencies {
    /// The paths, none a prefix of another.
    pub paths: BTreeSet<String>,
    /// Whether any field may be read (`$$ROOT`); `paths` is then meaningless.
    pub whole_document: bool,
}

impl Dependencies {
    /// Adds a path unless an ancestor covers it; removes the paths that it covers.
    pub fn insert(&mut self, path: &str) {
        if self.has_ancestor_of(path) || self.paths.contains(path) {
            return;
        }
        let below: Vec<String> = self.below(path).map(str::to_owned).collect();
        interrupt::count(1 + below.len());
        for path in &below {
            self.paths.remove(path);
        }
        self.paths.insert(path.to_owned());
    }

    /// Whether the set has a proper ancestor of `path`.
    fn has_ancestor_of(&self, path: &str) -> bool {
        let mut dots = path.match_indices('.');
        dots.any(|(at, _)| self.paths.contains(&path[..at]))
    }

    /// The paths of the set below `path`, which are adjacent in the order of the set.
    fn below(&self, path: &str) -> impl Iterator<Item = &str> {
        let from = format!("{path}.");
        self.paths
            .range(from.clone()..)
            .map(String::as_str)
            .take_while(move |have| have.starts_with(&from))
    }

    /// Adds all dependencies of `other`.
    pub fn extend(&mut self, other: &Dependencies) {
        self.whole_document |= other.whole_document;
        for path in &other.paths {
            self.insert(path);
        }
    }

    /// Whether a change of this path cannot change what is read: no path of the set is equal to it,
    /// above it or below it.
    pub fn is_independent_of(&self, path: &str) -> bool {
        !self.whole_document
            && !self.paths.contains(path)
            && !self.has_ancestor_of(path)
            && self.below(path).next().is_none()
    }

    /// The top-level fields that are read.
    pub fn top_level(&self) -> BTreeSet<&str> {
        self.paths
            .iter()
            .map(|path| path.split_once('.').map_or(path.as_str(), |(top, _)| top))
            .collect()
    }
}
