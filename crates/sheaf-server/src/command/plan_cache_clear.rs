//! `planCacheClear`: removes the cached plans of a collection, or those of one query shape.

use sheaf_bson::{CollationChoice, DocBuilder, Error, RawValue};
use sheaf_query::canonical::FindSpec;
use sheaf_query::shape;

use super::context::CommandContext;

/// Runs the command. As in MongoDB, a field that is not a document counts as absent, and without a
/// query the others have no effect. With a query, removes the plans of all queries of its shape,
/// even if their constants make different indexes eligible.
pub fn run(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    let namespace = cx.collection()?;
    let (mut query, mut sort, mut projection) = (None, None, None);
    let mut collation = CollationChoice::Unsaid;
    for element in cx.arguments() {
        match element.key() {
            "query" => query = element.value().as_document(),
            "sort" => sort = element.value().as_document(),
            "projection" => projection = element.value().as_document(),
            "collation" => collation = lenient_collation(element.value()),
            _ => cx.unknown_field(&element)?,
        }
    }
    let view = cx.view(&namespace)?;
    let shape = match query {
        Some(filter) => {
            let query = sheaf_db::find::canonicalize(
                &view,
                FindSpec {
                    filter: Some(filter),
                    sort,
                    projection,
                    collation,
                    ..FindSpec::default()
                },
            )?;
            Some(shape::shape_number(&query))
        }
        None => None,
    };
    if let Some(collection) = &view.collection {
        match shape {
            Some(shape) => collection.plan_cache().clear_shape(shape),
            None => collection.plan_cache().clear(),
        }
    }
    Ok(())
}

/// The collation; `Unsaid` if it is invalid, as in MongoDB.
pub fn lenient_collation(value: RawValue<'_>) -> CollationChoice {
    let collation = value.as_document().map(CollationChoice::parse);
    collation
        .and_then(Result::ok)
        .unwrap_or(CollationChoice::Unsaid)
}
