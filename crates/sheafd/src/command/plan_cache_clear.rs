//! `planCacheClear`: forgets the cached plans of a collection, or those of one
//! query shape.

use sheaf_bson::{DocBuilder, Error, ErrorCode, RawDoc};
use sheaf_query::canonical::{CanonicalQuery, FindSpec};
use sheaf_query::shape;

use super::context::CommandContext;
use super::{fields, find};

/// Runs it. With a query, the plans of all queries of its shape are forgotten,
/// whatever their constants decide about indexes.
pub fn run(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "planCacheClear";
    let namespace = cx.collection()?;
    let (mut query, mut sort, mut projection) = (None, None, None);
    for element in cx.arguments() {
        match element.key() {
            "query" => query = Some(fields::document(NAME, &element)?),
            "sort" => sort = Some(fields::document(NAME, &element)?),
            "projection" => projection = Some(fields::document(NAME, &element)?),
            "collation" => find::refuse_collation(NAME, &element)?,
            _ => return Err(cx.unknown_field(&element)),
        }
    }
    let shape = match query {
        Some(filter) => Some(shape_of(filter, sort, projection)?),
        None if sort.is_some() || projection.is_some() => {
            return Err(Error::new(
                ErrorCode::BAD_VALUE,
                "planCacheClear: sort or projection without query means no query shape",
            ));
        }
        None => None,
    };
    if let Some(collection) = cx.server.db.catalog().collection(&namespace) {
        match shape {
            Some(shape) => collection.plan_cache().clear_shape(shape),
            None => collection.plan_cache().clear(),
        }
    }
    Ok(())
}

fn shape_of(
    filter: RawDoc<'_>,
    sort: Option<RawDoc<'_>>,
    projection: Option<RawDoc<'_>>,
) -> Result<u32, Error> {
    let query = CanonicalQuery::new(FindSpec {
        filter: Some(filter),
        sort,
        projection,
        ..FindSpec::default()
    })?;
    Ok(shape::shape_number(&query))
}
