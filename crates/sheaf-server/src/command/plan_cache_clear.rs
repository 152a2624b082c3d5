//! `planCacheClear`: removes the cached plans of a collection, or those of one query shape.

use sheaf_bson::{CollationChoice, DocBuilder, Error, ErrorCode};
use sheaf_query::canonical::FindSpec;
use sheaf_query::shape;

use super::context::CommandContext;
use super::fields;

/// Runs the command. With a query, removes the plans of all queries of its shape, even if their
/// constants make different indexes eligible.
pub fn run(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "planCacheClear";
    let namespace = cx.collection()?;
    let (mut query, mut sort, mut projection) = (None, None, None);
    let mut collation = CollationChoice::Unsaid;
    for element in cx.arguments() {
        match element.key() {
            "query" => query = Some(fields::document(NAME, &element)?),
            "sort" => sort = Some(fields::document(NAME, &element)?),
            "projection" => projection = Some(fields::document(NAME, &element)?),
            "collation" => collation = fields::collation(NAME, &element)?,
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
        None if sort.is_some() || projection.is_some() => {
            return Err(Error::new(
                ErrorCode::BAD_VALUE,
                "planCacheClear: sort or projection without query means no query shape",
            ));
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
