//! `delete`: removes documents.

use sheaf_bson::{DocBuilder, Error, RawDoc};
use sheaf_db::Namespace;
use sheaf_db::modify::{self, DeleteReport, DeleteStatement};
use sheaf_query::canonical::{FindSpec, Hint};

use super::context::CommandContext;
use super::fields::{self, unknown_field};
use super::retry::Retry;
use super::write_reply::{Meter, WriteErrors, all_refused, append_write_concern, statements};
use crate::op_report::WriteReport;

/// One element of `deletes`.
pub fn parse_statement<'a>(
    statement: RawDoc<'a>,
    let_vars: Option<RawDoc<'a>>,
) -> Result<DeleteStatement<'a>, Error> {
    const NAME: &str = "delete.deletes";
    let mut spec = FindSpec {
        let_vars,
        ..Default::default()
    };
    let (mut filter, mut limit) = (None, None);
    for element in fields::given(statement) {
        match element.key() {
            "q" => filter = Some(fields::document(NAME, &element)?),
            "limit" => {
                let n = fields::integer(NAME, &element)?;
                if n != 0 && n != 1 {
                    return Err(Error::new(
                        sheaf_bson::ErrorCode::FAILED_TO_PARSE,
                        format!("The limit field in delete objects must be 0 or 1. Got {n}"),
                    ));
                }
                limit = Some(n);
            }
            "hint" => spec.hint = Hint::parse(element.value())?,
            "collation" => spec.collation = fields::collation(NAME, &element)?,
            other => return Err(unknown_field(NAME, other)),
        }
    }
    spec.filter = Some(fields::required(NAME, "q", filter)?);
    Ok(DeleteStatement {
        spec,
        multi: fields::required(NAME, "limit", limit)? == 0,
        return_document: Default::default(),
        projection: None,
    })
}

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "delete";
    let namespace = cx.collection()?;
    let (mut ordered, mut let_vars) = (true, None);
    for element in cx.arguments() {
        match element.key() {
            "deletes" => {}
            "ordered" => ordered = fields::strict_boolean(NAME, &element)?,
            "let" => let_vars = Some(fields::document(NAME, &element)?),
            "bypassDocumentValidation" => drop(fields::boolean(NAME, &element)?),
            "bypassEmptyTsReplacement" => drop(fields::boolean(NAME, &element)?),
            _ => cx.unknown_field(&element)?,
        }
    }
    let statements = statements(cx, "deletes")?;
    // A malformed statement fails the command before anything is written.
    let parsed = statements
        .iter()
        .map(|statement| parse_statement(*statement, let_vars))
        .collect::<Result<Vec<_>, _>>()?;
    if let Some(mismatch) = cx.uuid_mismatch(&namespace) {
        return all_refused(cx, &mismatch, parsed.len(), ordered, &["n"], out);
    }
    let mut n = 0;
    let mut errors = WriteErrors::default();
    let retry = Retry::begin(cx, statements.len())?;
    retry.refuse_multi(parsed.iter().any(|statement| statement.multi))?;
    for (index, (statement, doc)) in parsed.iter().zip(&statements).enumerate() {
        if retry.outcome(index).is_some() {
            n += 1;
            continue;
        }
        retry.set_current(cx, [index])?;
        let mut report = DeleteReport::default();
        let result = run_one(cx, &namespace, statement, *doc, &mut report);
        // A statement that fails midway is not counted, although what it deleted is gone.
        if result.is_ok() {
            n += report.result.deleted;
        }
        if let Err(error) = result {
            if cx.is_of_transaction(&error) {
                return Err(error);
            }
            let ends = sheaf_db::write::ends_operation(&error);
            if ends && index == 0 && report.result.deleted == 0 {
                return Err(error);
            }
            errors.push(index, error);
            if ordered || ends {
                break;
            }
        }
    }
    out.append("n", n as i32);
    errors.append(cx, out);
    retry.append(out);
    append_write_concern(cx, out);
    Ok(())
}

/// Executes one statement and records its cost.
pub fn run_one(
    cx: &mut CommandContext<'_>,
    namespace: &Namespace,
    statement: &DeleteStatement<'_>,
    doc: RawDoc<'_>,
    report: &mut DeleteReport,
) -> Result<(), Error> {
    let meter = Meter::start(cx);
    let options = cx.server.query_options(None);
    let db = cx.server.db.clone();
    let result = modify::delete(&db, &cx.op, namespace, statement, &options, report);
    let wrote = report.result.deleted > 0;
    let found = (&report.plan, report.counts);
    let common = meter.report(cx, "remove", doc, found, wrote);
    cx.report.writes.push(WriteReport {
        namespace: Some(namespace.clone()),
        n_deleted: report.result.deleted,
        keys_deleted: wrote.then_some(report.result.stats.keys_deleted),
        ..common
    });
    result
}
