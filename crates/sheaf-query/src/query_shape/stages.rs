//! The shape of a pipeline. A table describes the operand of each stage.

use sheaf_bson::{DocBuilder, RawArray, RawDoc, RawValue};

use super::{expression, filter, literal};

/// The content of an operand, or of a field of one. A string in place of a structure is a name, and
/// part of the shape.
#[derive(Clone, Copy)]
pub(super) enum Operand {
    /// Part of the shape: a keyword.
    Kept,
    /// Part of the shape: the name of a field, a collection or a database.
    Name,
    Literal,
    Filter,
    Sort,
    Expression,
    /// A document of expressions, one for each field.
    Expressions,
    Projection,
    Pipeline,
    /// A pipeline for each field.
    Pipelines,
    /// Fields by name; fields that are not listed are constants.
    Fields(&'static [(&'static str, Operand)]),
    /// A document for each field.
    Each(&'static [(&'static str, Operand)]),
}

use Operand::{
    Each, Expression, Expressions, Fields, Filter, Kept, Literal, Name, Pipeline, Pipelines,
    Projection, Sort,
};

/// Every stage whose operand contains more than constants. An alias has the name of the stage that
/// it stands for.
static TABLE: &[(&str, &str, Operand)] = &[
    ("$addFields", "$addFields", Expressions),
    ("$bucket", "$bucket", Fields(BUCKET)),
    ("$bucketAuto", "$bucketAuto", Fields(BUCKET)),
    ("$count", "$count", Name),
    ("$densify", "$densify", Fields(DENSIFY)),
    ("$facet", "$facet", Pipelines),
    ("$fill", "$fill", Fields(FILL)),
    ("$geoNear", "$geoNear", Fields(GEO_NEAR)),
    ("$graphLookup", "$graphLookup", Fields(GRAPH_LOOKUP)),
    ("$group", "$group", Expressions),
    ("$lookup", "$lookup", Fields(LOOKUP)),
    ("$match", "$match", Filter),
    ("$merge", "$merge", Fields(MERGE)),
    ("$out", "$out", Name),
    ("$project", "$project", Projection),
    ("$redact", "$redact", Expression),
    (
        "$replaceRoot",
        "$replaceRoot",
        Fields(&[("newRoot", Expression)]),
    ),
    ("$replaceWith", "$replaceWith", Expression),
    ("$set", "$addFields", Expressions),
    ("$setWindowFields", "$setWindowFields", Fields(WINDOW)),
    ("$sort", "$sort", Sort),
    ("$sortByCount", "$sortByCount", Expression),
    ("$unionWith", "$unionWith", Fields(UNION_WITH)),
    ("$unset", "$unset", Name),
    ("$unwind", "$unwind", Fields(UNWIND)),
    ("$vectorSearch", "$vectorSearch", Fields(VECTOR_SEARCH)),
];

const BUCKET: &[(&str, Operand)] = &[
    ("groupBy", Expression),
    ("output", Expressions),
    ("granularity", Kept),
];
const DENSIFY: &[(&str, Operand)] = &[
    ("field", Name),
    ("partitionByFields", Name),
    ("range", Fields(&[("unit", Kept)])),
];
const FILL: &[(&str, Operand)] = &[
    ("sortBy", Sort),
    ("partitionBy", Expression),
    ("partitionByFields", Name),
    ("output", Each(&[("method", Kept), ("value", Expression)])),
];
const GEO_NEAR: &[(&str, Operand)] = &[
    ("query", Filter),
    ("key", Name),
    ("distanceField", Name),
    ("includeLocs", Name),
];
const GRAPH_LOOKUP: &[(&str, Operand)] = &[
    ("from", Name),
    ("startWith", Expression),
    ("connectFromField", Name),
    ("connectToField", Name),
    ("as", Name),
    ("depthField", Name),
    ("restrictSearchWithMatch", Filter),
];
const LOOKUP: &[(&str, Operand)] = &[
    ("from", Name),
    ("localField", Name),
    ("foreignField", Name),
    ("as", Name),
    ("let", Expressions),
    ("pipeline", Pipeline),
];
const MERGE: &[(&str, Operand)] = &[
    ("into", Name),
    ("on", Name),
    ("let", Expressions),
    ("whenMatched", Pipeline),
    ("whenNotMatched", Kept),
];
const UNION_WITH: &[(&str, Operand)] = &[("coll", Name), ("db", Name), ("pipeline", Pipeline)];
const UNWIND: &[(&str, Operand)] = &[("path", Name), ("includeArrayIndex", Name)];
const VECTOR_SEARCH: &[(&str, Operand)] = &[("index", Kept), ("path", Name), ("filter", Filter)];
const WINDOW: &[(&str, Operand)] = &[
    ("partitionBy", Expression),
    ("sortBy", Sort),
    ("output", Expressions),
];

/// What the operand of a stage holds, by the name that shapes have.
pub(super) fn operand_of(stage: &str) -> Operand {
    let row = TABLE.iter().find(|row| row.1 == stage);
    row.map_or(Fields(&[]), |row| row.2)
}

/// Appends a pipeline.
pub(super) fn append_pipeline(key: &str, stages: RawArray<'_>, out: &mut DocBuilder) {
    out.begin_array(key);
    for stage in stages.iter().filter_map(|stage| stage.as_document()) {
        out.push_begin_document();
        for element in stage.iter() {
            let row = TABLE.iter().find(|row| row.0 == element.key());
            let (name, operand) = row.map_or((element.key(), Fields(&[])), |row| (row.1, row.2));
            append_operand(name, operand, element.value(), out);
        }
        out.end();
    }
    out.end();
}

/// Appends a sort. A number is replaced by its sign.
pub(super) fn append_sort(key: &str, sort: RawDoc<'_>, out: &mut DocBuilder) {
    out.begin_document(key);
    for element in sort.iter() {
        match element.value().as_f64() {
            Some(direction) => out.append(element.key(), if direction < 0.0 { -1 } else { 1 }),
            None => out.append(element.key(), element.value()),
        };
    }
    out.end();
}

fn append_operand(key: &str, operand: Operand, value: RawValue<'_>, out: &mut DocBuilder) {
    match (operand, value) {
        (Kept | Name, value) => {
            out.append(key, value);
        }
        (Expression, value) => expression::append(key, value, out),
        (Filter, RawValue::Document(doc)) => {
            out.begin_document(key);
            filter::append(doc, out);
            out.end();
        }
        (Sort, RawValue::Document(doc)) => append_sort(key, doc, out),
        (Projection, RawValue::Document(doc)) => expression::append_projection(key, doc, out),
        (Pipeline, RawValue::Array(stages)) => append_pipeline(key, stages, out),
        (Expressions | Pipelines | Fields(_) | Each(_), RawValue::Document(doc)) => {
            out.begin_document(key);
            for element in doc.iter() {
                let inner = match operand {
                    Expressions => Expression,
                    Pipelines => Pipeline,
                    Each(rows) => Fields(rows),
                    Fields(rows) => {
                        let row = rows.iter().find(|row| row.0 == element.key());
                        row.map_or(Literal, |row| row.1)
                    }
                    other => other,
                };
                append_operand(element.key(), inner, element.value(), out);
            }
            out.end();
        }
        (Literal, value) => literal::append(key, value, out),
        (_, RawValue::String(name)) => {
            out.append(key, name);
        }
        (_, value) => literal::append(key, value, out),
    }
}
