//! `findAndModify`: updates or removes one document and returns it.

use sheaf_bson::{DocBuilder, Error, ErrorCode, RawArray, RawDoc, RawElement, RawValue};
use sheaf_db::modify::{
    DeleteReport, DeleteStatement, ReturnDocument, UpdateReport, UpdateStatement,
};
use sheaf_query::canonical::{FindSpec, Hint};

use super::context::CommandContext;
use super::fields::unknown_field;
use super::retry::Retry;
use super::write_reply::append_write_concern;
use super::{delete, fields, update};

/// The operation on the document.
pub enum Change<'a> {
    /// `update`.
    Update(Box<UpdateStatement<'a>>),
    /// `remove: true`.
    Remove(DeleteStatement<'a>),
}

/// Parses the command's arguments.
pub fn parse<'a>(arguments: impl Iterator<Item = RawElement<'a>>) -> Result<Change<'a>, Error> {
    const NAME: &str = "findAndModify";
    let mut spec = FindSpec::default();
    let (mut remove, mut new, mut upsert) = (false, false, false);
    let mut update: Option<RawValue<'a>> = None;
    let mut projection: Option<RawDoc<'a>> = None;
    let mut array_filters: Option<RawArray<'a>> = None;
    for element in arguments {
        match element.key() {
            "query" => spec.filter = Some(fields::document(NAME, &element)?),
            "sort" => spec.sort = Some(fields::document(NAME, &element)?),
            "hint" => spec.hint = Hint::parse(element.value())?,
            "let" => spec.let_vars = Some(fields::document(NAME, &element)?),
            "remove" => remove = fields::boolean(NAME, &element)?,
            "new" => new = fields::boolean(NAME, &element)?,
            "upsert" => upsert = fields::boolean(NAME, &element)?,
            "update" => update = Some(element.value()),
            "fields" => projection = Some(fields::document(NAME, &element)?),
            "arrayFilters" => array_filters = Some(fields::array(NAME, &element)?),
            "collation" => spec.collation = fields::collation(NAME, &element)?,
            "bypassEmptyTsReplacement" => drop(fields::boolean(NAME, &element)?),
            // Drivers may send what only a find means.
            "batchSize" => drop(fields::non_negative(NAME, &element)?),
            "singleBatch" => drop(fields::strict_boolean(NAME, &element)?),
            "bypassDocumentValidation" => {
                fields::boolean(NAME, &element)?;
            }
            other => return Err(unknown_field(NAME, other)),
        }
    }
    if selects_by_id(spec.filter) {
        // At most one document: there is nothing to sort.
        spec.sort = None;
    }
    let refuse = |what: &str| {
        Err(Error::new(
            ErrorCode::FAILED_TO_PARSE,
            format!("Cannot specify both {what} and remove=true"),
        ))
    };
    if remove {
        if update.is_some() {
            return refuse("an update");
        }
        if upsert {
            return refuse("upsert=true");
        }
        if new {
            return Err(Error::new(
                ErrorCode::FAILED_TO_PARSE,
                "Cannot specify both new=true and remove=true; 'remove' always returns the \
                 deleted document",
            ));
        }
        if array_filters.is_some() {
            return refuse("arrayFilters");
        }
        return Ok(Change::Remove(DeleteStatement {
            spec,
            multi: false,
            return_document: ReturnDocument::Before,
            projection,
        }));
    }
    let Some(update) = update else {
        return Err(Error::new(
            ErrorCode::FAILED_TO_PARSE,
            "Either an update or remove=true must be specified",
        ));
    };
    Ok(Change::Update(Box::new(UpdateStatement {
        spec,
        update,
        constants: None,
        array_filters,
        upsert,
        upsert_supplied: None,
        multi: false,
        return_document: if new {
            ReturnDocument::After
        } else {
            ReturnDocument::Before
        },
        projection,
    })))
}

/// Whether the filter is `_id` and a value that is not an operator, pattern or array.
fn selects_by_id(filter: Option<RawDoc<'_>>) -> bool {
    let mut fields = filter.into_iter().flat_map(|filter| filter.iter());
    match (fields.next(), fields.next()) {
        (Some(id), None) if id.key() == "_id" => !matches!(
            id.value(),
            RawValue::Document(_) | RawValue::Array(_) | RawValue::Regex { .. }
        ),
        _ => false,
    }
}

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    let namespace = cx.collection()?;
    let change = parse(cx.arguments())?;
    let body = cx.body;
    let retry = Retry::begin(cx, 1)?;
    if let Some(outcome) = retry.outcome(0) {
        out.begin_document("lastErrorObject");
        out.append("n", 1);
        if let Change::Update(_) = change {
            let upserted = outcome.upserted();
            out.append("updatedExisting", upserted.is_none());
            if let Some(id) = &upserted {
                out.append_value("upserted", id);
            }
        }
        out.end();
        match outcome.value() {
            Some(doc) => out.append("value", RawValue::Document(doc)),
            None => out.append("value", RawValue::Null),
        };
        out.append("retriedStmtId", retry.id(0));
        append_write_concern(cx, out);
        return Ok(());
    }
    retry.set_current(cx, [0])?;
    let returned = match change {
        Change::Remove(statement) => {
            let mut report = DeleteReport::default();
            delete::run_one(cx, &namespace, &statement, body, &mut report)?;
            out.begin_document("lastErrorObject");
            out.append("n", report.result.deleted as i32);
            out.end();
            report.returned
        }
        Change::Update(statement) => {
            let mut report = UpdateReport::default();
            update::run_one(cx, &namespace, &statement, body, &mut report)?;
            let upserted = report.upserted.is_some();
            out.begin_document("lastErrorObject");
            out.append("n", (report.result.matched + u64::from(upserted)) as i32);
            out.append("updatedExisting", report.result.matched > 0);
            if let Some(id) = &report.upserted {
                out.append_value("upserted", id);
            }
            out.end();
            report.returned
        }
    };
    match returned {
        Some(doc) => out.append_bson("value", &doc),
        None => out.append("value", RawValue::Null),
    };
    append_write_concern(cx, out);
    Ok(())
}
