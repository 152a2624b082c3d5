//! The logtree engine after a crash or a failure at every event of its disk in turn.

use std::io::ErrorKind;
use std::time::Duration;

use sheaf_storage::testing::fault::{Fault, FaultFolder, Remains};
use sheaf_storage::*;

use crate::crash::{check_state, run, script, states};
use crate::engines::small_sheaf;
use crate::model::{Model, TABLES, dump};

const NEVER: Duration = Duration::from_secs(3600);

fn open(folder: &FaultFolder) -> Result<LogTreeEngine> {
    small_sheaf(folder, NEVER)
}

/// Number of events of opening without a fault, and of opening, script and close.
fn events() -> (u64, u64) {
    let folder = FaultFolder::default();
    let engine = open(&folder).unwrap();
    let opening = folder.events();
    assert_eq!(run(&engine).2, None);
    engine.close().unwrap();
    (opening, folder.events())
}

#[test]
fn durable_batches_survive_a_crash_at_any_event() {
    let states = states();
    let (_, events) = events();
    assert!(events > 40, "{events} events");
    for at in 0..events {
        let folder = FaultFolder::default();
        folder.set_fault(Some(Fault::Crash { at }));
        let mut durable = 0;
        if let Ok(engine) = open(&folder) {
            durable = run(&engine).1;
            // A close after the crash reaches no disk, and must not hang or panic.
            let _ = engine.close();
        }
        for remains in [
            Remains::Nothing,
            Remains::All,
            Remains::Some { seed: 2 * at },
            Remains::Some { seed: 2 * at + 1 },
        ] {
            let what = format!("crash at event {at} of {events}, {remains:?}");
            let found = folder.after_crash(remains);
            check_state(&|| open(&found), &states, durable, &what);
        }
    }
}

#[test]
fn durable_batches_survive_a_crash_during_recovery() {
    let states = states();
    let (_, events) = events();
    for first in (0..events).step_by(7) {
        let folder = FaultFolder::default();
        folder.set_fault(Some(Fault::Crash { at: first }));
        let mut durable = 0;
        if let Ok(engine) = open(&folder) {
            durable = run(&engine).1;
        }
        let found = folder.after_crash(Remains::Some { seed: first });
        for second in 0..24 {
            let again = found.after_crash(Remains::All);
            again.set_fault(Some(Fault::Crash { at: second }));
            if let Ok(engine) = open(&again) {
                let _ = engine.checkpoint();
                let _ = engine.close();
            }
            let what = format!("crash at event {first}, and at {second} of the next start");
            let seed = first * 100 + second;
            let found = again.after_crash(Remains::Some { seed });
            check_state(&|| open(&found), &states, durable, &what);
        }
    }
}

/// Runs the script; retries a batch that is refused for lack of space. Returns how many batches
/// were applied, how many were durable, and what ended the writing.
fn run_on(engine: &dyn StorageEngine) -> (usize, usize, Option<StorageError>) {
    let (mut visible, mut durable) = (0, 0);
    let mut state = Model::new();
    for (index, (ops, synced)) in script().into_iter().enumerate() {
        let batch = state.batch(&ops);
        state.apply_all(&ops);
        let durability = match synced {
            true => Durability::Synced,
            false => Durability::Buffered,
        };
        let mut applied = engine.apply(batch.clone(), durability);
        for _ in 0..3 {
            if !matches!(applied, Err(StorageError::NoSpace { .. })) {
                break;
            }
            applied = engine.apply(batch.clone(), durability);
        }
        if let Err(error) = applied {
            return (visible, durable, Some(error));
        }
        visible = index + 1;
        if synced {
            durable = visible;
        }
        if index == 7 {
            match engine.checkpoint().or_else(|_| engine.checkpoint()) {
                Ok(()) => durable = visible,
                Err(error) => return (visible, durable, Some(error)),
            }
        }
    }
    (visible, durable, None)
}

fn fail_at_every_event(fault: &dyn Fn(u64) -> Fault) {
    let states = states();
    let (opening, events) = events();
    let mut ended = 0;
    for at in opening..events {
        let folder = FaultFolder::default();
        let engine = open(&folder).unwrap();
        folder.set_fault(Some(fault(at)));
        let (visible, durable, error) = run_on(&engine);
        if let Some(error) = error {
            ended += 1;
            assert!(
                matches!(
                    error,
                    StorageError::Io { .. }
                        | StorageError::NoSpace { .. }
                        | StorageError::ReadOnly { .. }
                ),
                "event {at}: {error:?}"
            );
            // Applied batches are still visible, and the failed batch may be.
            let found = dump(&*engine.snapshot().unwrap(), TABLES);
            let expected = &states[visible..(visible + 2).min(states.len())];
            assert!(expected.contains(&found), "event {at}: {error:?}");
            if let Err(StorageError::ReadOnly { why, .. }) = engine.checkpoint() {
                assert!(
                    why.contains("injected") || why.contains("no space"),
                    "{why}"
                );
                let mut batch = WriteBatch::new();
                batch.put(TableId::CATALOG, b"k", "v");
                let refused = engine.apply(batch, Durability::Buffered);
                assert!(matches!(refused, Err(StorageError::ReadOnly { .. })));
            }
        } else {
            assert_eq!(dump(&*engine.snapshot().unwrap(), TABLES), states[visible]);
        }
        let _ = engine.close();
        drop(engine);
        for remains in [Remains::All, Remains::Nothing, Remains::Some { seed: at }] {
            let what = format!("{:?}, {remains:?}", fault(at));
            let found = folder.after_crash(remains);
            check_state(&|| open(&found), &states, durable, &what);
        }
    }
    assert!(ended > 0);
}

#[test]
fn a_failed_write_or_sync_ends_writing_and_loses_nothing_durable() {
    let kind = ErrorKind::Other;
    fail_at_every_event(&|at| Fault::Error { at, kind });
}

#[test]
fn a_short_write_ends_writing_and_loses_nothing_durable() {
    let kind = ErrorKind::Other;
    fail_at_every_event(&|at| Fault::ShortWrite { at, kind });
}

#[test]
fn a_disk_that_dies_ends_writing_and_loses_nothing_durable() {
    let kind = ErrorKind::Other;
    fail_at_every_event(&|at| Fault::ErrorsFrom { at, kind });
}

#[test]
fn a_full_disk_refuses_and_loses_nothing_durable() {
    let kind = ErrorKind::StorageFull;
    fail_at_every_event(&|at| Fault::ErrorsFrom { at, kind });
}

#[test]
fn a_disk_that_is_full_for_a_while_ends_nothing() {
    let states = states();
    // Less than the script needs in the log and the tree, more than opening does.
    let folder = FaultFolder::default();
    let engine = open(&folder).unwrap();
    let all = script();
    let mut refused = 0;
    for ((ops, _), state) in all.iter().zip(&states) {
        let batch = state.batch(ops);
        let used: usize = files(&folder);
        folder.set_capacity(Some(used as u64));
        let mut applied = engine.apply(batch.clone(), Durability::Synced);
        if let Err(error) = &applied {
            assert!(matches!(error, StorageError::NoSpace { .. }), "{error:?}");
            refused += 1;
            folder.set_capacity(None);
            applied = engine.apply(batch, Durability::Synced);
        }
        applied.unwrap();
        // A checkpoint without enough space does not, either.
        folder.set_capacity(Some(files(&folder) as u64));
        match engine.checkpoint() {
            Ok(()) => {}
            Err(StorageError::NoSpace { .. }) => {
                refused += 1;
                folder.set_capacity(None);
                engine.checkpoint().unwrap();
            }
            Err(error) => panic!("{error:?}"),
        }
    }
    assert!(refused > 3, "{refused}");
    let last = &states[states.len() - 1];
    assert_eq!(dump(&*engine.snapshot().unwrap(), TABLES), *last);
    let found = folder.after_crash(Remains::Nothing);
    assert_eq!(
        dump(&*open(&found).unwrap().snapshot().unwrap(), TABLES),
        *last
    );
}

/// Total bytes of all files.
fn files(folder: &FaultFolder) -> usize {
    let names = folder::Folder::list(folder).unwrap();
    names
        .iter()
        .filter_map(|name| folder.content(name))
        .map(|content| content.len())
        .sum()
}
