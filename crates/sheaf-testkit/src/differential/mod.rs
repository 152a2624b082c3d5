//! Rounds of a differential test: documents, indexes, and operations on them.
//!
//! ```text
//!   Round   documents in one of four styles, up to five indexes,
//!           steps: find, distinct, update, delete, insert, pipeline
//! ```
//!
//! The same rounds run against the database in-process and against a server over a socket. The
//! model ([`crate::model`]) defines the expected results.

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

/// The life of one collection.
#[derive(Debug, Clone)]
pub struct Round {
    /// The initial documents; `_id`s are unique.
    pub docs: Vec<DocBuf>,
    /// The collection's default collation; empty for none.
    pub collation: DocBuf,
    /// Whether to build the indexes before inserting the documents, or after.
    pub indexes_first: bool,
    /// Key pattern and options. Building some of them fails for some documents.
    pub indexes: Vec<(DocBuf, DocBuf)>,
    /// The operations, in this order.
    pub steps: Vec<Step>,
}

/// One operation.
#[derive(Debug, Clone)]
pub enum Step {
    /// A find, checked against the model.
    Find(Query),
    /// A distinct, checked against the model.
    Distinct {
        /// The field with the values.
        path: String,
        /// Selects the documents.
        filter: DocBuf,
    },
    /// An update with one operator on one path.
    Update {
        /// Selects the documents.
        filter: DocBuf,
        /// In the form that [`crate::model::update`] accepts.
        update: DocBuf,
        /// Whether to update all matches instead of one.
        multi: bool,
    },
    /// A delete of matching documents.
    Delete {
        /// Selects the documents.
        filter: DocBuf,
        /// Whether to delete all matches instead of one.
        multi: bool,
    },
    /// A find with a projection that the model does not implement. The result must equal that of a
    /// collection scan.
    Projected {
        /// Selects the documents.
        filter: DocBuf,
        /// Computes fields, slices arrays, or projects the matched element.
        projection: DocBuf,
    },
    /// A pipeline whose results are unordered. They must equal those over a collection scan.
    Pipeline(Vec<DocBuf>),
    /// Inserts documents with new `_id`s. Indexes may reject some of them.
    Insert(Vec<DocBuf>),
    /// One of the other steps, except inserts, with an explicit collation.
    By(DocBuf, Box<Step>),
}

/// Runs `rounds` rounds, with consecutive seeds from `first_seed`. Panics on the first round that
/// fails, after shrinking it.
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

/// As [`run`] or [`run_collated`], with `_id`s of several types, and with most operations on `d`
/// moved to `_id`.
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
            eprintln!("{done} rounds done, starting at seed {first_seed}");
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

/// A number from the environment, to replay a seed or to run longer. Panics if the variable is not
/// a number.
pub fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    }
}
