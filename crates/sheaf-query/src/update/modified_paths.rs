//! The paths of a document that an update changed, which determine the indexes to update.

use std::collections::BTreeSet;
use std::ops::Bound;

use sheaf_bson::path::{FieldPath, array_index};

use crate::interrupt;

/// The dotted paths whose values changed, sorted. A path includes all paths below it.
///
/// If an array grew, shrank or shifted, the set contains the path of the array, because an index
/// may depend on positions or contain new nulls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModifiedPaths {
    paths: BTreeSet<String>,
    /// The paths of arrays to which elements were appended, without any other change.
    appended: BTreeSet<String>,
}

impl ModifiedPaths {
    pub(super) fn add(&mut self, path: &str) {
        if !self.paths.contains(path) {
            self.paths.insert(path.to_owned());
        }
    }

    /// Records that elements were appended to the array at `path`.
    pub(super) fn add_appended(&mut self, path: &str) {
        self.add(path);
        self.appended.insert(path.to_owned());
    }

    /// Whether the only change to the array at `path` is that elements were appended.
    pub fn is_appended(&self, path: &str) -> bool {
        self.appended.contains(path)
    }

    /// Whether a changed path begins with `prefix`, which must end in a dot.
    pub(super) fn leads_below(&self, prefix: &str) -> bool {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        interrupt::count(1);
        let mut from = self.paths.range::<str, _>(from);
        from.next().is_some_and(|path| path.starts_with(prefix))
    }

    /// Whether `path` or a path below it changed.
    pub(super) fn leads_to(&self, path: &str) -> bool {
        self.paths.contains(path) || self.leads_below(&format!("{path}."))
    }

    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// The paths, sorted by bytes.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().map(String::as_str)
    }

    /// Whether the value at `path` may have changed. Ignores array positions in both paths, so that
    /// the answer may be a false positive.
    pub fn may_affect(&self, path: &FieldPath) -> bool {
        self.paths
            .iter()
            .any(|changed| overlap(changed.split('.'), path.parts()))
    }

    /// Like [`ModifiedPaths::may_affect`], for a dotted path.
    pub fn may_affect_dotted(&self, path: &str) -> bool {
        self.paths
            .iter()
            .any(|changed| overlap(changed.split('.'), path.split('.')))
    }
}

/// Whether one path is a prefix of the other, ignoring numeric components (except the first).
fn overlap<'a>(a: impl Iterator<Item = &'a str>, b: impl Iterator<Item = &'a str>) -> bool {
    let names = |(i, part): &(usize, &str)| *i == 0 || array_index(part).is_none();
    let a = a.enumerate().filter(names).map(|(_, part)| part);
    let b = b.enumerate().filter(names).map(|(_, part)| part);
    a.zip(b).all(|(a, b)| a == b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn affects() {
        let mut modified = ModifiedPaths::default();
        modified.add("a.b.3");
        modified.add("c.0.d");
        for (path, expected) in [
            ("a", true),
            ("a.b", true),
            ("a.b.c", true),
            ("a.0.b", true),
            ("a.c", false),
            ("ab", false),
            ("c.d", true),
            ("c.7.d.e", true),
            ("c.e", false),
            ("0.c", false),
        ] {
            assert_eq!(modified.may_affect_dotted(path), expected, "{path}");
            assert_eq!(
                modified.may_affect(&FieldPath::parse(path).unwrap()),
                expected,
                "{path}"
            );
        }
    }
}
