//! Model checking: explores every interleaving of a few insertions and reads.
//!
//! ```text
//! RUSTFLAGS="--cfg explore" cargo test --release -p sheaf-storage --lib explore --target-dir target/explore
//! ```

use std::sync::Arc as StdArc;

use bytes::Bytes;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use super::arena::Arena;
use super::key_index::{KeyIndex, Known};
use super::node::NodeRef;
use super::runs::Runs;
use super::sizes::{Delta, Sizes};
use super::skiplist::SkipList;
use crate::disk::logtree::budget::MemoryBudget;

/// A list with its arena; the test decides the heights of nodes.
struct Fixture {
    list: SkipList,
    index: KeyIndex,
    runs: Runs,
    sizes: Sizes,
    arena: StdArc<Arena>,
}

/// A node of height 1, one of height 2.
const LOW: u64 = 1;
const HIGH: u64 = 4;
/// The hash given to every key: all compete for the same slot.
const HASH: u64 = 7;

impl Fixture {
    fn new() -> Fixture {
        let arena = StdArc::new(Arena::new(MemoryBudget::new(u64::MAX)));
        // SAFETY: the fixture keeps the arena.
        let list = unsafe { SkipList::new(&mut arena.room(), 0) };
        Fixture {
            list,
            index: KeyIndex::new(0),
            runs: Runs::default(),
            sizes: Sizes::default(),
            arena,
        }
    }

    /// Inserts keys, ascending, with their sequences and heights.
    fn insert(&self, keys: &[(&str, u64, u64)]) -> Vec<(bool, Option<u64>)> {
        let mut room = self.arena.room();
        let mut splice = self.list.splice();
        keys.iter()
            .map(|(key, seq, levels)| {
                let value = Bytes::copy_from_slice(key.as_bytes());
                let met = self.list.insert(
                    &mut room,
                    &mut splice,
                    key.as_bytes(),
                    *seq,
                    Some(&value),
                    *levels,
                );
                (met.has_newer, met.older.map(NodeRef::seq))
            })
            .collect()
    }

    /// Inserts one version and enters it in the index, under the hash that all keys share.
    fn enter(&self, key: &str, seq: u64) {
        let value = Bytes::copy_from_slice(key.as_bytes());
        let mut room = self.arena.room();
        let mut splice = self.list.splice();
        let key = key.as_bytes();
        let inserted = self
            .list
            .insert(&mut room, &mut splice, key, seq, Some(&value), LOW);
        // SAFETY: the fixture keeps the arena.
        let taken = unsafe { self.index.enter(HASH, 0, inserted.node) };
        self.index.count(u64::from(taken));
    }

    /// The sequence of the newest version that the index knows; `None` if it knows that there is
    /// none.
    fn known(&self, key: &str) -> Result<Option<u64>, ()> {
        match self.index.get(HASH, 0, key.as_bytes()) {
            Known::At(node) => {
                assert_eq!((node.key(), node.value()), (key.as_bytes(), key.as_bytes()));
                Ok(Some(node.seq()))
            }
            Known::Absent => Ok(None),
            Known::Unknown => Err(()),
        }
    }

    /// Inserts a version that puts or deletes the key, and cuts the runs.
    fn change(&self, key: &str, seq: u64, there: bool) {
        let value = there.then(|| Bytes::from_static(b"there"));
        let mut room = self.arena.room();
        let mut splice = self.list.splice();
        let bytes = key.as_bytes();
        self.list
            .insert(&mut room, &mut splice, bytes, seq, value.as_ref(), LOW);
        self.runs.cut(there.then_some(bytes).into_iter());
    }

    /// The contents of the list, after checking that both directions and all searches agree.
    fn check(&self) -> Vec<(Vec<u8>, u64)> {
        let mut all = Vec::new();
        let mut at = self.list.first();
        let mut last = None;
        while let Some(node) = at {
            assert_eq!(node.key(), node.value());
            assert!(self.list.prev(node) == last);
            assert!(self.list.get(node.key(), node.seq()) == Some(node));
            all.push((node.key().to_vec(), node.seq()));
            last = at;
            at = node.next();
        }
        assert!(self.list.last() == last);
        all
    }

    /// Walks while other threads insert: forward in order, and from each node back to one that is
    /// not before the previous one.
    fn walk(&self) {
        let place = |node: NodeRef<'_>| (node.key().to_vec(), u64::MAX - node.seq());
        let mut at = self.list.first();
        let mut last: Option<NodeRef<'_>> = None;
        while let Some(node) = at {
            assert_eq!(node.key(), node.value());
            if let Some(last) = last {
                assert!(place(last) < place(node));
                let before = self.list.prev(node).map(place);
                assert!(before.is_some_and(|before| place(last) <= before && before < place(node)));
            }
            last = at;
            at = node.next();
        }
    }
}

/// Explores all interleavings with at most `preemptions` preemptions.
fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

fn keys(all: &[(&str, u64)]) -> Vec<(Vec<u8>, u64)> {
    let all = all.iter();
    all.map(|(key, seq)| (key.as_bytes().to_vec(), *seq))
        .collect()
}

#[test]
fn neighbours_are_inserted_side_by_side() {
    explore(5, || {
        let fixture = Arc::new(Fixture::new());
        fixture.insert(&[("a", 1, HIGH), ("d", 1, LOW)]);
        let other = fixture.clone();
        let thread = thread::spawn(move || {
            other.insert(&[("b", 2, HIGH)]);
        });
        fixture.insert(&[("c", 3, HIGH)]);
        thread.join().unwrap();
        let expected = keys(&[("a", 1), ("b", 2), ("c", 3), ("d", 1)]);
        assert_eq!(fixture.check(), expected);
    });
}

#[test]
fn three_insert_in_one_place() {
    explore(2, || {
        let fixture = Arc::new(Fixture::new());
        fixture.insert(&[("a", 1, LOW), ("e", 1, HIGH)]);
        let threads = [("b", 2, HIGH), ("c", 3, LOW)].map(|key| {
            let other = fixture.clone();
            thread::spawn(move || {
                other.insert(&[key]);
            })
        });
        fixture.insert(&[("d", 4, HIGH)]);
        for thread in threads {
            thread.join().unwrap();
        }
        let expected = keys(&[("a", 1), ("b", 2), ("c", 3), ("d", 4), ("e", 1)]);
        assert_eq!(fixture.check(), expected);
    });
}

#[test]
fn runs_are_inserted_side_by_side() {
    explore(5, || {
        let fixture = Arc::new(Fixture::new());
        let other = fixture.clone();
        let thread = thread::spawn(move || {
            other.insert(&[("a", 2, LOW), ("c", 2, HIGH)]);
        });
        fixture.insert(&[("b", 3, HIGH), ("d", 3, LOW)]);
        thread.join().unwrap();
        let expected = keys(&[("a", 2), ("b", 3), ("c", 2), ("d", 3)]);
        assert_eq!(fixture.check(), expected);
    });
}

#[test]
fn of_two_versions_of_a_key_one_finds_the_other() {
    explore(5, || {
        let fixture = Arc::new(Fixture::new());
        fixture.insert(&[("a", 1, LOW)]);
        let other = fixture.clone();
        let thread = thread::spawn(move || other.insert(&[("a", 2, HIGH)])[0]);
        let newer = fixture.insert(&[("a", 3, LOW)])[0];
        let older = thread.join().unwrap();
        assert_eq!(fixture.check(), keys(&[("a", 3), ("a", 2), ("a", 1)]));
        // Both orders of insertion are correct; sizes then count 1 to 3 in one step or two.
        let in_order = older == (false, Some(1)) && newer == (false, Some(2));
        let in_reverse = newer == (false, Some(1)) && older == (true, Some(1));
        assert!(in_order || in_reverse, "{older:?} {newer:?}");
    });
}

#[test]
fn a_reader_walks_both_ways_while_others_insert() {
    explore(5, || {
        let fixture = Arc::new(Fixture::new());
        fixture.insert(&[("a", 1, LOW), ("d", 1, HIGH)]);
        let other = fixture.clone();
        let thread = thread::spawn(move || {
            other.insert(&[("b", 2, HIGH), ("c", 2, LOW)]);
        });
        fixture.walk();
        let last = fixture.list.last().unwrap();
        assert_eq!(last.key(), b"d");
        thread.join().unwrap();
        fixture.check();
    });
}

#[test]
fn visible_entries_are_found() {
    explore(3, || {
        let fixture = Arc::new(Fixture::new());
        fixture.insert(&[("b", 1, HIGH)]);
        let visible = Arc::new(AtomicUsize::new(1));
        let other = (fixture.clone(), visible.clone());
        let thread = thread::spawn(move || {
            other
                .0
                .insert(&[("a", 2, HIGH), ("b", 2, LOW), ("c", 2, LOW)]);
            other.1.store(2, Ordering::Release);
        });
        let seq = visible.load(Ordering::Acquire) as u64;
        let list = &fixture.list;
        let found = |key: &str| list.get(key.as_bytes(), seq).map(NodeRef::seq);
        let new = (seq == 2).then_some(2);
        assert_eq!((found("a"), found("c")), (new, new));
        assert_eq!(found("b"), Some(seq));
        let before_c = list.before(b"c", u64::MAX).unwrap();
        assert_eq!(before_c.key(), b"b");
        thread.join().unwrap();
    });
}

#[test]
fn sizes_are_summed_as_of_any_sequence() {
    explore(5, || {
        let fixture = Arc::new(Fixture::new());
        let add = |fixture: &Fixture, seq: u64, entries: i64| {
            let delta = Delta {
                entries,
                ..Delta::default()
            };
            // SAFETY: the fixture keeps the arena.
            unsafe { fixture.sizes.add(&mut fixture.arena.room(), seq, delta) };
        };
        add(&fixture, 1, 1);
        let other = fixture.clone();
        let thread = thread::spawn(move || {
            // SAFETY: as above.
            unsafe { other.sizes.begin(&mut other.arena.room(), 3) };
            add(&other, 4, 40);
        });
        add(&fixture, 2, 10);
        add(&fixture, 5, 100);
        // Later changes do not affect what is visible.
        assert_eq!(fixture.sizes.entries(0, 1), 1);
        assert_eq!(fixture.sizes.entries(0, 2), 11);
        thread.join().unwrap();
        let sizes = &fixture.sizes;
        assert_eq!((sizes.entries(0, 1), sizes.entries(0, 2)), (1, 11));
        assert_eq!((sizes.entries(3, 3), sizes.entries(3, 4)), (0, 40));
        assert_eq!(sizes.entries(3, 5), 140);
    });
}

#[test]
fn the_index_knows_the_newest_version() {
    explore(4, || {
        let fixture = Arc::new(Fixture::new());
        fixture.enter("a", 1);
        let other = fixture.clone();
        let thread = thread::spawn(move || other.enter("a", 3));
        // An older version, possibly entered later.
        fixture.enter("a", 2);
        let known = fixture.known("a");
        assert!(matches!(known, Ok(Some(2 | 3))), "{known:?}");
        thread.join().unwrap();
        assert_eq!(fixture.known("a"), Ok(Some(3)));
    });
}

#[test]
fn two_keys_of_one_slot_are_both_found() {
    explore(4, || {
        let fixture = Arc::new(Fixture::new());
        let other = fixture.clone();
        let thread = thread::spawn(move || other.enter("a", 1));
        fixture.enter("b", 2);
        assert_eq!(fixture.known("b"), Ok(Some(2)));
        let known = fixture.known("a");
        assert!(!matches!(known, Ok(Some(2..))), "{known:?}");
        thread.join().unwrap();
        assert_eq!(fixture.known("a"), Ok(Some(1)));
        assert_eq!(fixture.known("b"), Ok(Some(2)));
    });
}

#[test]
fn a_full_index_reports_no_key_as_absent() {
    explore(3, || {
        let fixture = Arc::new(Fixture::new());
        // Three of its four slots may be taken.
        fixture.enter("a", 1);
        fixture.enter("b", 2);
        let other = fixture.clone();
        let thread = thread::spawn(move || other.enter("c", 3));
        fixture.enter("d", 4);
        assert!(matches!(fixture.known("d"), Ok(Some(4)) | Err(())));
        thread.join().unwrap();
        for (key, seq) in [("c", 3), ("d", 4)] {
            let known = fixture.known(key);
            assert!(
                known == Ok(Some(seq)) || known == Err(()),
                "{key}: {known:?}"
            );
        }
        fixture.enter("e", 5);
        assert!(matches!(fixture.known("e"), Ok(Some(5)) | Err(())));
        for (key, seq) in [("a", 1), ("b", 2)] {
            assert_eq!(fixture.known(key), Ok(Some(seq)));
        }
    });
}

#[test]
fn a_put_splits_a_run_recorded_concurrently() {
    explore(4, || {
        let fixture = Arc::new(Fixture::new());
        for key in ["a", "b"] {
            fixture.change(key, 1, false);
        }
        let visible = Arc::new(AtomicUsize::new(1));
        let other = (fixture.clone(), visible.clone());
        let writer = thread::spawn(move || {
            other.0.change("b", 2, true);
            other.1.store(2, Ordering::Release);
        });
        // A reader at 1 that has passed both.
        fixture.runs.note(&fixture.list, b"a", b"b", 1);
        // A later reader never skips a version that it must see.
        if visible.load(Ordering::Acquire) == 2 {
            assert!(fixture.runs.over(b"b", 2).is_none());
        }
        writer.join().unwrap();
        assert!(fixture.runs.over(b"b", 2).is_none());
    });
}

#[test]
fn a_put_during_two_recordings_is_seen() {
    explore(2, || {
        let fixture = Arc::new(Fixture::new());
        for key in ["a", "b", "c"] {
            fixture.change(key, 1, false);
        }
        let other = fixture.clone();
        let reader = thread::spawn(move || other.runs.note(&other.list, b"b", b"c", 1));
        let other = fixture.clone();
        let writer = thread::spawn(move || other.change("b", 2, true));
        fixture.runs.note(&fixture.list, b"a", b"b", 1);
        reader.join().unwrap();
        writer.join().unwrap();
        assert!(fixture.runs.over(b"b", 2).is_none());
    });
}
