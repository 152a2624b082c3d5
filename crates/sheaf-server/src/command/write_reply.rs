//! Shared code of the write commands: their statements, `writeErrors`, the write concern.

use std::time::Instant;

use sheaf_bson::{DocBuilder, Error, ErrorCode, RawArray, RawDoc, RawElement, RawValue};
use sheaf_db::PlanDigest;
use sheaf_db::exec::WorkCounts;
use sheaf_db::op_context::OpCounts;

use super::context::CommandContext;
use super::fields;
use super::hello::WRITE_BATCH_MAX;
use crate::op_report::WriteReport;

/// Write errors past this size are reported without their messages.
const ERRORS_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The statements of a write command, from a document sequence or from the array in the command.
/// Errors: missing, empty, too many, not documents.
pub fn statements<'a>(cx: &CommandContext<'a>, identifier: &str) -> Result<Vec<RawDoc<'a>>, Error> {
    let docs = sequence_documents(cx, identifier)?;
    if docs.is_empty() || docs.len() > WRITE_BATCH_MAX {
        return Err(Error::new(
            ErrorCode::INVALID_LENGTH,
            format!(
                "Write batch sizes must be between 1 and {WRITE_BATCH_MAX}. Got {} operations.",
                docs.len()
            ),
        ));
    }
    Ok(docs)
}

/// The documents of a field that may be an array in the command or a document sequence.
/// Errors: missing, given in both ways, not documents.
pub fn sequence_documents<'a>(
    cx: &CommandContext<'a>,
    identifier: &str,
) -> Result<Vec<RawDoc<'a>>, Error> {
    match (
        cx.sequence(identifier),
        fields::get_given(cx.body, identifier),
    ) {
        (Some(_), Some(_)) => Err(Error::new(
            ErrorCode::FAILED_TO_PARSE,
            format!("'{identifier}' was given both in the command and as a document sequence"),
        )),
        (Some(sequence), None) => Ok(sequence.iter().collect()),
        (None, Some(element)) => documents(cx.name(), &element),
        (None, None) => Err(fields::missing(cx.name(), identifier)),
    }
}

fn documents<'a>(command: &str, element: &RawElement<'a>) -> Result<Vec<RawDoc<'a>>, Error> {
    let array: RawArray<'a> = fields::array(command, element)?;
    array
        .iter()
        .map(|value| match value {
            RawValue::Document(doc) => Ok(doc),
            other => Err(Error::new(
                ErrorCode::TYPE_MISMATCH,
                format!(
                    "BSON field '{command}.{}' must contain documents, not {}",
                    element.key(),
                    other.type_name()
                ),
            )),
        })
        .collect()
}

/// Collects `writeErrors`.
#[derive(Default)]
pub struct WriteErrors {
    errors: Vec<(usize, Error)>,
}

impl WriteErrors {
    /// Records that the statement at `index` failed.
    pub fn push(&mut self, index: usize, error: Error) {
        self.errors.push((index, error));
    }

    /// Appends `writeErrors` if any statement failed, and aborts the command's transaction, if any.
    /// Past `ERRORS_BYTES_MAX` errors are appended without their messages.
    pub fn append(&self, cx: &CommandContext<'_>, out: &mut DocBuilder) {
        if self.errors.is_empty() {
            return;
        }
        cx.write_refused();
        // An unacknowledged write reports no error either.
        if cx.generic.write_concern.unacknowledged {
            return;
        }
        let start = out.current_len();
        out.begin_array("writeErrors");
        for (index, error) in &self.errors {
            out.push_begin_document();
            out.append("index", *index as i32);
            out.append("code", error.code().0);
            let room = out.current_len() - start < ERRORS_BYTES_MAX;
            if room && let Some(extra) = error.extra() {
                out.extend(extra.as_raw());
            }
            out.append("errmsg", if room { error.message() } else { "" });
            out.end();
        }
        out.end();
    }
}

/// The reply of a write whose statements all fail for the same reason before anything is written;
/// an ordered one ends with the first. `counts` are the names of the counters in the reply.
pub fn all_refused(
    cx: &CommandContext<'_>,
    error: &Error,
    statements: usize,
    ordered: bool,
    counts: &[&str],
    out: &mut DocBuilder,
) -> Result<(), Error> {
    for name in counts {
        out.append(name, 0);
    }
    let mut errors = WriteErrors::default();
    let failed = if ordered { 1 } else { statements };
    for index in 0..failed {
        errors.push(index, error.clone());
    }
    errors.append(cx, out);
    Ok(())
}

/// Makes the command's writes durable if its write concern requires it. In a transaction the commit
/// does that. A failure is reported as `writeConcernError`: the writes are kept.
pub fn append_write_concern(cx: &CommandContext<'_>, out: &mut DocBuilder) {
    let concern = cx.generic.write_concern;
    let synced = match concern.journaled && cx.op.transaction().is_none() {
        true => cx.server.db.sync(),
        false => Ok(()),
    };
    let in_set = cx.server.repl.is_some();
    if let Some(error) = synced.err().or_else(|| concern.never_satisfied(in_set)) {
        append_error(&error, out);
    }
}

/// The error of a command on the catalog, with `writeConcernError` if its write concern can never
/// be satisfied: a client learns of it from a command that fails as well.
pub fn with_write_concern(cx: &CommandContext<'_>, error: Error) -> Error {
    let in_set = cx.server.repl.is_some();
    match cx.generic.write_concern.never_satisfied(in_set) {
        Some(unsatisfied) if error.extra().is_none() => {
            let mut extra = DocBuilder::new();
            append_error(&unsatisfied, &mut extra);
            error.with_extra(extra.finish())
        }
        _ => error,
    }
}

fn append_error(error: &Error, out: &mut DocBuilder) {
    out.begin_document("writeConcernError");
    out.append("code", error.code().0);
    out.append("codeName", &*error.code_name());
    out.append("errmsg", error.message());
    out.end();
}

/// Measures one write statement.
pub struct Meter {
    begun: Instant,
    before: OpCounts,
}

impl Meter {
    /// Starts measuring, before the statement.
    pub fn start(cx: &CommandContext<'_>) -> Meter {
        Meter {
            begun: Instant::now(),
            before: cx.op.counters().counts(),
        }
    }

    /// Ends measuring, after the statement: adds its reads to the operation's counters and returns
    /// the fields that all kinds of statements report. `wrote`: at least one document was changed.
    pub fn report(
        &self,
        cx: &mut CommandContext<'_>,
        kind: &'static str,
        statement: RawDoc<'_>,
        found: (&PlanDigest, WorkCounts),
        wrote: bool,
    ) -> WriteReport {
        let (plan, read) = found;
        let counters = cx.op.counters();
        counters.keys_examined.add(read.keys_examined);
        counters.docs_examined.add(read.docs_examined);
        let after = counters.counts();
        cx.report.plan = plan.clone();
        WriteReport {
            kind,
            statement: statement.to_buf(),
            plan: plan.clone(),
            keys_examined: read.keys_examined,
            docs_examined: read.docs_examined,
            // A transaction logs when it commits.
            bytes_logged: (wrote && cx.op.transaction().is_none())
                .then_some(after.bytes_logged - self.before.bytes_logged),
            write_conflicts: after.write_conflicts - self.before.write_conflicts,
            elapsed: self.begun.elapsed(),
            ..Default::default()
        }
    }
}
