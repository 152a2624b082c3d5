//! Rounds of a differential test: documents, indexes, and what is asked of them.
//!
//! ```text
//!   Round   documents in one of four styles, up to three indexes,
//!           steps: find, distinct, update, delete, pipeline
//! ```
//!
//! The same rounds run against the database in one process and against a
//! server over its socket; the model ([`crate::model`]) says what must come out.

mod by_id;
mod collated;
mod documents;
mod indexes;
mod round;
mod shrink;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use sheaf_bson::DocBuf;

use crate::model::Query;

use by_id::by_id;
use collated::collated_round;
pub use round::round;
use shrink::smaller;

/// One collection's life.
#[derive(Debug, Clone)]
pub struct Round {
    /// Their `_id`s differ.
    pub docs: Vec<DocBuf>,
    /// The collection's; empty for none.
    pub collation: DocBuf,
    /// Built before the documents come, or after.
    pub indexes_first: bool,
    /// Key pattern and options; some cannot be built over some documents.
    pub indexes: Vec<(DocBuf, DocBuf)>,
    /// In this order.
    pub steps: Vec<Step>,
}

/// One thing asked.
#[derive(Debug, Clone)]
pub enum Step {
    /// A find.
    Find(Query),
    /// A distinct.
    Distinct {
        /// Whose values.
        path: String,
        /// Among these documents.
        filter: DocBuf,
    },
    /// An update by one operator on one path.
    Update {
        /// Of these documents.
        filter: DocBuf,
        /// As [`crate::model::update`] takes it.
        update: DocBuf,
        /// All of them, not one.
        multi: bool,
    },
    /// A delete.
    Delete {
        /// Of these documents.
        filter: DocBuf,
        /// All of them, not one.
        multi: bool,
    },
    /// A find whose projection the model does not know: it gives what a collection scan gives.
    Projected {
        /// Of these documents.
        filter: DocBuf,
        /// Computes, slices or names the element found.
        projection: DocBuf,
    },
    /// A pipeline, whose results have no order: they are those over a collection scan.
    Pipeline(Vec<DocBuf>),
    /// Inserts with an `_id` of their own, which indexes may refuse.
    Insert(Vec<DocBuf>),
    /// One of the others (but inserts) with a collation of its own.
    By(DocBuf, Box<Step>),
}

/// Carries out `rounds` rounds, the first with this seed, the others with the
/// seeds that follow it. A round that fails is made smaller before it is shown.
pub fn run(first_seed: u64, rounds: u64, carry_out: impl FnMut(&Round) -> Result<(), String>) {
    run_of(round().boxed(), first_seed, rounds, carry_out);
}

/// As [`run`], with text in place of many numbers, and with collations.
pub fn run_collated(
    first_seed: u64,
    rounds: u64,
    carry_out: impl FnMut(&Round) -> Result<(), String>,
) {
    run_of(collated_round().boxed(), first_seed, rounds, carry_out);
}

/// As [`run_collated`], where `_id`s are of several types, and most of what else asks for `d` asks for `_id`.
pub fn run_by_id(
    first_seed: u64,
    rounds: u64,
    carry_out: impl FnMut(&Round) -> Result<(), String>,
) {
    let rounds_of = prop_oneof![1 => round(), 1 => collated_round()];
    run_of(
        rounds_of.prop_map(by_id).boxed(),
        first_seed,
        rounds,
        carry_out,
    );
}

fn run_of(
    strategy: BoxedStrategy<Round>,
    first_seed: u64,
    rounds: u64,
    mut carry_out: impl FnMut(&Round) -> Result<(), String>,
) {
    for seed in first_seed..first_seed + rounds {
        let done = seed - first_seed;
        if rounds > 1000 && done.is_multiple_of(250) {
            eprintln!("{done} rounds from seed {first_seed} on are done");
        }
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        let tree = strategy.new_tree(&mut runner);
        let round = tree.expect("a round can be made").current();
        if let Err(error) = carry_out(&round) {
            let (round, error) = smaller(round, error, &mut carry_out);
            panic!("seed {seed}: {error}\n{round:#?}");
        }
    }
}

/// A number from the environment, to replay a seed or to run longer.
pub fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number")),
        Err(_) => default,
    }
}
