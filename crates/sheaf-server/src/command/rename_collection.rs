//! `renameCollection`: renames a collection, optionally replacing an existing one.

use sheaf_bson::{DocBuilder, Error, ErrorCode};
use sheaf_db::Namespace;

use super::context::CommandContext;
use super::fields;

/// The longest full name of a collection, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "renameCollection";
    let first = cx.first()?;
    if fields::is_null(&first) {
        return Err(fields::missing(NAME, NAME));
    }
    let from = Namespace::parse(fields::string(NAME, &first)?)?;
    let (mut to, mut drop_target, mut stay_temp) = (None, false, false);
    for element in cx.arguments() {
        match element.key() {
            "to" => to = Some(Namespace::parse(fields::string(NAME, &element)?)?),
            "dropTarget" => drop_target = fields::strict_boolean(NAME, &element)?,
            "stayTemp" => stay_temp = fields::strict_boolean(NAME, &element)?,
            _ => cx.unknown_field(&element)?,
        }
    }
    let to = fields::required(NAME, "to", to)?;
    if let Some(long) = [&from, &to]
        .iter()
        .find(|ns| ns.as_str().len() > NAME_BYTES_MAX)
    {
        return Err(Error::new(
            ErrorCode::ILLEGAL_OPERATION,
            format!("{long} is longer than {NAME_BYTES_MAX} bytes"),
        ));
    }
    cx.report.namespace = Some(from.clone());
    if let Some(mismatch) = cx.uuid_mismatch(&from) {
        return Err(mismatch);
    }
    cx.server
        .db
        .rename_collection_as(&cx.op, &from, &to, drop_target, stay_temp)?;
    let why = format!(
        "collection renamed from '{}' to '{}'",
        from.as_str(),
        to.as_str()
    );
    cx.server
        .cursors
        .kill_plans(&why, |ns| *ns == from || *ns == to);
    Ok(())
}
