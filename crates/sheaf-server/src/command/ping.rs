//! `ping`: nothing, successfully.

use sheaf_bson::{DocBuilder, Error};

use super::context::CommandContext;

/// Runs it.
pub fn run(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    cx.no_arguments()
}
