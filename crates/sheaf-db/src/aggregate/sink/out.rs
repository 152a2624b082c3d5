//! `$out`: the results replace a collection.

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::json::shell;
use sheaf_bson::{ObjectId, doc};
use sheaf_query::pipeline::stages::out::Out;
use sheaf_query::timeseries::TimeseriesOptions;

use super::{Batch, writable};
use crate::aggregate::AggregateContext;
use crate::catalog::Namespace;
use crate::catalog::kind::NamespaceKind;
use crate::catalog::options::CollectionOptions;
use crate::catalog::views::not_on_view;
use crate::collection::Collection;
use crate::op_context::OpContext;
use crate::result_source::ResultSource;
use crate::statement::StatementContext;
use crate::system_names::TEMPORARY_PREFIX;

/// Replaces the target with the results. A time-series collection stays one.
pub(super) fn run(
    cx: &AggregateContext,
    op: &StatementContext,
    source: &mut dyn ResultSource,
    out: &Out,
) -> Result<()> {
    check_name(out)?;
    let target = writable(cx, &out.to, "$out", [17385, 31321])?;
    target
        .check_length()
        .map_err(|error| Error::new(ErrorCode::ILLEGAL_OPERATION, error.to_string()))?;
    let kept;
    let timeseries = match (cx.db().catalog().kind(&target), &out.timeseries) {
        (NamespaceKind::View(_), _) => return Err(not_on_view(&target)),
        (NamespaceKind::TimeSeries(existing, _), None) => {
            kept = existing.options;
            Some(&*kept)
        }
        (_, timeseries) => timeseries.as_ref(),
    };
    check_not_capped(cx, &target)?;
    replace(cx, op, source, &target, timeseries)
}

/// Errors: IllegalOperation for a name with `$`, which other operations refuse as invalid.
fn check_name(out: &Out) -> Result<()> {
    match out.to.collection.contains('$') {
        false => Ok(()),
        true => Err(Error::new(
            ErrorCode::ILLEGAL_OPERATION,
            format!(
                "$out cannot write to the collection '{}': '$' is not allowed in its name",
                out.to.collection
            ),
        )),
    }
}

/// Errors: 17152 if the collection that `$out` replaces is capped.
fn check_not_capped(cx: &AggregateContext, target: &Namespace) -> Result<()> {
    let catalog = cx.db().catalog();
    match catalog.collection(target) {
        Some(there) if there.options().capped().is_some() => Err(Error::new(
            ErrorCode(17152),
            format!("namespace '{target}' is capped so it can't be used for $out"),
        )),
        _ => Ok(()),
    }
}

fn replace(
    cx: &AggregateContext,
    op: &StatementContext,
    source: &mut dyn ResultSource,
    target: &Namespace,
    timeseries: Option<&TimeseriesOptions>,
) -> Result<()> {
    let name = format!("{TEMPORARY_PREFIX}{}", ObjectId::new().to_hex());
    let temporary = Namespace::new(target.db(), &name)?;
    let made = match timeseries {
        None => make(cx, op, &temporary, target),
        Some(options) => make_timeseries(cx, op, &temporary, target, options),
    };
    let filled = made
        .and_then(|()| fill(cx, op, source, &temporary))
        .and_then(|()| match timeseries {
            None => {
                let there = cx.db().catalog().collection(target).is_some();
                cx.db().rename_collection(op, &temporary, target, there)
            }
            Some(_) => cx.db().replace_timeseries(op, &temporary, target),
        });
    if filled.is_err() {
        // A failed operation must not leave its temporary collection.
        let _ = cx.db().drop_collection(&OpContext::new(), &temporary);
    }
    filled
}

/// Creates the temporary collection, with the options and indexes of the one it replaces.
fn make(
    cx: &AggregateContext,
    op: &StatementContext,
    temporary: &Namespace,
    target: &Namespace,
) -> Result<()> {
    let db = cx.db();
    let existing = db.catalog().collection(target).cloned();
    let options = existing.as_ref().map(|c| c.options().clone());
    db.create_collection(op, temporary, options.unwrap_or_default())?;
    match &existing {
        Some(existing) => copy_indexes(cx, op, existing, temporary),
        None => Ok(()),
    }
}

/// Creates the temporary time-series collection.
/// Errors: 7268700 if the target is not a time-series collection, 7406103 if it has different
/// options.
fn make_timeseries(
    cx: &AggregateContext,
    op: &StatementContext,
    temporary: &Namespace,
    target: &Namespace,
    options: &TimeseriesOptions,
) -> Result<()> {
    let db = cx.db();
    let catalog = db.catalog();
    let existing = match catalog.kind(target) {
        NamespaceKind::TimeSeries(existing, _) => existing,
        NamespaceKind::View(_) => return Err(not_on_view(target)),
        NamespaceKind::Collection(_) => {
            return Err(Error::new(
                ErrorCode(7268700),
                format!(
                    "Cannot create a time-series collection from a non time-series collection: {target}"
                ),
            ));
        }
        NamespaceKind::Missing => {
            let fields = doc! {"timeseries": &options.to_doc()};
            let options = CollectionOptions::parse(fields.as_raw())?;
            return db.create_collection(op, temporary, options).map(|_| ());
        }
    };
    if *existing.options != *options {
        return Err(Error::new(
            ErrorCode(7406103),
            format!(
                "$out has other time-series options than the existing collection {target}: {}",
                shell(existing.options.to_doc().as_raw())
            ),
        ));
    }
    let buckets = &existing.buckets;
    db.create_collection(op, temporary, buckets.options().clone())?;
    copy_indexes(cx, op, buckets, &temporary.buckets()?)
}

fn copy_indexes(
    cx: &AggregateContext,
    op: &StatementContext,
    from: &Collection,
    to: &Namespace,
) -> Result<()> {
    let others = from.index_list().iter();
    let others = others.filter(|index| !index.spec().is_id_index());
    let specs: Vec<_> = others.map(|index| index.spec().clone()).collect();
    match specs.is_empty() {
        true => Ok(()),
        false => cx.db().create_indexes(op, to, &specs).map(|_| ()),
    }
}

fn fill(
    cx: &AggregateContext,
    op: &StatementContext,
    source: &mut dyn ResultSource,
    temporary: &Namespace,
) -> Result<()> {
    let mut batch = Batch::default();
    while let Some(doc) = source.next(op)? {
        batch.bytes += doc.len();
        batch.docs.push(doc);
        if batch.is_full() {
            batch.write(cx, op, temporary)?;
        }
    }
    batch.write(cx, op, temporary)
}
