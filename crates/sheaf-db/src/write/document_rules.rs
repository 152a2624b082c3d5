//! Rules for documents to be stored, and the changes made to them first.
//!
//! ```text
//!   {a: 1, ts: Timestamp(0, 0)}  ──>  {_id: ObjectId(...), a: 1, ts: Timestamp(now, n)}
//! ```
//!
//! `_id` comes first and is generated if missing. It must not be an array, a regular expression or
//! undefined, nor a document with names that start with `$`. Other names may start with `$` and
//! contain dots. Empty timestamps at the top level (except in `_id`) become the current time.

use std::borrow::Cow;

use sheaf_bson::{
    DocBuf, DocBuilder, ElementType, Error, ErrorCode, ObjectId, RawDoc, RawElement, RawValue,
    Result, Timestamp,
};

/// Maximum size of a document, in bytes.
pub const DOCUMENT_BYTES_MAX: usize = 16 << 20;
/// Maximum nesting depth, counting the document itself.
pub const DEPTH_MAX: usize = sheaf_bson::DOCUMENT_DEPTH_MAX;

/// Returns the document as it will be stored.
///
/// `now` supplies the time for empty timestamps; it is called only if there is one.
/// Errors: `BadValue` (too large, several `_id`), `Overflow` (nested too deep), `InvalidIdField`,
/// `DollarPrefixedFieldName`.
pub fn prepare_for_insert<'a>(
    doc: RawDoc<'a>,
    now: &mut dyn FnMut() -> Timestamp,
) -> Result<Cow<'a, [u8]>> {
    check_insert_size(doc.len_bytes())?;
    let mut id = None;
    let mut id_place = 0;
    let mut empty_timestamp = false;
    for (place, element) in doc.into_iter().enumerate() {
        check_depth(element, DEPTH_MAX - 1)?;
        if element.key_bytes() == b"_id" {
            if id.is_some() {
                return Err(Error::bad_value(
                    "can't have multiple _id fields in one document",
                ));
            }
            check_id(element)?;
            id = Some(element);
            id_place = place;
        } else if is_empty_timestamp(element) {
            empty_timestamp = true;
        }
    }
    if id.is_some() && id_place == 0 && !empty_timestamp {
        return Ok(Cow::Borrowed(doc.as_bytes()));
    }
    let mut out = DocBuilder::new();
    out.reserve(doc.len_bytes() + 32);
    match id {
        Some(id) => out.append_raw_element(id),
        None => out.append("_id", ObjectId::new()),
    };
    for element in doc {
        if element.key_bytes() == b"_id" {
            continue;
        }
        if is_empty_timestamp(element) {
            out.append(element.key(), now());
        } else {
            out.append_raw_element(element);
        }
    }
    let stored = out.finish_into();
    check_insert_size(stored.len())?;
    Ok(Cow::Owned(stored))
}

/// Like [`prepare_for_insert`], for callers that need the `_id` before the document is stored.
/// Errors: those of [`prepare_for_insert`].
pub fn prepared(doc: RawDoc<'_>, now: &mut dyn FnMut() -> Timestamp) -> Result<DocBuf> {
    prepare_for_insert(doc, now).map(|bytes| DocBuf::from_vec_unchecked(bytes.into_owned()))
}

/// Errors: `BadValue`, which is MongoDB's code for inserts that are too large.
fn check_insert_size(bytes: usize) -> Result<()> {
    check_size_as(bytes, ErrorCode::BAD_VALUE)
}

/// Errors: `BSONObjectTooLarge`.
pub fn check_size(bytes: usize) -> Result<()> {
    check_size_as(bytes, ErrorCode::BSON_OBJECT_TOO_LARGE)
}

/// Errors: `code`, if the document is too large.
fn check_size_as(bytes: usize, code: ErrorCode) -> Result<()> {
    if bytes <= DOCUMENT_BYTES_MAX {
        return Ok(());
    }
    Err(Error::new(
        code,
        format!(
            "object to insert too large. size in bytes: {bytes}, max size: {DOCUMENT_BYTES_MAX}"
        ),
    ))
}

/// Checks a document that replaces a stored one and whose `_id` is known to be the same.
/// Errors: `BSONObjectTooLarge`, `Overflow` (nested too deep).
pub fn check_replacement(doc: RawDoc<'_>) -> Result<()> {
    check_size(doc.len_bytes())?;
    doc.into_iter()
        .try_for_each(|element| check_depth(element, DEPTH_MAX - 1))
}

/// Errors: `Overflow` when an element has more than `levels` levels of documents and arrays.
fn check_depth(element: RawElement<'_>, levels: usize) -> Result<()> {
    let inner = match element.element_type() {
        ElementType::Document | ElementType::Array => match element.value() {
            RawValue::Document(doc) => doc,
            RawValue::Array(array) => array.as_doc(),
            _ => return Ok(()),
        },
        _ => return Ok(()),
    };
    let Some(below) = levels.checked_sub(1) else {
        return Err(Error::new(
            ErrorCode::OVERFLOW,
            format!("the document is nested deeper than {DEPTH_MAX} levels"),
        ));
    };
    inner
        .into_iter()
        .try_for_each(|element| check_depth(element, below))
}

/// Checks that a value can be an `_id`.
/// Errors: `InvalidIdField`, `DollarPrefixedFieldName`.
pub fn check_id(id: RawElement<'_>) -> Result<()> {
    match id.element_type() {
        refused @ (ElementType::Array | ElementType::Regex | ElementType::Undefined) => {
            Err(Error::new(
                ErrorCode::INVALID_ID_FIELD,
                format!("The '_id' value cannot be of type {refused}"),
            ))
        }
        ElementType::Document => match id.value() {
            RawValue::Document(inner) => check_id_names(inner),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

fn check_id_names(doc: RawDoc<'_>) -> Result<()> {
    for element in doc {
        if element.key_bytes().first() == Some(&b'$')
            && !matches!(element.key_bytes(), b"$ref" | b"$id" | b"$db")
        {
            return Err(Error::new(
                ErrorCode::DOLLAR_PREFIXED_FIELD_NAME,
                format!(
                    "_id fields may not contain '$'-prefixed fields: {} is not valid for storage.",
                    element.key()
                ),
            ));
        }
    }
    Ok(())
}

fn is_empty_timestamp(element: RawElement<'_>) -> bool {
    element.element_type() == ElementType::Timestamp
        && element.raw_value_bytes().iter().all(|&byte| byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(levels: usize) -> DocBuf {
        let mut out = DocBuilder::new();
        for level in 1..levels {
            if level % 2 == 0 {
                out.begin_array("a");
            } else {
                out.begin_document("a");
            }
        }
        for _ in 1..levels {
            out.end();
        }
        out.finish()
    }

    #[test]
    fn at_most_180_levels() {
        let mut now = || Timestamp::default();
        assert!(prepare_for_insert(nested(180).as_raw(), &mut now).is_ok());
        let error = prepare_for_insert(nested(181).as_raw(), &mut now).unwrap_err();
        assert_eq!(error.code(), ErrorCode::OVERFLOW);
    }
    use sheaf_bson::doc;

    fn now() -> Timestamp {
        Timestamp {
            time: 7,
            increment: 1,
        }
    }

    fn stored(doc: &DocBuf) -> Result<DocBuf> {
        prepared(doc.as_raw(), &mut now)
    }

    #[test]
    fn id_comes_first() {
        let taken = doc! {"_id": 1, "a": 2};
        let bytes = prepare_for_insert(taken.as_raw(), &mut now).unwrap();
        assert!(matches!(bytes, Cow::Borrowed(_)));
        assert_eq!(
            stored(&doc! {"a": 2, "_id": 1, "b": 3}).unwrap(),
            doc! {"_id": 1, "a": 2, "b": 3}
        );
        let made = stored(&doc! {"a": 2}).unwrap();
        let first = made.as_raw().first().unwrap();
        assert_eq!(
            (first.key(), first.element_type()),
            ("_id", ElementType::ObjectId)
        );
        assert_ne!(made, stored(&doc! {"a": 2}).unwrap());
    }

    #[test]
    fn empty_timestamps_at_the_top() {
        let empty = Timestamp {
            time: 0,
            increment: 0,
        };
        let given = doc! {"_id": empty, "a": empty, "b": {"c": empty}};
        let expected = doc! {"_id": empty, "a": now(), "b": {"c": empty}};
        assert_eq!(stored(&given).unwrap(), expected);
    }

    #[test]
    fn refused() {
        let code = |doc: DocBuf| stored(&doc).unwrap_err().code().0;
        assert_eq!(code(doc! {"_id": [1]}), 53);
        assert_eq!(code(doc! {"_id": RawValue::Undefined}), 53);
        let regex = RawValue::Regex {
            pattern: "x",
            options: "",
        };
        assert_eq!(code(doc! {"_id": regex}), 53);
        assert_eq!(code(doc! {"_id": {"$a": 1}}), 52);
        assert_eq!(code(doc! {"_id": 1, "a": 1, "_id": 2}), 2);
        assert!(stored(&doc! {"_id": 1, "$a": {"b.c": 1, "$d": 2}}).is_ok());
        assert!(stored(&doc! {"_id": {"$ref": "c", "$id": 1}}).is_ok());
    }

    #[test]
    fn the_largest_document() {
        let of_size = |bytes: usize| {
            let overhead = doc! {"_id": 1, "s": ""}.len_bytes();
            doc! {"_id": 1, "s": "x".repeat(bytes - overhead)}
        };
        assert!(stored(&of_size(DOCUMENT_BYTES_MAX)).is_ok());
        let error = stored(&of_size(DOCUMENT_BYTES_MAX + 1)).unwrap_err();
        assert_eq!(error.code().0, 2);
        // The added _id makes it too large.
        let without_id = doc! {"s": "x".repeat(DOCUMENT_BYTES_MAX - 15)};
        assert_eq!(stored(&without_id).unwrap_err().code().0, 2);
    }
}
