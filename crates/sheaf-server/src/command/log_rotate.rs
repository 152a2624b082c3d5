//! `logRotate`: starts a new log file, or reopens the file.

use sheaf_bson::{DocBuilder, Error, ErrorCode, RawValue};

use super::context::CommandContext;

/// Runs the command. Only the server's own log can be rotated (`1` or `"server"`).
pub fn run(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    cx.no_arguments()?;
    if let RawValue::String(which) = cx.first()?.value()
        && which != "server"
    {
        return Err(Error::new(
            ErrorCode::NO_SUCH_KEY,
            format!("Unknown log type for rotate: {which}"),
        ));
    }
    cx.server.log.rotate().map_err(|e| {
        Error::new(
            ErrorCode::FILE_RENAME_FAILED,
            format!("the log could not be rotated: {e}"),
        )
    })
}
