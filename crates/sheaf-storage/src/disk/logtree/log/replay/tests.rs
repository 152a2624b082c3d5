//! Replay after crashes, damage and missing segments; failed writes and full disks.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::atomic::Ordering;

use super::super::Encoded;
use super::*;
use crate::disk::logtree::budget::MemoryBudget;
use crate::engine::TableId;
use crate::testing::fault::{Fault, FaultFolder, Remains};

fn small() -> LogOptions {
    LogOptions {
        segment_bytes: 16 << 10,
        buffer_bytes: 4 << 10,
        budget: MemoryBudget::new(1 << 20),
    }
}

fn batch(n: u64) -> WriteBatch {
    let mut batch = WriteBatch::new();
    let length = (n * 37 % 700) as usize + if n % 29 == 28 { 20_000 } else { 0 };
    batch.put(TableId(7), &n.to_be_bytes(), vec![n as u8; length]);
    batch
}

fn append(log: &Log<()>, n: u64) -> Result<u64> {
    let mut encoded = Encoded::new(&batch(n), Vec::new()).unwrap();
    let appender = log.appender(encoded.stride())?;
    let seq = appender.seq();
    appender.append(&mut encoded);
    Ok(seq)
}

/// Reads a log, checks that the batches are those of their sequences, and returns the last
/// sequence.
fn read(folder: &FaultFolder, tree_seq: u64) -> Result<Replay> {
    let folder: Arc<dyn Folder> = Arc::new(folder.clone());
    let mut last = tree_seq;
    let replay = Replay::read(&folder, tree_seq, &mut |record| {
        let Record { seq, decoded, .. } = record;
        assert_eq!(seq, last + 1);
        assert!(decoded.deltas.is_empty());
        let found = decoded.batch;
        assert!(found.tables().eq(batch(seq).tables()), "batch {seq}");
        last = seq;
        Ok(())
    })?;
    assert_eq!(replay.replayed.last, last);
    Ok(replay)
}

fn open(folder: &FaultFolder, tree_seq: u64) -> Result<Log<()>> {
    read(folder, tree_seq)?.begin(small(), ())
}

fn fill(folder: &FaultFolder, from: u64, to: u64) -> Log<()> {
    let log = open(folder, 0).unwrap();
    for n in from..=to {
        assert_eq!(append(&log, n), Ok(n));
    }
    log
}

fn files(folder: &FaultFolder) -> BTreeMap<String, Vec<u8>> {
    let names = folder.list().unwrap();
    names
        .into_iter()
        .map(|name| (name.clone(), folder.content(&name).unwrap()))
        .collect()
}

#[test]
fn synced_batches_are_replayed() {
    let folder = FaultFolder::default();
    let log = fill(&folder, 1, 200);
    assert_eq!(log.durable(), {
        let lost = folder.after_crash(Remains::Nothing);
        read(&lost, 0).unwrap().replayed.last
    });
    log.sync_to(200).unwrap();
    assert_eq!(log.durable(), 200);
    let syncs = log.stats().syncs;
    log.sync_to(199).unwrap();
    assert_eq!(log.stats().syncs, syncs);
    let found = folder.after_crash(Remains::Nothing);
    let replay = read(&found, 0).unwrap();
    assert_eq!((replay.replayed.last, replay.replayed.batches), (200, 200));
    assert_eq!(replay.replayed.torn, None);
    // Continue the log, from any state of the tree.
    for tree_seq in [0, 1, 57, 199, 200] {
        let found = folder.after_crash(Remains::Nothing);
        let log = open(&found, tree_seq).unwrap();
        assert_eq!(append(&log, 201), Ok(201));
        log.sync_to(201).unwrap();
        let again = found.after_crash(Remains::Nothing);
        assert_eq!(read(&again, tree_seq).unwrap().replayed.last, 201);
    }
}

/// The newest segment is missing, after the log continued in it: both after a whole segment and
/// after a torn end.
#[test]
fn a_missing_newest_segment_is_reported() {
    for torn in [false, true] {
        let folder = FaultFolder::default();
        let log = fill(&folder, 1, 10);
        log.sync_to(10).unwrap();
        if torn {
            append(&log, 11).unwrap();
            log.write().unwrap();
        }
        drop(log);
        let first = segment::segment_name(1);
        if torn {
            let content = folder.content(&first).unwrap();
            let at = content.iter().rposition(|byte| *byte != 0).unwrap();
            let file = folder.open(&first, false).unwrap();
            file.write_at(at as u64, &[!content[at]]).unwrap();
        }
        let replay = read(&folder, 0).unwrap();
        assert_eq!(
            (replay.replayed.last, replay.replayed.torn.is_some()),
            (10, torn)
        );
        let log = replay.begin(small(), ()).unwrap();
        append(&log, 11).unwrap();
        log.sync_to(11).unwrap();
        for remains in [Remains::Nothing, Remains::All] {
            let found = folder.after_crash(remains);
            assert_eq!(read(&found, 0).unwrap().replayed.last, 11);
            let second = segment::segment_name(2);
            found.remove(&second).unwrap();
            for tree_seq in [0, 10] {
                match read(&found, tree_seq).map(|replay| replay.replayed) {
                    Err(StorageError::Corrupt { file, .. }) => assert_eq!(file, second),
                    other => panic!("{torn}: {other:?}"),
                }
            }
            // The same for a tree that contains more than the remaining log.
            assert!(read(&found, 11).is_err());
        }
    }
}

#[test]
fn segments_in_the_tree_are_removed_and_reused() {
    let folder = FaultFolder::default();
    let log = fill(&folder, 1, 0);
    for n in 1..=2000 {
        append(&log, n).unwrap();
        if n % 50 == 0 {
            log.sync_to(n).unwrap();
            log.trim(n - 10);
            let stats = log.stats();
            assert!(stats.segments < 8, "{stats:?}");
            let found = folder.after_crash(Remains::Nothing);
            assert_eq!(read(&found, n - 10).unwrap().replayed.last, n);
        }
    }
    assert!(folder.list().unwrap().len() < 16);
    // Batches that are neither in the tree nor in the log are reported as missing.
    let missing = read(&folder.after_crash(Remains::Nothing), 100);
    assert!(matches!(missing, Err(StorageError::Corrupt { .. })));
}

#[test]
fn a_crash_at_any_event_keeps_what_was_durable() {
    let run = |folder: &FaultFolder| -> (u64, u64) {
        let Ok(log) = open(folder, 0) else {
            return (0, 0);
        };
        let (mut appended, mut trimmed) = (0, 0);
        for n in 1..=70 {
            if append(&log, n).is_err() {
                break;
            }
            appended = n;
            if n % 17 == 0 {
                let _ = log.sync_to(n);
            }
            if n % 20 == 0 && log.durable() >= n {
                trimmed = n - 10;
                log.trim(trimmed);
            }
        }
        assert!(log.durable() <= appended);
        (log.durable(), trimmed)
    };
    let folder = FaultFolder::default();
    run(&folder);
    let events = folder.events();
    assert!(events > 30);
    for at in 0..events {
        let folder = FaultFolder::default();
        folder.set_fault(Some(Fault::Crash { at }));
        let (durable, tree_seq) = run(&folder);
        for remains in [
            Remains::Nothing,
            Remains::All,
            Remains::Some { seed: at },
            Remains::Some { seed: at + 10_000 },
        ] {
            let found = folder.after_crash(remains);
            let what = format!("crash at {at}, {remains:?}");
            let log = open(&found, tree_seq).unwrap_or_else(|error| panic!("{what}: {error}"));
            let last = log.head().last();
            assert!(last >= durable, "{what}: {last} of {durable}");
            // The batches after the cut do not reappear.
            for n in last + 1..last + 6 {
                assert_eq!(append(&log, n), Ok(n));
            }
            log.sync_to(last + 5).unwrap();
            let again = found.after_crash(Remains::Nothing);
            assert_eq!(read(&again, tree_seq).unwrap().replayed.last, last + 5);
        }
    }
}

#[test]
fn a_failed_write_or_sync_ends_appending() {
    let folder = FaultFolder::default();
    let log = fill(&folder, 1, 10);
    let at = folder.events();
    let kind = ErrorKind::Other;
    folder.set_fault(Some(Fault::Error { at: at + 1, kind }));
    let error = log.sync_to(10).unwrap_err();
    assert!(matches!(error, StorageError::Io { .. }), "{error:?}");
    let refused = StorageError::ReadOnly {
        why: error.to_string(),
        is_full: false,
    };
    assert_eq!(append(&log, 11), Err(refused.clone()));
    assert_eq!(log.sync_to(10), Err(refused));
}

#[test]
fn a_full_disk_refuses_batches_and_ends_nothing() {
    let folder = FaultFolder::default();
    let log = fill(&folder, 1, 10);
    folder.set_capacity(Some(30 << 10));
    let (mut n, mut refused) = (11, None);
    while refused.is_none() {
        match append(&log, n) {
            Ok(_) => n += 1,
            Err(error) => refused = Some(error),
        }
    }
    assert!(matches!(refused, Some(StorageError::NoSpace { .. })));
    log.sync_to(n - 1).unwrap();
    folder.set_capacity(None);
    assert_eq!(append(&log, n), Ok(n));
    log.sync_to(n).unwrap();
    assert_eq!(read(&folder, 0).unwrap().replayed.last, n);
}

#[test]
fn every_flipped_bit_is_reported_or_torn() {
    let folder = FaultFolder::default();
    let log = fill(&folder, 1, 40);
    log.sync_to(40).unwrap();
    append(&log, 41).unwrap();
    log.sync_to(41).unwrap();
    // Once with the mark after the last record, and once as after a crash before the mark was on
    // disk.
    let crashed = folder.after_crash(Remains::Nothing);
    let (named, cut) = flip_bits(files(&folder));
    assert!(named > 300 && cut == 0, "{named} named, {cut} cut");
    let (named, cut) = flip_bits(files(&crashed));
    assert!(named > 300 && cut > 0, "{named} named, {cut} cut");
}

/// Reads the files with one bit flipped, for many bits. Returns how often an error was reported,
/// and how often the last of 41 records was taken for torn.
fn flip_bits(files: BTreeMap<String, Vec<u8>>) -> (usize, usize) {
    let segments: Vec<&String> = files
        .keys()
        .filter(|name| !name.contains("spare"))
        .collect();
    assert!(segments.len() > 2);
    let (mut named, mut cut) = (0, 0);
    for (index, name) in segments.iter().enumerate() {
        let content = &files[*name];
        for at in (0..content.len()).step_by(61).chain(0..64) {
            let mut damaged = files.clone();
            if let Some(content) = damaged.get_mut(*name) {
                content[at] ^= 1 << (at % 8);
            }
            match read(&FaultFolder::new(damaged), 0) {
                Err(StorageError::Corrupt { file, detail }) => {
                    assert!(file.contains(&**name), "{file}: {detail}");
                    assert!(detail.contains("offset"), "{detail}");
                    named += 1;
                }
                Err(error) => panic!("{error:?}"),
                // The flipped bit is in an unused part or in the mark itself.
                Ok(replay) if replay.replayed.last == 41 => {}
                Ok(replay) => {
                    assert_eq!((index, replay.replayed.last), (segments.len() - 1, 40));
                    cut += 1;
                }
            }
        }
    }
    (named, cut)
}

#[test]
fn missing_segments_are_reported() {
    let folder = FaultFolder::default();
    let log = fill(&folder, 1, 200);
    log.sync_to(200).unwrap();
    let files = files(&folder);
    let segments: Vec<&String> = files
        .keys()
        .filter(|name| !name.contains("spare"))
        .collect();
    assert!(segments.len() > 2);
    for name in &segments {
        let mut rest = files.clone();
        rest.remove(*name);
        let mut emptied = files.clone();
        emptied.insert((*name).clone(), Vec::new());
        let mut headless = files.clone();
        headless.get_mut(*name).unwrap()[..RECORDS as usize].fill(0);
        for damaged in [rest, emptied, headless] {
            match read(&FaultFolder::new(damaged), 0) {
                // The error names the damaged segment, or the one after it.
                Err(StorageError::Corrupt { file, detail }) => {
                    let next = detail.contains("does not follow the previous segment");
                    let first = detail.contains("no segment of the log has the batch 1");
                    assert!(
                        file.contains(*name) || next || first,
                        "{name}: {file}: {detail}"
                    );
                }
                other => panic!("{name}: {:?}", other.map(|replay| replay.replayed)),
            }
        }
    }
    // Also the segment that was begun when the log was reopened.
    let again = folder.after_crash(Remains::Nothing);
    let log = open(&again, 0).unwrap();
    append(&log, 201).unwrap();
    log.sync_to(201).unwrap();
    let mut rest = self::files(&again);
    let newest = rest.keys().rfind(|name| !name.contains("spare")).cloned();
    rest.remove(&newest.unwrap());
    let lost = read(&FaultFolder::new(rest), 0);
    assert!(matches!(lost, Err(StorageError::Corrupt { .. })));
    let none = read(&FaultFolder::default(), 7);
    assert!(matches!(none, Err(StorageError::Corrupt { .. })));
    // A segment of another log is not accepted as one of this log.
    let other = FaultFolder::default();
    fill(&other, 1, 200).sync_to(200).unwrap();
    let mut mixed = files.clone();
    let name = segments[1].clone();
    let content = other.content(&name).unwrap();
    mixed.insert(name, content);
    let read = read(&FaultFolder::new(mixed), 0);
    assert!(matches!(read, Err(StorageError::Corrupt { .. })));
}

#[test]
fn a_newer_version_is_refused_by_number() {
    let folder = FaultFolder::default();
    fill(&folder, 1, 5).sync_to(5).unwrap();
    let mut files = files(&folder);
    for (name, content) in &mut files {
        if !name.contains("spare") {
            content[8] = 9;
            let crc = crc32c::crc32c(&content[..60]);
            content[60..64].copy_from_slice(&crc.to_le_bytes());
        }
    }
    let read = read(&FaultFolder::new(files), 0).map(drop);
    let (found, supported) = (9, 2);
    assert_eq!(read, Err(StorageError::NewerFormat { found, supported }));
}

#[test]
fn waiting_writers_share_a_sync() {
    let folder = FaultFolder::default();
    let log = fill(&folder, 1, 0);
    let appending = parking_lot::Mutex::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let seq = {
                        let mut last = appending.lock();
                        *last += 1;
                        append(&log, *last).unwrap()
                    };
                    log.sync_to(seq).unwrap();
                    assert!(log.durable() >= seq);
                }
            });
        }
    });
    assert!(log.counters.groups.load(Ordering::Relaxed) <= 400);
    assert_eq!(read(&folder, 0).unwrap().replayed.last, 400);
}
