//! `dataSize`: the size of a collection's documents, or of those in a range of an index.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Instant;

use sheaf_bson::{DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawValue};
use sheaf_db::catalog::views::not_on_view;
use sheaf_db::find::{canonicalize, find};
use sheaf_db::{Collection, Namespace, ReadView, ResultSource};
use sheaf_query::canonical::{FindSpec, Hint};

use super::context::CommandContext;
use super::fields;

/// The arguments.
#[derive(Default)]
struct Request<'a> {
    key_pattern: Option<RawDoc<'a>>,
    min: Option<RawDoc<'a>>,
    max: Option<RawDoc<'a>>,
    size_max: Option<u64>,
    objects_max: Option<u64>,
    estimate: bool,
}

/// What was found so far.
#[derive(Default)]
struct Total {
    bytes: u64,
    objects: u64,
    limit_reached: bool,
}

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "dataSize";
    let begun = Instant::now();
    let namespace = fields::string(NAME, &cx.first_given()?)?;
    let request = Request::parse(cx)?;
    let namespace = Namespace::parse(namespace)?;
    if cx.server.db.catalog().view(&namespace).is_some() {
        return Err(not_on_view(&namespace));
    }
    cx.report.namespace = Some(namespace.clone());
    let view = cx.view(&namespace)?;
    let total = match &view.collection {
        None => Total::default(),
        Some(collection) => measure(cx, &request, &view, collection)?,
    };
    out.append("estimate", request.estimate && view.collection.is_some());
    out.append("size", total.bytes as i64);
    out.append("numObjects", total.objects as i64);
    out.append("millis", begun.elapsed().as_millis() as i64);
    if total.limit_reached {
        out.append("maxReached", true);
    }
    Ok(())
}

impl<'a> Request<'a> {
    fn parse(cx: &CommandContext<'a>) -> Result<Request<'a>, Error> {
        const NAME: &str = "dataSize";
        let mut request = Request::default();
        let limit = |n: i64| u64::try_from(n).ok().filter(|n| *n > 0);
        for element in cx.arguments() {
            match element.key() {
                "keyPattern" => request.key_pattern = Some(fields::document(NAME, &element)?),
                "min" => request.min = Some(fields::document(NAME, &element)?),
                "max" => request.max = Some(fields::document(NAME, &element)?),
                "estimate" => {
                    request.estimate = fields::boolean(NAME, &element)?;
                }
                "maxSize" => {
                    request.size_max = limit(fields::integer(NAME, &element)?);
                }
                "maxObjects" => {
                    request.objects_max = limit(fields::integer(NAME, &element)?);
                }
                _ => cx.unknown_field(&element)?,
            }
        }
        Ok(request)
    }

    /// The bounds; `None` for the whole collection.
    /// Errors: `BadValue` for one without the other.
    fn range(&self) -> Result<Option<(RawDoc<'a>, RawDoc<'a>)>, Error> {
        let given = |bound: Option<RawDoc<'a>>| bound.filter(|bound| !bound.is_empty());
        match (given(self.min), given(self.max)) {
            (Some(min), Some(max)) => Ok(Some((min, max))),
            (None, None) => Ok(None),
            _ => Err(Error::bad_value("only one of min or max specified")),
        }
    }
}

fn measure(
    cx: &CommandContext<'_>,
    request: &Request<'_>,
    view: &ReadView,
    collection: &Arc<Collection>,
) -> Result<Total, Error> {
    let size = cx.server.db.collection_stats(collection)?.size;
    let (min, max, hint);
    let mut spec = FindSpec::default();
    match request.range()? {
        None if request.estimate || request.size_max.or(request.objects_max).is_none() => {
            return Ok(Total {
                bytes: size.data_bytes,
                objects: size.count,
                limit_reached: false,
            });
        }
        None => {}
        Some((from, to)) => {
            let pattern = request.key_pattern.filter(|pattern| !pattern.is_empty());
            let keys = pattern.unwrap_or(from);
            let index = index_that_begins_with(collection, keys)?;
            min = extended(from, index.as_raw());
            max = extended(to, index.as_raw());
            if is_empty_range(min.as_raw(), max.as_raw(), index.as_raw()) {
                return Ok(Total::default());
            }
            hint = index;
            spec.hint = Hint::parse(RawValue::Document(hint.as_raw()))?;
            (spec.min, spec.max) = (Some(min.as_raw()), Some(max.as_raw()));
        }
    }
    let mean = request.estimate.then(|| size.document_bytes_mean());
    let query = Arc::new(canonicalize(view, spec)?);
    let mut found = find(view, &cx.op, query, &cx.server.query_options(None))?;
    let mut total = Total::default();
    while let Some(doc) = found.next(&cx.op)? {
        cx.op.check_interrupt()?;
        total.bytes += mean.unwrap_or(doc.as_raw().len_bytes() as u64);
        total.objects += 1;
        let reached = |limit: Option<u64>, n: u64| limit.is_some_and(|limit| n > limit);
        if reached(request.size_max, total.bytes) || reached(request.objects_max, total.objects) {
            total.limit_reached = true;
            break;
        }
    }
    Ok(total)
}

/// The key pattern of an index whose first fields are these.
/// Errors: `OperationFailed` if there is none.
fn index_that_begins_with(collection: &Collection, fields: RawDoc<'_>) -> Result<DocBuf, Error> {
    let id = sheaf_bson::doc! {"_id": 1};
    let secondary = collection.index_list().iter();
    let patterns = secondary.map(|index| index.spec().key.clone());
    let clustered = collection.clustered().is_some().then_some(id);
    let begins = |pattern: &DocBuf| {
        let mut keys = pattern.iter().map(|element| element.key());
        let wanted = fields.iter().map(|element| element.key());
        wanted.into_iter().all(|field| keys.next() == Some(field))
    };
    patterns
        .into_iter()
        .chain(clustered)
        .find(begins)
        .ok_or_else(|| {
            Error::new(
                ErrorCode::OPERATION_FAILED,
                "couldn't find valid index containing key pattern",
            )
        })
}

/// The bound with the index's remaining fields at their lowest.
fn extended(bound: RawDoc<'_>, index: RawDoc<'_>) -> DocBuf {
    let mut out = DocBuilder::new();
    let mut given = bound.iter();
    for field in index.iter() {
        match given.next() {
            Some(element) => out.append(field.key(), element.value()),
            None if field.value().as_f64().is_some_and(|order| order < 0.0) => {
                out.append(field.key(), RawValue::MaxKey)
            }
            None => out.append(field.key(), RawValue::MinKey),
        };
    }
    out.finish()
}

/// Whether no key of the index is at or after `min` and before `max`.
fn is_empty_range(min: RawDoc<'_>, max: RawDoc<'_>, index: RawDoc<'_>) -> bool {
    for ((from, to), field) in min.iter().zip(max.iter()).zip(index.iter()) {
        let order = sheaf_bson::compare_values(from.value(), to.value());
        let descending = field.value().as_f64().is_some_and(|order| order < 0.0);
        match if descending { order.reverse() } else { order } {
            Ordering::Less => return false,
            Ordering::Greater => return true,
            Ordering::Equal => {}
        }
    }
    true
}
