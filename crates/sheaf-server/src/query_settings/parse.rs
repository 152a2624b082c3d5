//! The `settings` of `setQuerySettings`: checked, merged with those that a shape has, and parsed.
//!
//! ```text
//!   given   {indexHints: {ns, allowedIndexes}, reject: false}
//!   stored  {indexHints: [{ns, allowedIndexes}]}               one form: defaults left out
//! ```

use std::collections::HashSet;

use sheaf_bson::{DocBuilder, Error, ErrorCode, RawArray, RawDoc, RawElement, RawValue};
use sheaf_db::Namespace;
use sheaf_db::planning::QuerySettings;
use sheaf_db::planning::index_filters::FilteredIndex;
use sheaf_db::planning::query_settings::IndexHints;
use sheaf_query::canonical::Hint;

use crate::command::fields;

const NAME: &str = "setQuerySettings.settings";
const HINTS: &str = "setQuerySettings.settings.indexHints";
/// The fields, in the order in which they are shown.
const FIELDS: &[&str] = &["indexHints", "queryFramework", "reject", "comment"];

/// Checks the `settings` that a client gives.
/// Errors: 8727502 for an empty document; those of the fields.
pub fn check(given: RawDoc<'_>) -> Result<(), Error> {
    if given.is_empty() {
        return Err(Error::new(
            ErrorCode(8727502),
            "the settings of setQuerySettings cannot be empty: give indexHints, queryFramework, \
             reject or comment",
        ));
    }
    let mut seen = HashSet::new();
    for element in given.iter() {
        if !FIELDS.contains(&element.key()) {
            return Err(fields::unknown_field(NAME, element.key()));
        }
        if !seen.insert(element.key()) {
            return Err(Error::new(
                ErrorCode(40413),
                format!("BSON field '{NAME}.{}' is a duplicate field", element.key()),
            ));
        }
    }
    parsed(given).map(drop)
}

/// The settings of a shape that had `old`, after `given`: each field that is given replaces the one
/// that was there. Fields with default values are left out.
/// Errors: 7746604 if nothing is left.
pub fn merged(old: Option<RawDoc<'_>>, given: RawDoc<'_>) -> Result<QuerySettings, Error> {
    let mut out = DocBuilder::new();
    for name in FIELDS {
        let field = fields::get_given(given, name);
        let Some(field) = field.or_else(|| fields::get_given(old?, name)) else {
            continue;
        };
        match (*name, field.value()) {
            ("indexHints", value) => append_hints(value, &mut out),
            ("reject", value) if !value.is_truthy() => {}
            (name, value) => drop(out.append(name, value)),
        }
    }
    let merged = out.finish();
    if !FIELDS[..3].iter().any(|name| merged.get(name).is_some()) {
        return Err(Error::new(
            ErrorCode(7746604),
            "the resulting query settings would change nothing: give indexHints or \
             queryFramework or 'reject: true', or use removeQuerySettings",
        ));
    }
    parsed(merged.as_raw())
}

/// Appends the hints of `indexHints` that allow any index, as an array.
fn append_hints(value: RawValue<'_>, out: &mut DocBuilder) {
    let mut hints: Vec<RawDoc<'_>> = match value {
        RawValue::Array(array) => array.iter().filter_map(|hint| hint.as_document()).collect(),
        RawValue::Document(hint) => vec![hint],
        _ => Vec::new(),
    };
    hints.retain(|hint| {
        let allowed = hint
            .get("allowedIndexes")
            .and_then(|value| value.as_array());
        allowed.is_some_and(|indexes| indexes.iter().next().is_some())
    });
    if hints.is_empty() {
        return;
    }
    out.begin_array("indexHints");
    for hint in hints {
        out.push_begin_document();
        for name in ["ns", "allowedIndexes"] {
            if let Some(value) = hint.get(name) {
                out.append(name, value);
            }
        }
        out.end();
    }
    out.end();
}

/// Parses settings. Errors: those of their fields.
pub(super) fn parsed(doc: RawDoc<'_>) -> Result<QuerySettings, Error> {
    let mut settings = QuerySettings {
        index_hints: Vec::new(),
        rejects: false,
        shown: doc.to_buf(),
    };
    for element in fields::given(doc) {
        match element.key() {
            "indexHints" => settings.index_hints = index_hints(&element)?,
            "queryFramework" => check_framework(&element)?,
            "reject" => settings.rejects = fields::strict_boolean(NAME, &element)?,
            _ => {}
        }
    }
    Ok(settings)
}

/// There is only one framework; the choice is stored and shown, without effect.
fn check_framework(element: &RawElement<'_>) -> Result<(), Error> {
    match fields::string(NAME, element)? {
        "classic" | "sbe" => Ok(()),
        other => Err(Error::bad_value(format!(
            "Enumeration value '{other}' for field '{NAME}.queryFramework' is not a valid value: \
             use 'classic' or 'sbe'"
        ))),
    }
}

/// One document of hints, or an array of them.
fn index_hints(element: &RawElement<'_>) -> Result<Vec<IndexHints>, Error> {
    let mut all: Vec<IndexHints> = Vec::new();
    let mut take = |hint: RawDoc<'_>| {
        let hints = hints_of(hint)?;
        if all.iter().any(|other| other.ns == hints.ns) {
            return Err(Error::new(
                ErrorCode(7746608),
                format!(
                    "indexHints has two elements for the collection {}; give one with all its \
                     allowedIndexes",
                    hints.ns
                ),
            ));
        }
        all.push(hints);
        Ok(())
    };
    match element.value() {
        RawValue::Document(hint) => take(hint)?,
        RawValue::Array(array) => {
            for hint in array.iter() {
                let RawValue::Document(hint) = hint else {
                    return Err(fields::wrong_type(NAME, element, "[object, array]"));
                };
                take(hint)?;
            }
        }
        _ => return Err(fields::wrong_type(NAME, element, "[object, array]")),
    }
    Ok(all)
}

fn hints_of(hint: RawDoc<'_>) -> Result<IndexHints, Error> {
    let (mut ns, mut allowed) = (None, None);
    for element in fields::given(hint) {
        match element.key() {
            "ns" => ns = Some(namespace(fields::document(HINTS, &element)?)?),
            "allowedIndexes" => allowed = Some(fields::array(HINTS, &element)?),
            other => return Err(fields::unknown_field(HINTS, other)),
        }
    }
    let ns = ns.ok_or_else(|| fields::missing(HINTS, "ns"))?;
    let allowed = allowed.ok_or_else(|| fields::missing(HINTS, "allowedIndexes"))?;
    allowed_indexes(ns, allowed)
}

/// Errors: 8727500 without `db`, 8727501 without `coll`; those of the name.
fn namespace(doc: RawDoc<'_>) -> Result<Namespace, Error> {
    const NAME: &str = "setQuerySettings.settings.indexHints.ns";
    let (mut db, mut coll) = (None, None);
    for element in fields::given(doc) {
        match element.key() {
            "db" => db = Some(fields::string(NAME, &element)?),
            "coll" => coll = Some(fields::string(NAME, &element)?),
            other => return Err(fields::unknown_field(NAME, other)),
        }
    }
    let missing = |code, field: &str| {
        let why = format!("BSON field '{NAME}.{field}' is missing but a required field");
        Error::new(ErrorCode(code), why)
    };
    let db = db.ok_or_else(|| missing(8727500, "db"))?;
    let coll = coll.ok_or_else(|| missing(8727501, "coll"))?;
    Namespace::new(db, coll)
}

/// `allowedIndexes`: names, key patterns, and `$natural` as either.
/// Errors: those of [`Hint::parse`]; `BadValue` for an empty key pattern.
fn allowed_indexes(ns: Namespace, allowed: RawArray<'_>) -> Result<IndexHints, Error> {
    let mut hints = IndexHints {
        ns,
        indexes: Vec::new(),
        scan: None,
    };
    for value in allowed.iter() {
        match Hint::parse(value)? {
            Some(Hint::Name(name)) if name == "$natural" => hints.scan = hints.scan.or(Some(1)),
            Some(Hint::Natural(direction)) => hints.scan = hints.scan.or(Some(direction)),
            Some(Hint::Name(name)) => hints.indexes.push(FilteredIndex::Name(name)),
            Some(Hint::KeyPattern(key)) => hints.indexes.push(FilteredIndex::KeyPattern(key)),
            None => {
                return Err(Error::bad_value(
                    "an element of allowedIndexes cannot be an empty document: give an index name \
                     or a key pattern",
                ));
            }
        }
    }
    Ok(hints)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_bson::DocBuf;
    use sheaf_bson::json::parse_doc;

    fn doc(text: &str) -> DocBuf {
        parse_doc(text).unwrap()
    }

    fn merge(old: &str, given: &str) -> Result<String, i32> {
        let (old, given) = (doc(old), doc(given));
        check(given.as_raw())
            .and_then(|()| merged(Some(old.as_raw()), given.as_raw()))
            .map(|settings| settings.shown.to_string())
            .map_err(|error| error.code().0)
    }

    const HINT: &str = "{ns: {db: 'd', coll: 'c'}, allowedIndexes: ['a_1']}";

    #[test]
    fn given_fields_replace_those_that_were_there() {
        let hints = doc(&format!("{{indexHints: [{HINT}]}}")).to_string();
        assert_eq!(merge("{}", &format!("{{indexHints: {HINT}}}")), Ok(hints));
        let old = format!("{{indexHints: [{HINT}], reject: true, comment: 'x'}}");
        assert_eq!(
            merge(
                &old,
                "{reject: false, comment: null, queryFramework: 'sbe'}"
            ),
            Ok(doc(&format!(
                "{{indexHints: [{HINT}], queryFramework: 'sbe', comment: 'x'}}"
            ))
            .to_string())
        );
    }

    #[test]
    fn settings_without_effect_are_refused() {
        for given in [
            "{reject: false}",
            "{comment: 'x'}",
            "{indexHints: []}",
            "{indexHints: {ns: {db: 'd', coll: 'c'}, allowedIndexes: []}}",
        ] {
            assert_eq!(merge("{}", given), Err(7746604), "{given}");
        }
        assert_eq!(merge("{reject: true}", "{reject: false}"), Err(7746604));
    }

    #[test]
    fn values_are_checked() {
        let hints = |inner: &str| format!("{{indexHints: {{{inner}}}}}");
        for (given, code) in [
            ("{}".to_owned(), 8727502),
            ("{x: 1}".into(), 40415),
            ("{reject: 1}".into(), 14),
            ("{reject: 'true'}".into(), 14),
            ("{queryFramework: 'fast'}".into(), 2),
            ("{queryFramework: 1}".into(), 14),
            ("{indexHints: 'a_1'}".into(), 14),
            ("{indexHints: ['a_1']}".into(), 14),
            (format!("{{indexHints: [{HINT}, {HINT}]}}"), 7746608),
            (hints("allowedIndexes: ['a_1']"), 40414),
            (hints("ns: {db: 'd', coll: 'c'}"), 40414),
            (hints("ns: {coll: 'c'}, allowedIndexes: ['a']"), 8727500),
            (hints("ns: {db: 'd'}, allowedIndexes: ['a']"), 8727501),
            (hints("ns: {db: 'd', coll: 'c', x: 1}"), 40415),
            (hints("ns: {db: 'd', coll: 'c'}, allowedIndexes: 'a'"), 14),
            (hints("ns: {db: 'd', coll: 'c'}, allowedIndexes: [{}]"), 2),
            (hints("ns: {db: 'd', coll: 'c'}, allowedIndexes: [1]"), 9),
            (
                hints("ns: {db: 'd', coll: 'c'}, allowedIndexes: [{$natural: 2}]"),
                2,
            ),
        ] {
            assert_eq!(merge("{}", &given), Err(code), "{given}");
        }
    }
}
