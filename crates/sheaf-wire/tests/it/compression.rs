//! Compressors: a round trip restores the input, and the output never exceeds the declared length.

use proptest::prelude::*;
use sheaf_wire::compression::{compress, decompress};
use sheaf_wire::{Compressor, CompressorSet};

proptest! {
    #[test]
    fn data_round_trips(
        pattern in prop::collection::vec(any::<u8>(), 1..50),
        times in 1usize..200,
    ) {
        let input = pattern.repeat(times);
        for compressor in Compressor::NEGOTIABLE {
            let mut packed = vec![1, 2, 3];
            if compress(compressor, &input, &mut packed) {
                prop_assert!(packed.len() - 3 < input.len());
                let mut output = vec![0; input.len()];
                decompress(compressor, &packed[3..], &mut output).unwrap();
                prop_assert_eq!(&output, &input);
                // With a declared length one byte less or more, it is rejected.
                let mut short = vec![0; input.len() - 1];
                prop_assert!(decompress(compressor, &packed[3..], &mut short).is_err());
                let mut long = vec![0; input.len() + 1];
                prop_assert!(decompress(compressor, &packed[3..], &mut long).is_err());
            }
            prop_assert_eq!(&packed[..3], &[1, 2, 3]);
        }
    }

    #[test]
    fn damaged_data_is_an_error_or_has_the_declared_length(
        damage in prop::collection::vec((0usize..400, any::<u8>()), 1..6),
    ) {
        let input = b"a text that repeats itself, ".repeat(40);
        for compressor in Compressor::NEGOTIABLE {
            let mut packed = Vec::new();
            prop_assert!(compress(compressor, &input, &mut packed));
            for (at, byte) in &damage {
                let at = at % packed.len();
                packed[at] = *byte;
            }
            let mut output = vec![0; input.len()];
            // Success and failure are both fine; neither may panic or write past the end.
            let _ = decompress(compressor, &packed, &mut output);
        }
    }
}

#[test]
fn a_compression_bomb_is_refused() {
    let zeros = vec![0; 64 << 20];
    for compressor in [Compressor::Zlib, Compressor::Zstd, Compressor::Snappy] {
        let mut bomb = Vec::new();
        assert!(compress(compressor, &zeros, &mut bomb));
        let mut output = vec![0; 1000];
        assert!(
            decompress(compressor, &bomb, &mut output).is_err(),
            "{compressor:?}"
        );
    }
}

#[test]
fn incompressible_data_is_sent_plain() {
    for compressor in Compressor::NEGOTIABLE {
        let mut packed = Vec::new();
        assert!(
            !compress(compressor, b"short", &mut packed),
            "{compressor:?}"
        );
        assert!(packed.is_empty());
        assert!(!compress(compressor, b"", &mut packed), "{compressor:?}");
    }
}

#[test]
fn a_handshake_selects_common_compressors() {
    let server: CompressorSet = [Compressor::Snappy, Compressor::Zstd].into_iter().collect();
    let agreed = server.negotiate(["zlib", "zstd", "lz4", "snappy", "zstd"]);
    assert_eq!(
        agreed.iter().collect::<Vec<_>>(),
        [Compressor::Zstd, Compressor::Snappy]
    );
    assert!(server.negotiate([]).is_empty());
    assert!(CompressorSet::NONE.negotiate(["zstd"]).is_empty());
    // Noop cannot be negotiated.
    assert!(CompressorSet::all().negotiate(["noop"]).is_empty());
}
