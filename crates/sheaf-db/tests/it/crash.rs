//! Crashes at every write and sync of a script, in turn: after the restart everything acknowledged
//! is complete, indexes are consistent, and nothing is left over.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use sheaf_bson::{DocBuf, RawDoc, RawValue, Result, doc};
use sheaf_db::validate::validate;
use sheaf_db::write::update::UpdateResult;
use sheaf_db::{Db, DbOptions, IndexSelector, StatementContext};
use sheaf_storage::testing::fault::{Fault, FaultDisk, FaultFolder, Remains};
use sheaf_storage::{
    LogTreeEngine, LogTreeOptions, RedbEngine, RedbOptions, StorageEngine, TableId,
};

use crate::support::{Change, index_spec, ns, source, with_field};

/// Collections with their documents, in order of insertion.
type State = Vec<(String, Vec<DocBuf>)>;

/// No flush by itself, so that two runs have the same events.
const NEVER: Duration = Duration::from_secs(3600);

/// A simulated disk with an engine on it.
trait Disk: Default {
    fn engine(&self) -> sheaf_storage::Result<Arc<dyn StorageEngine>>;
    fn crash_at(&self, event: u64);
    fn event_count(&self) -> u64;
    fn found(&self, remains: Remains) -> Self;
}

impl Disk for FaultDisk {
    fn engine(&self) -> sheaf_storage::Result<Arc<dyn StorageEngine>> {
        let options = RedbOptions {
            cache_bytes: 1 << 20,
            flush_interval: NEVER,
            reserve_bytes: 0,
            ..RedbOptions::default()
        };
        Ok(Arc::new(RedbEngine::open_with_backend(
            self.backend(),
            options,
        )?))
    }

    fn crash_at(&self, at: u64) {
        self.set_fault(Some(Fault::Crash { at }));
    }

    fn event_count(&self) -> u64 {
        self.events()
    }

    fn found(&self, remains: Remains) -> FaultDisk {
        FaultDisk::new(self.after_crash(remains))
    }
}

impl Disk for FaultFolder {
    fn engine(&self) -> sheaf_storage::Result<Arc<dyn StorageEngine>> {
        let options = LogTreeOptions {
            cache_bytes: 1 << 20,
            generation_bytes: Some(64 << 10),
            flush_interval: NEVER,
            segment_bytes: 16 << 10,
            reserve_bytes: 0,
            ..LogTreeOptions::default()
        };
        Ok(Arc::new(LogTreeEngine::open_in(
            Arc::new(self.clone()),
            options,
        )?))
    }

    fn crash_at(&self, at: u64) {
        self.set_fault(Some(Fault::Crash { at }));
    }

    fn event_count(&self) -> u64 {
        self.events()
    }

    fn found(&self, remains: Remains) -> FaultFolder {
        self.after_crash(remains)
    }
}

fn open(disk: &impl Disk, temp: &tempfile::TempDir) -> Result<Arc<Db>> {
    let engine = disk
        .engine()
        .map_err(sheaf_db::storage_error::client_error)?;
    let options = DbOptions {
        temp_dir: Some(temp.path().join("_tmp")),
        ..DbOptions::default()
    };
    Db::open(engine, options)
}

type Step = fn(&Arc<Db>, &StatementContext) -> Result<()>;

/// Every step is acknowledged by a sync. A step that writes documents is one unit of work.
const STEPS: [Step; 8] = [
    |db, op| {
        let spec = index_spec(doc! {"u": 1}, doc! {"unique": true});
        db.create_indexes(op, &ns("c"), &[spec]).map(|_| ())
    },
    |db, op| {
        let docs: Vec<DocBuf> = (0..40)
            .map(|n| doc! {"_id": n, "u": n, "a": n % 5})
            .collect();
        let docs: Vec<RawDoc<'_>> = docs.iter().map(DocBuf::as_raw).collect();
        db.insert(op, &ns("c"), &docs, true).map(|_| ())
    },
    |db, op| {
        let specs = [
            index_spec(doc! {"a": 1}, doc! {}),
            index_spec(doc! {"a": -1, "u": 1}, doc! {"sparse": true}),
        ];
        db.create_indexes(op, &ns("c"), &specs).map(|_| ())
    },
    |db, op| {
        // The first arrays: two indexes become multikey.
        let list = sheaf_bson::ArrayBuf::from_values([7, 8, 7]);
        let change = |doc: RawDoc<'_>| with_field(doc, "a", RawValue::Array(list.as_raw()));
        let matches = |doc: RawDoc<'_>| doc.get("a") == Some(RawValue::Int32(3));
        let mut update = Change {
            matches: &matches,
            change: &change,
        };
        let collection = db.catalog().collection(&ns("c")).cloned();
        let mut found = source(db, &ns("c"), &matches);
        let mut result = UpdateResult::default();
        match collection {
            Some(c) => db.update_records(op, &c, &mut found, &mut update, true, &mut result),
            None => Ok(()),
        }
    },
    |db, op| db.rename_collection(op, &ns("c"), &ns("d"), false),
    |db, op| {
        let by_name = IndexSelector::Names(vec!["a_1"]);
        db.drop_indexes(op, &ns("d"), &by_name).map(|_| ())
    },
    |db, op| {
        db.insert_one(
            op,
            &ns("e"),
            doc! {"_id": 1, "pad": "x".repeat(9000)}.as_raw(),
        )
        .map(|_| ())
    },
    |db, op| db.drop_collection(op, &ns("d")).map(|_| ()),
];

/// Runs the script until something fails. Returns the number of acknowledged steps, and the state
/// after each of them.
fn run(disk: &impl Disk, temp: &tempfile::TempDir) -> (usize, Vec<State>) {
    let mut states = vec![State::new()];
    let Ok(db) = open(disk, temp) else {
        return (0, states);
    };
    let op = StatementContext::new();
    for (at, step) in STEPS.iter().enumerate() {
        // An engine whose disk has failed may panic during clean-up; the simulated process has died
        // anyway.
        let done = catch_unwind(AssertUnwindSafe(|| step(&db, &op).and_then(|()| db.sync())));
        if !matches!(done, Ok(Ok(()))) {
            return (at, states);
        }
        // The crash may also meet a background checkpoint while the state is read.
        match catch_unwind(AssertUnwindSafe(|| state(&db))) {
            Ok(state) => states.push(state),
            Err(_) => return (at + 1, states),
        }
    }
    (STEPS.len(), states)
}

/// The state, validated.
fn state(db: &Db) -> State {
    let mut state = State::new();
    for collection in db.catalog().collections() {
        let view = db.read_view(collection.ns()).unwrap();
        let report = validate(&StatementContext::new(), &view).unwrap();
        assert!(report.is_valid(), "{report:#?}");
        let mut documents = Vec::new();
        let mut cursor = view.snapshot.cursor(collection.table()).unwrap();
        let mut on = cursor.seek_first().unwrap();
        while on {
            documents.push(RawDoc::parse(cursor.value()).unwrap().to_buf());
            on = cursor.next().unwrap();
        }
        state.push((collection.ns().to_string(), documents));
    }
    state
}

fn assert_no_leftovers(db: &Db) {
    let mut named = BTreeSet::from([TableId::CATALOG]);
    for collection in db.catalog().collections() {
        named.insert(collection.table());
        named.extend(collection.index_list().iter().map(|index| index.table()));
        assert!(collection.builds().is_empty());
    }
    let there: BTreeSet<TableId> = db.engine().tables().unwrap().into_iter().collect();
    assert_eq!(there, named);
}

#[test]
fn a_crash_at_every_write_and_sync_on_redb() {
    crash_everywhere::<FaultDisk>(false);
}

#[test]
fn a_crash_at_every_write_and_sync_on_logtree() {
    crash_everywhere::<FaultFolder>(true);
}

/// `opens`: whether the database opens even if the crash came while the first file was created.
fn crash_everywhere<D: Disk>(opens: bool) {
    let temp = tempfile::tempdir().unwrap();
    let disk = D::default();
    let (steps, states) = run(&disk, &temp);
    assert_eq!(steps, STEPS.len());
    assert_eq!(states[2][0].1.len(), 40);
    assert_eq!(states[8].len(), 1);
    let events = disk.event_count();
    let mut met = BTreeSet::new();
    for at in 0..events {
        let disk = D::default();
        disk.crash_at(at);
        let (acknowledged, _) = run(&disk, &temp);
        met.insert(acknowledged);
        for remains in [Remains::Nothing, Remains::All, Remains::Some { seed: at }] {
            let after = disk.found(remains);
            let db = match open(&after, &temp) {
                Ok(db) => db,
                // A file that was being created may lack even its header.
                Err(error) if acknowledged == 0 && !opens => {
                    assert!(!error.message().is_empty());
                    continue;
                }
                Err(error) => panic!("crash at {at} of {events}, {remains:?}: {error}"),
            };
            assert_no_leftovers(&db);
            let found = state(&db);
            // The interrupted step may have been done, in part or whole, before it was
            // acknowledged.
            let next = states.get(acknowledged + 1);
            let began_step_6 = || {
                let mut began = states[acknowledged].clone();
                began.push(("test.e".to_owned(), Vec::new()));
                acknowledged == 6 && found == began
            };
            assert!(
                found == states[acknowledged] || Some(&found) == next || began_step_6(),
                "crash at {at} of {events}, {remains:?}, after {acknowledged} steps: {found:#?}"
            );
            // The database can be written to.
            let op = StatementContext::new();
            let more = doc! {"_id": "more", "u": [1000, 1001], "a": 1};
            for name in ["c", "d", "e"] {
                db.insert_one(&op, &ns(name), more.as_raw()).unwrap();
            }
            state(&db);
        }
    }
    // Nearly every step is interrupted by some crash. A step has no event if the flusher has
    // written its changes before the step requests the sync.
    assert!(met.len() + 2 > STEPS.len(), "{met:?} of {events} events");
}
