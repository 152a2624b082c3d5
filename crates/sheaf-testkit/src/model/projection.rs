//! Inclusion and exclusion of paths.

use std::collections::BTreeMap;

use sheaf_bson::{DocBuf, DocBuilder, RawArray, RawDoc, RawValue};

/// The names below a name; empty if the whole value is meant.
#[derive(Default)]
struct Names(BTreeMap<String, Names>);

/// Applies a projection that only includes or only excludes paths (in either case with or without
/// `_id`). The empty projection keeps everything.
pub fn project(projection: RawDoc<'_>, doc: RawDoc<'_>) -> DocBuf {
    let mut names = Names::default();
    let mut include = None;
    let mut id = None;
    for element in projection {
        let wanted = element.value().is_truthy();
        if element.key() == "_id" {
            id = Some(wanted);
            continue;
        }
        include = Some(wanted);
        let mut at = &mut names;
        for part in element.key().split('.') {
            at = at.0.entry(part.to_owned()).or_default();
        }
    }
    let include = include.or(id).unwrap_or(false);
    // `_id` is kept unless excluded.
    if include == id.unwrap_or(true) {
        names.0.insert("_id".to_owned(), Names::default());
    }
    let mut out = DocBuilder::new();
    document(doc, &names, include, &mut out);
    out.finish()
}

fn document(doc: RawDoc<'_>, names: &Names, include: bool, out: &mut DocBuilder) {
    for element in doc {
        match names.0.get(element.key()) {
            None if include => {}
            None => {
                out.append_raw_element(element);
            }
            Some(below) if below.0.is_empty() => {
                if include {
                    out.append_raw_element(element);
                }
            }
            Some(below) => match element.value() {
                RawValue::Document(inner) => {
                    out.begin_document(element.key());
                    document(inner, below, include, out);
                    out.end();
                }
                RawValue::Array(inner) => {
                    out.begin_array(element.key());
                    array(inner, below, include, out);
                    out.end();
                }
                _ if include => {}
                _ => {
                    out.append_raw_element(element);
                }
            },
        }
    }
}

fn array(array_: RawArray<'_>, names: &Names, include: bool, out: &mut DocBuilder) {
    for element in array_.iter() {
        match element {
            RawValue::Document(inner) => {
                out.push_begin_document();
                document(inner, names, include, out);
                out.end();
            }
            RawValue::Array(inner) => {
                out.push_begin_array();
                array(inner, names, include, out);
                out.end();
            }
            _ if include => {}
            value => {
                out.push(value);
            }
        }
    }
}
