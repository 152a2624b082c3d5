//! The size and memory of the tree file, and readers concurrent with a writer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use sheaf_storage::budget::MemoryBudget;
use sheaf_storage::folder::{DiskFolder, Folder};
use sheaf_storage::testing::fault::FaultFolder;
use sheaf_storage::tree::{PageReading, TableOptions, TreeFile, TreeOptions};
use sheaf_storage::{StorageError, TableId};

use crate::tree::{List, Map, Tables, What, check, options, verified};

const TABLE: TableId = TableId(1);
const OTHER: TableId = TableId(2);

fn simulated() -> Arc<dyn Folder> {
    Arc::new(FaultFolder::default())
}

fn with_table(reading: PageReading, folder: &Arc<dyn Folder>, cache: u64) -> TreeFile {
    let file = TreeFile::create(folder, "tree", options(reading, cache)).unwrap();
    let mut writer = file.writer().unwrap();
    writer.create_table(TABLE, TableOptions::default()).unwrap();
    writer.create_table(OTHER, TableOptions::default()).unwrap();
    writer.commit(1).unwrap();
    file
}

fn apply(file: &TreeFile, changes: impl IntoIterator<Item = (Vec<u8>, What)>) {
    let mut writer = file.writer().unwrap();
    writer.apply(TABLE, &mut List::new(changes)).unwrap();
    writer.commit(2).unwrap();
}

/// Well-distributed keys, so that changes are spread over the table.
fn key(n: u64) -> Vec<u8> {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec()
}

#[test]
fn the_file_shrinks_after_most_data_is_deleted() {
    let file = with_table(PageReading::Cached, &simulated(), 1 << 20);
    let value = |n: u64| vec![n as u8; 400];
    apply(&file, (0..20_000).map(|n| (key(n), What::Put(value(n)))));
    let full = file.stats().file_bytes;
    // The keys are scattered, so the remaining ones are spread over the file.
    let mut map: Map = (0..20_000).map(|n| (key(n), value(n))).collect();
    let gone: Vec<u64> = (0..20_000).filter(|n| n % 10 != 0).collect();
    for part in gone.chunks(4500) {
        apply(&file, part.iter().map(|n| (key(*n), What::Delete)));
        part.iter().for_each(|n| drop(map.remove(&key(*n))));
    }
    // Each commit moves a part of the end.
    for _ in 0..30 {
        apply(&file, [(b"z".to_vec(), What::Put(b"z".to_vec()))]);
    }
    map.insert(b"z".to_vec(), b"z".to_vec());
    verified(&file);
    check(
        &file.roots(),
        &Tables::from([(TABLE, map), (OTHER, Map::new())]),
    );
    let stats = file.stats();
    assert!(
        stats.file_bytes * 4 < full,
        "{} of {full} bytes left",
        stats.file_bytes
    );
    let mut writer = file.writer().unwrap();
    writer.drop_table(TABLE).unwrap();
    writer.commit(3).unwrap();
    // That commit wrote into the space that the table had freed; later commits find more space
    // before it.
    for table in 10..13 {
        let mut writer = file.writer().unwrap();
        writer
            .create_table(TableId(table), TableOptions::default())
            .unwrap();
        writer.commit(table).unwrap();
    }
    drop(file.writer().unwrap());
    assert!(file.stats().file_bytes < 100_000, "{:?}", file.stats());
    verified(&file);
}

#[test]
fn pages_at_the_end_are_moved_by_later_commits() {
    let path = tempfile::tempdir().unwrap();
    let folder: Arc<dyn Folder> = Arc::new(DiskFolder::open(path.path()).unwrap());
    let file = with_table(PageReading::Mapped, &folder, 1 << 20);
    let number = |n: u32| n.to_be_bytes().to_vec();
    apply(
        &file,
        (0..20_000).map(|n| (number(n), What::Put(vec![n as u8; 300]))),
    );
    let full = file.stats().file_bytes;
    let held = file.roots();
    // The first three quarters are deleted; the last one stays in place, at the end.
    apply(
        &file,
        [(number(0), What::DeleteRange(Some(number(15_000))))],
    );
    let map: Map = (15_000..20_000)
        .map(|n| (number(n), vec![n as u8; 300]))
        .collect();
    let tables = Tables::from([(TABLE, map), (OTHER, Map::new())]);
    check(&file.roots(), &tables);
    assert!(file.stats().file_bytes >= full);
    drop(held);
    for n in 0..20 {
        let mut writer = file.writer().unwrap();
        writer
            .apply(OTHER, &mut List::new([(vec![n], What::Put(vec![n]))]))
            .unwrap();
        writer
            .apply(OTHER, &mut List::new([(vec![n], What::Delete)]))
            .unwrap();
        writer.commit(9).unwrap();
        check(&file.roots(), &tables);
        verified(&file);
    }
    assert!(file.stats().relocated > 0);
    assert!(
        file.stats().file_bytes * 5 < full * 2,
        "{full}, then {:?}",
        file.stats()
    );
}

#[test]
fn large_values_at_the_end_are_moved_too() {
    let file = with_table(PageReading::Cached, &simulated(), 1 << 20);
    let value = |n: u64| vec![n as u8; 30_000];
    apply(&file, (0..300).map(|n| (key(n), What::Put(value(n)))));
    let full = file.stats().file_bytes;
    apply(
        &file,
        (0..300)
            .filter(|n| n % 10 > 0)
            .map(|n| (key(n), What::Delete)),
    );
    for _ in 0..20 {
        apply(&file, [(b"z".to_vec(), What::Put(b"z".to_vec()))]);
    }
    let mut map: Map = (0..300).step_by(10).map(|n| (key(n), value(n))).collect();
    map.insert(b"z".to_vec(), b"z".to_vec());
    check(
        &file.roots(),
        &Tables::from([(TABLE, map), (OTHER, Map::new())]),
    );
    verified(&file);
    assert!(file.stats().file_bytes * 3 < full, "{:?}", file.stats());
}

#[test]
fn a_held_snapshot_keeps_one_copy_of_its_data() {
    let file = with_table(PageReading::Cached, &simulated(), 1 << 20);
    let value = |n: u64, round: u64| vec![(n + round) as u8; 200];
    apply(&file, (0..5000).map(|n| (key(n), What::Put(value(n, 0)))));
    let first: Map = (0..5000).map(|n| (key(n), value(n, 0))).collect();
    let small = file.stats().file_bytes;
    let held = file.roots();
    let mut sizes = Vec::new();
    for round in 1..60 {
        let part = (0..5000).filter(|n| n % 7 == round % 7);
        apply(&file, part.map(|n| (key(n), What::Put(value(n, round)))));
        sizes.push(file.stats().file_bytes);
        verified(&file);
    }
    // The size converges to that of the old pages, the new ones, and those being written.
    assert!(sizes[58] < small * 4, "{small}, then {sizes:?}");
    assert!(sizes[58] <= sizes[20] + sizes[20] / 8, "{sizes:?}");
    check(&held, &Tables::from([(TABLE, first), (OTHER, Map::new())]));
    drop(held);
    for round in 60..75 {
        apply(&file, [(key(round), What::Put(value(round, round)))]);
    }
    verified(&file);
    assert_eq!(file.stats().waiting_bytes, 0);
    assert!(
        file.stats().file_bytes < small * 2,
        "{small}, then {:?}",
        file.stats()
    );
}

#[test]
fn the_cache_stays_within_the_budget_with_the_largest_values() {
    let folder = simulated();
    let budget = MemoryBudget::new(24 << 20);
    let options = TreeOptions {
        reading: PageReading::Cached,
        budget: budget.clone(),
    };
    let file = TreeFile::create(&folder, "tree", options).unwrap();
    let mut writer = file.writer().unwrap();
    for (table, lz4) in [(TABLE, false), (OTHER, true)] {
        writer.create_table(table, TableOptions { lz4 }).unwrap();
        let large = (0..2).map(|n| (vec![n], What::Put(vec![n; 16 << 20])));
        let small = (10..14).map(|n| (vec![n], What::Put(vec![n; 100_000])));
        writer
            .apply(table, &mut List::new(large.chain(small)))
            .unwrap();
    }
    let roots = writer.commit(1).unwrap();
    for table in [TABLE, OTHER] {
        let mut cursor = roots.cursor(table).unwrap();
        for _ in 0..2 {
            let mut found = cursor.seek_first().unwrap();
            while found {
                let n = cursor.key()[0];
                assert!(cursor.value().iter().step_by(9973).all(|byte| *byte == n));
                assert!(budget.used() <= budget.limit(), "{} bytes", budget.used());
                found = cursor.next().unwrap();
            }
        }
        let value = roots.get(table, &[1]).unwrap().unwrap();
        // The value is lent, not copied: it is charged while it is held.
        assert_eq!((value.len(), value[5]), (16 << 20, 1));
        assert!(budget.used() >= 16 << 20);
        drop(value);
    }
    drop(roots);
    verified(&file);
    let packed = file.roots().table(OTHER).unwrap().disk_bytes;
    assert!(packed < 2 << 20, "{packed} bytes");
}

#[test]
fn a_dropped_table_is_freed_without_reading_its_leaves() {
    let file = with_table(PageReading::Cached, &simulated(), 64 << 10);
    apply(
        &file,
        (0..30_000).map(|n| (key(n), What::Put(vec![1; 100]))),
    );
    let pages = file.roots().table(TABLE).unwrap().disk_bytes / 8192;
    let before = file.stats().pages_read;
    let mut writer = file.writer().unwrap();
    writer.drop_table(TABLE).unwrap();
    assert_eq!(
        writer.drop_table(TABLE),
        Err(StorageError::NoSuchTable(TABLE))
    );
    writer.commit(3).unwrap();
    let read = file.stats().pages_read - before;
    assert!(read * 20 < pages, "{read} pages read of {pages}");
    // Deleting all entries of a table costs the same.
    apply_other(&file);
    verified(&file);
}

fn apply_other(file: &TreeFile) {
    let mut writer = file.writer().unwrap();
    let puts = (0..30_000).map(|n| (key(n), What::Put(vec![1; 100])));
    writer.apply(OTHER, &mut List::new(puts)).unwrap();
    writer.commit(4).unwrap();
    let before = file.stats().pages_read;
    let mut writer = file.writer().unwrap();
    let all = (Vec::new(), What::DeleteRange(None));
    let one = (key(5), What::Put(vec![2; 10]));
    writer.apply(OTHER, &mut List::new([all, one])).unwrap();
    let roots = writer.commit(5).unwrap();
    assert!(file.stats().pages_read - before < 20);
    assert_eq!(roots.table(OTHER).unwrap().entries, 1);
}

#[test]
fn untouched_subtrees_keep_their_pages() {
    let file = with_table(PageReading::Cached, &simulated(), 1 << 20);
    apply(
        &file,
        (0..20_000_u32).map(|n| (n.to_be_bytes().to_vec(), What::Put(vec![1; 60]))),
    );
    let before = file.stats();
    apply(
        &file,
        [(77_u32.to_be_bytes().to_vec(), What::Put(vec![2; 60]))],
    );
    let after = file.stats();
    // A leaf, the pages above it, and the directory.
    assert!(after.pages_written - before.pages_written <= 5);
    // Appended records fill their pages.
    let stats = file.roots().table(TABLE).unwrap();
    assert!(
        stats.disk_bytes * 8 < (stats.key_bytes + stats.value_bytes) * 10,
        "{stats:?}"
    );
}

#[test]
fn keys_and_values_up_to_the_limits_are_accepted() {
    let folder = simulated();
    let file = with_table(PageReading::Cached, &folder, 1 << 20);
    let long: Vec<(Vec<u8>, What)> = (0..40_u8)
        .map(|n| {
            let key = [vec![7; 65_000], vec![n; 1 + usize::from(n) * 13]].concat();
            (key, What::Put(vec![n; usize::from(n)]))
        })
        .collect();
    apply(&file, long.clone());
    let mut map = Map::new();
    List::new(long).apply_to(&mut map);
    check(
        &file.roots(),
        &Tables::from([(TABLE, map), (OTHER, Map::new())]),
    );
    verified(&file);
    let mut writer = file.writer().unwrap();
    let beyond = [(vec![1], What::Put(vec![0; (64 << 20) + 1]))];
    let refused = writer.apply(TABLE, &mut List::new(beyond));
    assert!(
        matches!(refused, Err(StorageError::TooLarge { .. })),
        "{refused:?}"
    );
    let refused = writer.commit(9).map(drop);
    assert!(
        matches!(refused, Err(StorageError::TooLarge { .. })),
        "half of it would be committed"
    );
    let mut bulk = file.bulk(TABLE, TableOptions::default()).unwrap();
    bulk.push(b"b", b"").unwrap();
    assert_eq!(
        bulk.push(b"b", b""),
        Err(StorageError::OutOfOrder { position: 1 })
    );
    drop(bulk);
    verified(&file);
}

/// Readers, a bulk builder and a writer concurrently. Every commit puts one number under all keys.
fn run_concurrently(reading: PageReading, folder: Arc<dyn Folder>) {
    const KEYS: u64 = 400;
    let file = with_table(reading, &folder, 200 << 10);
    let value = |round: u64, n: u64| {
        // A large one at intervals.
        let len = if n % 97 == 0 { 20_000 } else { 120 };
        let mut value = vec![n as u8; len];
        value[..8].copy_from_slice(&round.to_le_bytes());
        value
    };
    let round_of = |value: &[u8]| u64::from_le_bytes(value[..8].try_into().unwrap());
    apply(&file, (0..KEYS).map(|n| (key(n), What::Put(value(0, n)))));
    let done = AtomicBool::new(false);
    let newest = AtomicU64::new(0);
    thread::scope(|scope| {
        for reader in 0..3 {
            let (file, done, newest) = (&file, &done, &newest);
            scope.spawn(move || {
                let mut seen = 0;
                while !done.load(Ordering::Relaxed) || seen < 5 {
                    let least = newest.load(Ordering::SeqCst);
                    let roots = file.roots();
                    let mut cursor = roots.cursor(TABLE).unwrap();
                    let mut found = if reader == 1 {
                        cursor.seek_last()
                    } else {
                        cursor.seek_first()
                    }
                    .unwrap();
                    let round = round_of(cursor.value());
                    assert!(
                        round >= least,
                        "a snapshot older than what was committed before it"
                    );
                    let mut count = 0;
                    while found {
                        assert_eq!(round_of(cursor.value()), round);
                        assert_eq!(
                            cursor.value()[9..]
                                .iter()
                                .find(|byte| **byte != cursor.value()[9]),
                            None
                        );
                        count += 1;
                        found = if reader == 1 {
                            cursor.prev()
                        } else {
                            cursor.next()
                        }
                        .unwrap();
                    }
                    assert_eq!(count, KEYS);
                    let got = roots.get(TABLE, &key(round % KEYS)).unwrap().unwrap();
                    assert_eq!(round_of(&got), round);
                    seen += 1;
                }
            });
        }
        scope.spawn(|| {
            for round in 1..60 {
                let mut bulk = file.bulk(OTHER, TableOptions::default()).unwrap();
                for n in 0..200_u64 {
                    bulk.push(&n.to_be_bytes(), &value(round, n)).unwrap();
                }
                let subtree = bulk.finish().unwrap();
                if round % 3 == 0 {
                    let mut writer = file.writer().unwrap();
                    writer.drop_table(OTHER).unwrap();
                    writer.create_table(OTHER, TableOptions::default()).unwrap();
                    writer.install(OTHER, subtree).unwrap();
                    let sequence = writer.sequence() + 1;
                    writer.commit(sequence).unwrap();
                }
            }
        });
        for round in 1..60 {
            let mut writer = file.writer().unwrap();
            let changes = (0..KEYS).map(|n| (key(n), What::Put(value(round, n))));
            writer.apply(TABLE, &mut List::new(changes)).unwrap();
            if round % 5 == 0 {
                continue; // given up
            }
            let sequence = writer.sequence() + 1;
            writer.commit(sequence).unwrap();
            newest.store(round, Ordering::SeqCst);
        }
        done.store(true, Ordering::Relaxed);
    });
    verified(&file);
    drop(file);
    let file = TreeFile::open(&folder, "tree", options(reading, 200 << 10)).unwrap();
    assert_eq!(file.roots().table(TABLE).unwrap().entries, KEYS);
    verified(&file);
}

#[test]
fn mapped_readers_see_whole_commits_during_writes() {
    let path = tempfile::tempdir().unwrap();
    run_concurrently(
        PageReading::Mapped,
        Arc::new(DiskFolder::open(path.path()).unwrap()),
    );
}

#[test]
fn cached_readers_see_whole_commits_during_writes() {
    let path = tempfile::tempdir().unwrap();
    run_concurrently(
        PageReading::Cached,
        Arc::new(DiskFolder::open(path.path()).unwrap()),
    );
    run_concurrently(PageReading::Cached, simulated());
}

#[test]
fn files_of_other_kinds_are_refused() {
    let open = |bytes: Vec<u8>| {
        let folder: Arc<dyn Folder> = Arc::new(FaultFolder::new([("tree".to_owned(), bytes)]));
        TreeFile::open(&folder, "tree", options(PageReading::Cached, 1 << 20)).map(drop)
    };
    assert!(matches!(
        open(vec![0; 100]),
        Err(StorageError::WrongFormat { .. })
    ));
    assert!(matches!(
        open(b"SQLite format 3".repeat(2000)),
        Err(StorageError::WrongFormat { .. })
    ));
    let folder = FaultFolder::default();
    let shared: Arc<dyn Folder> = Arc::new(folder.clone());
    with_table(PageReading::Cached, &shared, 1 << 20);
    let bytes = folder.content("tree").unwrap();
    open(bytes.clone()).unwrap();
    let mut newer = bytes.clone();
    for at in [0, 2048, 4096, 6144] {
        newer[at + 8] = 2;
        let crc = crc32c::crc32c(&newer[at..at + 508]);
        newer[at + 508..at + 512].copy_from_slice(&crc.to_le_bytes());
    }
    assert_eq!(
        open(newer),
        Err(StorageError::NewerFormat {
            found: 2,
            supported: 1
        })
    );
    let cut = bytes[..bytes.len() - 4096].to_vec();
    assert!(matches!(open(cut), Err(StorageError::Corrupt { .. })));
    let exists = TreeFile::create(&shared, "tree", options(PageReading::Cached, 1 << 20)).map(drop);
    assert!(matches!(exists, Err(StorageError::Io { .. })), "{exists:?}");
}
