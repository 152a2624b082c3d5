//! `filemd5`: the MD5 of a GridFS file, from its chunks.

use std::sync::Arc;

use md5::{Digest, Md5};
use sheaf_bson::{DocBuilder, Error, ErrorCode, RawValue, doc};
use sheaf_db::find::{canonicalize, find};
use sheaf_db::{Namespace, ResultSource};
use sheaf_query::canonical::FindSpec;

use super::context::CommandContext;
use super::fields;

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "filemd5";
    let file = cx.first()?.value();
    let (mut root, mut partial_ok) = ("fs", false);
    for element in cx.arguments() {
        match element.key() {
            "root" => root = fields::string(NAME, &element)?,
            "partialOk" => {
                partial_ok = fields::boolean(NAME, &element)?;
            }
            _ => cx.unknown_field(&element)?,
        }
    }
    let chunks = Namespace::new(cx.db, &format!("{root}.chunks"))?;
    let mut filter = DocBuilder::new();
    filter.append("files_id", file);
    let filter = filter.finish();
    let sort = doc! {"files_id": 1, "n": 1};
    let view = cx.view(&chunks)?;
    let query = canonicalize(
        &view,
        FindSpec {
            filter: Some(filter.as_raw()),
            sort: Some(sort.as_raw()),
            ..FindSpec::default()
        },
    )?;
    let options = cx.server.query_options(None);
    let mut found = find(&view, &cx.op, Arc::new(query), &options)?;
    let (mut sum, mut chunks) = (Md5::new(), 0i64);
    while let Some(chunk) = found.next(&cx.op)? {
        cx.op.check_interrupt()?;
        let chunk = chunk.as_raw();
        let number = chunk.get("n").and_then(|value| value.as_i64_saturating());
        if number != Some(chunks) {
            if partial_ok {
                break;
            }
            return Err(Error::new(
                ErrorCode::OPERATION_FAILED,
                format!("chunk {chunks} of the file is missing; got {number:?} instead"),
            ));
        }
        match chunk.get("data") {
            Some(RawValue::Binary { bytes, .. }) => sum.update(bytes),
            _ => {
                return Err(Error::new(
                    ErrorCode(50849),
                    "The element that calls binData() must be type of BinData",
                ));
            }
        }
        chunks += 1;
    }
    let digest = sum.finalize();
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    out.append("numChunks", RawValue::int_or_long(chunks));
    out.append("md5", digest.as_str());
    Ok(())
}
