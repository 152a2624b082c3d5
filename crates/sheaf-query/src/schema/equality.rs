//! Equality of values in schemas, for `enum` and `uniqueItems`: numbers by value, objects
//! regardless of the order of their fields, arrays in order.

use std::cmp::Ordering;

use sheaf_bson::{RawArray, RawDoc, RawElement, RawValue, compare_values};

/// A total order in which values that a schema considers equal compare equal.
pub(super) fn compare(a: RawValue<'_>, b: RawValue<'_>) -> Ordering {
    match (a, b) {
        (RawValue::Document(a), RawValue::Document(b)) => compare_objects(a, b),
        (RawValue::Array(a), RawValue::Array(b)) => compare_arrays(a, b),
        _ => compare_values(a, b),
    }
}

fn compare_objects(a: RawDoc<'_>, b: RawDoc<'_>) -> Ordering {
    let (a, b) = (sorted(a), sorted(b));
    for (a, b) in a.iter().zip(&b) {
        let order = a.key_bytes().cmp(b.key_bytes());
        let order = order.then_with(|| compare(a.value(), b.value()));
        if order.is_ne() {
            return order;
        }
    }
    a.len().cmp(&b.len())
}

fn sorted(doc: RawDoc<'_>) -> Vec<RawElement<'_>> {
    let mut fields: Vec<_> = doc.iter().collect();
    // The sort is stable: of fields with the same name, the first stays first.
    fields.sort_by(|a, b| a.key_bytes().cmp(b.key_bytes()));
    fields
}

fn compare_arrays(a: RawArray<'_>, b: RawArray<'_>) -> Ordering {
    let (mut a, mut b) = (a.iter(), b.iter());
    loop {
        return match (a.next(), b.next()) {
            (Some(a), Some(b)) => match compare(a, b) {
                Ordering::Equal => continue,
                order => order,
            },
            (Some(_), None) => Ordering::Greater,
            (None, Some(_)) => Ordering::Less,
            (None, None) => Ordering::Equal,
        };
    }
}

/// A value that occurs more than once, if any.
pub(super) fn duplicate<'a>(values: impl Iterator<Item = RawValue<'a>>) -> Option<RawValue<'a>> {
    let mut values: Vec<_> = values.collect();
    values.sort_by(|a, b| compare(*a, *b));
    let twice = |pair: &&[RawValue<'a>]| compare(pair[0], pair[1]).is_eq();
    values.windows(2).find(twice).map(|pair| pair[0])
}
