//! `validate`: compares every index with the documents.

use sheaf_bson::{DocBuilder, Error, ErrorCode};

use super::context::CommandContext;
use super::fields;

/// Runs it. The check is always full.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "validate";
    let namespace = cx.collection()?;
    for element in cx.arguments() {
        match element.key() {
            "full" | "background" | "checkBSONConformance" | "metadata" | "scandata" => {
                fields::boolean(NAME, &element)?;
            }
            "repair" | "fixMultikey" => {
                if fields::boolean(NAME, &element)? {
                    return Err(Error::new(
                        ErrorCode::NOT_IMPLEMENTED,
                        format!("validate.{} is not supported", element.key()),
                    ));
                }
            }
            _ => return Err(cx.unknown_field(&element)),
        }
    }
    let series = cx.server.db.catalog().timeseries(&namespace);
    let view = match &series {
        Some(series) => cx.view(series.buckets.ns())?,
        None => cx.view(&namespace)?,
    };
    let Some(collection) = &view.collection else {
        return Err(Error::new(
            ErrorCode::NAMESPACE_NOT_FOUND,
            format!("Collection '{namespace}' does not exist to validate."),
        ));
    };
    let report = sheaf_db::index::validate::validate(&cx.op, &view)?;
    out.append("ns", namespace.as_str());
    out.append("uuid", collection.uuid().as_raw());
    out.append("nInvalidDocuments", report.invalid_documents as i64);
    out.append("nNonCompliantDocuments", 0i64);
    out.append("nrecords", report.records as i64);
    out.append("nIndexes", report.keys_per_index.len() as i32);
    out.begin_document("keysPerIndex");
    for (name, keys) in &report.keys_per_index {
        out.append(name, *keys as i64);
    }
    out.end();
    out.append("missingIndexEntries", report.missing_entries as i64);
    out.append("extraIndexEntries", report.extra_entries as i64);
    out.append("valid", report.is_valid());
    out.append("repaired", false);
    out.begin_array("warnings");
    out.end();
    out.begin_array("errors");
    for fault in &report.faults {
        out.push(fault.as_str());
    }
    out.end();
    Ok(())
}
