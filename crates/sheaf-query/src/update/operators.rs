//! The operator form of an update: `{$set: {...}, $inc: {...}}`.

use std::collections::HashMap;
use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::json::shell;
use sheaf_bson::path::is_path_prefix;
use sheaf_bson::{Collator, DocBuf, RawArray, RawDoc, RawValue};

use crate::interrupt;
use crate::matcher::ParseContext;

use super::ApplyContext;
use super::apply::Walk;
use super::array_filters::ArrayFilters;
use super::modified_paths::ModifiedPaths;
use super::operator::{Operator, TABLE, name_document};
use super::path::{self, Component};
use super::tree::Tree;

/// All operators of an update, merged.
#[derive(Debug, Clone)]
pub(super) struct Operators {
    tree: Tree,
    filters: ArrayFilters,
    renames: Vec<Rename>,
    uses_matched: bool,
    /// The collation for text; `None` to compare by bytes.
    collator: Option<Arc<Collator>>,
}

/// A `$rename`: two paths without positional components.
#[derive(Debug, Clone)]
struct Rename {
    from: Box<str>,
    to: Box<str>,
}

impl Operators {
    pub(super) fn parse(
        update: RawDoc<'_>,
        array_filters: Option<RawArray<'_>>,
        context: &ParseContext,
    ) -> Result<Operators> {
        let filters = match array_filters {
            Some(filters) => ArrayFilters::parse(filters, context)?,
            None => ArrayFilters::default(),
        };
        let mut out = Operators {
            tree: Tree::default(),
            filters,
            renames: Vec::new(),
            uses_matched: false,
            collator: context.collator().cloned(),
        };
        for element in update {
            let name = element.key();
            let known = TABLE.iter().find(|(known, _)| *known == name);
            if known.is_none() && name != "$rename" {
                return Err(Error::new(
                    ErrorCode::FAILED_TO_PARSE,
                    format!(
                        "unknown modifier: {name}; expected a valid update modifier or a pipeline-style update given as an array"
                    ),
                ));
            }
            let RawValue::Document(fields) = element.value() else {
                return Err(Error::new(
                    ErrorCode::FAILED_TO_PARSE,
                    format!(
                        "modifiers operate on fields but {name} was given a value of type {}; write {{{name}: {{<field>: ...}}}}, not {{{name}: {}}}",
                        element.value().type_name(),
                        shell(element.value())
                    ),
                ));
            };
            for field in fields {
                match known {
                    Some((_, parse)) => {
                        let operator = parse(field.key(), field.value(), context)?;
                        out.insert(field.key(), operator)?;
                    }
                    None => out.rename(field.key(), field.value())?,
                }
            }
        }
        out.filters.check_all_used(update)?;
        Ok(out)
    }

    fn insert(&mut self, path: &str, operator: Operator) -> Result<()> {
        let components = match operator {
            Operator::SetOnInsert(_) => path::parse_for_insert(path, &mut self.filters)?,
            _ => path::parse(path, &mut self.filters)?,
        };
        self.uses_matched |= components.contains(&Component::Matched);
        self.tree.insert(path, components, operator)
    }

    fn rename(&mut self, from: &str, to: RawValue<'_>) -> Result<()> {
        let Some(to) = to.as_str() else {
            return Err(Error::bad_value(format!(
                "the 'to' field for $rename must be a string: {{{from}: {}}}",
                shell(to)
            )));
        };
        if from == to {
            return Err(Error::bad_value(format!(
                "the source and target field for $rename must differ: {{{from}: \"{to}\"}}"
            )));
        }
        if is_path_prefix(from, to) || is_path_prefix(to, from) {
            return Err(Error::bad_value(format!(
                "the source and target field for $rename must not be on the same path: {{{from}: \"{to}\"}}"
            )));
        }
        for (path, role) in [(from, "source"), (to, "destination")] {
            let components = path::parse(path, &mut self.filters)?;
            if components
                .iter()
                .any(|c| !matches!(c, Component::Field { .. }))
            {
                return Err(Error::bad_value(format!(
                    "the {role} field for $rename may not be dynamic: {path}"
                )));
            }
        }
        let at = self.renames.len();
        self.renames.push(Rename {
            from: from.into(),
            to: to.into(),
        });
        self.insert(from, Operator::RenameFrom(at))?;
        self.insert(to, Operator::RenameTo(at))
    }

    pub(super) fn needs_matched_array_index(&self) -> bool {
        self.uses_matched
    }

    /// Whether the update names this top-level field or a path below it.
    pub(super) fn touches(&self, field: &str) -> bool {
        self.tree.touches(field)
    }

    /// The document after the update, and the paths that differ, which may be empty.
    pub(super) fn apply(
        &self,
        doc: RawDoc<'_>,
        context: &ApplyContext,
    ) -> Result<(DocBuf, ModifiedPaths)> {
        let mut renamed = Vec::with_capacity(self.renames.len());
        let mut fields = FieldLookup::new(self.renames.len());
        for rename in &self.renames {
            interrupt::step()?;
            let source = walk_documents(doc, &rename.from, "source", &mut fields)?;
            if source.is_some() {
                walk_documents(doc, &rename.to, "destination", &mut fields)?;
            }
            renamed.push(source);
        }
        Walk::new(&self.tree, &self.filters, context, doc, &renamed)
            .with_collator(self.collator.as_deref())
            .run()
    }
}

/// Finds fields of documents by name: by linear search for a few lookups, otherwise with a map of
/// each searched document, so that many lookups stay linear in the size of the document.
struct FieldLookup<'d> {
    /// Field maps by the address of the document's bytes. `None` for a few lookups.
    documents: Option<HashMap<*const u8, HashMap<&'d str, RawValue<'d>>>>,
}

impl<'d> FieldLookup<'d> {
    /// For about `searches` lookups.
    fn new(searches: usize) -> FieldLookup<'d> {
        FieldLookup {
            documents: (searches > 8).then(HashMap::new),
        }
    }

    fn get(&mut self, doc: RawDoc<'d>, name: &str) -> Option<RawValue<'d>> {
        let Some(documents) = &mut self.documents else {
            return doc.get(name);
        };
        let fields = documents.entry(doc.as_bytes().as_ptr()).or_insert_with(|| {
            let mut fields = HashMap::new();
            for element in doc {
                fields.entry(element.key()).or_insert(element.value());
            }
            fields
        });
        fields.get(name).copied()
    }
}

/// The value at a path that traverses only documents; `None` if it is missing.
///
/// Errors: an array on the path.
fn walk_documents<'d>(
    doc: RawDoc<'d>,
    path: &str,
    role: &str,
    fields: &mut FieldLookup<'d>,
) -> Result<Option<RawValue<'d>>> {
    let mut parts = path.split('.').peekable();
    let mut here = doc;
    while let Some(part) = parts.next() {
        let Some(value) = fields.get(here, part) else {
            return Ok(None);
        };
        if parts.peek().is_none() {
            return Ok(Some(value));
        }
        match value {
            RawValue::Document(inner) => here = inner,
            RawValue::Array(_) => {
                return Err(Error::bad_value(format!(
                    "the {role} field of $rename cannot be an array element: '{path}' leads through the array '{part}' in {}",
                    name_document(doc)
                )));
            }
            _ => return Ok(None),
        }
    }
    Ok(None)
}
