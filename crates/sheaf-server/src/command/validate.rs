//! `validate`: compares every index with the documents.

use sheaf_bson::{DocBuilder, Error, ErrorCode};
use sheaf_db::validate::{ValidateReport, validate};

use super::context::CommandContext;
use super::fields;

/// Runs the command. A check of the data is always full.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "validate";
    let namespace = cx.collection()?;
    let (mut metadata, mut of_data) = (false, None);
    for element in cx.arguments() {
        let given = match element.key() {
            "full"
            | "background"
            | "checkBSONConformance"
            | "metadata"
            | "scandata"
            | "repair"
            | "fixMultikey" => fields::boolean(NAME, &element)?,
            _ => {
                cx.unknown_field(&element)?;
                continue;
            }
        };
        match element.key() {
            "metadata" => metadata = given,
            "repair" | "fixMultikey" if given => {
                return Err(Error::new(
                    ErrorCode::NOT_IMPLEMENTED,
                    format!(
                        "validate.{} is not supported: drop and recreate the damaged indexes",
                        element.key()
                    ),
                ));
            }
            name if given => of_data = Some(name.to_owned()),
            _ => {}
        }
    }
    if let (true, Some(other)) = (metadata, of_data) {
        return Err(Error::new(
            ErrorCode::INVALID_OPTIONS,
            format!(
                "validate cannot combine metadata: true, which reads no data, with {other}: true"
            ),
        ));
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
    out.append("ns", namespace.as_str());
    out.append("uuid", collection.uuid().as_raw());
    let report = match metadata {
        true => ValidateReport::default(),
        false => validate(&cx.op, &view)?,
    };
    if !metadata {
        append_counts(&report, out);
    }
    out.append("valid", report.is_valid());
    out.append("repaired", false);
    out.begin_array("warnings");
    for warning in report.warnings() {
        out.push(warning);
    }
    out.end();
    out.begin_array("errors");
    for fault in &report.faults {
        out.push(fault.as_str());
    }
    out.end();
    for (name, entries) in [
        ("extraIndexEntries", &report.extra),
        ("missingIndexEntries", &report.missing),
    ] {
        out.begin_array(name);
        for entry in entries {
            out.push_bson(entry);
        }
        out.end();
    }
    out.begin_array("corruptRecords");
    for id in &report.corrupt_records {
        out.push(id.as_raw());
    }
    out.end();
    Ok(())
}

fn append_counts(report: &ValidateReport, out: &mut DocBuilder) {
    out.append("nInvalidDocuments", report.invalid_documents as i64);
    out.append("nNonCompliantDocuments", report.non_compliant as i64);
    out.append("nrecords", report.records as i64);
    out.append("nIndexes", report.keys_per_index.len() as i32);
    out.begin_document("keysPerIndex");
    for (name, keys) in &report.keys_per_index {
        out.append(name, *keys as i64);
    }
    out.end();
}
