//! `$changeStream`: the first stage of a pipeline that watches for changes.

use sheaf_bson::{DocBuilder, Error, ErrorCode, RawArray, RawDoc, RawElement, RawValue};
use sheaf_db::Namespace;
use sheaf_db::aggregate::AggregateContext;
use sheaf_db::catalog::kind::NamespaceKind;
use sheaf_db::catalog::views::not_on_view;
use sheaf_db::change_stream::event::Watched;
use sheaf_db::change_stream::token::ResumeToken;
use sheaf_db::change_stream::{BeforeChange, ChangeStream, FullDocument, Start, StreamOptions};
use sheaf_query::pipeline::Pipeline;

use super::super::batch::{self, CursorSettings};
use super::super::context::CommandContext;
use super::super::fields;
use super::Request;

/// Its name.
pub const STAGE: &str = "$changeStream";
/// The stage that splits large events. The stream itself implements it.
const SPLIT: &str = "$changeStreamSplitLargeEvent";

/// Stages that may follow: those that map an event to at most one event.
const FOLLOWERS: &[&str] = &[
    "$addFields",
    "$match",
    "$project",
    "$redact",
    "$replaceRoot",
    "$replaceWith",
    "$set",
    "$unset",
];

/// Whether the pipeline begins with `$changeStream`.
/// Errors: 40602 if the stage is elsewhere.
pub fn is_change_stream(pipeline: RawArray<'_>) -> Result<bool, Error> {
    let is_stream = |stage: RawValue<'_>| {
        let first = stage.as_document().and_then(|stage| stage.first());
        first.is_some_and(|first| first.key() == STAGE)
    };
    match pipeline.iter().position(is_stream) {
        None => Ok(false),
        Some(0) => Ok(true),
        Some(_) => Err(Error::new(
            ErrorCode(40602),
            format!("{STAGE} is only valid as the first stage in a pipeline"),
        )),
    }
}

/// Runs the pipeline and opens a cursor that stays open.
pub fn run(
    cx: &mut CommandContext<'_>,
    request: Request<'_>,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    if cx.op.transaction().is_some() {
        return Err(Error::new(
            ErrorCode::OPERATION_NOT_SUPPORTED_IN_TRANSACTION,
            "Stage not supported inside of a multi-document transaction: $changeStream",
        ));
    }
    if request.explain {
        return Err(Error::new(
            ErrorCode::NOT_IMPLEMENTED,
            "explain of $changeStream is not supported",
        ));
    }
    if !matches!(cx.generic.read_concern.level, None | Some("majority")) {
        return Err(Error::new(
            ErrorCode::INVALID_OPTIONS,
            "$changeStream cannot run with a readConcern other than 'majority'",
        ));
    }
    let collectionless = cx.first()?.value().is_number();
    let (namespace, reply_namespace) = match collectionless {
        true => (
            Namespace::new(cx.db, "system.listing")?,
            batch::command_namespace(cx.db, "aggregate"),
        ),
        false => {
            let namespace = cx.collection()?;
            match cx.server.db.catalog().kind(&namespace) {
                NamespaceKind::Missing | NamespaceKind::Collection(_) => {}
                NamespaceKind::View(_) => return Err(not_on_view(&namespace)),
                NamespaceKind::TimeSeries(..) => {
                    return Err(Error::new(
                        ErrorCode::COMMAND_NOT_SUPPORTED_ON_VIEW,
                        "$changeStream is not supported on a time-series collection",
                    ));
                }
            }
            let name = namespace.as_str().to_owned();
            (namespace, name)
        }
    };
    let mut stages = request.pipeline.iter();
    let Some(RawValue::Document(first)) = stages.next() else {
        return Err(fields::missing("aggregate", "pipeline"));
    };
    let spec = match first.first().map(|element| element.value()) {
        Some(RawValue::Document(spec)) => spec,
        _ => {
            return Err(Error::new(
                ErrorCode(6188500),
                "$changeStream stage expects a document as argument",
            ));
        }
    };
    let watched = match collectionless {
        false => Watched::Collection {
            db: namespace.db().to_owned(),
            name: namespace.collection().to_owned(),
        },
        true => Watched::Database(cx.db.to_owned()),
    };
    let mut options = options(cx.db, watched, spec)?;
    let mut followers = sheaf_bson::ArrayBuilder::new();
    for stage in stages {
        if options.split {
            return Err(Error::new(
                ErrorCode::FAILED_TO_PARSE,
                format!("{SPLIT} must be the last stage in the pipeline"),
            ));
        }
        options.split = check_follower(stage)?;
        if !options.split {
            followers.push(stage);
        }
    }
    let followers = followers.finish();
    let parse = super::parse_context(cx, request.let_vars, None)?;
    let pipeline = Pipeline::parse(followers.as_raw(), &parse)?;
    let context = AggregateContext::new(
        &cx.server.db,
        cx.db,
        parse,
        cx.server.query_options(request.allow_disk_use),
        cx.op.transaction(),
    );
    let stream = ChangeStream::open(&cx.server.db, &cx.op, options, pipeline.stages, context)?;
    batch::reply_with_cursor(
        cx,
        Box::new(stream),
        CursorSettings {
            namespace,
            reply_namespace,
            batch_size: request.batch_size,
            single_batch: false,
            no_timeout: false,
        },
        out,
    )
}

/// Rejects a stage that may not follow. Returns whether it is the one that splits events.
fn check_follower(stage: RawValue<'_>) -> Result<bool, Error> {
    let RawValue::Document(stage) = stage else {
        return Ok(false);
    };
    match stage.first() {
        Some(first) if first.key() == SPLIT => match first.value() {
            RawValue::Document(spec) if spec.is_empty() => Ok(true),
            _ => Err(Error::new(
                ErrorCode::FAILED_TO_PARSE,
                format!("the argument of {SPLIT} must be an empty object"),
            )),
        },
        Some(first) if first.key() == "$fill" && fills_values(first.value()) => Ok(false),
        // An unknown name is reported as such when the pipeline is parsed.
        Some(first) if !FOLLOWERS.contains(&first.key()) && is_stage(first.key()) => {
            Err(Error::new(
                ErrorCode::ILLEGAL_OPERATION,
                format!(
                    "{} is not permitted in a $changeStream pipeline",
                    first.key()
                ),
            ))
        }
        _ => Ok(false),
    }
}

/// Whether a `$fill` sets values alone, and needs no other event.
fn fills_values(spec: RawValue<'_>) -> bool {
    let output = spec.as_document().and_then(|spec| spec.get("output"));
    let mut fields = output
        .and_then(|output| output.as_document())
        .into_iter()
        .flat_map(|output| output.iter());
    fields.all(|field| {
        let field = field.value().as_document();
        field.is_some_and(|field| field.get("value").is_some())
    })
}

fn is_stage(name: &str) -> bool {
    name == STAGE || sheaf_query::pipeline::stage_names().any(|known| known == name)
}

fn options(db: &str, watched: Watched, spec: RawDoc<'_>) -> Result<StreamOptions, Error> {
    let mut options = StreamOptions {
        watched,
        start: Start::Now,
        full_document: FullDocument::Default,
        before_change: BeforeChange::Off,
        expanded: false,
        split: false,
    };
    let mut starts = 0;
    let is_absent = |value| matches!(value, RawValue::Null | RawValue::Undefined);
    for element in spec.iter() {
        match element.key() {
            "fullDocument"
            | "fullDocumentBeforeChange"
            | "resumeAfter"
            | "startAfter"
            | "startAtOperationTime"
                if is_absent(element.value()) => {}
            "fullDocument" => {
                options.full_document = match fields::string(STAGE, &element)? {
                    "default" => FullDocument::Default,
                    "updateLookup" => FullDocument::UpdateLookup,
                    "whenAvailable" => FullDocument::WhenAvailable,
                    "required" => FullDocument::Required,
                    other => return Err(wrong_value("fullDocument", other)),
                };
            }
            "fullDocumentBeforeChange" => {
                options.before_change = match fields::string(STAGE, &element)? {
                    "off" => BeforeChange::Off,
                    "whenAvailable" => BeforeChange::WhenAvailable,
                    "required" => BeforeChange::Required,
                    other => return Err(wrong_value("fullDocumentBeforeChange", other)),
                };
            }
            "resumeAfter" | "startAfter" => {
                let token = ResumeToken::parse(fields::document(STAGE, &element)?)?;
                options.start = Start::After(token, element.key() == "startAfter");
                starts += 1;
            }
            "startAtOperationTime" => {
                let RawValue::Timestamp(time) = element.value() else {
                    return Err(fields::wrong_type(STAGE, &element, "timestamp"));
                };
                options.start = Start::AtTime(time);
                starts += 1;
            }
            "allChangesForCluster" => watch_all(&element, db, &mut options)?,
            "showExpandedEvents" => options.expanded = flag(&element)?,
            _ => return Err(super::super::fields::unknown_field(STAGE, element.key())),
        }
    }
    if starts > 1 {
        return Err(Error::new(
            ErrorCode(40674),
            "Only one type of resume option is allowed, but multiple were found.",
        ));
    }
    let internal = |what: String| {
        Error::new(
            ErrorCode::INVALID_NAMESPACE,
            format!("{STAGE} may not be opened on the internal {what}"),
        )
    };
    match &options.watched {
        Watched::Deployment => {}
        Watched::Database(db) | Watched::Collection { db, .. }
            if matches!(&**db, "admin" | "config" | "local") =>
        {
            return Err(internal(format!("{db} database")));
        }
        Watched::Collection { db, name } if name.starts_with("system.") => {
            return Err(internal(format!("{db}.{name} collection")));
        }
        Watched::Database(_) | Watched::Collection { .. } => {}
    }
    Ok(options)
}

/// A boolean; numbers are not accepted.
fn flag(element: &RawElement<'_>) -> Result<bool, Error> {
    match element.value() {
        RawValue::Boolean(set) => Ok(set),
        _ => Err(fields::wrong_type(STAGE, element, "bool")),
    }
}

fn watch_all(element: &RawElement<'_>, db: &str, options: &mut StreamOptions) -> Result<(), Error> {
    if !flag(element)? {
        return Ok(());
    }
    if db != "admin" || !matches!(options.watched, Watched::Database(_)) {
        return Err(Error::new(
            ErrorCode::INVALID_OPTIONS,
            "A $changeStream with 'allChangesForCluster:true' may only be opened on the 'admin' database, \
             and with no collection name",
        ));
    }
    options.watched = Watched::Deployment;
    Ok(())
}

fn wrong_value(field: &str, value: &str) -> Error {
    Error::bad_value(format!(
        "Enumeration value '{value}' for field '$changeStream.{field}' is not a valid value."
    ))
}
