//! `$unwind`: one document for each element of an array.
//!
//! ```text
//!   {a: 1, b: [2, 3]}   unwind b   {a: 1, b: 2}  {a: 1, b: 3}
//! ```
//!
//! A value that is not an array passes unchanged. Null, missing and empty arrays produce no
//! document, or, with `preserveNullAndEmptyArrays`, the document without an empty array.

use sheaf_bson::error_code::Result;
use sheaf_bson::{DocBuf, DocBuilder, RawDoc, RawValue};

use crate::expression::{field_path, location};
use crate::matcher::Dependencies;

/// A parsed `$unwind`.
#[derive(Debug, Clone)]
pub struct Unwind {
    path: Box<[Box<str>]>,
    index_path: Option<Box<[Box<str>]>>,
    preserve: bool,
}

impl Unwind {
    /// Parses `"$path"` or `{path, includeArrayIndex, preserveNullAndEmptyArrays}`.
    pub(super) fn parse(value: RawValue<'_>) -> Result<Unwind> {
        let (mut path, mut index, mut preserve) = (None, None, false);
        match value {
            RawValue::String(text) => path = Some(text),
            RawValue::Document(doc) => {
                for element in doc {
                    match (element.key(), element.value()) {
                        ("path", RawValue::String(text)) => path = Some(text),
                        ("path", other) => {
                            return Err(location(
                                28808,
                                format!(
                                    "the path of $unwind must be a string, not {}",
                                    other.type_name()
                                ),
                            ));
                        }
                        ("preserveNullAndEmptyArrays", RawValue::Boolean(b)) => preserve = b,
                        ("preserveNullAndEmptyArrays", other) => {
                            return Err(location(
                                28809,
                                format!(
                                    "preserveNullAndEmptyArrays of $unwind must be a boolean, not {}",
                                    other.type_name()
                                ),
                            ));
                        }
                        ("includeArrayIndex", RawValue::String(name)) if !name.is_empty() => {
                            if name.starts_with('$') {
                                return Err(location(
                                    28822,
                                    format!(
                                        "includeArrayIndex of $unwind must not begin with a dollar sign: {name}"
                                    ),
                                ));
                            }
                            index = Some(field_path::split(name)?);
                        }
                        ("includeArrayIndex", other) => {
                            return Err(location(
                                28810,
                                format!(
                                    "includeArrayIndex of $unwind must be a string that is not empty, not {}",
                                    other.type_name()
                                ),
                            ));
                        }
                        (other, _) => {
                            return Err(location(
                                28811,
                                format!("unrecognized option to $unwind: '{other}'"),
                            ));
                        }
                    }
                }
            }
            other => {
                return Err(location(
                    15981,
                    format!(
                        "$unwind takes a string or an object, not {}",
                        other.type_name()
                    ),
                ));
            }
        }
        let Some(path) = path.filter(|path| !path.is_empty()) else {
            return Err(location(28812, "no path specified to $unwind"));
        };
        let Some(path) = path.strip_prefix('$') else {
            return Err(location(
                28818,
                format!("the path of $unwind must begin with a dollar sign: '{path}'"),
            ));
        };
        if path.contains('\0') {
            return Err(location(
                16419,
                "the path of $unwind must not contain a zero byte",
            ));
        }
        Ok(Unwind {
            path: field_path::split(path)?,
            index_path: index,
            preserve,
        })
    }

    /// The dotted path, without its dollar sign.
    pub fn path(&self) -> String {
        self.path.join(".")
    }

    /// The dotted path that receives positions.
    pub fn index_path(&self) -> Option<String> {
        self.index_path.as_ref().map(|path| path.join("."))
    }

    /// Whether documents without elements are preserved.
    pub fn preserves(&self) -> bool {
        self.preserve
    }

    /// Appends `unwinding`, in the form of explain within the stage that absorbed it.
    pub(super) fn append_absorbed(&self, out: &mut DocBuilder) {
        out.begin_document("unwinding");
        out.append("preserveNullAndEmptyArrays", self.preserve);
        if let Some(index) = self.index_path() {
            out.append("includeArrayIndex", &index);
        }
        out.end();
    }

    /// The path that receives positions, in parts.
    pub(super) fn index_parts(&self) -> Option<&[Box<str>]> {
        self.index_path.as_deref()
    }

    /// Whether a `$match` that only reads these paths may move before the `$unwind`.
    ///
    /// Condition: it reads neither the array nor the path to which positions are written. The path
    /// of the array traverses only documents, so unwinding does not affect other paths.
    pub(super) fn lets_through(&self, reads: &Dependencies) -> bool {
        reads.is_independent_of(&self.path())
            && self
                .index_parts()
                .is_none_or(|index| is_independent_of_written(reads, index))
    }

    /// The operand as a document, for explain.
    pub(super) fn serialize(&self) -> DocBuf {
        let mut out = DocBuilder::new();
        out.append("path", &format!("${}", self.path()));
        if let Some(index) = self.index_path() {
            out.append("includeArrayIndex", &index);
        }
        if self.preserve {
            out.append("preserveNullAndEmptyArrays", true);
        }
        out.finish()
    }

    /// The path, in parts.
    pub(super) fn parts(&self) -> &[Box<str>] {
        &self.path
    }

    /// The value at the path, which traverses only documents; `None` if it is missing or there is
    /// an array on the path.
    pub(super) fn find<'d>(&self, doc: RawDoc<'d>) -> Option<RawValue<'d>> {
        let mut value = RawValue::Document(doc);
        for part in &self.path {
            value = value.as_document()?.get(part)?;
        }
        Some(value)
    }

    fn emit(&self, doc: RawDoc<'_>, value: Option<RawValue<'_>>, index: Option<i64>) -> DocBuf {
        let replaced = with_value(doc, &self.path, value);
        match &self.index_path {
            None => replaced,
            Some(path) => {
                let index = index.map_or(RawValue::Null, RawValue::Int64);
                with_value(replaced.as_raw(), path, Some(index))
            }
        }
    }
}

/// Whether [`with_value`] at this path changes none of these paths. For a dotted path, it may
/// replace the whole value at the first part.
pub(super) fn is_independent_of_written(reads: &Dependencies, path: &[Box<str>]) -> bool {
    let first = path.first().map_or("", |first| &**first);
    reads.is_independent_of(first)
}

/// Adds the paths that [`with_value`] at this path reads: for a dotted path the first part, whose
/// value it modifies in place.
pub(super) fn add_written(found: &mut Dependencies, path: &[Box<str>]) {
    if let [first, _, ..] = path {
        found.insert(first);
    }
}

/// The document with a value set, created or (`None`) removed at a path. To create a path, values
/// on it that are not documents are replaced.
pub(super) fn with_value(
    doc: RawDoc<'_>,
    path: &[Box<str>],
    value: Option<RawValue<'_>>,
) -> DocBuf {
    let mut out = DocBuilder::with_vec(Vec::with_capacity(doc.len_bytes() + 32));
    write_with(&mut out, doc, path, value);
    out.finish()
}

fn write_with(
    out: &mut DocBuilder,
    doc: RawDoc<'_>,
    path: &[Box<str>],
    value: Option<RawValue<'_>>,
) {
    let Some((name, rest)) = path.split_first() else {
        return;
    };
    let mut done = false;
    for element in doc {
        if done || element.key_bytes() != name.as_bytes() {
            out.append_raw_element(element);
            continue;
        }
        done = true;
        match (rest, element.value()) {
            ([], _) => {
                if let Some(value) = value {
                    out.append(name, value);
                }
            }
            (_, RawValue::Document(inner)) => {
                out.begin_document(name);
                write_with(out, inner, rest, value);
                out.end();
            }
            (_, _) if value.is_some() => {
                out.begin_document(name);
                write_with(out, RawDoc::EMPTY, rest, value);
                out.end();
            }
            _ => {
                out.append_raw_element(element);
            }
        }
    }
    if let (false, Some(present)) = (done, value) {
        match rest {
            [] => {
                out.append(name, present);
            }
            _ => {
                out.begin_document(name);
                write_with(out, RawDoc::EMPTY, rest, value);
                out.end();
            }
        }
    }
}

/// Unwinds one document at a time, one element per step, so that the outputs of a large document
/// are not in memory at the same time.
#[derive(Debug)]
pub(super) struct Unwinder {
    unwind: Unwind,
    pending: Option<Pending>,
}

#[derive(Debug)]
struct Pending {
    doc: DocBuf,
    /// Range of the array's bytes within `doc`.
    array: std::ops::Range<usize>,
    /// Offset of the next element within the array's bytes.
    at: usize,
    index: i64,
}

impl Unwinder {
    pub(super) fn new(unwind: Unwind) -> Unwinder {
        Unwinder {
            unwind,
            pending: None,
        }
    }

    /// Processes a document: returns its output if that is at most one document, otherwise buffers
    /// it for [`Unwinder::step`].
    pub(super) fn push(&mut self, doc: RawDoc<'_>) -> Option<DocBuf> {
        match self.unwind.find(doc) {
            Some(RawValue::Array(array)) if !array.is_empty() => {
                let start = array.as_bytes().as_ptr() as usize - doc.as_bytes().as_ptr() as usize;
                let array = start..start + array.len_bytes();
                self.pending = Some(Pending {
                    doc: doc.to_buf(),
                    array,
                    at: 4,
                    index: 0,
                });
                None
            }
            None | Some(RawValue::Null | RawValue::Undefined) if self.unwind.preserve => {
                // Null is preserved as null.
                Some(match &self.unwind.index_path {
                    None => doc.to_buf(),
                    Some(path) => with_value(doc, path, Some(RawValue::Null)),
                })
            }
            Some(RawValue::Array(_)) if self.unwind.preserve => {
                Some(self.unwind.emit(doc, None, None))
            }
            None | Some(RawValue::Null | RawValue::Undefined | RawValue::Array(_)) => None,
            Some(_) => Some(match &self.unwind.index_path {
                None => doc.to_buf(),
                Some(path) => with_value(doc, path, Some(RawValue::Null)),
            }),
        }
    }

    pub(super) fn has_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// The next output of the buffered document; `None` if there is none.
    pub(super) fn step(&mut self) -> Option<DocBuf> {
        let pending = self.pending.as_mut()?;
        let bytes = pending.doc.as_bytes();
        let array = bytes.get(pending.array.clone()).unwrap_or(&[]);
        let element = array
            .get(pending.at..)
            .and_then(sheaf_bson::RawElement::parse_prefix);
        let Some(element) = element else {
            self.pending = None;
            return None;
        };
        let out = self.unwind.emit(
            pending.doc.as_raw(),
            Some(element.value()),
            Some(pending.index),
        );
        pending.at += element.as_bytes().len();
        pending.index += 1;
        // Only the terminator is left: release the document.
        if pending.at + 1 >= pending.array.len() {
            self.pending = None;
        }
        Some(out)
    }
}
