//! Runs the body of the `frames` fuzz target over mutated examples.

use proptest::prelude::*;
use sheaf_bson::doc;
use sheaf_testkit::fuzz::{Random, frames, mutate};
use sheaf_wire::request::{compressed, op_msg, op_query};
use sheaf_wire::{Compressor, Flags};

/// One stream with every kind of message.
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
            frames(&[&[portion], seed.as_slice()].concat());
        }
    }
}

#[test]
fn changed_seeds_do_no_harm() {
    let mut random = Random::new(5);
    for seed in seeds() {
        for _ in 0..500 {
            let mut stream = seed.clone();
            mutate(&mut stream, &mut random);
            stream.insert(0, random.number() as u8);
            frames(&stream);
        }
    }
}

proptest! {
    #[test]
    fn random_bytes_do_no_harm(data in prop::collection::vec(any::<u8>(), 0..600)) {
        frames(&data);
    }
}
