//! The tree file against a model: sorted maps, and a list of the snapshots that are held.
//!
//! Runs cover both ways of reading pages, compressed and plain tables, real and simulated folders.
//! After every commit the whole file is verified, so the accounting of free space is exact at every
//! step.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use sheaf_storage::budget::MemoryBudget;
use sheaf_storage::folder::{DiskFolder, Folder};
use sheaf_storage::testing::fault::FaultFolder;
use sheaf_storage::tree::{
    Change, Changes, PageReading, Roots, TableOptions, TreeFile, TreeOptions, copy_entries,
};
use sheaf_storage::{StorageError, TableId, TableStats};

pub type Map = BTreeMap<Vec<u8>, Vec<u8>>;
pub type Tables = BTreeMap<TableId, Map>;

/// Changes from a list.
pub struct List {
    list: Vec<(Vec<u8>, What)>,
    at: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    // Precedes changes of the same key.
    DeleteRange(Option<Vec<u8>>),
    Delete,
    Put(Vec<u8>),
}

impl List {
    /// Sorted, each key once: if a key is changed twice, the later change is kept.
    pub fn new(list: impl IntoIterator<Item = (Vec<u8>, What)>) -> List {
        let mut keys = BTreeMap::new();
        let mut ranges = BTreeMap::new();
        for (key, what) in list {
            match what {
                What::DeleteRange(end) => ranges.insert(key, What::DeleteRange(end)),
                what => keys.insert(key, what),
            };
        }
        let mut list: Vec<_> = ranges.into_iter().chain(keys).collect();
        list.sort();
        List { list, at: 0 }
    }

    pub fn apply_to(&self, map: &mut Map) {
        for (lo, what) in &self.list {
            if let What::DeleteRange(hi) = what {
                map.retain(|key, _| key < lo || hi.as_ref().is_some_and(|hi| key >= hi));
            }
        }
        for (key, what) in &self.list {
            match what {
                What::DeleteRange(_) => {}
                What::Delete => {
                    map.remove(key);
                }
                What::Put(value) => {
                    map.insert(key.clone(), value.clone());
                }
            }
        }
    }
}

impl Changes for List {
    fn current(&self) -> Option<Change<'_>> {
        self.list.get(self.at).map(|(key, what)| match what {
            What::DeleteRange(end) => Change::DeleteRange(key, end.as_deref()),
            What::Delete => Change::Delete(key),
            What::Put(value) => Change::Put(key, value),
        })
    }

    fn advance(&mut self) -> Result<(), StorageError> {
        self.at += 1;
        Ok(())
    }
}

pub fn options(reading: PageReading, cache: u64) -> TreeOptions {
    TreeOptions {
        reading,
        budget: MemoryBudget::new(cache),
    }
}

pub fn sums(map: &Map) -> (u64, u64, u64) {
    let keys = map.keys().map(|key| key.len() as u64).sum();
    let values = map.values().map(|value| value.len() as u64).sum();
    (map.len() as u64, keys, values)
}

/// Reads everything in both directions; looks up and seeks existing and missing keys.
pub fn check(roots: &Arc<Roots>, tables: &Tables) {
    assert_eq!(
        roots.tables().collect::<Vec<_>>(),
        tables.keys().copied().collect::<Vec<_>>()
    );
    for (table, map) in tables {
        let stats = roots.table(*table).unwrap();
        let TableStats {
            entries,
            key_bytes,
            value_bytes,
            ..
        } = stats;
        assert_eq!((entries, key_bytes, value_bytes), sums(map), "{table}");
        let mut cursor = roots.cursor(*table).unwrap();
        let mut found = cursor.seek_first().unwrap();
        for (key, value) in map {
            assert!(found && cursor.valid());
            let short = |bytes: &[u8]| (bytes.len(), bytes[..bytes.len().min(20)].to_vec());
            assert_eq!(short(cursor.key()), short(key));
            assert_eq!(short(cursor.value()), short(value), "of {:?}", short(key));
            assert!(cursor.key() == key && cursor.value() == value);
            assert!(cursor.value_bytes() == value);
            found = cursor.next().unwrap();
        }
        assert!(!found && !cursor.valid());
        found = cursor.seek_last().unwrap();
        for (key, value) in map.iter().rev() {
            assert!(found && cursor.key() == key && cursor.value() == value);
            found = cursor.prev().unwrap();
        }
        assert!(!found);
        let step = map.len() / 40 + 1;
        for (key, value) in map.iter().step_by(step) {
            assert!(roots.get(*table, key).unwrap().as_deref() == Some(value));
            for asked in [
                key.clone(),
                [&key[..], &[0]].concat(),
                key[..key.len() / 2].to_vec(),
            ] {
                check_around(&mut cursor, map, &asked);
                let got = roots.get(*table, &asked).unwrap();
                assert!(got.as_deref() == map.get(&asked).map(|value| &value[..]));
            }
        }
    }
}

fn check_around(cursor: &mut sheaf_storage::tree::TreeCursor, map: &Map, asked: &[u8]) {
    let asked = asked.to_vec();
    let above = map.range(asked.clone()..).next();
    assert_eq!(cursor.seek(&asked).unwrap(), above.is_some());
    assert!(cursor.key() == above.map_or(&[][..], |(key, _)| key));
    if let Some((key, _)) = above {
        let before = map.range(..key.clone()).next_back();
        assert_eq!(cursor.prev().unwrap(), before.is_some());
        assert!(cursor.key() == before.map_or(&[][..], |(key, _)| key));
    }
    let below = map.range(..=asked.clone()).next_back();
    assert_eq!(cursor.seek_for_prev(&asked).unwrap(), below.is_some());
    assert!(cursor.key() == below.map_or(&[][..], |(key, _)| key));
    if let Some((key, _)) = below {
        let after = map.range([key, &[0][..]].concat()..).next();
        assert_eq!(cursor.next().unwrap(), after.is_some());
        assert!(cursor.key() == after.map_or(&[][..], |(key, _)| key));
    }
}

pub fn verified(file: &TreeFile) {
    let roots = file.roots();
    let verified = file.verify(&roots, &mut |_| {}).unwrap();
    assert_eq!(verified.findings, []);
    assert_eq!(
        verified.entries,
        roots
            .tables()
            .map(|table| roots.table(table).unwrap().entries)
            .sum()
    );
}

/// An action on the file between two commits.
#[derive(Clone, Debug)]
enum Act {
    Apply(u8, Vec<(Vec<u8>, What)>),
    Create(u8, bool),
    Drop(u8),
    Bulk(u8, Map),
    Commit,
    Abandon,
    Hold,
    Release(prop::sample::Index),
    Reopen,
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => (0_u16..2000).prop_map(|number| number.to_be_bytes().to_vec()),
        4 => (0_u16..300).prop_map(|number| [b"a common beginning, long ".repeat(4), number.to_be_bytes().to_vec()].concat()),
        2 => prop::collection::vec(0_u8..4, 0..6),
        1 => (0_u8..6, 1_usize..20).prop_map(|(byte, len)| vec![byte; len * 350]),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => prop::collection::vec(any::<u8>(), 0..40),
        4 => (any::<u8>(), 100_usize..1500).prop_map(|(byte, len)| vec![byte; len]),
        1 => (any::<u8>(), 4000_usize..40_000).prop_map(|(byte, len)| vec![byte; len]),
    ]
}

fn changes() -> impl Strategy<Value = Vec<(Vec<u8>, What)>> {
    let one = prop_oneof![
        12 => (key(), value()).prop_map(|(key, value)| (key, What::Put(value))),
        6 => key().prop_map(|key| (key, What::Delete)),
        1 => (key(), prop::option::weighted(0.9, key())).prop_map(|(lo, hi)| (lo, What::DeleteRange(hi))),
    ];
    prop_oneof![
        prop::collection::vec(one, 0..150),
        // Many consecutive keys, as records are inserted.
        (0_u16..1500, 1_u16..400, value()).prop_map(|(from, count, value)| {
            (from..from + count)
                .map(|number| (number.to_be_bytes().to_vec(), What::Put(value.clone())))
                .collect()
        }),
        (0_u16..2000, 1_u16..700).prop_map(|(from, count)| {
            (from..from + count)
                .map(|number| (number.to_be_bytes().to_vec(), What::Delete))
                .collect()
        }),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        12 => (0_u8..3, changes()).prop_map(|(table, changes)| Act::Apply(table, changes)),
        2 => (0_u8..3, any::<bool>()).prop_map(|(table, lz4)| Act::Create(table, lz4)),
        1 => (0_u8..3).prop_map(Act::Drop),
        2 => (0_u8..3, prop::collection::btree_map(key(), value(), 0..300)).prop_map(|(table, map)| Act::Bulk(table, map)),
        8 => Just(Act::Commit),
        1 => Just(Act::Abandon),
        2 => Just(Act::Hold),
        2 => any::<prop::sample::Index>().prop_map(Act::Release),
        1 => Just(Act::Reopen),
    ]
}

fn run(folder: Arc<dyn Folder>, reading: PageReading, cache: u64, acts: Vec<Act>) {
    let mut file = TreeFile::create(&folder, "tree", options(reading, cache)).unwrap();
    let mut committed = Tables::new();
    let mut pending = committed.clone();
    let mut held: Vec<(Arc<Roots>, Tables)> = Vec::new();
    let mut writer = None;
    let mut sequence = 0;
    for act in acts {
        match act {
            Act::Apply(table, changes) => {
                let table = TableId(u64::from(table));
                let writer = writer.get_or_insert_with(|| file.writer().unwrap());
                let mut list = List::new(changes);
                match pending.get_mut(&table) {
                    Some(map) => {
                        list.apply_to(map);
                        writer.apply(table, &mut list).unwrap();
                        let stats = writer.table(table).unwrap();
                        assert_eq!(
                            (stats.entries, stats.key_bytes, stats.value_bytes),
                            sums(map)
                        );
                    }
                    None => assert_eq!(
                        writer.apply(table, &mut list),
                        Err(StorageError::NoSuchTable(table))
                    ),
                }
            }
            Act::Create(table, lz4) => {
                let table = TableId(u64::from(table));
                let writer = writer.get_or_insert_with(|| file.writer().unwrap());
                let created = writer.create_table(table, TableOptions { lz4 });
                match pending.get(&table) {
                    None => {
                        created.unwrap();
                        pending.insert(table, Map::new());
                    }
                    Some(_) => assert_eq!(created, Err(StorageError::TableExists(table))),
                }
            }
            Act::Drop(table) => {
                let table = TableId(u64::from(table));
                let writer = writer.get_or_insert_with(|| file.writer().unwrap());
                let dropped = writer.drop_table(table);
                assert_eq!(dropped.is_ok(), pending.remove(&table).is_some());
            }
            Act::Bulk(table, map) => {
                let table = TableId(u64::from(table));
                let mut bulk = file.bulk(table, TableOptions::default()).unwrap();
                map.iter()
                    .for_each(|(key, value)| bulk.push(key, value).unwrap());
                let subtree = bulk.finish().unwrap();
                let writer = writer.get_or_insert_with(|| file.writer().unwrap());
                let installed = writer.install(table, subtree);
                match pending.get_mut(&table) {
                    None => assert_eq!(installed, Err(StorageError::NoSuchTable(table))),
                    Some(old) if !old.is_empty() => {
                        assert_eq!(installed, Err(StorageError::TableNotEmpty(table)));
                    }
                    Some(old) => {
                        installed.unwrap();
                        *old = map;
                    }
                }
            }
            Act::Commit => {
                if let Some(writer) = writer.take() {
                    sequence += 7;
                    let roots = writer.commit(sequence).unwrap();
                    assert_eq!(roots.sequence(), sequence);
                    committed = pending.clone();
                    check(&roots, &committed);
                    verified(&file);
                }
            }
            Act::Abandon => {
                writer = None;
                pending = committed.clone();
                check(&file.roots(), &committed);
                verified(&file);
            }
            Act::Hold => held.push((file.roots(), committed.clone())),
            Act::Release(which) if !held.is_empty() => {
                let (roots, tables) = held.swap_remove(which.index(held.len()));
                check(&roots, &tables);
            }
            Act::Release(_) => {}
            Act::Reopen => {
                writer = None;
                pending = committed.clone();
                for (roots, tables) in held.drain(..) {
                    check(&roots, &tables);
                }
                drop(file);
                file = TreeFile::open(&folder, "tree", options(reading, cache)).unwrap();
                check(&file.roots(), &committed);
                verified(&file);
            }
        }
    }
    drop(writer);
    for (roots, tables) in held.drain(..) {
        check(&roots, &tables);
    }
    verified(&file);
    let copy: Arc<dyn Folder> = Arc::new(FaultFolder::default());
    let roots = file.roots();
    TreeFile::copy_tables(
        &copy,
        "copy",
        MemoryBudget::new(1 << 20),
        roots.sequence(),
        &roots.table_options(),
        &mut |table, sink| copy_entries(&mut roots.cursor(table)?, sink),
    )
    .unwrap();
    drop(roots);
    let copy = TreeFile::open(&copy, "copy", options(PageReading::Cached, 1 << 20)).unwrap();
    assert_eq!(copy.roots().sequence(), file.roots().sequence());
    check(&copy.roots(), &committed);
    verified(&copy);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_mapped_tree_is_a_sorted_map(acts in prop::collection::vec(act(), 1..60)) {
        let path = tempfile::tempdir().unwrap();
        run(Arc::new(DiskFolder::open(path.path()).unwrap()), PageReading::Mapped, 1 << 20, acts);
    }

    #[test]
    fn a_cached_tree_is_a_sorted_map(acts in prop::collection::vec(act(), 1..60)) {
        run(Arc::new(FaultFolder::default()), PageReading::Cached, 1 << 16, acts);
    }
}
