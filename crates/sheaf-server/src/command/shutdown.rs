//! `shutdown`: stops the server cleanly.

use sheaf_bson::{DocBuilder, Error};

use super::context::CommandContext;
use super::fields;

/// Runs the command. The reply may still reach the client before the connection is closed.
pub fn run(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    for element in cx.arguments() {
        match element.key() {
            // Ignored: there are no secondaries to wait for.
            "force" => {
                fields::boolean("shutdown", &element)?;
            }
            "timeoutSecs" => {
                fields::non_negative("shutdown", &element)?;
            }
            _ => cx.unknown_field(&element)?,
        }
    }
    cx.server.control.request_shutdown()
}
