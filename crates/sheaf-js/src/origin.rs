//! Records the BSON types and the field order of a document that its JavaScript object cannot
//! represent.
//!
//! JavaScript has a single number type, and lists numeric names before others. An object converted
//! from BSON therefore has a property under a symbol, with the names of its fields that were 32-bit
//! integers or symbols, and all names in order if one of them is numeric.
//!
//! ```text
//!   {b: Int32(1), "7": 2.5, s: Symbol("x")}    "o" + "ib\0" + "-7\0" + "ss\0"
//! ```
//!
//! Such a field is converted to a 32-bit integer again if its value is still integral, even if the
//! script changed it, as in MongoDB.

use std::collections::HashMap;

use sheaf_bson::{RawDoc, RawValue};

/// The type that a field had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Was {
    Int32,
    Symbol,
    Other,
}

/// The origin of an object.
#[derive(Debug, Default)]
pub(crate) struct Origin {
    /// All names, if their order must be restored.
    pub(crate) order: Option<Vec<String>>,
    was: HashMap<String, Was>,
}

/// Whether a name is the decimal text of an index, which objects list before other names.
fn is_index(name: &str) -> bool {
    let digits = name.len() <= 10 && name.bytes().all(|b| b.is_ascii_digit());
    digits && !name.is_empty() && (name == "0" || !name.starts_with('0'))
}

/// The origin as text; `None` if the object represents the document completely.
pub(crate) fn describe(doc: RawDoc<'_>, array: bool) -> Option<String> {
    let ordered = !array && doc.iter().any(|element| is_index(element.key()));
    let mut out = String::from(if ordered { "o" } else { "u" });
    for element in doc.iter() {
        let was = match element.value() {
            RawValue::Int32(_) => 'i',
            RawValue::Symbol(_) => 's',
            _ if ordered => '-',
            _ => continue,
        };
        out.push(was);
        out.push_str(element.key());
        out.push('\0');
    }
    (out.len() > 1).then_some(out)
}

impl Origin {
    /// Reads what [`describe`] wrote. A script cannot create it, but may have copied it to another
    /// object: names that the object does not have are ignored.
    pub(crate) fn parse(text: &str) -> Origin {
        let mut origin = Origin::default();
        let mut order = Vec::new();
        let ordered = text.starts_with('o');
        for entry in text.get(1..).unwrap_or("").split_terminator('\0') {
            let (was, name) = match (entry.get(..1), entry.get(1..)) {
                (Some("i"), Some(name)) => (Was::Int32, name),
                (Some("s"), Some(name)) => (Was::Symbol, name),
                (Some(_), Some(name)) => (Was::Other, name),
                _ => continue,
            };
            origin.was.insert(name.to_owned(), was);
            if ordered {
                order.push(name.to_owned());
            }
        }
        origin.order = ordered.then_some(order);
        origin
    }

    /// The type that the field with this name had in BSON.
    pub(crate) fn was(&self, name: &str) -> Was {
        self.was.get(name).copied().unwrap_or(Was::Other)
    }
}
