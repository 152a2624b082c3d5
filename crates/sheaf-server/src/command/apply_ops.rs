//! `applyOps`: applies entries of an oplog, as `mongorestore --oplogReplay` sends them.
//!
//! ```text
//!   {applyOps: [{op: "i", ns: "db.c", o: {..}}, {op: "c", ns: "db.$cmd", o: {create: "c"}}, ..]}
//!     ──> {applied: 2, results: [true, true], ok: 1}
//! ```
//!
//! Operations are applied in order, not as one transaction. An update of a missing document is
//! `false` in `results`; the remaining operations are applied and the command then fails. Any other
//! error ends the command.

use sheaf_bson::{DocBuilder, Error, ErrorCode, RawArray, RawDoc, RawValue};
use sheaf_db::oplog::apply::{Applier, ApplyRules};

use super::context::CommandContext;
use super::fields;

const NAME: &str = "applyOps";

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    let first = cx.first()?;
    let RawValue::Array(operations) = first.value() else {
        return Err(fields::wrong_type(NAME, &first, "array"));
    };
    let mut rules = ApplyRules::COMMAND;
    for element in cx.arguments() {
        match element.key() {
            "alwaysUpsert" => rules.upserts = fields::boolean(NAME, &element)?,
            // Ignored, whatever its type: operations are always applied one by one.
            "allowAtomic" => {}
            "bypassDocumentValidation" => {
                fields::boolean(NAME, &element)?;
            }
            "preCondition" => {
                return Err(Error::new(
                    ErrorCode(6711600),
                    "applyOps command no longer supports the 'preCondition' option",
                ));
            }
            _ => cx.unknown_field(&element)?,
        }
    }
    let db = cx.server.db.clone();
    let mut applier = Applier::new(&db, rules);
    let (mut results, mut failed) = (Vec::new(), false);
    for operation in documents(operations) {
        let applied = operation.and_then(|operation| applier.apply(&cx.op, operation));
        results.push(applied.is_ok());
        match applied {
            Ok(()) => {}
            Err(error) if error.code() == ErrorCode::UPDATE_OPERATION_FAILED => failed = true,
            Err(error) => return Err(error.with_extra(outcome(&results).finish())),
        }
    }
    if failed {
        return Err(Error::new(
            ErrorCode::UNKNOWN_ERROR,
            "applyOps had one or more errors applying ops",
        )
        .with_extra(outcome(&results).finish()));
    }
    out.extend(outcome(&results).finish().as_raw());
    Ok(())
}

/// The operations, with an error in place of an element that is not a document.
fn documents(operations: RawArray<'_>) -> impl Iterator<Item = Result<RawDoc<'_>, Error>> {
    operations.iter().map(|operation| {
        operation.as_document().ok_or_else(|| {
            Error::new(
                ErrorCode::TYPE_MISMATCH,
                format!(
                    "not a valid operation of applyOps, expected an object, got {}",
                    operation.type_name()
                ),
            )
        })
    })
}

/// `{applied, results}`.
fn outcome(results: &[bool]) -> DocBuilder {
    let mut out = DocBuilder::new();
    out.append("applied", i32::try_from(results.len()).unwrap_or(i32::MAX));
    out.begin_array("results");
    for result in results {
        out.push(*result);
    }
    out.end();
    out
}
