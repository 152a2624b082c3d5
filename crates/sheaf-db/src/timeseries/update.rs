//! Updates of time-series collections: of the meta field, for whole series.
//!
//! ```text
//!   updateMany({sensor: "a"}, {$set: {"sensor.room": 5}})   on measurements
//!     ->        {meta: "a"},  {$set: {"meta.room": 5}}      on buckets
//! ```

use std::sync::Arc;

use sheaf_bson::{DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawValue, Result};
use sheaf_query::matcher;
use sheaf_query::timeseries::reader::count_of;
use sheaf_query::timeseries::{META, TimeseriesOptions, normalized_meta};
use sheaf_query::update::{ApplyContext, Outcome, UpdateDriver};

use super::modify::BucketQuery;
use crate::database::Db;
use crate::modify::{Matches, UpdateReport, UpdateStatement, parse_context};
use crate::planning::QueryOptions;
use crate::statement::StatementContext;
use crate::timeseries::Timeseries;
use crate::write::update::{Applied, DocumentUpdate, ModifiedBy, UpdatedRecord};

fn refused(what: &str) -> Error {
    Error::new(
        ErrorCode::INVALID_OPTIONS,
        format!("Cannot perform an update on a time-series collection {what}"),
    )
}

/// Executes an update statement on a time-series collection.
/// Errors: `InvalidOptions` for anything but a change of the meta field of whole series.
pub(crate) fn update(
    db: &Arc<Db>,
    op: &StatementContext,
    timeseries: &Timeseries,
    statement: &UpdateStatement<'_>,
    options: &QueryOptions,
    report: &mut UpdateReport,
) -> Result<()> {
    let translated = check(&timeseries.options, statement)?;
    let view = db.view(op, timeseries.buckets.ns())?;
    let Some(collection) = &view.collection else {
        return Ok(());
    };
    let constants = op.constants(view.cluster_time);
    let query = BucketQuery::new(&view, &timeseries.options, &statement.spec, constants)?;
    check_query(&timeseries.options, &query)?;
    let context = parse_context(&statement.spec, constants, &view)?;
    let driver = UpdateDriver::parse(
        RawValue::Document(translated.as_raw()),
        statement.array_filters,
        &context.variables,
    )?;
    let mut matches = Matches::start(&view, collection, op, &query.query, options)?;
    let mut applier = SeriesUpdate {
        query: &query,
        driver: &driver,
        options: &timeseries.options,
        context: ApplyContext {
            now: constants.0,
            timestamp: db.next_timestamp(),
            ..Default::default()
        },
        matched: 0,
        modified: 0,
    };
    let done = db.update_records(
        op,
        collection,
        &mut matches,
        &mut applier,
        true,
        &mut report.result,
    );
    // The counts are of measurements, not buckets.
    report.result.matched = applier.matched;
    report.result.modified = applier.modified;
    let counts = matches.counts();
    report.counts.keys_examined += counts.keys_examined;
    report.counts.docs_examined += counts.docs_examined;
    report.plan = matches.plan("EXPRESS_UPDATE");
    done
}

/// Translates the statement's update to one on buckets.
/// Errors: `InvalidOptions` for anything but a change of the meta field of whole series.
pub(super) fn check(
    options: &TimeseriesOptions,
    statement: &UpdateStatement<'_>,
) -> Result<DocBuf> {
    let Some(meta_field) = options.meta_field.as_deref() else {
        return Err(refused("that does not have a metaField"));
    };
    let only = |what: &str| {
        Err(Error::new(
            ErrorCode::INVALID_OPTIONS,
            format!("Cannot perform {what} on a time-series collection"),
        ))
    };
    if !statement.multi {
        return only("a non-multi update");
    }
    if statement.upsert {
        return only("an upsert");
    }
    match statement.update {
        RawValue::Document(update) => on_meta(update, meta_field),
        _ => Err(refused("with a pipeline")),
    }
}

/// Errors: `InvalidOptions` for a filter on fields of measurements.
pub(super) fn check_query(options: &TimeseriesOptions, query: &BucketQuery) -> Result<()> {
    match query.rest {
        None => Ok(()),
        Some(_) => Err(refused(&format!(
            "when querying on a field that is not the metaField '{}'",
            options.meta_field.as_deref().unwrap_or_default()
        ))),
    }
}

/// Translates every path below the meta field to one below `meta`.
/// Errors: `InvalidOptions` for a replacement and for other paths.
fn on_meta(update: RawDoc<'_>, meta_field: &str) -> Result<DocBuf> {
    let renamed = |path: &str| -> Result<String> {
        match path.strip_prefix(meta_field) {
            Some("") => Ok(META.to_owned()),
            Some(rest) if rest.starts_with('.') => Ok(format!("{META}{rest}")),
            _ => Err(refused(&format!(
                "when updating a field that is not the metaField '{meta_field}': {path}"
            ))),
        }
    };
    let mut out = DocBuilder::new();
    for operator in update {
        if !operator.key().starts_with('$') {
            return Err(refused("with a replacement document"));
        }
        let RawValue::Document(paths) = operator.value() else {
            out.append_raw_element(operator);
            continue;
        };
        out.begin_document(operator.key());
        for path in paths {
            let to = renamed(path.key())?;
            match (operator.key(), path.value()) {
                ("$rename", RawValue::String(target)) => {
                    out.append(&to, renamed(target)?.as_str());
                }
                (_, value) => {
                    out.append(&to, value);
                }
            }
        }
        out.end();
    }
    Ok(out.finish())
}

struct SeriesUpdate<'s> {
    query: &'s BucketQuery,
    driver: &'s UpdateDriver<'s>,
    options: &'s TimeseriesOptions,
    context: ApplyContext,
    matched: u64,
    modified: u64,
}

impl DocumentUpdate for SeriesUpdate<'_> {
    fn apply(&mut self, doc: RawDoc<'_>, recheck: bool) -> Result<Applied> {
        if self.driver.needs_matched_array_index() {
            let mut details = matcher::MatchDetails::default();
            if !self
                .query
                .query
                .filter
                .matches_with_details(doc, &mut details)?
            {
                return Ok(Applied::NoMatch);
            }
            self.context.matched_array_index = details.array_index.map(|at| at as usize);
        } else if recheck && !self.query.query.filter.matches(doc)? {
            return Ok(Applied::NoMatch);
        }
        Ok(match self.driver.apply(doc, &self.context)? {
            Outcome::NoChange => Applied::Unchanged,
            Outcome::Changed { doc: new, modified } => {
                let document = with_normal_meta(new);
                match document.as_bytes() == doc.as_bytes() {
                    true => Applied::Unchanged,
                    false => Applied::Changed {
                        document: document.into_vec().into(),
                        modified: ModifiedBy::Pipeline(modified),
                    },
                }
            }
        })
    }

    fn applied(&mut self, record: &UpdatedRecord<'_>) -> Result<()> {
        let count = count_of(record.old, &self.options.time_field)?;
        self.matched += count;
        if record.old.as_bytes() != record.new.as_bytes() {
            self.modified += count;
        }
        Ok(())
    }
}

/// The bucket with its meta value normalised (fields sorted by name), placed before its data.
fn with_normal_meta(bucket: DocBuf) -> DocBuf {
    let mut out = DocBuilder::new();
    let meta = bucket.get(META).map(normalized_meta);
    for element in bucket.iter().filter(|element| element.key() != META) {
        if element.key() == sheaf_query::timeseries::DATA
            && let Some(meta) = &meta
        {
            out.append_value(META, meta);
        }
        out.append_raw_element(element);
    }
    out.finish()
}
