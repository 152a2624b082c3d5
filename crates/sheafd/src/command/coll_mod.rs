//! `collMod`: changes options of a collection or of an index.

use sheaf_bson::{DocBuilder, Error};
use sheaf_db::CollMod;

use super::context::CommandContext;

/// Runs it.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    let namespace = cx.collection()?;
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
