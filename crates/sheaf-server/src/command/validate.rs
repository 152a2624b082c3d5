//! `validate`: compares every index with the documents, and repairs what differs.

use sheaf_bson::{DocBuilder, Error, ErrorCode, RawValue};
use sheaf_db::validate::{ValidateReport, validate};
use sheaf_db::{Collection, Namespace};

use super::context::CommandContext;

/// The arguments, any type of value by its truth.
#[derive(Default)]
struct Request {
    metadata: bool,
    background: bool,
    full: bool,
    fast_count: bool,
    repair: bool,
    fix_multikey: bool,
    /// An option that reads data, which `metadata` does not.
    of_data: Option<&'static str>,
}

/// What a repair did.
#[derive(Default)]
struct Repaired {
    is_repaired: bool,
    removed_records: u64,
    warnings: Vec<String>,
}

/// Runs the command. A check of the data is always full.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    let namespace = cx.collection()?;
    let request = Request::parse(cx)?;
    request.check(cx.server.repl.is_some())?;
    let series = cx.server.db.catalog().timeseries(&namespace);
    let stored = match &series {
        Some(series) => series.buckets.ns().clone(),
        None => namespace.clone(),
    };
    let view = cx.view(&stored)?;
    let Some(collection) = view.collection.clone() else {
        return Err(Error::new(
            ErrorCode::NAMESPACE_NOT_FOUND,
            format!("Collection '{namespace}' does not exist to validate."),
        ));
    };
    out.append("ns", namespace.as_str());
    out.append("uuid", collection.uuid().as_raw());
    let mut report = match request.metadata {
        true => ValidateReport::default(),
        false => validate(&cx.op, &view)?,
    };
    drop(view);
    let mut repaired = Repaired::default();
    if request.wants_repair(&report) {
        repaired = repair(cx, &stored, &report)?;
        report = validate(&cx.op, &cx.view(&stored)?)?;
    }
    append_counts(&request, &report, &collection, out);
    out.append("valid", report.is_valid());
    out.append("repaired", repaired.is_repaired);
    out.append("repairMode", request.repair_mode());
    append_findings(&report, &repaired, out);
    Ok(())
}

impl Request {
    fn parse(cx: &CommandContext<'_>) -> Result<Request, Error> {
        let mut request = Request::default();
        for element in cx.arguments() {
            let given = element.value().is_truthy();
            match element.key() {
                "metadata" => request.metadata = given,
                "background" => request.background = given,
                "full" => request.full = given,
                "enforceFastCount" => request.fast_count = given,
                "repair" => request.repair = given,
                "fixMultikey" => request.fix_multikey = given,
                "checkBSONConformance" if given => {
                    request.of_data = Some("checkBSONConformance");
                }
                "scandata" if given => request.of_data = Some("scandata"),
                "checkBSONConformance" | "scandata" => {}
                _ => cx.unknown_field(&element)?,
            }
        }
        Ok(request)
    }

    /// Errors: `InvalidOptions` for options that contradict each other.
    fn check(&self, in_set: bool) -> Result<(), Error> {
        let refuse = |message: String| Err(Error::new(ErrorCode::INVALID_OPTIONS, message));
        let reading = [
            (self.background, "background"),
            (self.full, "full"),
            (self.fast_count, "enforceFastCount"),
            (self.repair, "repair"),
            (self.fix_multikey, "fixMultikey"),
        ];
        if self.background {
            let further = reading[1..4].iter().find(|(given, _)| *given);
            if let Some((_, other)) = further {
                return refuse(format!(
                    "Running the validate command with both {{ background: true }} and {{ {other}: \
                     true }} is not supported."
                ));
            }
        }
        if self.repair && in_set {
            return refuse(
                "Running the validate command with { repair: true } can only be performed in \
                 standalone mode."
                    .into(),
            );
        }
        let reads = reading.iter().find(|(given, _)| *given);
        let reads = reads.map(|(_, name)| *name).or(self.of_data);
        match reads.filter(|_| self.metadata) {
            Some(other) => refuse(format!(
                "validate cannot have both metadata: true, which reads no data, and {other}: true"
            )),
            None => Ok(()),
        }
    }

    fn repair_mode(&self) -> &'static str {
        match (self.repair, self.fix_multikey) {
            (true, _) => "FixErrors",
            (false, true) => "AdjustMultikey",
            (false, false) => "None",
        }
    }

    fn wants_repair(&self, report: &ValidateReport) -> bool {
        self.repair && !report.is_valid() || self.fix_multikey && report.unknown_arrays > 0
    }
}

/// Removes records that are not documents, and rebuilds the indexes.
fn repair(
    cx: &CommandContext<'_>,
    namespace: &Namespace,
    report: &ValidateReport,
) -> Result<Repaired, Error> {
    let rebuilt = cx.server.db.rebuild_indexes_of(&cx.op, namespace, true)?;
    let mut warnings = vec![format!(
        "Built {} indexes again: {} missing and {} extra entries.",
        rebuilt.indexes.len(),
        report.missing_entries,
        report.extra_entries
    )];
    if rebuilt.removed > 0 {
        warnings.push(format!("Removed {} corrupt records.", rebuilt.removed));
    }
    for (name, why) in &rebuilt.dropped {
        warnings.push(format!("Dropped the index {name}: {why}"));
    }
    Ok(Repaired {
        is_repaired: true,
        removed_records: rebuilt.removed,
        warnings,
    })
}

fn append_counts(
    request: &Request,
    report: &ValidateReport,
    collection: &Collection,
    out: &mut DocBuilder,
) {
    let number = |n: u64| RawValue::int_or_long(i64::try_from(n).unwrap_or(i64::MAX));
    if !request.metadata {
        out.append("nInvalidDocuments", number(report.invalid_documents));
        out.append("nNonCompliantDocuments", number(report.non_compliant));
        out.append("nrecords", number(report.records));
    }
    let indexes = collection.list_index_docs();
    let stored = indexes.iter().filter_map(|spec| {
        let name = spec.get("name")?.as_str()?;
        Some((name.to_owned(), spec))
    });
    out.append("nIndexes", indexes.len() as i32);
    out.begin_document("keysPerIndex");
    for (name, keys) in &report.keys_per_index {
        out.append(name, number(*keys));
    }
    out.end();
    out.begin_document("indexDetails");
    for (name, spec) in stored {
        out.begin_document(&name);
        out.append("valid", !report.faulty_indexes.contains(&name));
        out.append_bson("spec", spec);
        out.end();
    }
    out.end();
}

fn append_findings(report: &ValidateReport, repaired: &Repaired, out: &mut DocBuilder) {
    out.begin_array("warnings");
    for warning in report.warnings() {
        out.push(warning);
    }
    for warning in &repaired.warnings {
        out.push(warning.as_str());
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
    if repaired.is_repaired {
        out.append("numRemovedCorruptRecords", repaired.removed_records as i64);
    }
}
