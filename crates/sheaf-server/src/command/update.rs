//! `update`: changes documents by operators, replacement or pipeline.

use sheaf_bson::{DocBuilder, Error, ErrorCode, RawArray, RawDoc, RawElement, RawValue, Value};
use sheaf_db::Namespace;
use sheaf_db::modify::{self, UpdateReport, UpdateStatement};
use sheaf_query::canonical::{FindSpec, Hint};

use super::context::CommandContext;
use super::fields::{self, unknown_field};
use super::retry::Retry;
use super::write_reply::{Meter, WriteErrors, all_refused, append_write_concern, statements};
use crate::op_report::WriteReport;

/// One element of `updates`.
pub fn parse_statement<'a>(
    statement: RawDoc<'a>,
    let_vars: Option<RawDoc<'a>>,
) -> Result<UpdateStatement<'a>, Error> {
    const NAME: &str = "update.updates";
    let mut parts = UpdateParts::new(let_vars);
    for element in fields::given(statement) {
        match element.key() {
            "q" => parts.filter = Some(fields::document(NAME, &element)?),
            "u" => parts.update = Some(element.value()),
            "c" => parts.constants = Some(fields::document(NAME, &element)?),
            _ => parts.option(NAME, &element)?,
        }
    }
    finish_update(parts, NAME, ("q", "u"))
}

/// The parts of an update statement, independent of their field names.
pub struct UpdateParts<'a> {
    spec: FindSpec<'a>,
    /// The filter that selects the documents.
    pub filter: Option<RawDoc<'a>>,
    /// The update: operators, a replacement or a pipeline.
    pub update: Option<RawValue<'a>>,
    /// Variables of a pipeline.
    pub constants: Option<RawDoc<'a>>,
    array_filters: Option<RawArray<'a>>,
    upsert: bool,
    upsert_supplied: bool,
    multi: bool,
}

impl<'a> UpdateParts<'a> {
    /// Empty, except for the command's `let`.
    pub fn new(let_vars: Option<RawDoc<'a>>) -> UpdateParts<'a> {
        UpdateParts {
            spec: FindSpec {
                let_vars,
                ..Default::default()
            },
            filter: None,
            update: None,
            constants: None,
            array_filters: None,
            upsert: false,
            upsert_supplied: false,
            multi: false,
        }
    }

    /// Parses an option that has the same name in update and bulkWrite.
    /// Errors: a wrong type; an unknown option.
    pub fn option(&mut self, command: &str, element: &RawElement<'a>) -> Result<(), Error> {
        match element.key() {
            "multi" => self.multi = fields::strict_boolean(command, element)?,
            "upsert" => self.upsert = fields::strict_boolean(command, element)?,
            "upsertSupplied" => self.upsert_supplied = fields::strict_boolean(command, element)?,
            "hint" => self.spec.hint = Hint::parse(element.value())?,
            "sort" => self.spec.sort = Some(fields::document(command, element)?),
            "arrayFilters" => self.array_filters = Some(fields::array(command, element)?),
            "collation" => self.spec.collation = fields::collation(command, element)?,
            other => return Err(unknown_field(command, other)),
        }
        Ok(())
    }
}

/// Builds the statement from its parts. The last argument gives the field names of filter and
/// update, for errors.
/// Errors: a required part is missing, or the parts contradict each other.
pub fn finish_update<'a>(
    parts: UpdateParts<'a>,
    command: &str,
    (filter, update): (&str, &str),
) -> Result<UpdateStatement<'a>, Error> {
    let UpdateParts {
        mut spec,
        array_filters,
        upsert,
        multi,
        constants,
        ..
    } = parts;
    let refuse = |message: &str| Err(Error::new(ErrorCode::FAILED_TO_PARSE, message));
    if multi && spec.sort.is_some() {
        return refuse("Cannot specify sort with multi=true");
    }
    spec.filter = Some(
        parts
            .filter
            .ok_or_else(|| fields::missing(command, filter))?,
    );
    let update = parts
        .update
        .ok_or_else(|| fields::missing(command, update))?;
    if !matches!(update, RawValue::Document(_) | RawValue::Array(_)) {
        return refuse("Update argument must be either an object or an array");
    }
    let upsert_supplied = match (parts.upsert_supplied, constants.and_then(|c| c.get("new"))) {
        (false, _) => None,
        (true, _) if !upsert => return refuse("upsertSupplied needs upsert: true"),
        (true, Some(RawValue::Document(new))) => Some(new),
        (true, _) => {
            return refuse("upsertSupplied needs the document to insert as the constant 'new'");
        }
    };
    Ok(UpdateStatement {
        spec,
        update,
        constants,
        array_filters,
        upsert,
        upsert_supplied,
        multi,
        return_document: Default::default(),
        projection: None,
    })
}

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "update";
    let namespace = cx.collection()?;
    let (mut ordered, mut let_vars) = (true, None);
    for element in cx.arguments() {
        match element.key() {
            "updates" => {}
            "ordered" => ordered = fields::strict_boolean(NAME, &element)?,
            "let" => let_vars = Some(fields::document(NAME, &element)?),
            "bypassDocumentValidation" => {
                fields::boolean(NAME, &element)?;
            }
            "bypassEmptyTsReplacement" => drop(fields::boolean(NAME, &element)?),
            _ => cx.unknown_field(&element)?,
        }
    }
    let statements = statements(cx, "updates")?;
    // A malformed statement fails the command before anything is written.
    let parsed = statements
        .iter()
        .map(|statement| parse_statement(*statement, let_vars))
        .collect::<Result<Vec<_>, _>>()?;
    if let Some(mismatch) = cx.uuid_mismatch(&namespace) {
        return all_refused(
            cx,
            &mismatch,
            parsed.len(),
            ordered,
            &["n", "nModified"],
            out,
        );
    }
    let (mut n, mut n_modified) = (0, 0);
    let mut upserted: Vec<(usize, Value)> = Vec::new();
    let mut errors = WriteErrors::default();
    if statements.len() > 1 {
        cx.op = cx.op.clone().with_shared_constants();
    }
    let retry = Retry::begin(cx, statements.len())?;
    retry.refuse_multi(parsed.iter().any(|statement| statement.multi))?;
    for (index, (statement, doc)) in parsed.iter().zip(&statements).enumerate() {
        if let Some(outcome) = retry.outcome(index) {
            n += 1;
            n_modified += outcome.modified();
            if let Some(id) = outcome.upserted() {
                upserted.push((index, id));
            }
            continue;
        }
        retry.set_current(cx, [index])?;
        let mut report = UpdateReport::default();
        let result = run_one(cx, &namespace, statement, *doc, &mut report);
        let found = report.result.matched + u64::from(report.upserted.is_some());
        // A statement that fails midway is not counted, although its changes stay.
        if result.is_ok() {
            n += found;
            n_modified += report.result.modified;
        }
        if let Some(id) = report.upserted {
            upserted.push((index, id));
        }
        if let Err(error) = result {
            if cx.is_of_transaction(&error) {
                return Err(error);
            }
            let ends = sheaf_db::write::ends_operation(&error);
            if ends && index == 0 && found == 0 {
                return Err(error);
            }
            errors.push(index, error);
            if ordered || ends {
                break;
            }
        }
    }
    out.append("n", n as i32);
    if !upserted.is_empty() {
        out.begin_array("upserted");
        for (index, id) in &upserted {
            out.push_begin_document();
            out.append("index", *index as i32);
            out.append_value("_id", id);
            out.end();
        }
        out.end();
    }
    out.append("nModified", n_modified as i32);
    errors.append(cx, out);
    retry.append(out);
    append_write_concern(cx, out);
    Ok(())
}

/// Executes one statement and records its cost.
pub fn run_one(
    cx: &mut CommandContext<'_>,
    namespace: &Namespace,
    statement: &UpdateStatement<'_>,
    doc: RawDoc<'_>,
    report: &mut UpdateReport,
) -> Result<(), Error> {
    if statement.constants.is_some() && !matches!(statement.update, RawValue::Array(_)) {
        return Err(Error::new(
            ErrorCode(51198),
            "Constant values may only be specified for pipeline updates",
        ));
    }
    let meter = Meter::start(cx);
    let options = cx.server.query_options(None);
    let db = cx.server.db.clone();
    let result = modify::update(&db, &cx.op, namespace, statement, &options, report);
    let wrote = report.result.modified > 0 || report.upserted.is_some();
    let found = (&report.plan, report.counts);
    let common = meter.report(cx, "update", doc, found, wrote);
    cx.report.writes.push(WriteReport {
        namespace: Some(namespace.clone()),
        n_matched: report.result.matched,
        n_modified: report.result.modified,
        n_upserted: u64::from(report.upserted.is_some()),
        keys_inserted: wrote.then_some(report.result.stats.keys_inserted),
        keys_deleted: wrote.then_some(report.result.stats.keys_deleted),
        ..common
    });
    result
}
