//! `dropDatabase`: removes a database with all its collections.

use sheaf_bson::{DocBuilder, Error, ErrorCode};
use sheaf_db::system_names::is_internal_database;

use super::batch::LISTING;
use super::context::CommandContext;
use super::fields;

/// Runs it.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    cx.no_arguments()?;
    let first = cx.first()?;
    if fields::integer("dropDatabase", &first)? != 1 {
        return Err(Error::new(
            ErrorCode(5255100),
            "have to pass 1 as db parameter",
        ));
    }
    sheaf_db::check_database_name(cx.db)?;
    if is_internal_database(cx.db) {
        return Err(Error::new(
            ErrorCode::ILLEGAL_OPERATION,
            format!("Dropping the '{}' database is prohibited.", cx.db),
        ));
    }
    if cx.server.db.drop_database(&cx.op, cx.db)? {
        let db = cx.db.to_owned();
        let why = format!("database dropped: {db}");
        let cursors = &cx.server.cursors;
        // A listing was made at once, and can be read on.
        cursors.kill_plans(&why, |ns| ns.db() == db && ns.collection() != LISTING);
        out.append("dropped", cx.db);
    }
    Ok(())
}
