//! The fuzz target's body over seeds changed at random, and over kept finds.

use proptest::prelude::*;
use sheaf_bson::doc;
use sheaf_wire::request::{compressed, op_msg, op_query};
use sheaf_wire::{Compressor, Flags};

use super::frame_fuzz;

/// One stream of every kind of message there is.
fn seeds() -> Vec<Vec<u8>> {
    let body = doc! {"insert": "c", "$db": "test", "text": "seed ".repeat(20).as_str()};
    let document = doc! {"_id": 1, "a": [1, {"b": "x"}]};
    let sequence = [document.as_raw(), document.as_raw()];
    let plain = op_msg(
        1,
        Flags::default(),
        body.as_raw(),
        &[("documents", &sequence)],
    );
    let mut seeds = vec![
        plain.clone(),
        op_msg(2, Flags(Flags::CHECKSUM_PRESENT), body.as_raw(), &[]),
        op_msg(
            3,
            Flags(Flags::MORE_TO_COME),
            body.as_raw(),
            &[("documents", &[])],
        ),
        op_query(4, "admin.$cmd", doc! {"isMaster": 1}.as_raw()),
    ];
    for compressor in [
        Compressor::Noop,
        Compressor::Snappy,
        Compressor::Zlib,
        Compressor::Zstd,
    ] {
        seeds.push(compressed(compressor, &plain));
    }
    seeds.push(seeds.concat());
    seeds
}

#[test]
fn seeds_pass_unchanged() {
    for seed in seeds() {
        for portion in [1, 5, 255] {
            frame_fuzz::run(&[&[portion], seed.as_slice()].concat());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn changed_seeds_do_no_harm(
        which in 0usize..9,
        portion in any::<u8>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
        cuts in any::<bool>(),
    ) {
        let mut stream = seeds().swap_remove(which);
        for (at, byte) in changes {
            let at = at.index(stream.len());
            stream[at] = byte;
        }
        if cuts {
            stream.truncate(cut.index(stream.len()));
        }
        stream.insert(0, portion);
        frame_fuzz::run(&stream);
    }

    #[test]
    fn random_bytes_do_no_harm(data in prop::collection::vec(any::<u8>(), 0..600)) {
        frame_fuzz::run(&data);
    }
}
