//! `autoCompact`: compaction in the background, switched on and off.

use sheaf_bson::{DocBuilder, Error, ErrorCode};

use super::context::CommandContext;
use super::fields;
use crate::auto_compact::{AutoCompaction, Refusal, TARGET_MB};

/// Runs the command.
///
/// Errors: `BadValue` for a target below 1; `IllegalOperation` while it is enabled with other
/// options; `ObjectIsBusy` while a compaction that was switched off ends.
pub fn run(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "autoCompact";
    let enable = fields::strict_boolean(NAME, &cx.first_given()?)?;
    let (mut target_mb, mut run_once) = (TARGET_MB as i64, false);
    for element in cx.arguments() {
        match element.key() {
            "freeSpaceTargetMB" => {
                target_mb = fields::integer(NAME, &element)?;
            }
            "runOnce" => run_once = fields::strict_boolean(NAME, &element)?,
            _ => cx.unknown_field(&element)?,
        }
    }
    let target_mb = u64::try_from(target_mb).ok().filter(|mb| *mb >= 1);
    let target_mb = target_mb.ok_or_else(|| {
        Error::bad_value("BSON field 'autoCompact.freeSpaceTargetMB' value must be >= 1")
    })?;
    let wanted = enable.then_some(AutoCompaction {
        target_mb,
        run_once,
    });
    cx.server
        .auto_compact
        .set(wanted)
        .map_err(|refusal| match refusal {
            Refusal::OtherOptions => Error::new(
                ErrorCode::ILLEGAL_OPERATION,
                "autoCompact is enabled with other options: disable it first",
            ),
            Refusal::Busy => Error::new(
                ErrorCode::OBJECT_IS_BUSY,
                "a background compaction is still ending; try again",
            ),
        })?;
    cx.server.jobs.periods_changed();
    Ok(())
}
