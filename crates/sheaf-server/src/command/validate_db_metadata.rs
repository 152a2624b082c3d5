//! `validateDBMetadata`: which stored definitions a version of the Stable API does not include.

use sheaf_bson::{DocBuilder, Error, ErrorCode, RawDoc};

use super::context::CommandContext;
use super::fields;
use super::fields::{unknown_field, wrong_type};

const NAME: &str = "validateDBMetadata";

/// The longest name of a database, in bytes.
const DATABASE_BYTES_MAX: usize = 63;

/// Bytes of errors after which the reply ends with `hasMoreErrors`.
const ERRORS_BYTES_MAX: usize = 15 << 20;

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    let (mut parameters, mut db, mut collection) = (None, None, None);
    for element in cx.arguments() {
        match element.key() {
            "apiParameters" => parameters = Some(fields::document(NAME, &element)?),
            "db" => db = Some(fields::string(NAME, &element)?),
            "collection" => collection = Some(fields::string(NAME, &element)?),
            _ => cx.unknown_field(&element)?,
        }
    }
    let is_strict = is_strict_version(fields::required(NAME, "apiParameters", parameters)?)?;
    db.map_or(Ok(()), check_database)?;
    collection.map_or(Ok(()), check_collection)?;
    let catalog = cx.server.db.catalog();
    let mut has_more = false;
    out.begin_array("apiVersionErrors");
    let wanted = |given: Option<&str>, name: &str| given.is_none_or(|given| given == name);
    for found in catalog.collections().filter(|_| is_strict) {
        let ns = found.ns();
        if !wanted(db, ns.db()) || !wanted(collection, ns.collection()) {
            continue;
        }
        // Text indexes are outside version 1 as well.
        for index in found
            .index_list()
            .iter()
            .filter(|index| index.spec().sparse)
        {
            if out.current_len() > ERRORS_BYTES_MAX {
                has_more = true;
                break;
            }
            out.push_begin_document();
            out.append("ns", ns.as_str());
            out.append("code", ErrorCode::API_STRICT_ERROR.0);
            out.append("codeName", "APIStrictError");
            let name = index.name();
            let message = format!("The index with name {name} is not allowed in API version 1.");
            out.append("errmsg", message.as_str());
            out.end();
        }
    }
    out.end();
    if has_more {
        out.append("hasMoreErrors", true);
    }
    Ok(())
}

/// Whether the parameters request version 1 with `strict: true`.
fn is_strict_version(parameters: RawDoc<'_>) -> Result<bool, Error> {
    const WITHIN: &str = "validateDBMetadata.apiParameters";
    let (mut version, mut strict) = (None, false);
    for element in parameters.iter() {
        match element.key() {
            "version" if fields::is_null(&element) => {}
            "version" => version = Some(fields::string(WITHIN, &element)?),
            // Null is not a boolean here, as in MongoDB.
            "strict" | "deprecationErrors" => match element.value().as_bool() {
                Some(given) if element.key() == "strict" => strict = given,
                Some(_) => {}
                None => return Err(wrong_type(WITHIN, &element, "bool")),
            },
            other => return Err(unknown_field(WITHIN, other)),
        }
    }
    Ok(fields::required(WITHIN, "version", version)? == "1" && strict)
}

/// Errors: 28539 for an empty name, `InvalidNamespace`, 13280 for a character that no name has.
fn check_database(name: &str) -> Result<(), Error> {
    let wrong = |code| {
        Err(Error::new(
            code,
            format!("Invalid database name specified '{name}'"),
        ))
    };
    if name.is_empty() {
        return wrong(ErrorCode(28539));
    }
    if name.len() > DATABASE_BYTES_MAX || name.contains(['.', '\0']) {
        return wrong(ErrorCode::INVALID_NAMESPACE);
    }
    match name.contains([' ', '/', '\\', '"']) {
        true => wrong(ErrorCode(13280)),
        false => Ok(()),
    }
}

fn check_collection(name: &str) -> Result<(), Error> {
    match name.is_empty() || name.starts_with('.') || name.contains('\0') {
        true => Err(Error::new(
            ErrorCode::INVALID_NAMESPACE,
            format!("Invalid collection name specified '{name}'"),
        )),
        false => Ok(()),
    }
}
