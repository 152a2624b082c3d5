//! The part of a pipeline that the find layer executes: the longest prefix of the form `$match?
//! $sort? ($skip|$limit)* $project?`, where `$project` only includes or excludes fields.

use sheaf_bson::{DocBuf, DocBuilder, RawValue, Value};

use crate::canonical::FindSpec;
use crate::expression::Expression;
use crate::expression::field_path::Base;
use crate::expression::projection_exec::Mode;
use crate::matcher::Dependencies;
use crate::pipeline::Stage;
use crate::pipeline::accumulator::AccumulatorKind;
use crate::pipeline::group::Group;

/// The part of a pipeline that the find layer executes before the first stage.
#[derive(Debug, Clone, Default)]
pub struct CursorPrefix {
    /// An empty filter matches everything.
    pub filter: DocBuf,
    /// `None` means no order.
    pub sort: Option<DocBuf>,
    /// Number of documents to skip.
    pub skip: u64,
    /// Maximum number of documents; `None` means no limit; never 0.
    pub limit: Option<u64>,
    /// A projection that includes or excludes fields; the find layer must apply it.
    pub projection: Option<DocBuf>,
    /// Whether the projection drops all fields that it does not name, even if it only names `$meta`
    /// fields.
    pub inclusion: bool,
    /// The paths that the remaining stages read; an empty set means that only the count matters.
    /// `None` means whole documents (or the fields of `projection`). This is a hint: whole
    /// documents are always sufficient.
    pub dependencies: Option<Dependencies>,
    /// Set if the remaining stages begin with a `$group` that needs only one document for each
    /// value.
    pub distinct: Option<DistinctLike>,
    /// Whether the remaining stages treat a missing dependency like null.
    pub null_serves: bool,
    /// The part of the query shape that the remaining stages add.
    pub follows: String,
}

impl CursorPrefix {
    /// The find for the find layer.
    pub fn find_spec(&self) -> FindSpec<'_> {
        FindSpec {
            filter: Some(self.filter.as_raw()),
            sort: self.sort.as_ref().map(DocBuf::as_raw),
            projection: self.projection.as_ref().map(DocBuf::as_raw),
            inclusion: self.inclusion,
            null_serves: self.null_serves,
            follows: &self.follows,
            skip: self.skip,
            limit: self.limit,
            ..FindSpec::default()
        }
    }
}

/// A `$group` by one field that needs one document of each group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DistinctLike {
    /// The dotted path. An index scan may serve it if there is no array on the path.
    pub path: String,
    /// The document to take from each group.
    pub take: DistinctTake,
}

/// The document to take from a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DistinctTake {
    /// Any: there are no accumulators.
    Any,
    /// The first in the prefix's sort: all accumulators are `$first`.
    First,
    /// The last in the prefix's sort: all accumulators are `$last`.
    Last,
    /// The document with the least value of this path, ignoring null: all accumulators are `$min`
    /// of it.
    Least(String),
    /// The document with the greatest value of this path: all accumulators are `$max` of it.
    Greatest(String),
}

impl CursorPrefix {
    /// The dependencies as a projection: `{a: 1, "b.c": 1, _id: 0}`. `None` without dependencies;
    /// an empty set results in `{_id: 0}`, and the caller may count instead.
    pub fn dependency_projection(&self) -> Option<DocBuf> {
        let dependencies = self.dependencies.as_ref()?;
        let mut out = DocBuilder::new();
        // If a part of `_id` is read, include all of it: a projection cannot exclude `_id` and
        // include a part.
        let is_of_id = |path: &&String| path.split('.').next() == Some("_id");
        for path in dependencies.paths.iter().filter(|path| !is_of_id(path)) {
            out.append(path, 1);
        }
        let reads_id = dependencies.paths.iter().any(|path| is_of_id(&path));
        out.append("_id", i32::from(reads_id));
        Some(out.finish())
    }

    /// Whether the remaining stages read no field at all.
    pub fn counts_only(&self) -> bool {
        self.projection.is_none()
            && self
                .dependencies
                .as_ref()
                .is_some_and(|d| !d.whole_document && d.paths.is_empty())
    }
}

/// Fills the prefix from the first stages; returns how many it consumed.
pub(super) fn take_prefix(stages: &[Stage], prefix: &mut CursorPrefix) -> usize {
    let mut taken = 0;
    if let Some(Stage::Match { spec, .. }) = stages.first() {
        prefix.filter = spec.clone();
        taken += 1;
    }
    if let Some(Stage::Sort { pattern, .. }) = stages.get(taken) {
        prefix.sort = Some(pattern.serialize());
        taken += 1;
    }
    loop {
        match stages.get(taken) {
            Some(Stage::Skip(n)) => match prefix.limit {
                None => prefix.skip = prefix.skip.saturating_add(*n),
                // Skips the first n documents of the limit. If none remain, leave the stage: a
                // limit of 0 would mean no limit.
                Some(limit) if limit > *n => {
                    prefix.skip = prefix.skip.saturating_add(*n);
                    prefix.limit = Some(limit - n);
                }
                Some(_) => break,
            },
            Some(Stage::Limit(n)) => {
                prefix.limit = Some(prefix.limit.map_or(*n, |limit| limit.min(*n)));
            }
            _ => break,
        }
        taken += 1;
    }
    if let Some(Stage::Project {
        projection,
        spec,
        name,
    }) = stages.get(taken)
        && (projection.asks_for_metadata()
            || projection.is_plain() && projection.mode() != Mode::AddFields)
    {
        prefix.projection = match spec {
            Value::Document(spec) if *name != "$unset" => Some(spec.clone()),
            other => excluded(other.as_raw()),
        };
        prefix.inclusion = projection.mode() == Mode::Inclusion;
        taken += usize::from(prefix.projection.is_some());
    }
    taken
}

/// The operand of `$unset` as an exclusion.
fn excluded(spec: RawValue<'_>) -> Option<DocBuf> {
    let mut out = DocBuilder::new();
    match spec {
        RawValue::String(path) => {
            out.append(path, 0);
        }
        RawValue::Array(paths) => {
            for path in paths {
                out.append(path.as_str()?, 0);
            }
        }
        _ => return None,
    }
    Some(out.finish())
}

pub(super) fn distinct_like(stages: &[Stage], prefix: &CursorPrefix) -> Option<DistinctLike> {
    let Some(Stage::Group(group)) = stages.first() else {
        return None;
    };
    let whole = prefix.skip == 0 && prefix.limit.is_none() && prefix.projection.is_none();
    // A numeric name is an array position for an index, but a field name for an expression.
    let by_name = |path: &String| !path.split('.').any(|name| name.parse::<u32>().is_ok());
    let path = single_path(group).filter(|path| whole && by_name(path))?;
    let all = |kind| {
        group
            .fields
            .iter()
            .all(|field| field.accumulator.kind == kind)
    };
    let sorted_by_it = || {
        let first = prefix.sort.as_ref().and_then(|sort| sort.as_raw().first());
        first.is_some_and(|field| field.key() == path)
    };
    let take = if group.fields.is_empty() {
        DistinctTake::Any
    } else if all(AccumulatorKind::First) && sorted_by_it() {
        DistinctTake::First
    } else if all(AccumulatorKind::Last) && sorted_by_it() {
        DistinctTake::Last
    } else if all(AccumulatorKind::Min) && prefix.sort.is_none() {
        DistinctTake::Least(only_argument(group)?)
    } else if all(AccumulatorKind::Max) && prefix.sort.is_none() {
        DistinctTake::Greatest(only_argument(group)?)
    } else {
        return None;
    };
    Some(DistinctLike { path, take })
}

/// Whether the stages treat a missing field like null: the group key is null for both, and these
/// accumulators either ignore both or return null for both.
pub(super) fn null_serves(stages: &[Stage]) -> bool {
    use AccumulatorKind::{Avg, First, Last, Max, Min, StdDevPop, StdDevSamp, Sum};
    let Some(Stage::Group(group)) = stages.first() else {
        return false;
    };
    let serves = |expression: &Expression| {
        matches!(expression, Expression::Constant(_)) || root_path(expression).is_some()
    };
    serves(&group.id)
        && group.fields.iter().all(|field| {
            matches!(
                field.accumulator.kind,
                Avg | First | Last | Max | Min | StdDevPop | StdDevSamp | Sum
            ) && serves(&field.accumulator.argument)
        })
}

/// The part of the query shape that the remaining stages add because it affects planning: the
/// fields that they read, unless they read whole documents, and whether the first of them is a
/// group or a join.
pub(super) fn follows(stages: &[Stage], dependencies: Option<&Dependencies>) -> String {
    let mut out = String::new();
    // The pipelines of a `$facet` read buffered documents.
    if matches!(stages.first(), Some(Stage::Other(stage)) if stage.name() == "$facet") {
        return out;
    }
    if let Some(found) = dependencies.filter(|found| !found.whole_document) {
        out.push_str("~f");
        found.paths.iter().for_each(|path| {
            out.push_str(&path.len().to_string());
            out.push(':');
            out.push_str(path);
        });
    }
    match stages.first() {
        Some(Stage::Group(_)) => out.push_str("~g"),
        Some(Stage::Other(stage)) if stage.name() == "$lookup" => out.push_str("~l"),
        _ => {}
    }
    out
}

/// The group key, if it is a single path.
fn single_path(group: &Group) -> Option<String> {
    root_path(&group.id)
}

/// The path that is the argument of all accumulators, if it is the same for all.
fn only_argument(group: &Group) -> Option<String> {
    let mut paths = group
        .fields
        .iter()
        .map(|f| root_path(&f.accumulator.argument));
    let first = paths.next()??;
    paths
        .all(|path| path.as_ref() == Some(&first))
        .then_some(first)
}

fn root_path(expression: &Expression) -> Option<String> {
    match expression {
        Expression::FieldPath(path) if path.base == Base::Root && !path.components.is_empty() => {
            path.root_path()
        }
        _ => None,
    }
}
