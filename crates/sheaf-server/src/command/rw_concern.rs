//! `getDefaultRWConcern` and `setDefaultRWConcern`: the default read and write concern.

use sheaf_bson::{DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawValue};

use super::context::CommandContext;
use super::fields;
use crate::write_concern::WriteConcern;

/// Runs `getDefaultRWConcern`.
pub fn get(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    let mut in_memory = false;
    for element in cx.arguments() {
        match element.key() {
            "inMemory" => in_memory = fields::strict_boolean("getDefaultRWConcern", &element)?,
            _ => cx.unknown_field(&element)?,
        }
    }
    cx.server.rw_concern.read().append(out);
    if in_memory {
        // The defaults are always kept in memory.
        out.append("inMemory", true);
    }
    Ok(())
}

/// Runs `setDefaultRWConcern`.
pub fn set(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "setDefaultRWConcern";
    let mut defaults = cx.server.rw_concern.read().clone();
    let mut given = false;
    for element in cx.arguments() {
        match element.key() {
            "defaultReadConcern" => {
                defaults.read = read_default(fields::document(NAME, &element)?)?;
                given = true;
            }
            "defaultWriteConcern" => {
                let doc = fields::document(NAME, &element)?;
                let is_set = defaults.write.is_some();
                defaults.write = write_default(doc, is_set)?;
                given = true;
            }
            _ => cx.unknown_field(&element)?,
        }
    }
    if !given {
        return Err(Error::bad_value(
            "At least one of the \"defaultReadConcern\" or \"defaultWriteConcern\" fields must be present",
        ));
    }
    if cx.generic.write_concern.unknown_mode {
        return Err(unknown_mode("of writeConcern"));
    }
    defaults.store(&cx.server.db, &cx.op)?;
    defaults.append(out);
    *cx.server.rw_concern.write() = defaults;
    Ok(())
}

/// The default read concern; `None` for an empty document, which resets it.
/// Errors: `IDLUnknownField`, `TypeMismatch`, `BadValue`.
fn read_default(doc: RawDoc<'_>) -> Result<Option<DocBuf>, Error> {
    for element in doc.iter() {
        match element.key() {
            "level" => drop(fields::string("defaultReadConcern", &element)?),
            "provenance" => {}
            other => return Err(fields::unknown_field("defaultReadConcern", other)),
        }
    }
    match doc.get("level") {
        None if doc.is_empty() => Ok(None),
        Some(RawValue::String("local" | "available" | "majority")) => Ok(Some(doc.to_buf())),
        _ => Err(Error::bad_value(
            "The default read concern's level must be local, available or majority",
        )),
    }
}

/// The default write concern with its defaults filled in; `None` for an empty document.
///
/// Errors: `IllegalOperation` for an empty document after one was set, `UnknownReplWriteConcern`
/// for a mode that no configuration defines, `BadValue` without `w` or with `w: 0`.
fn write_default(doc: RawDoc<'_>, is_set: bool) -> Result<Option<(DocBuf, WriteConcern)>, Error> {
    if doc.is_empty() && is_set {
        return Err(Error::new(
            ErrorCode::ILLEGAL_OPERATION,
            "The default write concern cannot be unset once it is set; set another one",
        ));
    }
    if doc.is_empty() {
        return Ok(None);
    }
    let concern = WriteConcern::parse(doc)?;
    let w = match doc.get("w") {
        None => {
            return Err(Error::bad_value(
                "The default write concern must have the field 'w'",
            ));
        }
        Some(_) if concern.unacknowledged => {
            return Err(Error::bad_value("The default write concern cannot be w: 0"));
        }
        Some(RawValue::Null | RawValue::Undefined) => None,
        Some(w) => Some(w),
    };
    let Some(w) = w.filter(|_| !concern.unknown_mode) else {
        let name = w.and_then(|w| w.as_str()).unwrap_or_default();
        return Err(unknown_mode(name));
    };
    let mut filled = DocBuilder::new();
    filled.append("w", w);
    for element in doc.iter().filter(|e| !matches!(e.key(), "w" | "wtimeout")) {
        filled.append_raw_element(element);
    }
    filled.append(
        "wtimeout",
        doc.get("wtimeout").unwrap_or(RawValue::Int32(0)),
    );
    Ok(Some((filled.finish(), concern)))
}

fn unknown_mode(name: &str) -> Error {
    Error::new(
        ErrorCode::UNKNOWN_REPL_WRITE_CONCERN,
        format!("No write concern mode named '{name}' found in replica set configuration"),
    )
}
