//! `insert`: stores documents.

use std::time::Instant;

use sheaf_bson::{DocBuilder, Error, RawDoc};
use sheaf_db::Namespace;
use sheaf_db::write::insert::InsertResult;

use super::context::CommandContext;
use super::fields;
use super::retry::Retry;
use super::write_reply::{WriteErrors, all_refused, append_write_concern, statements};
use crate::op_report::WriteReport;

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "insert";
    let namespace = cx.collection()?;
    let mut ordered = true;
    for element in cx.arguments() {
        match element.key() {
            "documents" => {}
            "ordered" => ordered = fields::strict_boolean(NAME, &element)?,
            "bypassDocumentValidation" => {
                fields::boolean(NAME, &element)?;
            }
            "bypassEmptyTsReplacement" => drop(fields::boolean(NAME, &element)?),
            _ => cx.unknown_field(&element)?,
        }
    }
    let docs = statements(cx, "documents")?;
    if let Some(mismatch) = cx.uuid_mismatch(&namespace) {
        return all_refused(cx, &mismatch, docs.len(), ordered, &["n"], out);
    }
    let retry = Retry::begin(cx, docs.len())?;
    // Indexes into `docs` of the documents that an earlier try has not stored.
    let places: Vec<usize> = (0..docs.len()).filter(|at| !retry.is_done(*at)).collect();
    let left: Vec<_> = places.iter().map(|at| docs[*at]).collect();
    retry.set_current(cx, places.iter().copied())?;
    let mut result = run_docs(cx, &namespace, &left, ordered)?;
    result.inserted += (docs.len() - left.len()) as u64;
    out.append("n", result.inserted as i32);
    let mut errors = WriteErrors::default();
    for refused in result.errors {
        errors.push(places[refused.index], refused.error);
    }
    errors.append(cx, out);
    retry.append(out);
    append_write_concern(cx, out);
    Ok(())
}

/// Inserts documents into a collection and records the cost.
pub fn run_docs(
    cx: &mut CommandContext<'_>,
    namespace: &Namespace,
    docs: &[RawDoc<'_>],
    ordered: bool,
) -> Result<InsertResult, Error> {
    let begun = Instant::now();
    let before = cx.op.counters().counts();
    let result = cx.server.db.insert(&cx.op, namespace, docs, ordered)?;
    let after = cx.op.counters().counts();
    let wrote = result.inserted > 0;
    cx.report.writes.push(WriteReport {
        namespace: Some(namespace.clone()),
        kind: "insert",
        n_inserted: result.inserted,
        keys_inserted: wrote.then_some(result.stats.keys_inserted),
        bytes_logged: wrote.then_some(after.bytes_logged - before.bytes_logged),
        write_conflicts: after.write_conflicts - before.write_conflicts,
        elapsed: begun.elapsed(),
        ..Default::default()
    });
    Ok(result)
}
