//! The naive model: a map of maps, and operations that are applied one after the other.

use std::collections::BTreeMap;
use std::ops::Bound;

use proptest::prelude::*;
use sheaf_storage::*;

pub type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model(pub BTreeMap<TableId, Rows>);

#[derive(Clone, Debug)]
pub enum Op {
    Put(TableId, Vec<u8>, Vec<u8>),
    /// Changes a value slightly, or puts one; only for batches made by [`Model::batch`].
    Change(TableId, Vec<u8>, u64),
    Delete(TableId, Vec<u8>),
    Range(TableId, Vec<u8>, Option<Vec<u8>>),
    Create(TableId),
    Drop(TableId),
}

impl Op {
    pub fn add_to(&self, batch: &mut WriteBatch) {
        match self {
            Op::Put(table, key, value) => batch.put(*table, key, value.clone()),
            Op::Change(..) => panic!("its value depends on the current one"),
            Op::Delete(table, key) => batch.delete(*table, key),
            Op::Range(table, lo, hi) => batch.delete_range(*table, lo, hi.as_deref()),
            Op::Create(table) => batch.create_table(*table),
            Op::Drop(table) => batch.drop_table(*table),
        }
    }
}

impl Model {
    pub fn new() -> Model {
        Model(BTreeMap::from([(TableId::CATALOG, Rows::new())]))
    }

    /// Applies one operation; `false` if the tables forbid it.
    pub fn apply(&mut self, op: &Op) -> bool {
        match op {
            Op::Put(table, key, value) => match self.0.get_mut(table) {
                Some(rows) => {
                    rows.insert(key.clone(), value.clone());
                    true
                }
                None => false,
            },
            Op::Change(table, key, seed) => match self.0.get_mut(table) {
                Some(rows) => {
                    let value = changed(rows.get(key), *seed);
                    rows.insert(key.clone(), value);
                    true
                }
                None => false,
            },
            Op::Delete(table, key) => match self.0.get_mut(table) {
                Some(rows) => {
                    rows.remove(key);
                    true
                }
                None => false,
            },
            Op::Range(table, lo, hi) => match self.0.get_mut(table) {
                Some(rows) => {
                    rows.retain(|key, _| key < lo || hi.as_ref().is_some_and(|hi| key >= hi));
                    true
                }
                None => false,
            },
            Op::Create(table) => self.0.insert(*table, Rows::new()).is_none(),
            Op::Drop(table) => *table != TableId::CATALOG && self.0.remove(table).is_some(),
        }
    }

    /// The batch of `ops` on this state, with hints and bases for the replaced values.
    pub fn batch(&self, ops: &[Op]) -> WriteBatch {
        let (mut batch, mut now) = (WriteBatch::new(), self.clone());
        for op in ops {
            let (table, key, value) = match op {
                Op::Put(table, key, value) => (*table, key, value.clone()),
                Op::Change(table, key, seed) => {
                    let before = now.0.get(table).and_then(|rows| rows.get(key));
                    (*table, key, changed(before, *seed))
                }
                _ => {
                    op.add_to(&mut batch);
                    now.apply(op);
                    continue;
                }
            };
            match now.0.get(&table).and_then(|rows| rows.get(key)) {
                Some(base) => batch.put_over(table, key, value, &base.clone().into()),
                None => batch.put(table, key, value),
            }
            now.apply(op);
        }
        batch
    }

    /// Applies all of them or, if the tables forbid one, none.
    pub fn apply_all(&mut self, ops: &[Op]) -> bool {
        let mut after = self.clone();
        let accepted = ops.iter().all(|op| after.apply(op));
        if accepted {
            *self = after;
        }
        accepted
    }
}

/// All entries of these tables in a view.
pub fn dump(view: &dyn Snapshot, tables: impl IntoIterator<Item = TableId>) -> Model {
    let mut model = BTreeMap::new();
    for table in tables {
        if !view.contains_table(table).unwrap() {
            assert_eq!(view.len(table), Err(StorageError::NoSuchTable(table)));
            continue;
        }
        let mut rows = Rows::new();
        let mut cursor = view.cursor(table).unwrap();
        let mut found = cursor.seek_first().unwrap();
        while found {
            rows.insert(cursor.key().to_vec(), cursor.value().to_vec());
            found = cursor.next().unwrap();
        }
        assert_eq!(view.len(table).unwrap(), rows.len() as u64);
        model.insert(table, rows);
    }
    Model(model)
}

/// A changed value: the same with some bytes replaced, inserted or deleted.
fn changed(before: Option<&Vec<u8>>, seed: u64) -> Vec<u8> {
    let mut value = before.cloned().unwrap_or_default();
    if !(100..20_000).contains(&value.len()) {
        return (0..300 + seed % 500)
            .map(|n| (n.wrapping_mul(seed | 1) >> 3) as u8)
            .collect();
    }
    for place in 0..1 + seed % 3 {
        let at = (seed >> (8 + 16 * place)) as usize % value.len();
        let end = value.len().min(at + (seed >> 4) as usize % 13);
        let put = vec![(seed >> 24) as u8; (seed >> 6) as usize % 11];
        value.splice(at..end, put);
    }
    value
}

#[derive(Clone, Debug)]
pub enum Move {
    Seek(Vec<u8>),
    SeekForPrev(Vec<u8>),
    First,
    Last,
    Next(u8),
    Prev(u8),
    Suspend,
}

/// Moves one cursor and compares every position with the model.
pub fn check_moves(view: &dyn Snapshot, table: TableId, rows: &Rows, moves: &[Move]) {
    let mut cursor = view.cursor(table).unwrap();
    let mut at: Option<&[u8]> = None;
    for step in moves {
        if let Move::Suspend = step {
            cursor.suspend();
            assert_eq!(cursor.valid().then(|| cursor.key()), at);
            continue;
        }
        let repeat = match step {
            Move::Next(times) | Move::Prev(times) => *times,
            _ => 1,
        };
        for _ in 0..repeat {
            let (found, expected) = match step {
                Move::Seek(key) => (cursor.seek(key).unwrap(), rows.range(key.clone()..).next()),
                Move::SeekForPrev(key) => (
                    cursor.seek_for_prev(key).unwrap(),
                    rows.range(..=key.clone()).next_back(),
                ),
                Move::First => (cursor.seek_first().unwrap(), rows.iter().next()),
                Move::Last => (cursor.seek_last().unwrap(), rows.iter().next_back()),
                Move::Next(_) => (
                    cursor.next().unwrap(),
                    at.and_then(|at| {
                        let from = (Bound::Excluded(at), Bound::Unbounded);
                        rows.range::<[u8], _>(from).next()
                    }),
                ),
                Move::Prev(_) => (
                    cursor.prev().unwrap(),
                    at.and_then(|at| {
                        let upto = (Bound::Unbounded, Bound::Excluded(at));
                        rows.range::<[u8], _>(upto).next_back()
                    }),
                ),
                Move::Suspend => unreachable!("done above"),
            };
            let entry = found.then(|| (cursor.key(), cursor.value()));
            assert_eq!(entry, expected.map(|(k, v)| (&k[..], &v[..])), "{step:?}");
            assert_eq!(cursor.valid(), found);
            at = expected.map(|(key, _)| &key[..]);
        }
    }
}

/// The tables that scripts use, and one that never exists.
pub const TABLES: [TableId; 4] = [TableId(0), TableId(1), TableId(2), TableId(0xabc)];

fn table() -> impl Strategy<Value = TableId> {
    prop_oneof![
        1 => Just(TABLES[0]),
        5 => Just(TABLES[1]),
        4 => Just(TABLES[2]),
        1 => Just(TABLES[3]),
    ]
}

/// Keys of several lengths from a small space, so that they collide.
pub fn key() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(7), Just(255)], 0..4)
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => proptest::collection::vec(any::<u8>(), 0..20),
        1 => (any::<u8>(), 0_usize..9000).prop_map(|(byte, len)| vec![byte; len]),
    ]
}

pub fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => (table(), key(), value()).prop_map(|(t, k, v)| Op::Put(t, k, v)),
        5 => (table(), key()).prop_map(|(t, k)| Op::Delete(t, k)),
        2 => (table(), key(), proptest::option::of(key())).prop_map(|(t, lo, hi)| Op::Range(t, lo, hi)),
        2 => table().prop_map(Op::Create),
        1 => table().prop_map(Op::Drop),
    ]
}

/// An operation on a known state.
pub fn op_or_change() -> impl Strategy<Value = Op> {
    prop_oneof![
        5 => op(),
        2 => (table(), key(), any::<u64>()).prop_map(|(t, k, seed)| Op::Change(t, k, seed)),
    ]
}

pub fn moves() -> impl Strategy<Value = Vec<Move>> {
    proptest::collection::vec(
        prop_oneof![
            3 => key().prop_map(Move::Seek),
            3 => key().prop_map(Move::SeekForPrev),
            1 => Just(Move::First),
            1 => Just(Move::Last),
            4 => (1_u8..4).prop_map(Move::Next),
            4 => (1_u8..4).prop_map(Move::Prev),
            3 => Just(Move::Suspend),
        ],
        1..12,
    )
}
