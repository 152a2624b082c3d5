//! Parsing, comparing and scoring vectors, checked by hand and against straightforward formulae.

use sheaf_bson::{RawDoc, RawValue, doc};

use super::definition::VectorIndexDefinition;
use super::*;

fn packed(value: RawValue<'_>, dimensions: usize) -> Option<(Packing, Vec<u8>)> {
    let mut out = Vec::new();
    pack(value, dimensions, &mut out).map(|packing| (packing, out))
}

fn binary_of(dtype: u8, padding: u8, components: &[u8]) -> Vec<u8> {
    [&[dtype, padding], components].concat()
}

fn as_binary(bytes: &[u8]) -> RawValue<'_> {
    RawValue::Binary {
        subtype: BINARY_SUBTYPE,
        bytes,
    }
}

#[test]
fn arrays_and_binaries_are_vectors() {
    let doc =
        doc! {"a": [1, 2.5, 3_i64], "mixed": [1, "x", 3], "long": [1, 2, 3, 4], "text": "abc"};
    let get = |name: &str| doc.as_raw().get(name).unwrap();
    let (packing, bytes) = packed(get("a"), 3).unwrap();
    assert_eq!(packing, Packing::Float32);
    assert_eq!(kernels::floats(&bytes).collect::<Vec<_>>(), [1.0, 2.5, 3.0]);
    for no_vector in ["mixed", "long", "text"] {
        assert_eq!(packed(get(no_vector), 3), None, "{no_vector}");
    }
    let infinite = doc! {"a": [f64::INFINITY, 1.0], "b": [f64::NAN, 1.0], "c": [1e300, 1.0]};
    for element in infinite.as_raw() {
        assert_eq!(packed(element.value(), 2), None, "{}", element.key());
    }

    let floats: Vec<u8> = [0.5f32, -1.0]
        .iter()
        .flat_map(|f| f.to_le_bytes())
        .collect();
    let float = binary_of(0x27, 0, &floats);
    assert_eq!(components(as_binary(&float)), Some(vec![0.5, -1.0]));
    assert_eq!(
        packed(as_binary(&float), 2),
        Some((Packing::Float32, floats))
    );
    let bytes = binary_of(0x03, 0, &[127, 128, 255]);
    assert_eq!(
        components(as_binary(&bytes)),
        Some(vec![127.0, -128.0, -1.0])
    );
    assert_eq!(
        packed(as_binary(&bytes), 3),
        Some((Packing::Int8, vec![127, 128, 255]))
    );
    // 0b1010_1111 0b1100_0000 without the last four bits: twelve components.
    let bits = binary_of(0x10, 4, &[0b1010_1111, 0b1100_0000]);
    let expected = [1, 0, 1, 0, 1, 1, 1, 1, 1, 1, 0, 0].map(f64::from);
    assert_eq!(components(as_binary(&bits)), Some(expected.to_vec()));
    assert_eq!(
        packed(as_binary(&bits), 12).map(|p| p.0),
        Some(Packing::Bit)
    );
    assert_eq!(packed(as_binary(&bits), 16), None);
}

#[test]
fn damaged_binaries_are_no_vectors() {
    let cases: [&[u8]; 9] = [
        &[],
        &[0x27],
        &[0x27, 0, 1, 2, 3],
        &[0x27, 1, 0, 0, 0, 0],
        &[0x03, 1, 5],
        &[0x10, 8, 255],
        &[0x10, 3],
        &[0x99, 0, 1],
        &[0x27, 0, 0, 0, 0xc0, 0x7f],
    ];
    for bytes in cases {
        assert_eq!(packed(as_binary(bytes), 1), None, "{bytes:?}");
    }
    // Empty vectors parse, but no index accepts them.
    assert_eq!(packed(as_binary(&[0x03, 0]), 1), None);
    assert_eq!(QueryVector::of(as_binary(&[0x03, 0])), None);
    let of_another_subtype = RawValue::Binary {
        subtype: 0,
        bytes: &[0x03, 0, 1],
    };
    assert_eq!(packed(of_another_subtype, 1), None);
}

/// Compares with sums in 64 bits, for every length up to several times the number of parallel sums.
#[test]
fn sums_are_the_plain_sums() {
    let mut seed = 7u32;
    let mut random = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    for n in 1..70 {
        let a: Vec<f32> = (0..n).map(|_| random()).collect();
        let b: Vec<f32> = (0..n).map(|_| random()).collect();
        let floats: Vec<u8> = b.iter().flat_map(|f| f.to_le_bytes()).collect();
        let bytes: Vec<u8> = b.iter().map(|f| (f * 127.0) as i8 as u8).collect();
        let mut bits = vec![0u8; (n as usize).div_ceil(8)];
        for (at, f) in b.iter().enumerate() {
            bits[at / 8] |= u8::from(*f > 0.0) << (7 - at % 8);
        }
        for (packing, stored) in [
            (Packing::Float32, &floats),
            (Packing::Int8, &bytes),
            (Packing::Bit, &bits),
        ] {
            let packed = Packed {
                packing,
                bytes: stored,
            };
            let mut plain = Vec::new();
            kernels::unpack(packed, n as usize, &mut plain);
            let pairs = || {
                a.iter()
                    .zip(&plain)
                    .map(|(a, b)| (f64::from(*a), f64::from(*b)))
            };
            let dot: f64 = pairs().map(|(a, b)| a * b).sum();
            let distance: f64 = pairs().map(|(a, b)| (a - b).powi(2)).sum();
            // Terms that cancel out leave their rounding errors.
            let size: f64 = pairs().map(|(a, b)| (a * b).abs() + (a - b).powi(2)).sum();
            let close =
                |found: f32, exact: f64| (f64::from(found) - exact).abs() <= 1e-5 * (1.0 + size);
            assert!(close(kernels::dot(&a, packed), dot), "{packing:?} {n}");
            assert!(
                close(kernels::distance_squared(&a, packed), distance),
                "{packing:?} {n}"
            );
            assert_eq!(kernels::dot(&a, packed), kernels::dot_of(&a, &plain));
            assert_eq!(
                kernels::distance_squared(&a, packed),
                kernels::distance_squared_of(&a, &plain)
            );
        }
    }
}

/// These exact bits determine the list to which a vector belongs: they must not change.
#[test]
fn the_order_of_additions_is_pinned() {
    // 2^24 + 1 is not a float: any other order of these additions yields another sum.
    let a: Vec<f32> = (0..19)
        .map(|i| if i % 5 == 0 { 16_777_216.0 } else { 1.0 })
        .collect();
    let ones = vec![1.0; 19];
    let mut lanes = [0f32; 16];
    for (at, a) in a.iter().enumerate() {
        lanes[at % 16] += a;
    }
    for width in [8, 4, 2, 1] {
        for at in 0..width {
            lanes[at] += lanes[at + width];
        }
    }
    assert_eq!(kernels::dot_of(&a, &ones).to_bits(), lanes[0].to_bits());
}

#[test]
fn scores_follow_the_formulae() {
    let query = QueryVector::new(vec![3.0, 4.0]).unwrap();
    let score = |similarity: Similarity, stored: [f32; 2]| {
        let bytes: Vec<u8> = stored.iter().flat_map(|f| f.to_le_bytes()).collect();
        let packed = Packed {
            packing: Packing::Float32,
            bytes: &bytes,
        };
        let rank = similarity.rank(&query, packed, kernels::norm(&stored));
        similarity.score(rank)
    };
    // The same direction, orthogonal, and the opposite.
    assert_eq!(score(Similarity::Cosine, [6.0, 8.0]), 1.0);
    assert_eq!(score(Similarity::Cosine, [-4.0, 3.0]), 0.5);
    assert_eq!(score(Similarity::Cosine, [-3.0, -4.0]), 0.0);
    assert_eq!(score(Similarity::DotProduct, [1.0, 0.5]), 3.0);
    assert_eq!(score(Similarity::Euclidean, [3.0, 4.0]), 1.0);
    // At distance 5.
    assert_eq!(score(Similarity::Euclidean, [0.0, 0.0]), 1.0 / 6.0);
}

#[test]
fn definitions_are_checked() {
    let vector = doc! {"type": "vector", "path": "e", "numDimensions": 3, "similarity": "cosine"};
    let parse = |spec: RawDoc<'_>| VectorIndexDefinition::parse(spec);
    let good = doc! {"fields": [vector.clone(), {"type": "filter", "path": "a.b"}]};
    let parsed = parse(good.as_raw()).unwrap();
    assert_eq!(parsed.vectors()[0].dimensions, 3);
    assert_eq!(parsed.vectors()[0].similarity, Similarity::Cosine);
    assert_eq!(parsed.filters()[0].dotted(), "a.b");
    assert_eq!(*parsed.spec(), good);

    let with = |option: &str, value: RawValue<'_>| {
        let mut field = sheaf_bson::DocBuilder::new();
        for element in vector.as_raw() {
            if element.key() != option {
                field.append_raw_element(element);
            }
        }
        field.append(option, value);
        doc! {"fields": [field.finish()]}
    };
    for n in [1, 8192] {
        assert!(parse(with("numDimensions", RawValue::Int32(n)).as_raw()).is_ok());
    }
    assert!(parse(with("quantization", RawValue::String("scalar")).as_raw()).is_ok());
    let refused = [
        (with("numDimensions", RawValue::Int32(0)), 2, "1 to 8192"),
        (with("numDimensions", RawValue::Int32(8193)), 2, "1 to 8192"),
        (with("numDimensions", RawValue::Double(1.5)), 2, "1 to 8192"),
        (
            with("similarity", RawValue::String("manhattan")),
            2,
            "'euclidean', 'cosine' or 'dotProduct'",
        ),
        (
            with("quantization", RawValue::String("ternary")),
            2,
            "'none', 'scalar' or 'binary'",
        ),
        (
            with("hnswOptions", RawValue::Null),
            238,
            "definition.fields[0].hnswOptions",
        ),
        (
            with("path", RawValue::String("")),
            2,
            "definition.fields[0].path",
        ),
        (with("path", RawValue::String("$a")), 2, "begins with '$'"),
        (with("path", RawValue::Int32(1)), 14, "must be a string"),
        (
            with("colour", RawValue::Int32(1)),
            40415,
            "definition.fields[0].colour",
        ),
        (
            with("type", RawValue::String("autoEmbed")),
            238,
            "in the application",
        ),
        (
            with("type", RawValue::String("box")),
            2,
            "'vector' or 'filter'",
        ),
        (doc! {}, 40414, "definition.fields"),
        (doc! {"fields": []}, 2, "a field of type 'vector'"),
        (
            doc! {"fields": [{"type": "filter", "path": "a"}]},
            2,
            "a field of type 'vector'",
        ),
        (
            doc! {"fields": [vector.clone(), vector.clone()]},
            2,
            "occurs twice",
        ),
        (doc! {"fields": [7]}, 14, "must be an object"),
        (
            doc! {"mappings": {"dynamic": true}},
            238,
            "full-text search",
        ),
        (
            doc! {"fields": [vector.clone()], "numPartitions": 2},
            238,
            "numPartitions",
        ),
        (
            doc! {"fields": [{"type": "vector", "path": "e", "similarity": "cosine"}]},
            40414,
            "numDimensions",
        ),
    ];
    for (spec, code, words) in refused {
        let error = parse(spec.as_raw()).unwrap_err();
        assert_eq!(error.code().0, code, "{spec}: {error}");
        assert!(error.message().contains(words), "{spec}: {error}");
    }
}
