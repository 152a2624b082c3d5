//! Keys from damaged files, and keys of arbitrary documents.

use sheaf_bson::keystring::{
    Directions, Discriminator, KeyStringBuilder, decode, decode_record_id, fields, prefix_end,
};
use sheaf_bson::{RawDoc, RawValue, RecordId, ValidateOptions, compare_values, validate};

/// The first two bytes determine directions and a split. The remaining bytes are decoded as a key
/// with type bits, which must not panic. If they are a valid document, its fields are encoded:
/// pairs must order as their values do, and values must decode to themselves.
pub fn keystring(data: &[u8]) {
    let [signs, split, rest @ ..] = data else {
        return;
    };
    let directions =
        Directions::from_signs((0..8).map(|i| if signs >> i & 1 == 1 { -1 } else { 1 }));
    let (key, bits) = rest.split_at(usize::from(*split).min(rest.len()));
    if let Ok(values) = decode(key, bits, directions) {
        assert_eq!(prefix_end(key, values.len(), directions), Some(key.len()));
        assert_eq!(fields(key, directions).count(), values.len());
    }
    let _ = decode(rest, &[], directions);
    let _ = decode_record_id(rest);

    if validate(rest, &ValidateOptions::default()).is_err() {
        return;
    }
    let Ok(doc) = RawDoc::parse(rest) else { return };
    let values: Vec<RawValue<'_>> = doc.iter().map(|e| e.value()).collect();
    for pair in values.windows(2) {
        for descending in [false, true] {
            pair_sorts(pair[0], pair[1], descending);
        }
    }
    comes_back(&values, directions);
}

fn pair_sorts(a: RawValue<'_>, b: RawValue<'_>, descending: bool) {
    let key = |value, end: Option<Discriminator>| {
        let mut builder = KeyStringBuilder::default();
        builder.append_directed(value, descending);
        match end {
            Some(discriminator) => builder.append_discriminator(discriminator),
            None => builder.append_record_id(&RecordId::new(7)),
        };
        builder.finish().0
    };
    let order = compare_values(a, b);
    let order = if descending { order.reverse() } else { order };
    assert_eq!(key(a, None).cmp(&key(b, None)), order, "{a:?} and {b:?}");
    let (before, after) = (
        key(a, Some(Discriminator::Before)),
        key(a, Some(Discriminator::After)),
    );
    assert_eq!(key(b, None) < before, order.is_gt(), "{b:?} before {a:?}");
    assert_eq!(key(b, None) > after, order.is_lt(), "{b:?} after {a:?}");
}

fn comes_back(values: &[RawValue<'_>], directions: Directions) {
    let mut builder = KeyStringBuilder::new(directions);
    for &value in values {
        builder.append(value);
    }
    let bits = builder.type_bits().as_bytes();
    let back = decode(builder.as_bytes(), bits, directions).expect("an encoded key is decoded");
    assert_eq!(back.len(), values.len());
    let mut again = KeyStringBuilder::new(directions);
    for (value, back) in values.iter().zip(&back) {
        assert!(
            compare_values(*value, back.as_raw()).is_eq(),
            "{value:?} decoded as {back:?}"
        );
        assert_eq!(value.element_type(), back.element_type());
        again.append(back);
    }
    assert_eq!(again.as_bytes(), builder.as_bytes());
    assert_eq!(again.type_bits(), builder.type_bits(), "{values:?}");
}
