//! Optional fields with strict types: null and undefined count as absent.
//!
//! Commands whose arguments MongoDB declares in its interface language follow these rules: a
//! boolean is a boolean and no number, a whole number is any number (fractions of doubles are cut
//! off, those of decimals rounded to even, what lies outside 64 bits is moved to its end, NaN is 0).

use sheaf_bson::{Error, RawDoc, RawElement, RawValue};

use super::fields::{missing, wrong_type};

/// Whether the value counts as absent.
pub fn is_absent(value: RawValue<'_>) -> bool {
    matches!(value, RawValue::Null | RawValue::Undefined)
}

/// The value of a field that must be present.
/// Errors: 40414 for an absent one.
pub fn required<T>(command: &str, field: &str, value: Option<T>) -> Result<T, Error> {
    value.ok_or_else(|| missing(command, field))
}

/// A boolean.
pub fn boolean(command: &str, element: &RawElement<'_>) -> Result<Option<bool>, Error> {
    match element.value() {
        RawValue::Boolean(value) => Ok(Some(value)),
        value if is_absent(value) => Ok(None),
        _ => Err(wrong_type(command, element, "bool")),
    }
}

/// A boolean that may be written as a number.
pub fn lenient_boolean(command: &str, element: &RawElement<'_>) -> Result<Option<bool>, Error> {
    match element.value() {
        RawValue::Boolean(value) => Ok(Some(value)),
        value if is_absent(value) => Ok(None),
        value if value.is_number() => Ok(Some(value.is_truthy())),
        _ => Err(wrong_type(
            command,
            element,
            "[bool, long, int, decimal, double]",
        )),
    }
}

/// A string.
pub fn string<'a>(command: &str, element: &RawElement<'a>) -> Result<Option<&'a str>, Error> {
    match element.value() {
        RawValue::String(value) => Ok(Some(value)),
        value if is_absent(value) => Ok(None),
        _ => Err(wrong_type(command, element, "string")),
    }
}

/// A document.
pub fn document<'a>(command: &str, element: &RawElement<'a>) -> Result<Option<RawDoc<'a>>, Error> {
    match element.value() {
        RawValue::Document(value) => Ok(Some(value)),
        value if is_absent(value) => Ok(None),
        _ => Err(wrong_type(command, element, "object")),
    }
}

/// A whole number.
pub fn integer(command: &str, element: &RawElement<'_>) -> Result<Option<i64>, Error> {
    let value = element.value();
    match (is_absent(value), whole(value)) {
        (true, _) => Ok(None),
        (false, Some(number)) => Ok(Some(number)),
        (false, None) => Err(wrong_type(command, element, "[long, int, decimal, double]")),
    }
}

/// Any number as a whole one; `None` for other types.
pub fn whole(value: RawValue<'_>) -> Option<i64> {
    if !value.is_number() {
        return None;
    }
    if let Some(exact) = value.as_i64_exact() {
        return Some(exact);
    }
    match value {
        RawValue::Decimal128(decimal) => Some(decimal.to_i64_saturating()),
        // `as` saturates, and makes 0 of NaN.
        value => value.as_f64().map(|number| number as i64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_bson::json::parse_doc;

    #[test]
    fn numbers_become_whole() {
        let rows = [
            ("{n: 1.9}", 1),
            ("{n: -0.5}", 0),
            (r#"{n: {$numberDecimal: "1.5"}}"#, 2),
            (r#"{n: {$numberDecimal: "0.5"}}"#, 0),
            (
                r#"{n: {$numberDecimal: "0.5000000000000000000000000000000001"}}"#,
                1,
            ),
            (r#"{n: {$numberDecimal: "-2.5"}}"#, -2),
            (r#"{n: {$numberDecimal: "NaN"}}"#, 0),
            (r#"{n: {$numberDouble: "-Infinity"}}"#, i64::MIN),
            (r#"{n: {$numberDecimal: "1E400"}}"#, i64::MAX),
        ];
        for (text, wanted) in rows {
            let doc = parse_doc(text).unwrap();
            assert_eq!(whole(doc.get("n").unwrap()), Some(wanted), "{text}");
        }
    }

    #[test]
    fn null_is_absent_and_types_are_strict() {
        let doc = parse_doc(r#"{a: null, b: 1, c: "x", d: true}"#).unwrap();
        let at = |name: &str| doc.iter().find(|e| e.key() == name).unwrap();
        assert_eq!(boolean("x", &at("a")).unwrap(), None);
        assert_eq!(integer("x", &at("a")).unwrap(), None);
        assert_eq!(boolean("x", &at("d")).unwrap(), Some(true));
        assert_eq!(lenient_boolean("x", &at("b")).unwrap(), Some(true));
        assert_eq!(boolean("x", &at("b")).unwrap_err().code().0, 14);
        assert_eq!(integer("x", &at("d")).unwrap_err().code().0, 14);
        assert_eq!(string("x", &at("b")).unwrap_err().code().0, 14);
        assert_eq!(document("x", &at("c")).unwrap_err().code().0, 14);
    }
}
