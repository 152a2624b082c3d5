//! `compactStructuredEncryptionData`: there are no encrypted collections.

use sheaf_bson::{DocBuilder, Error, ErrorCode};

use super::context::CommandContext;
use super::fields;

/// Runs the command.
/// Errors: 6346807, since no collection has encrypted fields; those of its arguments.
pub fn run(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "compactStructuredEncryptionData";
    let namespace = cx.collection()?;
    let mut tokens = None;
    for element in cx.arguments() {
        match element.key() {
            "compactionTokens" => tokens = Some(fields::document(NAME, &element)?),
            "encryptionInformation" => drop(fields::document(NAME, &element)?),
            "anchorPaddingFactor" => {}
            _ => cx.unknown_field(&element)?,
        }
    }
    fields::required(NAME, "compactionTokens", tokens)?;
    if cx.server.db.catalog().collection(&namespace).is_none() {
        return Err(Error::new(
            ErrorCode::NAMESPACE_NOT_FOUND,
            format!("Namespace {namespace} does not exist"),
        ));
    }
    Err(Error::new(
        ErrorCode(6_346_807),
        "Target namespace is not an encrypted collection",
    ))
}
