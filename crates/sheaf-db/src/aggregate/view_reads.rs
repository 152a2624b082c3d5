//! Converts a find, count or distinct on a view to stages that follow the view's own.
//!
//! ```text
//!   find {filter, sort, skip, limit, projection}  ─> $match $sort $skip $limit $project
//!   count {query, skip, limit}                    ─> $match $skip $limit $count
//!   distinct {key, query}                         ─> $match, values extracted from the results
//! ```

use sheaf_bson::{
    ArrayBuf, ArrayBuilder, DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawValue, doc,
};
use sheaf_query::canonical::FindSpec;

struct Stages(ArrayBuilder);

impl Stages {
    fn new() -> Stages {
        Stages(ArrayBuilder::new())
    }

    fn add<'v>(&mut self, name: &str, operand: impl Into<RawValue<'v>>) {
        let mut stage = DocBuilder::new();
        stage.append(name, operand.into());
        self.0.push_document_bytes(stage.finish().as_bytes());
    }

    fn page(&mut self, spec: &FindSpec<'_>) {
        if spec.skip > 0 {
            self.add("$skip", spec.skip as i64);
        }
        if let Some(limit) = spec.limit {
            self.add("$limit", limit as i64);
        }
    }
}

/// The stages of a find.
/// Errors: `InvalidPipelineOperator` for options that need a collection's own records and indexes.
pub fn find_stages(spec: &FindSpec<'_>) -> Result<ArrayBuf, Error> {
    let natural = spec.sort.is_some_and(|sort| sort.get("$natural").is_some());
    for (option, asked) in [
        ("min", spec.min.is_some()),
        ("max", spec.max.is_some()),
        ("returnKey", spec.return_key),
        ("showRecordId", spec.show_record_id),
        ("a $natural sort", natural),
    ] {
        if asked {
            return Err(Error::new(
                ErrorCode::INVALID_PIPELINE_OPERATOR,
                format!("Option {option} not supported on aggregation, which a find on a view is."),
            ));
        }
    }
    let mut stages = Stages::new();
    if let Some(filter) = spec.filter.filter(|filter| !filter.is_empty()) {
        stages.add("$match", filter);
    }
    if let Some(sort) = spec.sort.filter(|sort| !sort.is_empty()) {
        stages.add("$sort", sort);
    }
    stages.page(spec);
    if let Some(projection) = spec.projection.filter(|p| !p.is_empty()) {
        stages.add("$project", projection);
    }
    Ok(stages.0.finish())
}

/// The stages of a count, which return `{count: n}`, or no document for zero.
pub fn count_stages(spec: &FindSpec<'_>) -> ArrayBuf {
    let mut stages = Stages::new();
    if let Some(filter) = spec.filter.filter(|filter| !filter.is_empty()) {
        stages.add("$match", filter);
    }
    stages.page(spec);
    stages.add("$count", "count");
    stages.0.finish()
}

/// The number in the document that [`count_stages`] return.
pub fn counted(doc: RawDoc<'_>) -> u64 {
    let count = doc.get("count").and_then(|n| n.as_i64_exact());
    count.map_or(0, i64::unsigned_abs)
}

/// The stages of a distinct: matching documents, reduced to the path.
pub fn distinct_stages(key: &str, spec: &FindSpec<'_>) -> ArrayBuf {
    let mut stages = Stages::new();
    if let Some(filter) = spec.filter.filter(|filter| !filter.is_empty()) {
        stages.add("$match", filter);
    }
    let top = key.split('.').next().unwrap_or(key);
    // A projection cannot name such a field.
    if top.is_empty() || top.starts_with('$') {
        return stages.0.finish();
    }
    let mut projection: DocBuf = doc! {top: 1};
    if top != "_id" {
        projection = doc! {"_id": 0, top: 1};
    }
    stages.add("$project", projection.as_raw());
    stages.0.finish()
}
