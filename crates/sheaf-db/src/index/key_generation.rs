//! Generates the index keys of a document.
//!
//! ```text
//!   pattern            document                        keys            arrays at
//!   {a: 1}             {a: 5}                          5               -
//!   {a: 1}             {}                              null            -
//!   {a: 1}             {a: [1, [2]]}                   1, [2]          a
//!   {a: 1}             {a: []}                         undefined       a
//!   {"a.b": 1}         {a: [{b: 1}, {b: [2, 3]}, 4]}   1, 2, 3, null   a, a.b
//!   {"a.b": 1}         {a: []}                         null            a
//!   {"a.1": 1}         {a: [7, 8]}                     8               -
//!   {"a.1": 1}         {a: [7, [8, 9]]}                8, 9            a.1
//!   {a: 1, "b.c": -1}  {a: 1, b: [{c: 2}, {c: 3}]}     1|3, 1|2        b
//! ```
//!
//! Every field is followed to its end or to the first array on the way. Arrays are then expanded,
//! the outermost first, each for all fields that reach it, so that a compound key never mixes two
//! elements. Two arrays that are not nested would produce the product of their elements: rejected
//! (CannotIndexParallelArrays). A numeric part selects the element at that position if there is
//! one; it expands no array.
//!
//! Invariant: a document that matches a predicate on the field has a key within the predicate's
//! bounds. Hence null for a missing value, and undefined (which has no other source) for an empty
//! array.

use std::sync::Arc;

use sheaf_bson::path::FieldPath;
use sheaf_bson::{ElementType, Error, ErrorCode, RawArray, RawDoc, RawElement, RawValue, Result};
use sheaf_query::planner::index_entry::MultikeyPaths;
use smallvec::SmallVec;

/// Values of one key, in the order of the key pattern.
type KeyValues<'a> = SmallVec<[RawValue<'a>; 4]>;

/// Extracts the values of a document's keys.
#[derive(Debug, Clone)]
pub struct KeyGenerator {
    paths: Vec<Arc<FieldPath>>,
    sparse: bool,
}

/// How far a field has been followed.
#[derive(Clone, Copy)]
enum Slot<'a> {
    /// To its end. `None`: the field is missing.
    Found(Option<RawValue<'a>>),
    /// To an array, to which the path's parts from `next` on apply (none left: its elements).
    Array {
        array: RawArray<'a>,
        name: &'a str,
        next: usize,
    },
}

type Slots<'a> = SmallVec<[Slot<'a>; 4]>;

impl KeyGenerator {
    /// A generator for an index on these fields.
    pub fn new(paths: Vec<Arc<FieldPath>>, sparse: bool) -> KeyGenerator {
        KeyGenerator { paths, sparse }
    }

    /// The fields, in the order of the key pattern.
    pub fn paths(&self) -> &[Arc<FieldPath>] {
        &self.paths
    }

    /// Calls `emit` with the values of every key, in the order of the arrays' elements; the same
    /// key may occur several times. Adds to `multikey` which parts of which fields are arrays.
    ///
    /// A sparse index has no key for a combination in which every field is missing.
    /// Errors: `CannotIndexParallelArrays`, ambiguous numeric names (16746), those of `emit`.
    pub fn for_each_key<'a>(
        &self,
        doc: RawDoc<'a>,
        multikey: &mut MultikeyPaths,
        emit: &mut dyn FnMut(&[RawValue<'a>]) -> Result<()>,
    ) -> Result<()> {
        let mut slots = Slots::new();
        for path in &self.paths {
            slots.push(follow(doc, path, 0)?);
        }
        multikey.resize(self.paths.len(), Vec::new());
        self.expand_arrays(&slots, multikey, emit)
    }

    fn expand_arrays<'a>(
        &self,
        slots: &Slots<'a>,
        multikey: &mut MultikeyPaths,
        emit: &mut dyn FnMut(&[RawValue<'a>]) -> Result<()>,
    ) -> Result<()> {
        let Some(array) = outermost_array(slots)? else {
            return self.emit_key(slots, emit);
        };
        for (field, slot) in slots.iter().enumerate() {
            if let Slot::Array {
                array: own, next, ..
            } = slot
                && same_array(*own, array)
                && let Err(at) = multikey[field].binary_search(&(next - 1))
            {
                multikey[field].insert(at, next - 1);
            }
        }
        let mut empty = true;
        for item in array.elements() {
            empty = false;
            let inner = self.step_into(slots, array, Some(item))?;
            self.expand_arrays(&inner, multikey, emit)?;
        }
        if empty {
            let inner = self.step_into(slots, array, None)?;
            self.expand_arrays(&inner, multikey, emit)?;
        }
        Ok(())
    }

    /// Advances the fields that reached `array` into one element of it; `None` if it is empty.
    fn step_into<'a>(
        &self,
        slots: &Slots<'a>,
        array: RawArray<'a>,
        item: Option<RawElement<'a>>,
    ) -> Result<Slots<'a>> {
        let mut inner = slots.clone();
        for (slot, path) in inner.iter_mut().zip(&self.paths) {
            let Slot::Array {
                array: own, next, ..
            } = *slot
            else {
                continue;
            };
            if !same_array(own, array) {
                continue;
            }
            *slot = match item.map(|item| item.value()) {
                Some(value) if next == path.len() => Slot::Found(Some(value)),
                Some(RawValue::Document(doc)) => follow(doc, path, next)?,
                None if next == path.len() => Slot::Found(Some(RawValue::Undefined)),
                _ => Slot::Found(None),
            };
        }
        Ok(inner)
    }

    fn emit_key<'a>(
        &self,
        slots: &Slots<'a>,
        emit: &mut dyn FnMut(&[RawValue<'a>]) -> Result<()>,
    ) -> Result<()> {
        let mut values = KeyValues::new();
        let mut found = false;
        for slot in slots {
            values.push(match slot {
                Slot::Found(Some(value)) => {
                    found = true;
                    *value
                }
                _ => RawValue::Null,
            });
        }
        if self.sparse && !found {
            return Ok(());
        }
        emit(&values)
    }
}

/// Follows the path's parts from `first` on, through documents and positions.
fn follow<'a>(doc: RawDoc<'a>, path: &FieldPath, first: usize) -> Result<Slot<'a>> {
    let mut doc = doc;
    let mut at = first;
    loop {
        let Some(element) = path.part(at).and_then(|part| doc.get_element(part)) else {
            return Ok(Slot::Found(None));
        };
        at += 1;
        match element.element_type() {
            ElementType::Array => return enter_array(element, path, at),
            _ if at == path.len() => return Ok(Slot::Found(Some(element.value()))),
            _ => match element.value() {
                RawValue::Document(inner) => doc = inner,
                _ => return Ok(Slot::Found(None)),
            },
        }
    }
}

/// Stops at an array, unless the next part selects one of its elements.
fn enter_array<'a>(element: RawElement<'a>, path: &FieldPath, next: usize) -> Result<Slot<'a>> {
    let name = element.key();
    let (mut value, mut next) = (element.value(), next);
    loop {
        match value {
            RawValue::Array(array) => {
                let picked = path
                    .part_index(next)
                    .and_then(|position| array.get(position as usize));
                let Some(picked) = picked else {
                    return Ok(Slot::Array { array, name, next });
                };
                refuse_ambiguous(array, path, next, name)?;
                next += 1;
                value = picked;
            }
            found if next == path.len() => return Ok(Slot::Found(Some(found))),
            RawValue::Document(doc) => return follow(doc, path, next),
            _ => return Ok(Slot::Found(None)),
        }
    }
}

/// Rejects a position that is also a field name of an element: it could mean either.
fn refuse_ambiguous(array: RawArray<'_>, path: &FieldPath, at: usize, name: &str) -> Result<()> {
    let part = path.part(at).unwrap_or_default();
    let ambiguous = array
        .iter()
        .any(|item| matches!(item, RawValue::Document(doc) if doc.get_element(part).is_some()));
    if !ambiguous {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode(16746),
        format!(
            "Ambiguous field name found in array (do not use numeric field names in embedded \
             elements in an array), field: '{part}' for array: {name}"
        ),
    ))
}

/// The array to expand next: the one that contains all others.
/// Errors: `CannotIndexParallelArrays` when there is none.
fn outermost_array<'a>(slots: &Slots<'a>) -> Result<Option<RawArray<'a>>> {
    let mut outermost: Option<(RawArray<'a>, &'a str)> = None;
    for slot in slots {
        let Slot::Array { array, name, .. } = *slot else {
            continue;
        };
        outermost = match outermost {
            None => Some((array, name)),
            Some((outer, outer_name)) if lies_in(array, outer) => Some((outer, outer_name)),
            Some((outer, _)) if lies_in(outer, array) => Some((array, name)),
            Some((_, outer_name)) => {
                return Err(Error::new(
                    ErrorCode::CANNOT_INDEX_PARALLEL_ARRAYS,
                    format!("cannot index parallel arrays [{name}] [{outer_name}]"),
                ));
            }
        };
    }
    Ok(outermost.map(|(array, _)| array))
}

fn same_array(a: RawArray<'_>, b: RawArray<'_>) -> bool {
    std::ptr::eq(a.as_bytes(), b.as_bytes())
}

/// Whether the array's bytes are among those of the other one.
fn lies_in(inner: RawArray<'_>, outer: RawArray<'_>) -> bool {
    let (inner, outer) = (
        inner.as_bytes().as_ptr_range(),
        outer.as_bytes().as_ptr_range(),
    );
    outer.start <= inner.start && inner.end <= outer.end
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use sheaf_bson::{DocBuf, doc};

    fn generator(paths: &[&str], sparse: bool) -> KeyGenerator {
        let parse = |path: &&str| Arc::new(FieldPath::parse(path).unwrap());
        KeyGenerator::new(paths.iter().map(parse).collect(), sparse)
    }

    /// `document -> keys, in the order of generation; multikey paths`, one line per document.
    fn table(paths: &[&str], sparse: bool, documents: &[DocBuf], expected: Expect) {
        let generator = generator(paths, sparse);
        let mut out = String::new();
        for document in documents {
            let mut multikey = MultikeyPaths::new();
            let mut keys = Vec::new();
            let done = generator.for_each_key(document.as_raw(), &mut multikey, &mut |values| {
                let values: Vec<String> = values.iter().map(|v| v.to_string()).collect();
                keys.push(values.join("|"));
                Ok(())
            });
            let keys = match done {
                Ok(()) => format!("{}   {multikey:?}", keys.join(", ")),
                Err(error) => error.to_string(),
            };
            out.push_str(&format!("{document}  ->  {keys}\n"));
        }
        expected.assert_eq(&out);
    }

    #[test]
    fn one_field() {
        table(
            &["a"],
            false,
            &[
                doc! {"a": 5},
                doc! {},
                doc! {"a": null},
                doc! {"a": []},
                doc! {"a": [1]},
                doc! {"a": [3, 1, 3.0, [2], []]},
                doc! {"a": {"b": [1]}},
                doc! {"a": [{"b": 1}, null]},
            ],
            expect![[r#"
                { a: 5 }  ->  5   [[]]
                {}  ->  null   [[]]
                { a: null }  ->  null   [[]]
                { a: [] }  ->  undefined   [[0]]
                { a: [ 1 ] }  ->  1   [[0]]
                { a: [ 3, 1, 3.0, [ 2 ], [] ] }  ->  3, 1, 3.0, [ 2 ], []   [[0]]
                { a: { b: [ 1 ] } }  ->  { b: [ 1 ] }   [[]]
                { a: [ { b: 1 }, null ] }  ->  { b: 1 }, null   [[0]]
            "#]],
        );
    }

    #[test]
    fn a_dotted_path() {
        table(
            &["a.b"],
            false,
            &[
                doc! {"a": {"b": 1}},
                doc! {"a": {}},
                doc! {"a": 5},
                doc! {"a": {"b": [1, 2]}},
                doc! {"a": {"b": []}},
                doc! {"a": []},
                doc! {"a": [{"b": 1}, {"b": [2, 3]}, 4, {}, {"b": []}]},
                // An array in an array is not entered.
                doc! {"a": [[{"b": 1}]]},
            ],
            expect![[r#"
                { a: { b: 1 } }  ->  1   [[]]
                { a: {} }  ->  null   [[]]
                { a: 5 }  ->  null   [[]]
                { a: { b: [ 1, 2 ] } }  ->  1, 2   [[1]]
                { a: { b: [] } }  ->  undefined   [[1]]
                { a: [] }  ->  null   [[0]]
                { a: [ { b: 1 }, { b: [ 2, 3 ] }, 4, {}, { b: [] } ] }  ->  1, 2, 3, null, null, undefined   [[0, 1]]
                { a: [ [ { b: 1 } ] ] }  ->  null   [[0]]
            "#]],
        );
    }

    #[test]
    fn several_fields() {
        table(
            &["a", "b.c"],
            false,
            &[
                doc! {"a": 1, "b": {"c": 2}},
                doc! {"b": {"c": 2}},
                doc! {"a": [1, 2], "b": {"c": 3}},
                doc! {"a": 1, "b": [{"c": 2}, {"c": [3, 4]}, {}]},
                doc! {"a": [], "b": {"c": 3}},
                doc! {"a": [1], "b": [{"c": 1}]},
                doc! {"a": [1], "b": {"c": []}},
            ],
            expect![[r#"
                { a: 1, b: { c: 2 } }  ->  1|2   [[], []]
                { b: { c: 2 } }  ->  null|2   [[], []]
                { a: [ 1, 2 ], b: { c: 3 } }  ->  1|3, 2|3   [[0], []]
                { a: 1, b: [ { c: 2 }, { c: [ 3, 4 ] }, {} ] }  ->  1|2, 1|3, 1|4, 1|null   [[], [0, 1]]
                { a: [], b: { c: 3 } }  ->  undefined|3   [[0], []]
                { a: [ 1 ], b: [ { c: 1 } ] }  ->  CannotIndexParallelArrays: cannot index parallel arrays [b] [a]
                { a: [ 1 ], b: { c: [] } }  ->  CannotIndexParallelArrays: cannot index parallel arrays [c] [a]
            "#]],
        );
    }

    #[test]
    fn fields_of_one_array_stay_together() {
        table(
            &["a.b", "a.c", "a"],
            false,
            &[
                doc! {"a": [{"b": 1, "c": 2}, {"b": 3, "c": 4}]},
                doc! {"a": [{"b": [1, 2], "c": 3}]},
                doc! {"a": [{"b": [1, 2], "c": [3]}]},
                doc! {"a": [5, {}]},
                doc! {"a": []},
            ],
            expect![[r#"
                { a: [ { b: 1, c: 2 }, { b: 3, c: 4 } ] }  ->  1|2|{ b: 1, c: 2 }, 3|4|{ b: 3, c: 4 }   [[0], [0], [0]]
                { a: [ { b: [ 1, 2 ], c: 3 } ] }  ->  1|3|{ b: [ 1, 2 ], c: 3 }, 2|3|{ b: [ 1, 2 ], c: 3 }   [[0, 1], [0], [0]]
                { a: [ { b: [ 1, 2 ], c: [ 3 ] } ] }  ->  CannotIndexParallelArrays: cannot index parallel arrays [c] [b]
                { a: [ 5, {} ] }  ->  null|null|5, null|null|{}   [[0], [0], [0]]
                { a: [] }  ->  null|null|undefined   [[0], [0], [0]]
            "#]],
        );
    }

    #[test]
    fn positions() {
        table(
            &["a.1"],
            false,
            &[
                doc! {"a": [7, 8]},
                doc! {"a": [7, [8, 9]]},
                doc! {"a": [7]},
                doc! {"a": []},
                doc! {"a": {"1": 5}},
                doc! {"a": {"1": [5, 6]}},
                // No element at that position: the part is a name.
                doc! {"a": [{"1": 5}]},
                doc! {"a": [{"1": 5}, 8]},
            ],
            expect![[r#"
                { a: [ 7, 8 ] }  ->  8   [[]]
                { a: [ 7, [ 8, 9 ] ] }  ->  8, 9   [[1]]
                { a: [ 7 ] }  ->  null   [[0]]
                { a: [] }  ->  null   [[0]]
                { a: { 1: 5 } }  ->  5   [[]]
                { a: { 1: [ 5, 6 ] } }  ->  5, 6   [[1]]
                { a: [ { 1: 5 } ] }  ->  5   [[0]]
                { a: [ { 1: 5 }, 8 ] }  ->  Location16746: Ambiguous field name found in array (do not use numeric field names in embedded elements in an array), field: '1' for array: a
            "#]],
        );
        table(
            &["a.0.b", "a.c", "d"],
            false,
            &[
                doc! {"a": [{"b": 1, "c": 2}, {"b": 3, "c": 4}], "d": 5},
                doc! {"a": [{"b": [1, 9], "c": 2}, {"c": 4}], "d": 5},
                doc! {"a": [[{"b": 1}]], "d": 5},
                doc! {"a": [{"b": 1}], "d": [1, 2]},
            ],
            expect![[r#"
                { a: [ { b: 1, c: 2 }, { b: 3, c: 4 } ], d: 5 }  ->  1|2|5, 1|4|5   [[], [0], []]
                { a: [ { b: [ 1, 9 ], c: 2 }, { c: 4 } ], d: 5 }  ->  1|2|5, 9|2|5, 1|4|5, 9|4|5   [[2], [0], []]
                { a: [ [ { b: 1 } ] ], d: 5 }  ->  1|null|5   [[1], [0], []]
                { a: [ { b: 1 } ], d: [ 1, 2 ] }  ->  CannotIndexParallelArrays: cannot index parallel arrays [d] [a]
            "#]],
        );
        table(
            &["a.0", "b"],
            false,
            &[doc! {"a": [1, 2], "b": [3, 4]}, doc! {"a": [], "b": 1}],
            expect![[r#"
                { a: [ 1, 2 ], b: [ 3, 4 ] }  ->  1|3, 1|4   [[], [0]]
                { a: [], b: 1 }  ->  null|1   [[0], []]
            "#]],
        );
    }

    #[test]
    fn sparse() {
        table(
            &["a.b", "c"],
            true,
            &[
                doc! {},
                doc! {"c": null},
                doc! {"a": {"b": 1}},
                doc! {"a": []},
                doc! {"a": [{"b": 1}, {}]},
                doc! {"a": [{}, {}], "c": 1},
            ],
            expect![[r#"
                {}  ->     [[], []]
                { c: null }  ->  null|null   [[], []]
                { a: { b: 1 } }  ->  1|null   [[], []]
                { a: [] }  ->     [[0], []]
                { a: [ { b: 1 }, {} ] }  ->  1|null   [[0], []]
                { a: [ {}, {} ], c: 1 }  ->  null|1, null|1   [[0], []]
            "#]],
        );
    }
}
