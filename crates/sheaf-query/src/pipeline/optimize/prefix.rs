//! What the find layer does for a pipeline: the longest beginning of the form
//! `$match? $sort? ($skip|$limit)* $project?`, where `$project` keeps or drops fields only.

use sheaf_bson::{DocBuf, DocBuilder, RawValue, Value};

use crate::canonical::FindSpec;
use crate::expression::Expression;
use crate::expression::field_path::Base;
use crate::expression::projection_exec::Mode;
use crate::matcher::Dependencies;
use crate::pipeline::Stage;
use crate::pipeline::accumulator::AccumulatorKind;
use crate::pipeline::group::Group;

/// What the find layer does before the first stage runs.
#[derive(Debug, Clone, Default)]
pub struct CursorPrefix {
    /// Empty matches everything.
    pub filter: DocBuf,
    /// `None`: any order will do.
    pub sort: Option<DocBuf>,
    /// Documents passed over first.
    pub skip: u64,
    /// `None` is unlimited; never 0.
    pub limit: Option<u64>,
    /// A projection that keeps or drops fields; it must be applied.
    pub projection: Option<DocBuf>,
    /// Fields that the projection does not name go, even if all that it names are `$meta`.
    pub inclusion: bool,
    /// The paths that the remaining stages read; an empty set is a mere count.
    /// `None`: whole documents (or `projection` says it). A hint: whole documents serve as well.
    pub dependencies: Option<Dependencies>,
    /// The remaining stages begin with a `$group` that one document for each value can answer.
    pub distinct: Option<DistinctLike>,
    /// To the remaining stages a dependency that is missing is the same as one that is null.
    pub null_serves: bool,
}

impl CursorPrefix {
    /// What it asks of the find layer.
    pub fn find_spec(&self) -> FindSpec<'_> {
        FindSpec {
            filter: Some(self.filter.as_raw()),
            sort: self.sort.as_ref().map(DocBuf::as_raw),
            projection: self.projection.as_ref().map(DocBuf::as_raw),
            inclusion: self.inclusion,
            null_serves: self.null_serves,
            skip: self.skip,
            limit: self.limit,
            ..FindSpec::default()
        }
    }
}

/// A `$group` by one field that needs one document of each group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DistinctLike {
    /// The dotted path. A scan may serve when no array lies on it.
    pub path: String,
    /// Which document of each group.
    pub take: DistinctTake,
}

/// Which document of a group is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DistinctTake {
    /// Any: there are no accumulators.
    Any,
    /// The first in the prefix's sort: all accumulators are `$first`.
    First,
    /// The last: all are `$last`.
    Last,
    /// That of the least value of this path, null left out: all are `$min` of it.
    Least(String),
    /// That of the greatest one: all are `$max` of it.
    Greatest(String),
}

impl CursorPrefix {
    /// The dependencies as a projection: `{a: 1, "b.c": 1, _id: 0}`. `None`
    /// without dependencies; an empty set gives `{_id: 0}`, and the caller may count instead.
    pub fn dependency_projection(&self) -> Option<DocBuf> {
        let dependencies = self.dependencies.as_ref()?;
        let mut out = DocBuilder::new();
        // Of an `_id` that is read in part all is asked for: a projection cannot drop it and keep a part.
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

/// Fills the prefix from the first stages; gives how many it took.
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
                // Of the limit's documents the first n go. None left is no limit at all: leave it.
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

/// `$unset`'s operand as an exclusion.
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
    // A number names an element to an index, and a field to an expression.
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

/// Whether the stages take null and a missing field for the same: groups gather both under null, and
/// these accumulators pass over both or give null for both.
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

/// The one path a group gathers by, if it is one.
fn single_path(group: &Group) -> Option<String> {
    root_path(&group.id)
}

/// The one path of which all accumulators take the values.
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
