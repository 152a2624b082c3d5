//! `createSearchIndexes`, `updateSearchIndex`, `dropSearchIndex`, and the stage
//! `$listSearchIndexes`.
//!
//! All search indexes are vector indexes; the type for full-text search is rejected by name. An
//! index is ready when the command that creates it returns.

use std::sync::Arc;

use sheaf_bson::{DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawElement, RawValue};
use sheaf_db::ReadView;
use sheaf_db::ddl::search_indexes::{NewSearchIndex, SearchIndexSelector, list_search_indexes};
use sheaf_query::vector::VectorIndexDefinition;

use super::context::CommandContext;
use super::fields::{self, unknown_field};

/// Runs `createSearchIndexes`.
pub fn create(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "createSearchIndexes";
    let namespace = cx.collection()?;
    let mut wanted = None;
    for element in cx.arguments() {
        match element.key() {
            "indexes" => {
                let mut indexes = Vec::new();
                for index in fields::array(NAME, &element)?.iter() {
                    let RawValue::Document(index) = index else {
                        return Err(fields::wrong_type(NAME, &element, "array of objects"));
                    };
                    indexes.push(parse_index(index)?);
                }
                wanted = Some(indexes);
            }
            _ => cx.unknown_field(&element)?,
        }
    }
    let wanted = fields::required(NAME, "indexes", wanted)?;
    if wanted.is_empty() {
        return Err(Error::bad_value(
            "Must specify at least one index to create",
        ));
    }
    let db = cx.server.db.clone();
    let ids = db.create_search_indexes(&cx.op, &namespace, &wanted)?;
    out.begin_array("indexesCreated");
    for (id, index) in ids.iter().zip(&wanted) {
        out.push_begin_document();
        out.append("id", id.as_str());
        out.append("name", index.name.as_str());
        out.end();
    }
    out.end();
    Ok(())
}

fn parse_index(index: RawDoc<'_>) -> Result<NewSearchIndex, Error> {
    const NAME: &str = "createSearchIndexes.indexes";
    let (mut name, mut kind, mut definition) = ("default", "search", None);
    for element in index {
        match element.key() {
            "name" => name = index_name(NAME, &element)?,
            "type" => kind = fields::string(NAME, &element)?,
            "definition" => definition = Some(fields::document(NAME, &element)?),
            other => return Err(unknown_field(NAME, other)),
        }
    }
    match kind {
        "vectorSearch" => {}
        "search" => {
            return Err(Error::new(
                ErrorCode::NOT_IMPLEMENTED,
                format!(
                    "search index '{name}': full-text search indexes (type 'search', the default) \
                     are not supported; set type: 'vectorSearch'"
                ),
            ));
        }
        other => {
            return Err(Error::bad_value(format!(
                "'{NAME}.type' must be 'vectorSearch', not '{other}'"
            )));
        }
    }
    let definition = fields::required(NAME, "definition", definition)?;
    Ok(NewSearchIndex {
        name: name.to_owned(),
        definition: Arc::new(VectorIndexDefinition::parse(definition)?),
    })
}

fn index_name<'a>(command: &str, element: &RawElement<'a>) -> Result<&'a str, Error> {
    match fields::string(command, element)? {
        "" => Err(Error::bad_value(format!(
            "'{command}.name' must not be empty"
        ))),
        name => Ok(name),
    }
}

/// Selects the index of a command, by either `id` or `name`.
#[derive(Default)]
struct Selector<'a> {
    id: Option<&'a str>,
    name: Option<&'a str>,
}

impl<'a> Selector<'a> {
    /// Parses `id` or `name`; returns false for another field.
    fn take(&mut self, command: &str, element: &RawElement<'a>) -> Result<bool, Error> {
        match element.key() {
            "id" => self.id = Some(fields::string(command, element)?),
            "name" => self.name = Some(fields::string(command, element)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn chosen(&self, command: &str) -> Result<Option<SearchIndexSelector<'a>>, Error> {
        match (self.id, self.name) {
            (None, None) => Ok(None),
            (Some(id), None) => Ok(Some(SearchIndexSelector::Id(id))),
            (None, Some(name)) => Ok(Some(SearchIndexSelector::Name(name))),
            (Some(_), Some(_)) => Err(Error::bad_value(format!(
                "{command} takes 'id' or 'name', not both"
            ))),
        }
    }

    fn required(&self, command: &str) -> Result<SearchIndexSelector<'a>, Error> {
        self.chosen(command)?
            .ok_or_else(|| Error::bad_value(format!("{command} needs 'id' or 'name'")))
    }
}

/// Runs `updateSearchIndex`.
pub fn update(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "updateSearchIndex";
    let namespace = cx.collection()?;
    let mut selector = Selector::default();
    let mut definition = None;
    for element in cx.arguments() {
        if selector.take(NAME, &element)? {
            continue;
        }
        match element.key() {
            "definition" => definition = Some(fields::document(NAME, &element)?),
            _ => cx.unknown_field(&element)?,
        }
    }
    let definition = fields::required(NAME, "definition", definition)?;
    let definition = Arc::new(VectorIndexDefinition::parse(definition)?);
    let which = selector.required(NAME)?;
    let db = cx.server.db.clone();
    db.update_search_index(&cx.op, &namespace, which, definition)
}

/// Runs `dropSearchIndex`.
pub fn drop(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "dropSearchIndex";
    let namespace = cx.collection()?;
    let mut selector = Selector::default();
    for element in cx.arguments() {
        if !selector.take(NAME, &element)? {
            cx.unknown_field(&element)?;
        }
    }
    let which = selector.required(NAME)?;
    cx.server.db.drop_search_index(&cx.op, &namespace, which)
}

/// The documents of `$listSearchIndexes`.
pub fn stage(view: &ReadView, spec: RawDoc<'_>) -> Result<Vec<DocBuf>, Error> {
    const NAME: &str = "$listSearchIndexes";
    let mut selector = Selector::default();
    for element in spec {
        if !selector.take(NAME, &element)? {
            return Err(unknown_field(NAME, element.key()));
        }
    }
    Ok(list_search_indexes(view, selector.chosen(NAME)?))
}
