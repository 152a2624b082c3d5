//! The keys of a document in a wildcard index.
//!
//! ```text
//!   {"$**": 1}   {a: {b: 5, c: []}, d: [1, {e: 2}, [3]]}
//!
//!   "a.b"|5   "a.c"|undefined   "d"|1   "d.e"|2   "d"|[3]       arrays at a.c, d
//!
//!   {t: 1, "a.$**": 1}   {t: 7}                  7|MinKey|MinKey
//! ```
//!
//! Every scalar, every empty document or array and every array within an array has a key under its
//! path; array positions are not part of the path. Values below a field whose name has a dot cannot
//! be named by a path: they leave the key `"a.\0"|true`, which records only that something exists
//! below `a`.
//!
//! A separate entry before all keys records that a path is an array in some document: a zero byte
//! and the path. The first such document writes it, and it is never removed; readers look it up in
//! the snapshot that they plan for.

use sheaf_bson::path::FieldPath;
use sheaf_bson::{Error, ErrorCode, RawArray, RawDoc, RawValue, Result};
use sheaf_query::planner::index_entry::{IndexField, MultikeyPaths, WildcardField};
use sheaf_query::planner::wildcard::WildcardStep;
use smallvec::SmallVec;

use crate::index::key_generation::KeyGenerator;

/// First byte of entries that record an array path. No key begins with it.
const ARRAY_PREFIX: u8 = 0;
/// Exceeds the depth of any storable document; deeper content counts as one value.
const DEPTH_MAX: usize = 250;

/// The entry that records that `path` is an array in some document.
pub fn array_entry(path: &str) -> Vec<u8> {
    let mut entry = Vec::with_capacity(1 + path.len());
    entry.push(ARRAY_PREFIX);
    entry.extend_from_slice(path.as_bytes());
    entry
}

/// Whether an entry records an array path instead of a key.
#[inline]
pub fn is_array_entry(entry: &[u8]) -> bool {
    entry.first() == Some(&ARRAY_PREFIX)
}

/// Lower bound of the keys of an index, after all array-path entries.
pub const FIRST_KEY: &[u8] = &[ARRAY_PREFIX + 1];

/// Extracts the values of a document's keys.
#[derive(Debug, Clone)]
pub struct WildcardKeys {
    wildcard: WildcardField,
    /// The fields other than the wildcard; `before` of them precede it in the pattern.
    others: KeyGenerator,
    before: usize,
}

impl WildcardKeys {
    /// For an index with these fields; the wildcard occupies two of them.
    pub fn new(fields: &[IndexField], wildcard: &WildcardField) -> WildcardKeys {
        let at = wildcard.path_field;
        let others = fields.iter().enumerate();
        let others = others.filter(|(field, _)| *field != at && *field != at + 1);
        WildcardKeys {
            wildcard: wildcard.clone(),
            others: KeyGenerator::new(others.map(|(_, f)| f.path.clone()).collect(), false),
            before: at,
        }
    }

    /// The fields other than the wildcard.
    pub fn others(&self) -> &KeyGenerator {
        &self.others
    }

    /// Whether a change at this path may change keys.
    pub fn touches(&self, path: &FieldPath) -> bool {
        self.wildcard.paths.touches(path)
    }

    /// Calls `emit` with the values of every key, possibly several times with the same values, and
    /// `array` with every path that is an array.
    /// Errors: `CannotBuildIndexKeys` for an array in a field other than the wildcard, those of
    /// `emit`.
    pub fn for_each_key(
        &self,
        doc: RawDoc<'_>,
        array: &mut dyn FnMut(&str),
        emit: &mut dyn for<'k> FnMut(&[RawValue<'k>]) -> Result<()>,
    ) -> Result<()> {
        let mut others: SmallVec<[RawValue<'_>; 4]> = SmallVec::new();
        if !self.others.paths().is_empty() {
            let mut arrays = MultikeyPaths::new();
            self.others.for_each_key(doc, &mut arrays, &mut |values| {
                others.clear();
                others.extend_from_slice(values);
                Ok(())
            })?;
            if arrays.iter().any(|field| !field.is_empty()) {
                return Err(Error::new(
                    ErrorCode::CANNOT_BUILD_INDEX_KEYS,
                    "the regular fields of a compound wildcard index cannot be arrays",
                ));
            }
        }
        let mut walk = Walk {
            path: String::new(),
            others: &others,
            before: self.before,
            found: false,
            array,
            emit,
        };
        walk.fields(doc, self.wildcard.paths.root(), 0)?;
        if !walk.found && !others.is_empty() {
            walk.key(RawValue::MinKey, RawValue::MinKey)?;
        }
        Ok(())
    }
}

struct Walk<'w, 'd> {
    path: String,
    others: &'w [RawValue<'d>],
    before: usize,
    found: bool,
    array: &'w mut dyn FnMut(&str),
    emit: &'w mut dyn for<'k> FnMut(&[RawValue<'k>]) -> Result<()>,
}

impl Walk<'_, '_> {
    fn key(&mut self, path: RawValue<'_>, value: RawValue<'_>) -> Result<()> {
        let mut values: SmallVec<[RawValue<'_>; 8]> = SmallVec::new();
        values.extend_from_slice(&self.others[..self.before]);
        values.extend_from_slice(&[path, value]);
        values.extend_from_slice(&self.others[self.before..]);
        (self.emit)(&values)
    }

    fn found(&mut self, value: RawValue<'_>) -> Result<()> {
        self.found = true;
        let path = std::mem::take(&mut self.path);
        let done = self.key(RawValue::String(&path), value);
        self.path = path;
        done
    }

    fn fields(&mut self, doc: RawDoc<'_>, step: WildcardStep<'_>, depth: usize) -> Result<()> {
        let len = self.path.len();
        for element in doc {
            let name = element.key();
            let below = step.into_field(name);
            if !below.leads_on() {
                if step.included() && depth > 0 {
                    self.something_below(len)?;
                }
                continue;
            }
            if name.contains('.') {
                if step.included() && depth > 0 {
                    self.something_below(len)?;
                }
                continue;
            }
            if depth > 0 {
                self.path.push('.');
            }
            self.path.push_str(name);
            self.value(element.value(), below, depth + 1)?;
            self.path.truncate(len);
        }
        Ok(())
    }

    fn something_below(&mut self, len: usize) -> Result<()> {
        self.path.push_str(".\0");
        self.found(RawValue::Boolean(true))?;
        self.path.truncate(len);
        Ok(())
    }

    fn value(&mut self, value: RawValue<'_>, step: WildcardStep<'_>, depth: usize) -> Result<()> {
        match value {
            RawValue::Array(array) => self.elements(array, step, depth),
            value => self.document_or_scalar(value, step, depth),
        }
    }

    fn elements(
        &mut self,
        array: RawArray<'_>,
        step: WildcardStep<'_>,
        depth: usize,
    ) -> Result<()> {
        (self.array)(&self.path);
        let mut empty = true;
        for value in array.iter() {
            empty = false;
            self.document_or_scalar(value, step, depth)?;
        }
        if empty && step.included() {
            self.found(RawValue::Undefined)?;
        }
        Ok(())
    }

    /// `value` is an array only if its parent is an array.
    fn document_or_scalar(
        &mut self,
        value: RawValue<'_>,
        step: WildcardStep<'_>,
        depth: usize,
    ) -> Result<()> {
        match value {
            RawValue::Document(doc) if !doc.is_empty() && depth < DEPTH_MAX => {
                self.fields(doc, step, depth)
            }
            value if step.included() => self.found(value),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use sheaf_bson::{DocBuf, doc};
    use sheaf_query::planner::index_entry::{IndexKind, fields_of};

    fn table(key: DocBuf, projection: Option<DocBuf>, docs: &[DocBuf], expected: Expect) {
        let projection = projection.as_ref().map(|doc| doc.as_raw());
        let (fields, kind) = fields_of(key.as_raw(), projection).unwrap();
        let IndexKind::Wildcard(wildcard) = kind else {
            panic!("{key} has no wildcard");
        };
        let keys = WildcardKeys::new(&fields, &wildcard);
        let mut out = String::new();
        for doc in docs {
            let mut arrays = Vec::new();
            let mut found = Vec::new();
            let done = keys.for_each_key(
                doc.as_raw(),
                &mut |path| arrays.push(path.to_owned()),
                &mut |values| {
                    let values: Vec<String> = values.iter().map(RawValue::to_string).collect();
                    found.push(values.join("|"));
                    Ok(())
                },
            );
            let shown = match done {
                Ok(()) => format!("{}   {arrays:?}", found.join(", ")),
                Err(error) => format!("{}: {}", error.code_name(), error.message()),
            };
            out.push_str(&format!("{doc}  ->  {shown}\n"));
        }
        expected.assert_eq(&out);
    }

    #[test]
    fn all_paths() {
        table(
            doc! {"$**": 1},
            None,
            &[
                doc! {"_id": 1, "a": 5},
                doc! {"a": {"b": {"c": null}, "d": {}}},
                doc! {"a": [1, {"b": [2, {"c": 3}]}, [4, [5]], {}]},
                doc! {"a": []},
                doc! {"a": [[]]},
                doc! {"x.y": 1, "a": {"x.y": {"z": 1}}},
                doc! {"a": {"": 1}},
                doc! {},
            ],
            expect![[r#"
                { _id: 1, a: 5 }  ->  "a"|5   []
                { a: { b: { c: null }, d: {} } }  ->  "a.b.c"|null, "a.d"|{}   []
                { a: [ 1, { b: [ 2, { c: 3 } ] }, [ 4, [ 5 ] ], {} ] }  ->  "a"|1, "a.b"|2, "a.b.c"|3, "a"|[ 4, [ 5 ] ], "a"|{}   ["a", "a.b"]
                { a: [] }  ->  "a"|undefined   ["a"]
                { a: [ [] ] }  ->  "a"|[]   ["a"]
                { x.y: 1, a: { x.y: { z: 1 } } }  ->  "a.\u0000"|true   []
                { a: { : 1 } }  ->  "a."|1   []
                {}  ->     []
            "#]],
        );
    }

    #[test]
    fn some_paths() {
        table(
            doc! {"a.b.$**": 1},
            None,
            &[
                doc! {"a": {"b": 1, "c": 2}, "b": 3},
                doc! {"a": [{"b": {"c": 1}}, {"c": 2}, 3], "b": 3},
                doc! {"a": 5},
            ],
            expect![[r#"
                { a: { b: 1, c: 2 }, b: 3 }  ->  "a.b"|1   []
                { a: [ { b: { c: 1 } }, { c: 2 }, 3 ], b: 3 }  ->  "a.b.c"|1   ["a"]
                { a: 5 }  ->     []
            "#]],
        );
        table(
            doc! {"$**": 1},
            Some(doc! {"a.b": 0, "_id": 1}),
            &[
                doc! {"_id": 1, "a": {"b": 1}},
                doc! {"a": {"b": 1, "c": 2}, "d": 3},
            ],
            expect![[r#"
                { _id: 1, a: { b: 1 } }  ->  "_id"|1, "a.\u0000"|true   []
                { a: { b: 1, c: 2 }, d: 3 }  ->  "a.\u0000"|true, "a.c"|2, "d"|3   []
            "#]],
        );
    }

    #[test]
    fn compound() {
        table(
            doc! {"t": 1, "a.$**": 1, "d.e": -1},
            None,
            &[
                doc! {"t": 1, "a": {"x": 2, "y": [3, 4]}, "d": {"e": 5}},
                doc! {"t": 1},
                doc! {},
                doc! {"t": [1], "a": {"x": 2}},
                doc! {"d": [{"e": 1}]},
            ],
            expect![[r#"
                { t: 1, a: { x: 2, y: [ 3, 4 ] }, d: { e: 5 } }  ->  1|"a.x"|2|5, 1|"a.y"|3|5, 1|"a.y"|4|5   ["a.y"]
                { t: 1 }  ->  1|MinKey|MinKey|null   []
                {}  ->  null|MinKey|MinKey|null   []
                { t: [ 1 ], a: { x: 2 } }  ->  CannotBuildIndexKeys: the regular fields of a compound wildcard index cannot be arrays
                { d: [ { e: 1 } ] }  ->  CannotBuildIndexKeys: the regular fields of a compound wildcard index cannot be arrays
            "#]],
        );
    }
}
