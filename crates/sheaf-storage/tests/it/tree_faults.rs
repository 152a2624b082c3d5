//! The tree file on a disk that crashes, fails, fills up, and returns wrong bytes.

use std::io::ErrorKind;
use std::sync::Arc;

use proptest::prelude::*;
use sheaf_storage::folder::Folder;
use sheaf_storage::testing::fault::{Fault, FaultFolder, Remains};
use sheaf_storage::tree::{PageReading, Salvage, TableOptions, TreeFile, salvage};
use sheaf_storage::{StorageError, TableId};

use crate::tree::{List, Map, Tables, What, check, options, verified};

const PLAIN: TableId = TableId(1);
const PACKED: TableId = TableId(2);
const CACHE: u64 = 256 << 10;

fn dyn_folder(folder: &FaultFolder) -> Arc<dyn Folder> {
    Arc::new(folder.clone())
}

fn open(folder: &FaultFolder) -> Result<TreeFile, StorageError> {
    TreeFile::open(
        &dyn_folder(folder),
        "tree",
        options(PageReading::Cached, CACHE),
    )
}

/// The commits of the script, in order.
fn commits() -> Vec<Vec<(TableId, Vec<(Vec<u8>, What)>)>> {
    let key = |n: u32| n.to_be_bytes().to_vec();
    let put = |n: u32, len: usize| (key(n), What::Put(vec![n as u8; len]));
    vec![
        vec![
            (PLAIN, (0..400).map(|n| put(n, 30)).collect()),
            (PACKED, (0..100).map(|n| put(n, 700)).collect()),
        ],
        vec![
            (PLAIN, (0..400).step_by(7).map(|n| put(n, 60)).collect()),
            (PLAIN, vec![put(1000, 50_000), put(1001, 9000)]),
        ],
        vec![(PACKED, vec![(key(20), What::DeleteRange(Some(key(90))))])],
        vec![
            (PLAIN, (100..350).map(|n| (key(n), What::Delete)).collect()),
            (PACKED, vec![put(500, 40_000)]),
        ],
        vec![(PLAIN, vec![(key(1000), What::Delete), put(3, 1)])],
    ]
}

/// Runs the script as far as possible. Returns the states that commits had reached; whether the
/// last one was committed may be unknown.
fn script(folder: &FaultFolder, states: &mut Vec<Tables>) -> Result<(), StorageError> {
    let file = TreeFile::create(
        &dyn_folder(folder),
        "tree",
        options(PageReading::Cached, CACHE),
    )?;
    let mut tables = Tables::new();
    for (index, commit) in commits().into_iter().enumerate() {
        let mut writer = file.writer()?;
        if index == 0 {
            writer.create_table(PLAIN, TableOptions::default())?;
            writer.create_table(PACKED, TableOptions { lz4: true })?;
            tables.extend([(PLAIN, Map::new()), (PACKED, Map::new())]);
        }
        if index == 3 {
            let mut bulk = file.bulk(TableId(9), TableOptions::default())?;
            let map: Map = (0_u32..500)
                .map(|n| (n.to_be_bytes().to_vec(), vec![7; 90]))
                .collect();
            map.iter()
                .try_for_each(|(key, value)| bulk.push(key, value))?;
            writer.create_table(TableId(9), TableOptions::default())?;
            writer.install(TableId(9), bulk.finish()?)?;
            tables.insert(TableId(9), map);
        }
        if index == 4 {
            writer.drop_table(TableId(9))?;
            tables.remove(&TableId(9));
        }
        for (table, changes) in commit {
            let mut list = List::new(changes);
            list.apply_to(tables.get_mut(&table).unwrap());
            writer.apply(table, &mut list)?;
        }
        states.push(tables.clone());
        let roots = writer.commit(index as u64 + 1)?;
        assert_eq!(roots.sequence(), index as u64 + 1);
    }
    Ok(())
}

#[test]
fn a_crash_at_any_event_leaves_the_old_roots_or_the_new_ones() {
    let whole = FaultFolder::default();
    let mut states = vec![Tables::new()];
    script(&whole, &mut states).unwrap();
    let events = whole.events();
    assert!(events > 25, "{events} events");
    for at in 0..=events {
        let folder = FaultFolder::default();
        folder.set_fault(Some(Fault::Crash { at }));
        let mut reached = vec![Tables::new()];
        let ended = script(&folder, &mut reached);
        assert_eq!(ended.is_ok(), at == events);
        let seeds = (0..6).map(|seed| Remains::Some {
            seed: seed + 100 * at,
        });
        for remains in [Remains::Nothing, Remains::All].into_iter().chain(seeds) {
            let found = folder.after_crash(remains);
            let file = match open(&found) {
                Ok(file) => file,
                Err(StorageError::Io {
                    kind: ErrorKind::NotFound,
                    ..
                }) => {
                    assert_eq!(reached.len(), 1, "a file with a commit is gone, event {at}");
                    continue;
                }
                Err(error) => panic!("event {at}, {remains:?}: {error}"),
            };
            let roots = file.roots();
            let sequence = roots.sequence() as usize;
            // The last state may exist or not; those before it are durable.
            assert!(
                sequence + 1 == reached.len() || sequence + 2 == reached.len(),
                "event {at}"
            );
            check(&roots, &reached[sequence]);
            drop(roots);
            if reached.len() == 1 {
                continue;
            }
            // One of the two superblocks may be torn; nothing else is wrong, and writing continues.
            let found = file.verify(&file.roots(), &mut |_| {}).unwrap().findings;
            assert!(
                found.iter().all(|finding| finding.offset < 8192),
                "{found:?}"
            );
            let mut writer = file.writer().unwrap();
            writer
                .create_table(TableId(77), TableOptions::default())
                .unwrap();
            writer.commit(99).unwrap();
            writer = file.writer().unwrap();
            writer.drop_table(TableId(77)).unwrap();
            writer.commit(100).unwrap();
            check(&file.roots(), &reached[sequence]);
            verified(&file);
        }
    }
}

#[test]
fn a_failed_write_or_sync_ends_writing_and_keeps_commits() {
    let whole = FaultFolder::default();
    script(&whole, &mut Vec::new()).unwrap();
    for at in 0..whole.events() {
        for fault in [
            Fault::Error {
                at,
                kind: ErrorKind::Other,
            },
            Fault::ShortWrite {
                at,
                kind: ErrorKind::Other,
            },
            Fault::ErrorsFrom {
                at,
                kind: ErrorKind::StorageFull,
            },
        ] {
            let folder = FaultFolder::default();
            folder.set_fault(Some(fault));
            let mut reached = vec![Tables::new()];
            let before = folder.events();
            match script(&folder, &mut reached) {
                // A file that could not be truncated is still intact, and so is the last commit's
                // state.
                Ok(()) => {}
                Err(
                    StorageError::Io { .. }
                    | StorageError::NoSpace { .. }
                    | StorageError::ReadOnly { .. },
                ) => {}
                Err(error) => panic!("{fault:?}: {error}"),
            }
            assert!(folder.events() > before);
            folder.set_fault(None);
            for remains in [Remains::Nothing, Remains::All, Remains::Some { seed: at }] {
                let Ok(file) = open(&folder.after_crash(remains)) else {
                    assert_eq!(reached.len(), 1, "{fault:?}");
                    continue;
                };
                let sequence = file.roots().sequence() as usize;
                assert!(sequence + 2 >= reached.len(), "{fault:?}");
                check(&file.roots(), &reached[sequence]);
            }
        }
    }
}

#[test]
fn a_full_disk_fails_the_commit_until_there_is_room() {
    let folder = FaultFolder::default();
    let mut states = vec![Tables::new()];
    script(&folder, &mut states).unwrap();
    let file = open(&folder).unwrap();
    let mut tables = states.pop().unwrap();
    let used = file.stats().file_bytes;
    let fresh = |len: usize| {
        (2000_u32..2400).map(move |n| (n.to_be_bytes().to_vec(), What::Put(vec![3; len])))
    };
    for room in [0, 4096, 100_000, 700_000] {
        folder.set_capacity(Some(used + room));
        let mut writer = file.writer().unwrap();
        let applied = writer.apply(PLAIN, &mut List::new(fresh(6000)));
        let ended = applied.and_then(|()| writer.commit(50).map(drop));
        assert!(
            matches!(ended, Err(StorageError::NoSpace { .. })),
            "{ended:?}"
        );
        check(&file.roots(), &tables);
        verified(&file);
    }
    folder.set_capacity(None);
    let mut list = List::new(fresh(6000));
    list.apply_to(tables.get_mut(&PLAIN).unwrap());
    let mut writer = file.writer().unwrap();
    writer.apply(PLAIN, &mut list).unwrap();
    writer.commit(51).unwrap();
    check(&file.roots(), &tables);
    verified(&file);
    check(
        &open(&folder.after_crash(Remains::Nothing)).unwrap().roots(),
        &tables,
    );
}

/// The file after the script, and its contents.
fn finished() -> (Vec<u8>, Tables) {
    let folder = FaultFolder::default();
    let mut states = Vec::new();
    script(&folder, &mut states).unwrap();
    (folder.content("tree").unwrap(), states.pop().unwrap())
}

fn folder_of(bytes: Vec<u8>) -> FaultFolder {
    FaultFolder::new([("tree".to_owned(), bytes)])
}

/// Reads everything; returns whether it was complete and correct.
fn reads_right(folder: &FaultFolder, tables: &Tables) -> bool {
    let Ok(file) = open(folder) else {
        return false;
    };
    let roots = file.roots();
    if roots.tables().collect::<Vec<_>>() != tables.keys().copied().collect::<Vec<_>>() {
        return false;
    }
    tables.iter().all(|(table, map)| {
        let mut cursor = roots.cursor(*table).unwrap();
        let mut found = cursor.seek_first();
        for (key, value) in map {
            if found != Ok(true) || cursor.key() != key || cursor.value() != value {
                assert!(found.is_err(), "wrong bytes without an error");
                return false;
            }
            found = cursor.next();
        }
        found == Ok(false)
    })
}

#[test]
fn any_flipped_bit_is_reported_or_harmless() {
    let (bytes, tables) = finished();
    let mut noticed = 0;
    // The first 64 bytes of every granule, the first 512 of every 2048 in the superblocks, and
    // every 211th byte elsewhere.
    let places = (0..bytes.len())
        .filter(|at| at % 4096 < 64 || at % 211 == 0 || (*at < 8192 && at % 2048 < 512));
    for at in places {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        let folder = folder_of(damaged);
        match open(&folder) {
            Err(StorageError::Corrupt { file, detail }) => {
                assert!(file == "tree" && detail.contains("at offset"), "{detail}");
                noticed += 1;
            }
            Err(error) => panic!("byte {at}: {error}"),
            Ok(file) => {
                let seen = file.verify(&file.roots(), &mut |_| {}).unwrap();
                match seen.findings.first() {
                    Some(finding) => {
                        let at = at as u64;
                        assert!(
                            finding.offset <= at && at < finding.offset + 65_536,
                            "{finding:?}"
                        );
                        noticed += 1;
                    }
                    // In free space, or in the unused end of a granule.
                    None => assert!(reads_right(&folder, &tables)),
                }
            }
        }
        if at < 8192 {
            assert!(
                reads_right(&folder, &tables),
                "each superblock is there twice, byte {at}"
            );
        } else {
            reads_right(&folder, &tables);
        }
    }
    assert!(noticed > 1000, "{noticed}");
}

/// The result of salvaging a file.
fn saved(folder: &FaultFolder) -> (Salvage, Tables) {
    let (answer, tables) = try_to_save(folder);
    (answer.unwrap(), tables)
}

fn try_to_save(folder: &FaultFolder) -> (Result<Salvage, StorageError>, Tables) {
    let mut tables = Tables::new();
    let answer = salvage(&dyn_folder(folder), "tree", &mut |table, key, value| {
        tables
            .entry(table)
            .or_default()
            .insert(key.to_vec(), value.to_vec());
        Ok(())
    });
    (answer, tables)
}

#[test]
fn salvage_saves_readable_data_and_reports_the_rest() {
    let (bytes, tables) = finished();
    let (answer, found) = saved(&folder_of(bytes.clone()));
    assert_eq!(
        (&answer.lost[..], answer.sequence, answer.stale),
        (&[][..], Some(5), false)
    );
    assert!(found == tables);
    for granule in 2..bytes.len() / 4096 {
        let mut damaged = bytes.clone();
        damaged[granule * 4096 + 100] ^= 0xff;
        damaged[granule * 4096 + 1] ^= 0xff;
        let (answer, found) = saved(&folder_of(damaged));
        for (table, map) in &tables {
            let empty = Map::new();
            let found = found.get(table).unwrap_or(&empty);
            if answer.stale {
                // The damaged page was the list of free space: nothing is missing.
                assert!(map.iter().all(|(key, value)| found.get(key) == Some(value)));
                continue;
            }
            assert!(
                found.iter().all(|(key, value)| map.get(key) == Some(value)),
                "{granule}"
            );
            let missing = map.len() - found.len();
            assert!(missing == 0 || !answer.lost.is_empty());
            // One page is damaged; all others, also below it, are found.
            assert!(
                missing < 320,
                "{missing} entries of {table} missing, granule {granule}"
            );
        }
    }
    // Without superblocks only the leaves are left.
    let mut damaged = bytes.clone();
    damaged[..8192].fill(0);
    let (answer, found) = saved(&folder_of(damaged));
    assert!(answer.stale && answer.sequence.is_none());
    for (table, map) in &tables {
        assert!(
            map.iter()
                .all(|(key, value)| found[table].get(key) == Some(value))
        );
    }
}

/// Calls every operation on a file; errors are accepted, panics are not.
fn use_up(folder: &FaultFolder) {
    if let Ok(file) = open(folder) {
        let roots = file.roots();
        let seen = file.verify(&roots, &mut |_| {}).unwrap();
        let tables: Vec<TableId> = roots.tables().collect();
        for table in tables {
            let mut cursor = roots.cursor(table).unwrap();
            let _ = cursor.seek(b"k");
            let _ = cursor.seek_last();
            let mut found = cursor.seek_first();
            let mut steps = 0;
            while found == Ok(true) && steps < 5000 {
                found = cursor.next();
                steps += 1;
            }
            let _ = roots.get(table, &7_u32.to_be_bytes());
        }
        if let Ok(mut writer) = file.writer() {
            let key = |n: u32| n.to_be_bytes().to_vec();
            let changes = (0..300)
                .step_by(11)
                .map(|n| (key(n), What::Put(vec![1; 50])));
            let _ = writer.apply(PLAIN, &mut List::new(changes));
            let _ = writer.apply(PACKED, &mut List::new([(key(3), What::DeleteRange(None))]));
            let _ = writer.commit(1000);
        }
        assert!(seen.findings.len() <= 1000);
    }
    // A forged superblock may claim to be of a newer version.
    let (answer, _) = try_to_save(folder);
    if let Err(error) = answer {
        assert!(
            matches!(error, StorageError::NewerFormat { .. }),
            "{error:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn a_hostile_file_does_no_harm(
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 1..8),
        forged in any::<bool>(),
    ) {
        let (mut bytes, _) = finished();
        let granules = bytes.len() / 4096;
        let mut touched = std::collections::BTreeSet::new();
        for (granule, at, byte) in places {
            let granule = granule.index(granules);
            // Most important bytes are at the beginning of a page.
            bytes[granule * 4096 + at.index(if byte % 3 == 0 { 4096 } else { 160 })] = byte;
            touched.insert(granule);
        }
        if forged {
            forge(&mut bytes, &touched);
        }
        use_up(&folder_of(bytes));
    }

    #[test]
    fn a_file_of_any_bytes_does_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..20_000)) {
        use_up(&folder_of(bytes));
    }
}

/// Corrects the checksums of changed pages and superblocks, and of everything that points to them,
/// so that no checksum reveals the damage.
fn forge(bytes: &mut [u8], granules: &std::collections::BTreeSet<usize>) {
    let number =
        |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut changed: Vec<(u32, u32)> = Vec::new();
    for granule in granules {
        let at = granule * 4096;
        let stored = number(bytes, at + 20) as usize;
        if *granule >= 2 && (40..65_536).contains(&stored) && at + stored <= bytes.len() {
            let old = number(bytes, at);
            let new = crc32c::crc32c(&bytes[at + 4..at + stored]);
            bytes[at..at + 4].copy_from_slice(&new.to_le_bytes());
            changed.push((old, new));
        }
    }
    // Pointers contain the checksum, so the pages above change in turn.
    let mut rounds = 0;
    while let Some((old, new)) = changed.pop()
        && rounds < 50
    {
        rounds += 1;
        for at in 0..bytes.len() - 4 {
            if number(bytes, at) != old || (at % 4096 == 0 && at >= 8192) {
                continue;
            }
            bytes[at..at + 4].copy_from_slice(&new.to_le_bytes());
            // The page that contains it begins here or a granule or two before.
            let first = (at / 4096).saturating_sub(2).max(2);
            for page in (first..=at / 4096).rev() {
                let start = page * 4096;
                let stored = number(bytes, start + 20) as usize;
                if &bytes[start + 36..start + 40] == b"ShPg"
                    && start + stored > at
                    && start + stored <= bytes.len()
                    && stored > 40
                {
                    let before = number(bytes, start);
                    let after = crc32c::crc32c(&bytes[start + 4..start + stored]);
                    bytes[start..start + 4].copy_from_slice(&after.to_le_bytes());
                    changed.push((before, after));
                    break;
                }
            }
        }
    }
    for at in [0, 2048, 4096, 6144] {
        let crc = crc32c::crc32c(&bytes[at..at + 508]);
        bytes[at + 508..at + 512].copy_from_slice(&crc.to_le_bytes());
    }
}

#[test]
fn repeated_references_to_a_page_are_refused() {
    let folder = FaultFolder::default();
    let file = TreeFile::create(
        &dyn_folder(&folder),
        "tree",
        options(PageReading::Cached, CACHE),
    )
    .unwrap();
    let mut writer = file.writer().unwrap();
    writer.create_table(PLAIN, TableOptions::default()).unwrap();
    let puts = (0..9000_u32).map(|n| (n.to_be_bytes().to_vec(), What::Put(vec![5; 40])));
    writer.apply(PLAIN, &mut List::new(puts)).unwrap();
    writer.commit(1).unwrap();
    drop(file);
    let mut bytes = folder.content("tree").unwrap();
    // The last pointer of each inner page becomes the first one, which follows the first entry's
    // length.
    let mut touched = std::collections::BTreeSet::new();
    for granule in 2..bytes.len() / 4096 {
        let at = granule * 4096;
        let page = &bytes[at..];
        let number = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().unwrap()) as usize;
        if &page[36..40] != b"ShPg" || page[4] != 2 {
            continue;
        }
        let (stored, count, prefix) = (number(20), number(28), number(32));
        let offsets = 40 + prefix + 4 * count;
        let first = usize::from(u16::from_le_bytes([page[offsets], page[offsets + 1]])) + 1;
        let pointer = page[first..first + 16].to_vec();
        bytes[at + stored - 16..at + stored].copy_from_slice(&pointer);
        touched.insert(granule);
    }
    assert!(!touched.is_empty());
    forge(&mut bytes, &touched);
    let folder = folder_of(bytes);
    let file = open(&folder).unwrap();
    let seen = file.verify(&file.roots(), &mut |_| {}).unwrap();
    assert!(
        seen.findings
            .iter()
            .any(|finding| finding.detail.contains("overlaps something else")),
        "{seen:?}"
    );
    let mut writer = file.writer().unwrap();
    let dropped = writer
        .drop_table(PLAIN)
        .and_then(|()| writer.commit(2).map(drop));
    assert!(
        matches!(dropped, Err(StorageError::Corrupt { .. })),
        "{dropped:?}"
    );
    let (answer, found) = saved(&folder);
    assert!(found[&PLAIN].len() < 9000 && answer.entries < 9000);
}
