//! `planCacheSetFilter`, `planCacheListFilters`, `planCacheClearFilters`: index filters, which
//! limit the indexes that queries of a shape may use.

use sheaf_bson::{CollationChoice, DocBuf, DocBuilder, Error, RawElement, RawValue};
use sheaf_db::ReadView;
use sheaf_db::planning::index_filters::{FilteredIndex, IndexFilter};
use sheaf_query::canonical::{CanonicalQuery, FindSpec};

use super::context::CommandContext;
use super::plan_cache_clear::lenient_collation;

/// The fields that identify a query shape.
#[derive(Default)]
struct ShapeFields {
    query: Option<DocBuf>,
    sort: DocBuf,
    projection: DocBuf,
    collation: DocBuf,
    choice: CollationChoice,
}

impl ShapeFields {
    /// Parses one of the fields; returns false for another field. Errors: `BadValue` for a value
    /// that is not a document; those of the collation.
    fn take(&mut self, element: &RawElement<'_>) -> Result<bool, Error> {
        let document = || {
            let document = element.value().as_document();
            document.map(|doc| doc.to_buf()).ok_or_else(|| {
                let field = element.key();
                Error::bad_value(format!("the field {field} must be an object"))
            })
        };
        match element.key() {
            "query" => self.query = Some(document()?),
            "sort" => self.sort = document()?,
            "projection" => self.projection = document()?,
            "collation" => {
                self.collation = document()?;
                self.choice = CollationChoice::parse(self.collation.as_raw())?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Like [`ShapeFields::take`]; a value that is not a document counts as absent.
    fn take_lenient(&mut self, element: &RawElement<'_>) -> bool {
        let document = element.value().as_document().map(|doc| doc.to_buf());
        match element.key() {
            "query" => self.query = document,
            "sort" => self.sort = document.unwrap_or_default(),
            "projection" => self.projection = document.unwrap_or_default(),
            "collation" => {
                self.choice = lenient_collation(element.value());
                self.collation = document.unwrap_or_default();
            }
            _ => return false,
        }
        true
    }

    /// The canonical query of the shape; `None` without a `query`.
    /// Errors: those of the query.
    fn canonical(&self, view: &ReadView) -> Result<Option<CanonicalQuery>, Error> {
        let Some(query) = &self.query else {
            return Ok(None);
        };
        let spec = FindSpec {
            filter: Some(query.as_raw()),
            sort: Some(self.sort.as_raw()),
            projection: Some(self.projection.as_raw()),
            collation: self.choice.clone(),
            ..FindSpec::default()
        };
        sheaf_db::find::canonicalize(view, spec).map(Some)
    }
}

/// `planCacheSetFilter`.
pub fn set(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    let namespace = cx.collection()?;
    let mut shape = ShapeFields::default();
    let mut indexes = None;
    for element in cx.arguments() {
        match element.key() {
            "indexes" => indexes = Some(indexes_of(&element)?),
            _ if shape.take(&element)? => {}
            _ => cx.unknown_field(&element)?,
        }
    }
    let Some(indexes) = indexes else {
        return Err(Error::bad_value("required field indexes missing"));
    };
    let view = cx.view(&namespace)?;
    let Some(query) = shape.canonical(&view)? else {
        return Err(Error::bad_value("required field query missing"));
    };
    let Some(collection) = &view.collection else {
        return Err(Error::bad_value(format!("ns not found: {namespace}")));
    };
    let filter = IndexFilter {
        query: shape.query.unwrap_or_default(),
        sort: shape.sort,
        projection: shape.projection,
        collation: shape.collation,
        indexes,
    };
    collection.index_filters().set(&query, filter);
    forget_plans(collection, Some(&query));
    Ok(())
}

fn indexes_of(element: &RawElement<'_>) -> Result<Vec<FilteredIndex>, Error> {
    let RawValue::Array(array) = element.value() else {
        return Err(Error::bad_value("required field indexes must be an array"));
    };
    let mut indexes = Vec::new();
    for value in array.iter() {
        indexes.push(match value {
            RawValue::String(name) => FilteredIndex::Name(name.to_owned()),
            RawValue::Document(key) if !key.is_empty() => FilteredIndex::KeyPattern(key.to_buf()),
            RawValue::Document(_) => {
                return Err(Error::bad_value("index specification cannot be empty"));
            }
            _ => {
                return Err(Error::bad_value(
                    "each item in the field indexes must be an object or a string",
                ));
            }
        });
    }
    if indexes.is_empty() {
        return Err(Error::bad_value(
            "required field indexes must contain at least one index",
        ));
    }
    Ok(indexes)
}

/// `planCacheListFilters`.
pub fn list(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    let namespace = cx.collection()?;
    if let Some(element) = cx.arguments().next() {
        cx.unknown_field(&element)?;
    }
    let collection = cx.server.db.catalog().collection(&namespace).cloned();
    out.begin_array("filters");
    for filter in collection.iter().flat_map(|c| c.index_filters().all()) {
        out.push_begin_document();
        out.append_bson("query", &filter.query);
        out.append_bson("sort", &filter.sort);
        out.append_bson("projection", &filter.projection);
        if !filter.collation.is_empty() {
            out.append_bson("collation", &filter.collation);
        }
        out.begin_array("indexes");
        for index in &filter.indexes {
            match index {
                FilteredIndex::Name(name) => out.push(name.as_str()),
                FilteredIndex::KeyPattern(key) => out.push(RawValue::Document(key.as_raw())),
            };
        }
        out.end();
        out.end();
    }
    out.end();
    Ok(())
}

/// `planCacheClearFilters`: clears the filter of one shape, or all filters.
pub fn clear(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    let namespace = cx.collection()?;
    let mut shape = ShapeFields::default();
    for element in cx.arguments() {
        if !shape.take_lenient(&element) {
            cx.unknown_field(&element)?;
        }
    }
    let view = cx.view(&namespace)?;
    let query = shape.canonical(&view)?;
    if let Some(collection) = &view.collection {
        collection.index_filters().clear(query.as_ref());
        forget_plans(collection, query.as_ref());
    }
    Ok(())
}

/// Clears the cached plans that were selected before the filters changed.
fn forget_plans(collection: &sheaf_db::Collection, query: Option<&CanonicalQuery>) {
    match query {
        Some(query) => {
            let shape = sheaf_query::shape::shape_number(query);
            collection.plan_cache().clear_shape(shape);
        }
        None => collection.plan_cache().clear(),
    }
}
