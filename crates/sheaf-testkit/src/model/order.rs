//! The sort key of a document.
//!
//! It is the first of all tuples of the document's values, where an array is replaced by its
//! elements. Fields whose paths lead into the same array take their values from the same element.

use std::cmp::Ordering;

use sheaf_bson::{RawDoc, RawValue, Value};

use super::compare;

/// One value for each field of the sort.
pub type SortTuple = Vec<Value>;

/// A field of the sort while its path is being resolved.
#[derive(Clone)]
enum Field<'d> {
    At(RawValue<'d>),
    On(RawValue<'d>, Vec<String>),
}

/// The tuple by which a document sorts; `None` if two fields lead into different arrays.
pub fn sort_key(sort: RawDoc<'_>, doc: RawDoc<'_>) -> Option<SortTuple> {
    let fields = sort.iter().map(|element| {
        let parts = element.key().split('.').map(str::to_owned).collect();
        Field::On(RawValue::Document(doc), parts)
    });
    let mut tuples = Vec::new();
    expand(fields.collect(), &mut tuples)?;
    tuples.into_iter().min_by(|a, b| compare_tuples(sort, a, b))
}

/// Compares two tuples under a sort.
pub fn compare_tuples(sort: RawDoc<'_>, a: &SortTuple, b: &SortTuple) -> Ordering {
    for (element, (a, b)) in sort.iter().zip(a.iter().zip(b)) {
        let order = compare(a.as_raw(), b.as_raw());
        let ascending = element.value().as_i64_exact() == Some(1);
        let order = if ascending { order } else { order.reverse() };
        if order.is_ne() {
            return order;
        }
    }
    Ordering::Equal
}

/// Resolves every field to its value or to an array, then continues in each element of the array.
fn expand(fields: Vec<Field<'_>>, tuples: &mut Vec<SortTuple>) -> Option<()> {
    let fields: Vec<Field<'_>> = fields.into_iter().map(down).collect();
    let mut arrays = fields.iter().filter_map(|field| match field {
        Field::On(RawValue::Array(array), _) => Some(*array),
        _ => None,
    });
    let Some(array) = arrays.next() else {
        let values = fields.into_iter().map(|field| match field {
            Field::At(value) | Field::On(value, _) => value.to_value(),
        });
        tuples.push(values.collect());
        return Some(());
    };
    let same =
        |other: sheaf_bson::RawArray<'_>| other.as_bytes().as_ptr() == array.as_bytes().as_ptr();
    if !arrays.all(same) {
        return None;
    }
    let in_element = |element: Option<RawValue<'_>>| {
        let each = fields.iter().map(|field| match (field, element) {
            (Field::On(RawValue::Array(_), rest), None) if rest.is_empty() => {
                Field::At(RawValue::Undefined)
            }
            (Field::On(RawValue::Array(_), _), None) => Field::At(RawValue::Null),
            _ => field.clone(),
        });
        each.collect::<Vec<_>>()
    };
    if array.is_empty() {
        return expand(in_element(None), tuples);
    }
    for element in array.iter() {
        let each = fields.iter().map(|field| match field {
            Field::On(RawValue::Array(_), rest) => match (rest.is_empty(), element) {
                (true, value) => Field::At(value),
                (false, RawValue::Document(_)) => Field::On(element, rest.clone()),
                (false, _) => Field::At(RawValue::Null),
            },
            at => at.clone(),
        });
        expand(each.collect(), tuples)?;
    }
    Some(())
}

fn down(field: Field<'_>) -> Field<'_> {
    let Field::On(mut value, mut parts) = field else {
        return field;
    };
    while let RawValue::Document(doc) = value {
        if parts.is_empty() {
            return Field::At(value);
        }
        match doc.get(&parts.remove(0)) {
            Some(inner) => value = inner,
            None => return Field::At(RawValue::Null),
        }
    }
    match value {
        RawValue::Array(_) => Field::On(value, parts),
        _ if parts.is_empty() => Field::At(value),
        _ => Field::At(RawValue::Null),
    }
}
