//! `setFeatureCompatibilityVersion`: stores the version that tools read back.

use sheaf_bson::{DocBuilder, Error, ErrorCode};

use super::context::CommandContext;
use super::fields;
use crate::feature_compatibility::VERSIONS;

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "setFeatureCompatibilityVersion";
    let wanted = fields::string(NAME, &cx.first_given()?)?;
    let (mut confirmed, mut dry_run) = (false, false);
    for element in cx.arguments() {
        match element.key() {
            "confirm" => {
                confirmed = fields::boolean(NAME, &element)?;
            }
            "dryRun" => dry_run = fields::boolean(NAME, &element)?,
            // About the members of a cluster.
            "downgradeOnDiskChanges" | "fromConfigServer" => {
                fields::boolean(NAME, &element)?;
            }
            "phase" => drop(fields::string(NAME, &element)?),
            "changeTimestamp" => {}
            _ => cx.unknown_field(&element)?,
        }
    }
    let Some(version) = VERSIONS.into_iter().find(|version| *version == wanted) else {
        return Err(Error::new(
            ErrorCode(4_926_900),
            format!(
                "Invalid feature compatibility version value '{wanted}'; expected '{}' or '{}'. \
                 See https://dochub.mongodb.org/core/8.0-feature-compatibility.",
                VERSIONS[0], VERSIONS[1]
            ),
        ));
    };
    if !confirmed {
        return Err(Error::new(
            ErrorCode(7_369_100),
            format!(
                "Once you have changed to {version}, you may not be able to go back to another \
                 binary version. To set the featureCompatibilityVersion, run this command again \
                 with 'confirm: true'"
            ),
        ));
    }
    let server = cx.server;
    match dry_run || server.feature_compatibility.version() == version {
        true => Ok(()),
        false => server
            .feature_compatibility
            .set(&server.db, &cx.op, version),
    }
}
