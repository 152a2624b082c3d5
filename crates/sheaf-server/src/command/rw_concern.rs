//! `getDefaultRWConcern` and `setDefaultRWConcern`: the default read and write concern.

use sheaf_bson::{DocBuilder, Error, RawValue};

use super::context::CommandContext;
use super::fields;
use crate::write_concern::WriteConcern;

/// Runs `getDefaultRWConcern`.
pub fn get(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    for element in cx.arguments() {
        match element.key() {
            "inMemory" => drop(fields::boolean("getDefaultRWConcern", &element)?),
            _ => cx.unknown_field(&element)?,
        }
    }
    cx.server.rw_concern.read().append(out);
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
                let doc = fields::document(NAME, &element)?;
                match doc.get("level") {
                    None if doc.is_empty() => defaults.read = None,
                    Some(RawValue::String("local" | "available" | "majority")) => {
                        defaults.read = Some(doc.to_buf());
                    }
                    _ => {
                        return Err(Error::bad_value(
                            "The default read concern's level must be local, available or majority",
                        ));
                    }
                }
                given = true;
            }
            "defaultWriteConcern" => {
                let doc = fields::document(NAME, &element)?;
                let concern = WriteConcern::parse(doc)?;
                if concern.unacknowledged {
                    return Err(Error::bad_value("The default write concern cannot be w: 0"));
                }
                defaults.write = Some((doc.to_buf(), concern));
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
    defaults.store(&cx.server.db, &cx.op)?;
    defaults.append(out);
    *cx.server.rw_concern.write() = defaults;
    Ok(())
}
