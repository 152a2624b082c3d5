//! `update`: changes documents by operators, replacement or pipeline.

use sheaf_bson::{DocBuilder, Error, ErrorCode, RawDoc, Value};
use sheaf_db::Namespace;
use sheaf_db::modify::{self, UpdateReport, UpdateStatement};
use sheaf_query::canonical::{FindSpec, Hint};

use super::context::{CommandContext, WriteReport, unknown_field};
use super::fields;
use super::retry::Retry;
use super::write_reply::{Meter, WriteErrors, append_write_concern, statements};

/// One element of `updates`.
pub fn parse_statement<'a>(
    statement: RawDoc<'a>,
    let_vars: Option<RawDoc<'a>>,
) -> Result<UpdateStatement<'a>, Error> {
    const NAME: &str = "update.updates";
    let mut spec = FindSpec {
        let_vars,
        ..Default::default()
    };
    let (mut filter, mut update, mut array_filters) = (None, None, None);
    let (mut upsert, mut multi) = (false, false);
    for element in statement.iter() {
        match element.key() {
            "q" => filter = Some(fields::document(NAME, &element)?),
            "u" => update = Some(element.value()),
            "multi" => multi = fields::boolean(NAME, &element)?,
            "upsert" => upsert = fields::boolean(NAME, &element)?,
            "hint" => spec.hint = Hint::parse(element.value())?,
            "sort" => spec.sort = fields::optional_document(NAME, &element)?,
            "arrayFilters" => array_filters = Some(fields::array(NAME, &element)?),
            "collation" => spec.collation = fields::collation(NAME, &element)?,
            "upsertSupplied" => {
                fields::boolean(NAME, &element)?;
            }
            "c" => {
                return Err(Error::new(
                    ErrorCode::FAILED_TO_PARSE,
                    "update.updates.c: constants need a pipeline update, which is not supported",
                ));
            }
            other => return Err(unknown_field(NAME, other)),
        }
    }
    if multi && spec.sort.is_some() {
        return Err(Error::new(
            ErrorCode::FAILED_TO_PARSE,
            "Cannot specify sort with multi=true",
        ));
    }
    spec.filter = Some(filter.ok_or_else(|| fields::missing(NAME, "q"))?);
    Ok(UpdateStatement {
        spec,
        update: update.ok_or_else(|| fields::missing(NAME, "u"))?,
        array_filters,
        upsert,
        multi,
        return_document: Default::default(),
        projection: None,
    })
}

/// Runs it.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "update";
    let namespace = cx.collection()?;
    let (mut ordered, mut let_vars) = (true, None);
    for element in cx.arguments() {
        match element.key() {
            "updates" => {}
            "ordered" => ordered = fields::boolean(NAME, &element)?,
            "let" => let_vars = fields::optional_document(NAME, &element)?,
            "bypassDocumentValidation" => {
                fields::boolean(NAME, &element)?;
            }
            _ => return Err(cx.unknown_field(&element)),
        }
    }
    let statements = statements(cx, "updates")?;
    // A malformed statement fails the command before anything is written.
    let parsed = statements
        .iter()
        .map(|statement| parse_statement(*statement, let_vars))
        .collect::<Result<Vec<_>, _>>()?;
    let (mut n, mut n_modified) = (0, 0);
    let mut upserted: Vec<(usize, Value)> = Vec::new();
    let mut errors = WriteErrors::default();
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
        retry.set_current([index]);
        let mut report = UpdateReport::default();
        let result = run_one(cx, &namespace, statement, *doc, &mut report);
        n += report.result.matched + u64::from(report.upserted.is_some());
        n_modified += report.result.modified;
        if let Some(id) = report.upserted {
            upserted.push((index, id));
        }
        if let Err(error) = result {
            if cx.is_transient(&error) {
                return Err(error);
            }
            if sheaf_db::write::ends_operation(&error) && errors.is_empty() && index == 0 && n == 0
            {
                return Err(error);
            }
            let ends = sheaf_db::write::ends_operation(&error);
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

/// Carries out one statement and takes down what it cost.
pub fn run_one(
    cx: &mut CommandContext<'_>,
    namespace: &Namespace,
    statement: &UpdateStatement<'_>,
    doc: RawDoc<'_>,
    report: &mut UpdateReport,
) -> Result<(), Error> {
    let meter = Meter::start(cx);
    let options = cx.server.query_options(None);
    let db = cx.server.db.clone();
    let result = modify::update(&db, &cx.op, namespace, statement, &options, report);
    let wrote = report.result.modified > 0 || report.upserted.is_some();
    let found = (&report.plan, report.counts);
    let common = meter.report(cx, "update", doc, found, wrote);
    cx.report.writes.push(WriteReport {
        n_matched: report.result.matched,
        n_modified: report.result.modified,
        n_upserted: u64::from(report.upserted.is_some()),
        keys_inserted: wrote.then_some(report.result.stats.keys_inserted),
        keys_deleted: wrote.then_some(report.result.stats.keys_deleted),
        ..common
    });
    result
}
