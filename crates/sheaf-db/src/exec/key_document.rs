//! The document that an index key represents.
//!
//! ```text
//!   {"a.b": 1, c: -1, "a.d": 1}  key (1, 2, 3)   nested: {a: {b: 1, d: 3}, c: 2}
//!                                                flat:   {"a.b": 1, c: 2, "a.d": 3}
//! ```
//!
//! Only keys whose fields met no array are read this way, so the nested form has the document's own
//! value at every path. A missing field reads as null; predicates and projections decided here do
//! not distinguish the two.

use std::sync::Arc;

use sheaf_bson::collation::text_of_sort_key;
use sheaf_bson::error_code::{Error, ErrorCode};
use sheaf_bson::keystring::{self, Directions};
use sheaf_bson::{DocBuilder, RawDoc, Value};
use sheaf_query::planner::index_entry::IndexEntry;

use super::IndexKey;

/// Decodes keys, usually of one index in succession, into a reused buffer.
#[derive(Default)]
pub struct KeyDocument {
    layout: Option<(Arc<IndexEntry>, Vec<Branch>)>,
    bytes: Vec<u8>,
}

/// One field name at one level of the nested document.
struct Branch {
    name: String,
    /// Position of the key field whose value goes here, ...
    field: Option<usize>,
    /// ... or the fields nested below this name.
    children: Vec<Branch>,
}

impl KeyDocument {
    /// Decodes a key into its nested document.
    pub fn decode(&mut self, key: &IndexKey) -> Result<RawDoc<'_>, Error> {
        self.decode_parts(&key.index, &key.key, &key.type_bits)
    }

    /// Like [`KeyDocument::decode`], from the parts of a key.
    pub fn decode_parts(
        &mut self,
        index: &Arc<IndexEntry>,
        key: &[u8],
        type_bits: &[u8],
    ) -> Result<RawDoc<'_>, Error> {
        let values = values_of(index, key, type_bits)?;
        let same = matches!(&self.layout, Some((known, _)) if Arc::ptr_eq(known, index));
        if !same {
            self.layout = Some((index.clone(), layout_of(index)));
        }
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        let mut out = DocBuilder::with_vec(bytes);
        if let Some((_, layout)) = &self.layout {
            append(layout, &values, &mut out);
        }
        self.bytes = out.finish_into();
        Ok(RawDoc::from_bytes_unchecked(&self.bytes))
    }
}

/// Appends the flat form to `out`; sort keys of a collation appear as `0x...`.
pub fn append_flat_key(key: &IndexKey, out: &mut DocBuilder) -> Result<(), Error> {
    let values = values_of(&key.index, &key.key, &key.type_bits)?;
    for (at, (field, value)) in key.index.fields.iter().zip(&values).enumerate() {
        let collated = key.index.collator.is_some() && key.index.holds_values_of(at);
        match value {
            Value::String(text) if collated => {
                out.append(field.path.dotted(), text_of_sort_key(text).as_str());
            }
            value => {
                out.append_value(field.path.dotted(), value);
            }
        }
    }
    Ok(())
}

/// The values of a key, in key-pattern order.
pub fn values_of(index: &IndexEntry, key: &[u8], type_bits: &[u8]) -> Result<Vec<Value>, Error> {
    keystring::decode(key, type_bits, directions_of(index)).map_err(|e| {
        Error::new(
            ErrorCode::DATA_CORRUPTION_DETECTED,
            format!("a key of index '{}' cannot be decoded: {e}", index.name),
        )
    })
}

/// Direction of each field of an index.
pub fn directions_of(index: &IndexEntry) -> Directions {
    Directions::from_signs(index.fields.iter().map(|field| i32::from(field.direction)))
}

fn layout_of(index: &IndexEntry) -> Vec<Branch> {
    let mut root = Vec::new();
    for (at, field) in index.fields.iter().enumerate() {
        let mut level = &mut root;
        let mut parts = field.path.parts().peekable();
        while let Some(part) = parts.next() {
            let place = level
                .iter()
                .position(|branch: &Branch| branch.name == part)
                .unwrap_or_else(|| {
                    level.push(Branch {
                        name: part.to_owned(),
                        field: None,
                        children: Vec::new(),
                    });
                    level.len() - 1
                });
            if parts.peek().is_none() {
                level[place].field = Some(at);
            }
            level = &mut level[place].children;
        }
    }
    root
}

fn append(level: &[Branch], values: &[Value], out: &mut DocBuilder) {
    for branch in level {
        if !branch.children.is_empty() {
            out.begin_document(&branch.name);
            append(&branch.children, values, out);
            out.end();
        } else if let Some(value) = branch.field.and_then(|at| values.get(at)) {
            out.append_value(&branch.name, value);
        }
    }
}
