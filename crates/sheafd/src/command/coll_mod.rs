//! `collMod`: changes options of a collection or of an index.

use sheaf_bson::{DocBuilder, Error, ErrorCode};
use sheaf_db::{CollMod, Namespace};

use super::context::CommandContext;
use super::fields;

/// Runs it.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    let namespace = cx.collection()?;
    if cx.server.db.catalog().view(&namespace).is_some() {
        return modify_view(cx, &namespace);
    }
    let mut request = DocBuilder::new();
    for element in cx.arguments() {
        request.append_raw_element(element);
    }
    let request = request.finish();
    let request = CollMod::parse(request.as_raw())?;
    let result = cx.server.db.coll_mod(&cx.op, &namespace, &request)?;
    if let Some((old, new)) = result.expire_after_seconds {
        if let Some(old) = old {
            out.append("expireAfterSeconds_old", old);
        }
        out.append("expireAfterSeconds_new", new);
    }
    if let Some((old, new)) = result.hidden {
        out.append("hidden_old", old);
        out.append("hidden_new", new);
    }
    Ok(())
}

fn modify_view(cx: &CommandContext<'_>, namespace: &Namespace) -> Result<(), Error> {
    const NAME: &str = "collMod";
    let (mut on, mut pipeline) = (None, None);
    for element in cx.arguments() {
        match element.key() {
            "viewOn" => on = Some(fields::string(NAME, &element)?),
            "pipeline" => pipeline = Some(fields::array(NAME, &element)?),
            other => {
                return Err(Error::new(
                    ErrorCode::INVALID_OPTIONS,
                    format!("option not supported on a view: {other}"),
                ));
            }
        }
    }
    if on.is_some() != pipeline.is_some() {
        return Err(Error::new(
            ErrorCode::INVALID_OPTIONS,
            "a view is changed by 'viewOn' and 'pipeline' together",
        ));
    }
    cx.server.db.modify_view(&cx.op, namespace, on, pipeline)
}
