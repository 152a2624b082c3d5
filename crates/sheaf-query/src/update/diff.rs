//! The difference between two versions of a document, in the `$v: 2` form of the oplog.
//!
//! ```text
//!   old {a: 1, b: {c: 1, d: 2}, e: [1, 2, 3]}      {d: {a: false},          removed
//!   new {b: {c: 1, d: 3}, e: [1, 5], f: 1}          i: {f: 1},              added, at the end, in this order
//!                                                   sb: {u: {d: 3}},        inside a sub-document
//!                                                   se: {a: true, l: 2, u1: 5}}   inside an array, cut to 2
//! ```
//!
//! Invariant: [`apply`] of [`diff`] to the old document yields the new one, byte for byte, even if
//! it was applied before. A field that changes its position is removed and added.
//!
//! The letters are those of MongoDB's oplog (manual, "Replica Set Oplog"; the `updateDescription`
//! of change events is derived from it).

use std::collections::HashMap;

use sheaf_bson::{
    ArrayBuf, DocBuf, DocBuilder, Error, ErrorCode, RawArray, RawDoc, RawValue, Result,
};

use super::modified_paths::ModifiedPaths;

/// The difference that converts `old` to `new`, computed by comparison, for pipeline updates. Empty
/// if the documents are identical. `None` if the difference is not smaller than the new document.
pub fn diff(old: RawDoc<'_>, new: RawDoc<'_>) -> Option<DocBuf> {
    let found = diff_docs(old, new, 0, &Guide::Compare);
    (found.as_raw().len_bytes() < new.len_bytes()).then_some(found)
}

/// The difference that converts `old` to `new`, based on the paths that operators changed: a value
/// that was set as a whole is written as a whole, and a change inside a sub-document as a nested
/// difference, regardless of size. The result is a difference even if the document itself is
/// shorter, because readers distinguish an update from a replacement by it. `None` if it is not
/// smaller than the new document and so large that it may not fit into an oplog entry.
pub fn diff_of_paths(old: RawDoc<'_>, new: RawDoc<'_>, modified: &ModifiedPaths) -> Option<DocBuf> {
    let guide = Guide::Paths {
        modified,
        at: String::new(),
    };
    let found = diff_docs(old, new, 0, &guide);
    let len = found.as_raw().len_bytes();
    (len < new.len_bytes() || len <= LARGER_THAN_DOCUMENT_BYTES_MAX).then_some(found)
}

/// Maximum size, in bytes, of a difference that is larger than the new document.
const LARGER_THAN_DOCUMENT_BYTES_MAX: usize = 1 << 20;

/// Maximum depth of nested differences; deeper values are replaced as a whole.
const DEPTH_MAX: usize = 100;

/// Decides whether the change of a value is written as a nested difference.
enum Guide<'p> {
    /// If it is smaller.
    Compare,
    /// Always.
    Inside,
    /// If changed paths are below the value.
    Paths {
        modified: &'p ModifiedPaths,
        /// The path of the compared value, with a trailing dot; empty at the root.
        at: String,
    },
}

impl<'p> Guide<'p> {
    /// The guide for the value under `key`; `None` if it is written as a whole.
    fn into(&self, key: &str, before: RawValue<'_>, after: RawValue<'_>) -> Option<Guide<'p>> {
        match self {
            Guide::Compare => Some(Guide::Compare),
            Guide::Inside => Some(Guide::Inside),
            Guide::Paths { modified, at } => {
                let inside = format!("{at}{key}.");
                if modified.leads_below(&inside) {
                    return Some(Guide::Paths {
                        modified,
                        at: inside,
                    });
                }
                match (before, after) {
                    (RawValue::Array(before), RawValue::Array(_))
                        if !before.is_empty() && modified.is_appended(&format!("{at}{key}")) =>
                    {
                        Some(Guide::Inside)
                    }
                    _ => None,
                }
            }
        }
    }

    /// Whether a null after the end of the old array is only padding.
    fn fills_up(&self, position: &str) -> bool {
        match self {
            Guide::Compare | Guide::Inside => false,
            Guide::Paths { modified, at } => !modified.leads_to(&format!("{at}{position}")),
        }
    }
}

fn diff_docs(old: RawDoc<'_>, new: RawDoc<'_>, depth: usize, guide: &Guide<'_>) -> DocBuf {
    let mut removed: Vec<&str> = Vec::new();
    let mut updated = DocBuilder::new();
    let mut added = DocBuilder::new();
    let mut nested: Vec<(&str, DocBuf)> = Vec::new();
    let (mut has_updated, mut has_added) = (false, false);
    let mut olds = old.iter().peekable();
    let mut news = new.iter().peekable();
    // Removes fields of `old` until one has the name of the next field of `new`.
    while let (Some(before), Some(after)) = (olds.peek(), news.peek()) {
        if before.key() != after.key() {
            removed.push(before.key());
            olds.next();
            continue;
        }
        let (before, after) = (before.value(), after.value());
        let key = news.next().map_or("", |element| element.key());
        olds.next();
        if same(before, after) {
            continue;
        }
        match sub_diff(key, before, after, depth, guide) {
            Some(sub) => nested.push((key, sub)),
            None => {
                updated.append(key, after);
                has_updated = true;
            }
        }
    }
    removed.extend(olds.map(|element| element.key()));
    let removed_set: std::collections::HashSet<&str> = removed.iter().copied().collect();
    let mut added_again: std::collections::HashSet<&str> = Default::default();
    for element in news {
        added.append(element.key(), element.value());
        has_added = true;
        // Adding an existing field moves it to the end.
        if removed_set.contains(element.key()) {
            added_again.insert(element.key());
        }
    }
    let mut out = DocBuilder::new();
    let gone: Vec<&str> = removed
        .into_iter()
        .filter(|key| !added_again.contains(key))
        .collect();
    if !gone.is_empty() {
        out.begin_document("d");
        for key in gone {
            out.append(key, false);
        }
        out.end();
    }
    if has_updated {
        out.append_bson("u", &updated.finish());
    }
    if has_added {
        out.append_bson("i", &added.finish());
    }
    for (key, sub) in nested {
        out.append_bson(format!("s{key}"), &sub);
    }
    out.finish()
}

fn diff_arrays(old: RawArray<'_>, new: RawArray<'_>, depth: usize, guide: &Guide<'_>) -> DocBuf {
    let mut out = DocBuilder::new();
    out.append("a", true);
    let (old_len, new_len) = (old.iter().count(), new.iter().count());
    if new_len < old_len {
        out.append("l", i32::try_from(new_len).unwrap_or(i32::MAX));
    }
    let mut olds = old.iter();
    for (at, after) in new.iter().enumerate() {
        let before = olds.next();
        if before.is_some_and(|before| same(before, after)) {
            continue;
        }
        let position = at.to_string();
        if before.is_none() && matches!(after, RawValue::Null) && guide.fills_up(&position) {
            continue;
        }
        match before.and_then(|before| sub_diff(&position, before, after, depth, guide)) {
            Some(sub) => {
                out.append_bson(format!("s{position}"), &sub);
            }
            None => {
                out.append(format!("u{position}"), after);
            }
        }
    }
    out.finish()
}

/// The nested difference of a value; `None` if the value is written as a whole.
fn sub_diff(
    key: &str,
    before: RawValue<'_>,
    after: RawValue<'_>,
    depth: usize,
    guide: &Guide<'_>,
) -> Option<DocBuf> {
    if depth >= DEPTH_MAX {
        return None;
    }
    let guide = guide.into(key, before, after)?;
    let (sub, whole) = match (before, after) {
        (RawValue::Document(before), RawValue::Document(after)) => {
            let sub = diff_docs(before, after, depth + 1, &guide);
            (sub, after.len_bytes())
        }
        (RawValue::Array(before), RawValue::Array(after)) => {
            let sub = diff_arrays(before, after, depth + 1, &guide);
            (sub, after.as_bytes().len())
        }
        _ => return None,
    };
    let told_inside = !matches!(guide, Guide::Compare) || sub.as_raw().len_bytes() < whole;
    told_inside.then_some(sub)
}

/// Whether two values have the same type and bytes: 1 and 1.0 differ.
fn same(a: RawValue<'_>, b: RawValue<'_>) -> bool {
    match (a, b) {
        (RawValue::Document(a), RawValue::Document(b)) => a.as_bytes() == b.as_bytes(),
        (RawValue::Array(a), RawValue::Array(b)) => a.as_bytes() == b.as_bytes(),
        (RawValue::Double(a), RawValue::Double(b)) => a.to_bits() == b.to_bits(),
        (a, b) => std::mem::discriminant(&a) == std::mem::discriminant(&b) && a == b,
    }
}

/// Applies a difference to a document.
///
/// Errors: `BadValue` if `diff` is not a valid difference, or does not fit the document.
pub fn apply(old: RawDoc<'_>, diff: RawDoc<'_>) -> Result<DocBuf> {
    let parts = Parts::read(diff)?;
    let mut out = DocBuilder::new();
    for element in old.iter() {
        let key = element.key();
        if parts.removed.contains_key(key) || parts.added_at(key) {
            continue;
        }
        if let Some(value) = parts.updated.get(key) {
            out.append(key, *value);
        } else if let Some(sub) = parts.nested.get(key) {
            append_applied(&mut out, key, element.value(), *sub)?;
        } else {
            out.append(key, element.value());
        }
        check_applied(out.current_len())?;
    }
    // Fields to update that do not exist: the difference is applied to a later version.
    for (key, value) in &parts.updated_order {
        if old.get(key).is_none() {
            out.append(key, *value);
        }
    }
    for element in parts.added.into_iter().flat_map(|added| added.iter()) {
        out.append(element.key(), element.value());
    }
    Ok(out.finish())
}

fn append_applied(
    out: &mut DocBuilder,
    key: &str,
    value: RawValue<'_>,
    sub: RawDoc<'_>,
) -> Result<()> {
    match (value, is_array_diff(sub)) {
        (RawValue::Document(doc), false) => {
            out.append_bson(key, &apply(doc, sub)?);
        }
        (RawValue::Array(array), true) => {
            out.append(key, RawValue::Array(apply_array(array, sub)?.as_raw()));
        }
        // The value has another type in this later version: a later entry sets it.
        (value, _) => {
            out.append(key, value);
        }
    }
    Ok(())
}

fn is_array_diff(diff: RawDoc<'_>) -> bool {
    matches!(diff.first(), Some(first) if first.key() == "a" && first.value().is_truthy())
}

fn apply_array(old: RawArray<'_>, diff: RawDoc<'_>) -> Result<ArrayBuf> {
    let mut len = None;
    let mut updated: HashMap<usize, RawValue<'_>> = HashMap::new();
    let mut nested: HashMap<usize, RawDoc<'_>> = HashMap::new();
    let mut end = 0;
    for element in diff.iter().skip(1) {
        let (letter, at) = element.key().split_at_checked(1).unwrap_or(("", ""));
        match (letter, element.value()) {
            ("l", value) if at.is_empty() => {
                let n = value.as_i64_exact().and_then(|n| usize::try_from(n).ok());
                len = Some(n.ok_or_else(malformed)?);
            }
            ("u", value) => {
                let at = position(at)?;
                updated.insert(at, value);
                end = end.max(at + 1);
            }
            ("s", RawValue::Document(sub)) => {
                nested.insert(position(at)?, sub);
            }
            _ => return Err(malformed()),
        }
    }
    let mut out = sheaf_bson::ArrayBuilder::new();
    let old: Vec<RawValue<'_>> = old.iter().collect();
    let total = len.unwrap_or(old.len().max(end));
    for at in 0..total {
        match (updated.get(&at), nested.get(&at), old.get(at)) {
            (Some(value), _, _) => {
                out.push(*value);
            }
            (None, Some(sub), Some(value)) => {
                let mut holder = DocBuilder::new();
                append_applied(&mut holder, "v", *value, *sub)?;
                let holder = holder.finish();
                out.push(holder.get("v").unwrap_or(RawValue::Null));
            }
            (None, _, Some(value)) => {
                out.push(*value);
            }
            (None, _, None) => {
                out.push(RawValue::Null);
            }
        }
        check_applied(out.current_len())?;
    }
    Ok(out.finish())
}

/// Maximum length in bytes of a document or array while a difference is applied. A difference of a
/// few bytes can request an array of any length. Twice the size of a stored document: a difference
/// that is applied to a later version of its document may make it temporarily too large.
const APPLIED_BYTES_MAX: usize = 2 * super::DOCUMENT_BYTES_MAX;

fn check_applied(len_bytes: usize) -> Result<()> {
    if len_bytes <= APPLIED_BYTES_MAX {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::BSON_OBJECT_TOO_LARGE,
        format!("the document would have more than {APPLIED_BYTES_MAX} bytes after the update"),
    ))
}

/// Maximum array length; longer arrays do not fit into a document.
const ARRAY_LEN_MAX: usize = 16 << 20;

fn position(text: &str) -> Result<usize> {
    text.parse()
        .ok()
        .filter(|at| *at < ARRAY_LEN_MAX)
        .ok_or_else(malformed)
}

fn malformed() -> Error {
    Error::bad_value("not a difference of the form $v: 2")
}

/// A parsed difference of documents.
struct Parts<'a> {
    removed: HashMap<&'a str, ()>,
    updated: HashMap<&'a str, RawValue<'a>>,
    updated_order: Vec<(&'a str, RawValue<'a>)>,
    added: Option<RawDoc<'a>>,
    nested: HashMap<&'a str, RawDoc<'a>>,
}

impl<'a> Parts<'a> {
    fn read(diff: RawDoc<'a>) -> Result<Parts<'a>> {
        let mut parts = Parts {
            removed: HashMap::new(),
            updated: HashMap::new(),
            updated_order: Vec::new(),
            added: None,
            nested: HashMap::new(),
        };
        for element in diff.iter() {
            match (element.key(), element.value()) {
                ("d", RawValue::Document(doc)) => {
                    parts.removed.extend(doc.iter().map(|e| (e.key(), ())));
                }
                ("u", RawValue::Document(doc)) => {
                    parts.updated_order = doc.iter().map(|e| (e.key(), e.value())).collect();
                    parts.updated = parts.updated_order.iter().copied().collect();
                }
                ("i", RawValue::Document(doc)) => parts.added = Some(doc),
                (key, RawValue::Document(sub)) if key.starts_with('s') => {
                    parts.nested.insert(&key[1..], sub);
                }
                _ => return Err(malformed()),
            }
        }
        Ok(parts)
    }

    fn added_at(&self, key: &str) -> bool {
        self.added.is_some_and(|added| added.get(key).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::update::{ApplyContext, Outcome, UpdateDriver};
    use sheaf_bson::json::parse_doc;

    fn doc(text: &str) -> DocBuf {
        parse_doc(text).unwrap()
    }

    #[test]
    fn differences() {
        let rows = [
            ("{_id: 1, a: 1}", "{_id: 1, a: 1}", "{}"),
            ("{_id: 1, a: 1}", "{_id: 1, a: 2}", "{u: {a: 2}}"),
            ("{_id: 1, a: 1}", "{_id: 1, a: 1.0}", "{u: {a: 1.0}}"),
            ("{_id: 1, a: 1}", "{_id: 1}", "{d: {a: false}}"),
            ("{_id: 1}", "{_id: 1, a: 1}", "{i: {a: 1}}"),
            // A changed position is a removal and an addition, which the addition alone implies.
            (
                "{_id: 1, a: 1, b: 2}",
                "{_id: 1, b: 2, a: 1}",
                "{i: {a: 1}}",
            ),
            (
                "{_id: 1, a: {b: 1, c: 'a long enough text'}}",
                "{_id: 1, a: {b: 2, c: 'a long enough text'}}",
                "{sa: {u: {b: 2}}}",
            ),
            // A small value is replaced.
            (
                "{_id: 1, a: {b: 1}}",
                "{_id: 1, a: {b: 2}}",
                "{u: {a: {b: 2}}}",
            ),
            (
                "{_id: 1, a: ['a long enough text', 2, 3]}",
                "{_id: 1, a: ['a long enough text', 5]}",
                "{sa: {a: true, l: 2, u1: 5}}",
            ),
            (
                "{_id: 1, a: ['a long enough text', {b: 'another long text', c: 1}]}",
                "{_id: 1, a: ['a long enough text', {b: 'another long text', c: 2}, 7]}",
                "{sa: {a: true, s1: {u: {c: 2}}, u2: 7}}",
            ),
        ];
        for (old, new, expected) in rows {
            let (old, new) = (doc(old), doc(new));
            let found = diff_docs(old.as_raw(), new.as_raw(), 0, &Guide::Compare);
            assert_eq!(found.to_string(), doc(expected).to_string(), "{old} {new}");
            let applied = apply(old.as_raw(), found.as_raw()).unwrap();
            assert_eq!(applied.to_string(), new.to_string());
        }
    }

    /// The oplog form of the changes of operators to a document.
    fn told(old: &str, update: &str) -> String {
        let (old, update) = (doc(old), doc(update));
        let variables = crate::expression::VariableScope::default();
        let update = RawValue::Document(update.as_raw());
        let driver = UpdateDriver::parse(update, None, &variables).unwrap();
        let outcome = driver.apply(old.as_raw(), &ApplyContext::default());
        let Outcome::Changed { doc: new, modified } = outcome.unwrap() else {
            return "nothing".to_owned();
        };
        let found = diff_of_paths(old.as_raw(), new.as_raw(), &modified).unwrap();
        let applied = apply(old.as_raw(), found.as_raw()).unwrap();
        assert_eq!(applied.to_string(), new.to_string(), "{found}");
        let twice = apply(applied.as_raw(), found.as_raw()).unwrap();
        assert_eq!(twice.to_string(), new.to_string(), "{found}");
        found.to_string()
    }

    #[test]
    fn operators_are_told_by_their_paths() {
        let rows = [
            // Inside an existing sub-document, regardless of size.
            (
                "{_id: 1, a: {b: 1}}",
                "{$set: {'a.b': 2}}",
                "{sa: {u: {b: 2}}}",
            ),
            (
                "{_id: 1, a: {b: 1}}",
                "{$set: {'a.c': 2}}",
                "{sa: {i: {c: 2}}}",
            ),
            (
                "{_id: 1, a: {b: 1}}",
                "{$unset: {'a.b': 1}}",
                "{sa: {d: {b: false}}}",
            ),
            (
                "{_id: 1, a: {b: {c: 1}}}",
                "{$inc: {'a.b.c': 1}}",
                "{sa: {sb: {u: {c: 2}}}}",
            ),
            // Set as a whole, even if parts of it are unchanged.
            (
                "{_id: 1, a: {b: 1, c: 1}}",
                "{$set: {a: {b: 1, c: 2}}}",
                "{u: {a: {b: 1, c: 2}}}",
            ),
            ("{_id: 1}", "{$set: {'a.b': 2}}", "{i: {a: {b: 2}}}"),
            ("{_id: 1, a: 5}", "{$set: {a: {b: 2}}}", "{u: {a: {b: 2}}}"),
            // Two sibling fields, of which one name is a prefix of the other.
            (
                "{_id: 1, a: {b: 1}, ab: 1}",
                "{$set: {'a.b': 2, ab: 2}}",
                "{u: {ab: 2}, sa: {u: {b: 2}}}",
            ),
            // Arrays: appended elements by position; the first element with its array.
            ("{_id: 1, s: []}", "{$push: {s: 7}}", "{u: {s: [7]}}"),
            (
                "{_id: 1, s: [7]}",
                "{$push: {s: 8}}",
                "{ss: {a: true, u1: 8}}",
            ),
            (
                "{_id: 1, s: [7]}",
                "{$addToSet: {s: {$each: [7, 8, 9]}}}",
                "{ss: {a: true, u1: 8, u2: 9}}",
            ),
            ("{_id: 1, s: [7, 8]}", "{$pull: {s: 8}}", "{u: {s: [7]}}"),
            ("{_id: 1, s: [7, 8]}", "{$pop: {s: 1}}", "{u: {s: [7]}}"),
            (
                "{_id: 1, s: [7, 8]}",
                "{$set: {'s.1': 9}}",
                "{ss: {a: true, u1: 9}}",
            ),
            (
                "{_id: 1, s: [7]}",
                "{$set: {'s.3': 9}}",
                "{ss: {a: true, u3: 9}}",
            ),
            (
                "{_id: 1, s: [{a: 1}]}",
                "{$set: {'s.0.a': 2}}",
                "{ss: {a: true, s0: {u: {a: 2}}}}",
            ),
            (
                "{_id: 1, s: [{a: [1]}]}",
                "{$push: {'s.0.a': 2}}",
                "{ss: {a: true, s0: {sa: {a: true, u1: 2}}}}",
            ),
            // Larger than the document, but not a replacement.
            (
                "{_id: 1, aaa: 1, bbb: 2}",
                "{$unset: {aaa: 1, bbb: 1}}",
                "{d: {aaa: false, bbb: false}}",
            ),
            (
                "{_id: 1, a: 1}",
                "{$rename: {a: 'b'}}",
                "{d: {a: false}, i: {b: 1}}",
            ),
        ];
        for (old, update, expected) in rows {
            assert_eq!(
                told(old, update),
                doc(expected).to_string(),
                "{old} {update}"
            );
        }
    }

    #[test]
    fn what_is_larger_than_the_document_is_none() {
        let (old, new) = (doc("{_id: 1, aaa: 1, bbb: 2}"), doc("{_id: 1, c: 3}"));
        assert_eq!(diff(old.as_raw(), new.as_raw()), None);
        let mut old = DocBuilder::new();
        for i in 0..100_000 {
            old.append(&format!("a field that goes {i}"), RawValue::Null);
        }
        let old = old.finish();
        let modified = ModifiedPaths::default();
        assert_eq!(diff_of_paths(old.as_raw(), new.as_raw(), &modified), None);
    }

    #[test]
    fn what_is_no_difference_is_refused() {
        let old = doc("{a: [1, 2], b: {c: 1}}");
        for bad in [
            "{x: 1}",
            "{d: 1}",
            "{sa: {a: true, ux: 1}}",
            "{sa: {a: true, u99999999999: 1}}",
            "{sa: {a: true, l: -1}}",
            "{sb: {q: {}}}",
        ] {
            assert!(apply(old.as_raw(), doc(bad).as_raw()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_difference_that_asks_for_a_huge_array_is_refused() {
        let old = doc("{a: [1, 2], b: [[1]]}");
        for bad in [
            "{sa: {a: true, l: 2147483647}}",
            "{sa: {a: true, u16000000: 1}}",
            "{sb: {a: true, s0: {a: true, l: 9000000000}}}",
        ] {
            let error = apply(old.as_raw(), doc(bad).as_raw()).unwrap_err();
            assert_eq!(error.code(), ErrorCode::BSON_OBJECT_TOO_LARGE, "{bad}");
        }
    }

    fn below(seed: &mut u64, n: u64) -> u64 {
        *seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) % n
    }

    /// A document with few names and values, so that two of them have much in common.
    fn random(seed: &mut u64, depth: usize) -> DocBuf {
        let mut names = vec!["a", "b", "c", "d", "e"];
        let mut out = DocBuilder::new();
        for _ in 0..below(seed, 5) {
            let name = names.remove(below(seed, names.len() as u64) as usize);
            match below(seed, if depth < 3 { 6 } else { 3 }) {
                0 => {
                    out.append(name, below(seed, 3) as i32);
                }
                1 => {
                    out.append(name, "some text that is long");
                }
                2 => {
                    out.append(name, RawValue::Null);
                }
                3 => {
                    out.begin_array(name);
                    for _ in 0..below(seed, 4) {
                        out.push("an element that is long");
                        out.push(below(seed, 3) as i32);
                    }
                    out.end();
                }
                4 => {
                    let sub = random(seed, depth + 1);
                    out.begin_array(name);
                    out.push(RawValue::Document(sub.as_raw()));
                    out.push(1);
                    out.end();
                }
                _ => {
                    out.append_bson(name, &random(seed, depth + 1));
                }
            }
        }
        out.finish()
    }

    #[test]
    fn applied_it_gives_the_new_document_also_twice() {
        let mut seed = 7;
        for _ in 0..4000 {
            let (old, new) = (random(&mut seed, 0), random(&mut seed, 0));
            let found = diff_docs(old.as_raw(), new.as_raw(), 0, &Guide::Compare);
            let once = apply(old.as_raw(), found.as_raw()).unwrap();
            assert_eq!(once.to_string(), new.to_string(), "{old} {found}");
            let twice = apply(once.as_raw(), found.as_raw()).unwrap();
            assert_eq!(twice.to_string(), new.to_string(), "{old} {found}");
        }
    }
}
