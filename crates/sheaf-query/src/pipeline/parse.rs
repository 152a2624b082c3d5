//! Parses BSON to stages.

use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::json::shell;
use sheaf_bson::{DocBuilder, RawArray, RawDoc, RawValue, doc};

use crate::expression::projection_exec::ProjectionExec;
use crate::expression::{self, location};
use crate::matcher::{self, ParseContext};
use crate::sort::{SortPattern, SortSpec};

use super::group::Group;
use super::limits::{STAGES_MAX, SUB_PIPELINE_DEPTH_MAX};
use super::place::{PipelinePlace, PipelineTarget, Place};
use super::stage::{ParsedStage, StageContext};
use super::unwind::Unwind;
use super::{Pipeline, PipelineSource, Stage, score};
use super::{sources, stages};

/// Parses the operand of one stage; some stages are shorthand for several.
type Parse = fn(RawValue<'_>, &StageContext<'_>) -> Result<ParsedStage>;

/// Every stage, by name.
pub(super) static TABLE: &[(&str, Parse)] = &[
    (stages::unpack_bucket::NAME, stages::unpack_bucket::parse),
    (stages::barrier::NAME, stages::barrier::parse),
    ("$addFields", |v, c| add_fields("$addFields", v, c)),
    ("$bucket", stages::bucket::parse),
    ("$bucketAuto", stages::bucket_auto::parse),
    ("$count", count),
    ("$densify", stages::densify::parse),
    ("$documents", stages::documents::parse),
    ("$facet", stages::facet::parse),
    ("$fill", stages::fill::parse),
    ("$graphLookup", stages::graph_lookup::parse),
    ("$group", |v, c| {
        Ok(Stage::Group(Arc::new(Group::parse(v, &c.parse.variables)?)).into())
    }),
    ("$limit", limit),
    ("$lookup", stages::lookup::parse),
    ("$match", match_stage),
    ("$merge", stages::merge::parse),
    ("$out", stages::out::parse),
    ("$project", project),
    ("$redact", stages::redact::parse),
    ("$replaceRoot", replace_root),
    ("$replaceWith", |v, c| root_of("$replaceWith", v, c)),
    ("$sample", stages::sample::parse),
    ("$set", |v, c| add_fields("$set", v, c)),
    ("$setWindowFields", stages::window::parse),
    ("$skip", skip),
    ("$sort", sort),
    ("$sortByCount", sort_by_count),
    ("$unionWith", stages::union_with::parse),
    ("$unset", unset),
    (
        "$unwind",
        |v, _| Ok(Stage::Unwind(Unwind::parse(v)?).into()),
    ),
    (stages::vector_search::NAME, stages::vector_search::parse),
];

/// The names of all stages for users, for generated documentation.
pub fn stage_names() -> impl Iterator<Item = &'static str> {
    let names = TABLE.iter().map(|(name, _)| *name);
    let names = names.filter(|name| !name.starts_with("$_internal"));
    names.chain(sources::names())
}

impl Pipeline {
    /// Parses the array of stages.
    ///
    /// Errors: TypeMismatch for an element that is not a document, 40323 for one that does not have
    /// exactly one field, 40324 for an unknown stage, 7749501 for too many stages, and those of the
    /// stages.
    pub fn parse(stages: RawArray<'_>, context: &ParseContext) -> Result<Pipeline> {
        Pipeline::parse_over(stages, context, None)
    }

    /// Parses the array of stages of a command that runs over `target`.
    ///
    /// Errors: those of [`Pipeline::parse`]; InvalidNamespace for a stage that does not run over
    /// the target.
    pub fn parse_over(
        stages: RawArray<'_>,
        context: &ParseContext,
        target: Option<PipelineTarget>,
    ) -> Result<Pipeline> {
        let context = StageContext {
            parse: context,
            depth: 0,
            place: PipelinePlace::Command,
            in_facet: false,
            target,
        };
        Pipeline::parse_in(stages, &context)
    }

    /// Parses a pipeline in the operand of the stage `within`. Errors: as [`Pipeline::parse`]; 232
    /// if pipelines are nested too deeply.
    pub fn parse_sub(
        stages: RawArray<'_>,
        within: &'static str,
        context: &StageContext<'_>,
    ) -> Result<Pipeline> {
        let depth = context.depth + 1;
        if depth > SUB_PIPELINE_DEPTH_MAX {
            return Err(Error::new(
                ErrorCode::MAX_SUB_PIPELINE_DEPTH_EXCEEDED,
                format!(
                    "Maximum number of nested sub-pipelines exceeded. Limit is {SUB_PIPELINE_DEPTH_MAX}"
                ),
            ));
        }
        let context = StageContext {
            depth,
            place: PipelinePlace::Within(within),
            in_facet: context.in_facet || within == "$facet",
            // A facet has the target of its pipeline; other stages name a collection.
            target: match within {
                "$facet" => context.target,
                _ => Some(PipelineTarget::Collection),
            },
            ..*context
        };
        Pipeline::parse_in(stages, &context)
    }

    fn parse_in(stages: RawArray<'_>, context: &StageContext<'_>) -> Result<Pipeline> {
        let mut pipeline = Pipeline::default();
        // A score exists only after `$vectorSearch`.
        let searches = matches!(stages.iter().next(), Some(RawValue::Document(stage))
            if stage.get(stages::vector_search::NAME).is_some());
        let of_search;
        let context = if searches || context.parse.variables.knows_vector_score() {
            of_search = ParseContext {
                variables: context.parse.variables.clone().with_vector_score(searches),
            };
            &StageContext {
                parse: &of_search,
                ..*context
            }
        } else {
            context
        };
        // An invalid stage is reported before a valid one in a wrong position.
        let mut misplaced = None;
        for (position, stage) in stages.iter().enumerate() {
            if position == STAGES_MAX {
                return Err(Error::new(
                    ErrorCode(7749501),
                    format!("a pipeline must not have more than {STAGES_MAX} stages"),
                ));
            }
            let RawValue::Document(stage) = stage else {
                return Err(not_a_stage(stage, context.place));
            };
            let (name, parsed) = parse_stage(stage, context)?;
            let added = pipeline.add(name, position, parsed, context);
            misplaced = misplaced.or(added.err());
        }
        if let Some(error) = misplaced {
            return Err(error);
        }
        if let PipelineSource::VectorSearch { with_score, .. } = &mut pipeline.source {
            *with_score = score::carry(&mut pipeline.stages, &context.parse.variables)?;
        }
        Ok(pipeline)
    }

    /// Appends a stage. Errors: the stage must be first, or the previous stage must be last.
    fn add(
        &mut self,
        name: &str,
        position: usize,
        parsed: ParsedStage,
        context: &StageContext<'_>,
    ) -> Result<()> {
        if let Some(sink) = &self.sink {
            return Err(location(
                40601,
                format!(
                    "{} can only be the final stage in the pipeline",
                    sink.name()
                ),
            ));
        }
        match parsed {
            ParsedStage::Stages(stages) => self.stages.extend(stages),
            ParsedStage::Source(_) if position > 0 => return Err(not_first(name, self, context)),
            ParsedStage::Source(source) => self.source = source,
            ParsedStage::Sink(sink) => self.sink = Some(sink),
        }
        Ok(())
    }
}

/// The error for a source that follows other stages. For a pipeline over a database whose first
/// stage reads a collection, the error is that of the first stage instead.
fn not_first(name: &str, pipeline: &Pipeline, context: &StageContext<'_>) -> Error {
    let over_database = context.target.is_some_and(PipelineTarget::is_database);
    match (&pipeline.source, pipeline.stages.first()) {
        (PipelineSource::Collection, Some(first)) if over_database => Error::new(
            ErrorCode::INVALID_NAMESPACE,
            format!(
                "{{aggregate: 1}} is not valid for '{}'; a collection is required.",
                first.name()
            ),
        ),
        _ => location(
            40602,
            format!("{name} is only valid as the first stage in a pipeline."),
        ),
    }
}

fn not_a_stage(found: RawValue<'_>, place: PipelinePlace) -> Error {
    match place {
        PipelinePlace::Within("$facet") => location(
            40171,
            format!(
                "elements of arrays in $facet spec must be non-empty objects, found {}",
                found.type_name()
            ),
        ),
        _ => Error::new(
            ErrorCode::TYPE_MISMATCH,
            format!(
                "each element of a pipeline must be an object, not {}",
                found.type_name()
            ),
        ),
    }
}

/// Stages that MongoDB supports and sheaf does not support yet: their error message says so.
const ABSENT: &[&str] = &[
    "$changeStream",
    "$changeStreamSplitLargeEvent",
    "$geoNear",
    "$listCatalog",
    "$listSampledQueries",
    "$search",
    "$searchMeta",
];

/// Parses one stage; also returns its name.
fn parse_stage<'s>(
    stage: RawDoc<'s>,
    context: &StageContext<'_>,
) -> Result<(&'s str, ParsedStage)> {
    let mut fields = stage.iter();
    let (Some(field), None) = (fields.next(), fields.next()) else {
        return Err(location(
            40323,
            format!(
                "a pipeline stage must be an object with exactly one field, its name: {}",
                shell(stage)
            ),
        ));
    };
    let name = field.key();
    let place = Place {
        pipeline: context.place,
        in_facet: context.in_facet,
        target: context.target,
    };
    if let Some((_, parse)) = TABLE.iter().find(|(known, _)| *known == name) {
        place.check(name)?;
        return Ok((name, parse(field.value(), context)?));
    }
    if let Some(source) = sources::find(name) {
        place.check(name)?;
        let source = PipelineSource::Generated {
            name: source.name,
            spec: source.check(field.value())?.to_buf(),
        };
        return Ok((name, ParsedStage::Source(source)));
    }
    if ABSENT.contains(&name) {
        place.check(name)?;
        return Err(location(
            40324,
            format!("the pipeline stage '{name}' is not supported by this version of sheaf"),
        ));
    }
    Err(location(
        40324,
        format!("Unrecognized pipeline stage name: '{name}'"),
    ))
}

fn match_stage(value: RawValue<'_>, context: &StageContext<'_>) -> Result<ParsedStage> {
    let RawValue::Document(spec) = value else {
        return Err(location(
            15959,
            format!(
                "the filter of $match must be an object, not {}",
                value.type_name()
            ),
        ));
    };
    let filter = Arc::new(matcher::parse(spec, context.parse)?.normalize());
    Ok(Stage::Match {
        spec: spec.to_buf(),
        filter,
    }
    .into())
}

fn sort_pattern(value: RawValue<'_>) -> Result<SortPattern> {
    let RawValue::Document(spec) = value else {
        return Err(location(
            15973,
            format!(
                "the $sort key specification must be an object, not {}",
                value.type_name()
            ),
        ));
    };
    match SortSpec::parse(spec)? {
        SortSpec::Pattern(pattern) => Ok(pattern),
        SortSpec::None => Err(location(
            15976,
            "$sort stage must have at least one sort key",
        )),
        SortSpec::Natural(_) => Err(location(
            16410,
            "$natural is an order of finds, not a field of documents; use a hint",
        )),
    }
}

fn sort(value: RawValue<'_>, context: &StageContext<'_>) -> Result<ParsedStage> {
    let by_score = match value {
        RawValue::Document(spec) if context.parse.variables.knows_vector_score() => {
            Some(score::sort_by_score(spec))
        }
        _ => None,
    };
    let value = by_score
        .as_ref()
        .map_or(value, |spec| RawValue::Document(spec.as_raw()));
    Ok(Stage::sort(sort_pattern(value)?.with_collator(context.parse.collator().cloned())).into())
}

/// A count of documents. Errors (`code`): it is not a number, has a fraction, or is negative.
fn count_of(name: &str, value: RawValue<'_>, code: i32) -> Result<u64> {
    let refuse = |what: &str| {
        Err(location(
            code,
            format!(
                "invalid argument to {name} stage: expected {what} in {name}: {}",
                shell(value)
            ),
        ))
    };
    if !value.is_number() {
        return refuse("a number");
    }
    match value.as_i64_exact() {
        None => refuse("an integer"),
        Some(n) => match u64::try_from(n) {
            Ok(n) => Ok(n),
            Err(_) => refuse("a number that is not negative"),
        },
    }
}

fn skip(value: RawValue<'_>, _: &StageContext<'_>) -> Result<ParsedStage> {
    Ok(Stage::Skip(count_of("$skip", value, 5107200)?).into())
}

fn limit(value: RawValue<'_>, _: &StageContext<'_>) -> Result<ParsedStage> {
    match count_of("$limit", value, 5107201)? {
        0 => Err(location(15958, "the limit must be positive")),
        n => Ok(Stage::Limit(n).into()),
    }
}

fn project(value: RawValue<'_>, context: &StageContext<'_>) -> Result<ParsedStage> {
    project_stage(value, context).map(ParsedStage::from)
}

/// A `$project` stage, for stages that are shorthand for one.
pub(super) fn project_stage(value: RawValue<'_>, context: &StageContext<'_>) -> Result<Stage> {
    let RawValue::Document(spec) = value else {
        return Err(location(
            15969,
            format!(
                "the specification of $project must be an object, not {}",
                value.type_name()
            ),
        ));
    };
    let projection = ProjectionExec::parse_project(spec, &context.parse.variables)
        .map_err(|e| e.with_context("Invalid $project"))?;
    Ok(Stage::Project {
        name: "$project",
        spec: value.to_value(),
        projection: Arc::new(projection),
    })
}

fn add_fields(
    name: &'static str,
    value: RawValue<'_>,
    context: &StageContext<'_>,
) -> Result<ParsedStage> {
    let RawValue::Document(spec) = value else {
        return Err(location(
            40272,
            format!(
                "the specification of {name} must be an object, not {}",
                value.type_name()
            ),
        ));
    };
    let projection = ProjectionExec::parse_add_fields(spec, &context.parse.variables)
        .map_err(|e| e.with_context(format_args!("Invalid {name}")))?;
    Ok(Stage::Project {
        name,
        spec: value.to_value(),
        projection: Arc::new(projection),
    }
    .into())
}

fn unset(value: RawValue<'_>, _: &StageContext<'_>) -> Result<ParsedStage> {
    let wrong = |code: i32| {
        location(
            code,
            "the specification of $unset must be a string or an array of strings that is not empty",
        )
    };
    let paths: Vec<&str> = match value {
        RawValue::String(path) => vec![path],
        RawValue::Array(paths) => paths
            .iter()
            .map(|p| p.as_str().ok_or_else(|| wrong(31120)))
            .collect::<Result<_>>()?,
        _ => return Err(wrong(31002)),
    };
    if paths.is_empty() {
        return Err(wrong(31119));
    }
    let projection =
        ProjectionExec::excluding(paths).map_err(|e| e.with_context("Invalid $unset"))?;
    Ok(Stage::Project {
        name: "$unset",
        spec: value.to_value(),
        projection: Arc::new(projection),
    }
    .into())
}

fn replace_root(value: RawValue<'_>, context: &StageContext<'_>) -> Result<ParsedStage> {
    let RawValue::Document(spec) = value else {
        return Err(location(
            40229,
            format!(
                "the specification of $replaceRoot must be an object, not {}",
                value.type_name()
            ),
        ));
    };
    if let Some(other) = spec.iter().find(|e| e.key() != "newRoot") {
        return Err(location(
            40230,
            format!(
                "unrecognized option to $replaceRoot: '{}'; the only option is newRoot",
                other.key()
            ),
        ));
    }
    match spec.get("newRoot") {
        Some(root) => root_of("$replaceRoot", root, context),
        None => Err(location(
            40231,
            "no newRoot specified for the $replaceRoot stage",
        )),
    }
}

fn root_of(_: &str, root: RawValue<'_>, context: &StageContext<'_>) -> Result<ParsedStage> {
    let expression = Arc::new(expression::parse(root, &context.parse.variables)?);
    let mut spec = DocBuilder::new();
    spec.append("newRoot", root);
    Ok(Stage::ReplaceRoot {
        spec: spec.finish(),
        expression,
    }
    .into())
}

/// `{$count: "n"}`: parsed to a `$group` that counts and a `$project` that removes `_id`.
fn count(value: RawValue<'_>, context: &StageContext<'_>) -> Result<ParsedStage> {
    let field = match value {
        RawValue::String("") => return Err(location(40157, "the count field must not be empty")),
        RawValue::String(field) => field,
        other => {
            return Err(location(
                40156,
                format!(
                    "the count field must be a string, not {}",
                    other.type_name()
                ),
            ));
        }
    };
    if field.starts_with('$') {
        return Err(location(
            40158,
            "the count field must not begin with a dollar sign",
        ));
    }
    if field.contains('\0') {
        return Err(location(
            40159,
            "the count field must not contain a zero byte",
        ));
    }
    if field.contains('.') {
        return Err(location(40160, "the count field must not contain a dot"));
    }
    if field == "_id" {
        return Err(location(9039800, "the count field must not be _id"));
    }
    let group = doc! {"_id": null, field: {"$sum": 1}};
    let group = Group::parse(RawValue::Document(group.as_raw()), &context.parse.variables)?;
    let without_id = doc! {"_id": false};
    Ok(ParsedStage::Stages(vec![
        Stage::Group(Arc::new(group)),
        project_stage(RawValue::Document(without_id.as_raw()), context)?,
    ]))
}

/// `{$sortByCount: e}`: parsed to a `$group` by e that counts, and a `$sort` by the count.
fn sort_by_count(value: RawValue<'_>, context: &StageContext<'_>) -> Result<ParsedStage> {
    let refused = match value {
        RawValue::String(text) if text.starts_with('$') => None,
        RawValue::Document(doc) if doc.first().is_some_and(|e| e.key().starts_with('$')) => None,
        RawValue::Document(_) => Some(40147),
        RawValue::String(_) => Some(40148),
        _ => Some(40149),
    };
    if let Some(code) = refused {
        return Err(location(
            code,
            format!(
                "$sortByCount takes a $-prefixed path or an expression, not {}",
                shell(value)
            ),
        ));
    }
    let group = doc! {"_id": value, "count": {"$sum": 1}};
    let group = Group::parse(RawValue::Document(group.as_raw()), &context.parse.variables)?;
    let order = doc! {"count": -1};
    let pattern = sort_pattern(RawValue::Document(order.as_raw()))?;
    Ok(ParsedStage::Stages(vec![
        Stage::Group(Arc::new(group)),
        Stage::sort(pattern),
    ]))
}
