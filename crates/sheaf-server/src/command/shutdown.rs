//! `shutdown`: stops the server cleanly.

use sheaf_bson::{DocBuilder, Error};

use super::context::CommandContext;
use super::fields;

/// Runs it. The reply may still reach the client; then its connection ends.
pub fn run(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    for element in cx.arguments() {
        match element.key() {
            // A server without secondaries has nobody to wait for.
            "force" => {
                fields::boolean("shutdown", &element)?;
            }
            "timeoutSecs" => {
                fields::non_negative("shutdown", &element)?;
            }
            _ => return Err(cx.unknown_field(&element)),
        }
    }
    cx.server.control.request_shutdown()
}
