//! `insert`: stores documents.

use sheaf_bson::{DocBuf, DocBuilder, Error};

use super::context::{CommandContext, WriteReport};
use super::fields;
use super::retry::Retry;
use super::write_reply::{WriteErrors, append_write_concern, statements};

/// Runs it.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "insert";
    let namespace = cx.collection()?;
    let mut ordered = true;
    for element in cx.arguments() {
        match element.key() {
            "documents" => {}
            "ordered" => ordered = fields::boolean(NAME, &element)?,
            // There is no validation to bypass yet.
            "bypassDocumentValidation" => {
                fields::boolean(NAME, &element)?;
            }
            _ => return Err(cx.unknown_field(&element)),
        }
    }
    let docs = statements(cx, "documents")?;
    let db = cx.server.db.clone();
    let retry = Retry::begin(cx, docs.len())?;
    // Places among all documents of those that are not stored yet.
    let places: Vec<usize> = (0..docs.len()).filter(|at| !retry.is_done(*at)).collect();
    let left: Vec<_> = places.iter().map(|at| docs[*at]).collect();
    retry.set_current(places.iter().copied());
    let mut result = db.insert(&cx.op, &namespace, &left, ordered)?;
    result.inserted += (docs.len() - left.len()) as u64;
    cx.report.writes.push(WriteReport {
        kind: "insert",
        statement: DocBuf::new(),
        n_inserted: result.inserted,
        keys_inserted: (result.inserted > 0).then_some(result.stats.keys_inserted),
        elapsed: cx.op.started().elapsed(),
        ..Default::default()
    });
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
