//! `ping`: does nothing and succeeds.

use sheaf_bson::{DocBuilder, Error};

use super::context::CommandContext;

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    cx.no_arguments()
}
