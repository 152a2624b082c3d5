//! `dropIndexes`: removes indexes by name, by key pattern or all.

use sheaf_bson::{DocBuilder, Error, RawValue};
use sheaf_db::IndexSelector;

use super::context::CommandContext;
use super::fields;

/// Runs it.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "dropIndexes";
    let namespace = cx.collection()?;
    let mut selector = None;
    for element in cx.arguments_as_sent() {
        match element.key() {
            "index" => {
                selector = Some(match element.value() {
                    RawValue::String("*") => IndexSelector::All,
                    RawValue::String(name) => IndexSelector::Names(vec![name]),
                    RawValue::Document(key) => IndexSelector::KeyPattern(key),
                    RawValue::Array(names) => {
                        let wrong = || fields::wrong_type(NAME, &element, "[array of strings]");
                        let names: Option<Vec<&str>> =
                            names.iter().map(|name| name.as_str()).collect();
                        IndexSelector::Names(names.ok_or_else(wrong)?)
                    }
                    _ => {
                        return Err(fields::wrong_type(
                            NAME,
                            &element,
                            "[string, object, array]",
                        ));
                    }
                });
            }
            _ => cx.unknown_field(&element)?,
        }
    }
    let selector = fields::required(NAME, "index", selector)?;
    let were = cx.server.db.drop_indexes(&cx.op, &namespace, &selector)?;
    out.append("nIndexesWas", were as i32);
    if matches!(selector, IndexSelector::All) {
        out.append("msg", "non-_id indexes dropped for collection");
    }
    Ok(())
}
