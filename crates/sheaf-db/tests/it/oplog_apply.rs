//! Properties of the oplog: its entries alone make the same database again, once or several times.
//!
//! ```text
//!   random workload ─> database A, with its oplog
//!   entries, each once, in order          ─> empty database B          B is A, in the same order
//!   entries from any k on, again          ─> B                         B is A
//!   entries up to j, then from k <= j on  ─> empty database C          C is A
//! ```

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sheaf_bson::json::typed;
use sheaf_bson::{ArrayBuf, CollationChoice, DateTime, DocBuf, DocBuilder, RawDoc, RawValue, doc};
use sheaf_db::QueryOptions;
use sheaf_db::ddl::coll_mod::CollMod;
use sheaf_db::ddl::timeseries::BucketsChange;
use sheaf_db::modify::{self, DeleteReport, DeleteStatement, UpdateReport, UpdateStatement};
use sheaf_db::oplog::OpTime;
use sheaf_db::oplog::apply::{Applier, ApplyRules};
use sheaf_db::oplog::entry::WriteOrigin;
use sheaf_db::session_row::SessionRow;
use sheaf_db::statement::SessionWrite;
use sheaf_db::txn::{Isolation, Transaction};
use sheaf_db::{CollectionOptions, Events, IndexSelector, Namespace, StatementContext};
use sheaf_query::canonical::FindSpec;

use crate::oplog::entries;
use crate::random::{document, scalar};
use crate::support::{EngineKind, TestDb, index_spec};
use crate::update_operators::operator;

/// A collection of one of two databases.
type Place = usize;

const PLACES: usize = 7;

/// The time-series collection.
const SERIES: Place = 6;

fn place(place: Place) -> Namespace {
    let names = ["x.a", "x.b", "x.c", "y.a", "y.b", "y.d", "x.series"];
    Namespace::parse(names[place]).unwrap()
}

#[derive(Debug, Clone)]
enum Step {
    Write(Place, Write),
    /// Writes, and whether they are committed.
    Transaction(Vec<(Place, Write)>, bool),
    Create(Place, usize),
    Drop(Place),
    DropDatabase(bool),
    Rename(Place, Place, bool),
    CreateIndex(Place, usize),
    DropIndex(Place, usize),
    CollMod(Place, usize),
    ConvertToCapped(Place),
    View(Place, Place, i32),
    ModifyView(Place, i32),
    ModifySeries(Place, usize),
}

#[derive(Debug, Clone)]
enum Write {
    Insert(i32, DocBuf),
    Measure(i32, i64),
    Update {
        id: Option<i32>,
        change: DocBuf,
        upsert: bool,
    },
    Pipeline(i32),
    Delete(i32),
    DeleteWhere(DocBuf),
}

fn collection_options(kind: usize) -> DocBuf {
    let clustered = doc! {"key": {"_id": 1}, "unique": true};
    match kind {
        0 => doc! {},
        1 => doc! {"capped": true, "size": 4096, "max": 5},
        2 => doc! {"clusteredIndex": clustered.as_raw()},
        3 => {
            doc! {"clusteredIndex": clustered.as_raw(), "expireAfterSeconds": 100_000, "collation": {"locale": "de"}}
        }
        4 => doc! {"collation": {"locale": "en", "strength": 2}},
        5 => doc! {"validator": {"a": {"$exists": true}}, "validationAction": "error"},
        6 => doc! {"changeStreamPreAndPostImages": {"enabled": true}},
        7 => doc! {"timeseries": {"timeField": "t", "metaField": "m"}},
        _ => doc! {"timeseries": {"timeField": "t"}, "expireAfterSeconds": 86_400},
    }
}

fn index(number: usize) -> (DocBuf, DocBuf) {
    match number {
        0 => (doc! {"a": 1}, doc! {}),
        1 => (doc! {"a": 1}, doc! {"unique": true}),
        2 => (doc! {"a": 1, "b": -1}, doc! {}),
        3 => (
            doc! {"b": 1},
            doc! {"partialFilterExpression": {"a": {"$gt": 1}}, "unique": true},
        ),
        4 => (doc! {"b": 1}, doc! {"sparse": true}),
        5 => (doc! {"$**": 1}, doc! {}),
        6 => (
            doc! {"$**": 1},
            doc! {"wildcardProjection": {"a": 1}, "name": "some"},
        ),
        7 => (doc! {"c": "hashed"}, doc! {}),
        8 => (doc! {"d": 1}, doc! {"expireAfterSeconds": 3600}),
        9 => (
            doc! {"d": 1},
            doc! {"expireAfterSeconds": 60, "hidden": true},
        ),
        10 => (
            doc! {"c": 1},
            doc! {"collation": {"locale": "simple"}, "name": "c_1"},
        ),
        11 => (
            doc! {"c": 1},
            doc! {"collation": {"locale": "fr"}, "name": "c_fr"},
        ),
        _ => (doc! {"c": 1, "d": 1}, doc! {"name": "c_1"}),
    }
}

fn coll_mod(number: usize) -> DocBuf {
    match number {
        0 => doc! {"index": {"name": "a_1", "hidden": true}},
        1 => doc! {"index": {"name": "a_1", "hidden": false}},
        2 => doc! {"index": {"name": "a_1", "prepareUnique": true}},
        3 => doc! {"index": {"name": "a_1", "unique": true}},
        4 => doc! {"index": {"name": "d_1", "expireAfterSeconds": 99}},
        5 => doc! {"validator": {"b": {"$exists": false}}, "validationLevel": "moderate"},
        6 => doc! {"validator": {}},
        7 => doc! {"changeStreamPreAndPostImages": {"enabled": true}},
        8 => doc! {"expireAfterSeconds": 50},
        9 => doc! {"expireAfterSeconds": "off"},
        10 => doc! {"cappedMax": 3},
        _ => {
            doc! {"index": {"name": "a_1", "hidden": true, "prepareUnique": true}, "cappedSize": 8192}
        }
    }
}

fn write() -> impl Strategy<Value = Write> {
    let id = || 0..8i32;
    prop_oneof![
        5 => (id(), document()).prop_map(|(id, doc)| Write::Insert(id, doc)),
        // Few values, so that unique indexes receive duplicates.
        5 => (id(), 0..9i32, 0..9i32)
            .prop_map(|(id, a, b)| Write::Insert(id, doc! {"a": a, "b": b})),
        3 => (id(), 0..9i32).prop_map(|(id, a)| Write::Update {
            id: Some(id),
            change: doc! {"$set": {"a": a}},
            upsert: true,
        }),
        3 => (id(), 0..100i64).prop_map(|(meta, time)| Write::Measure(meta, time)),
        8 => (proptest::option::weighted(0.7, id()), operator(), any::<bool>())
            .prop_map(|(id, change, upsert)| Write::Update { id, change, upsert }),
        2 => id().prop_map(Write::Pipeline),
        4 => id().prop_map(Write::Delete),
        1 => scalar().prop_map(|value| {
            let mut filter = DocBuilder::new();
            filter.append_value("a", &value);
            Write::DeleteWhere(filter.finish())
        }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    // Most writes go to one place, so that they affect the same documents and indexes.
    let at = || prop_oneof![2 => Just(0), 1 => 0..PLACES];
    let writes = proptest::collection::vec((at(), write()), 1..7);
    prop_oneof![
        30 => (at(), write()).prop_map(|(at, write)| Step::Write(at, write)),
        6 => (writes, any::<bool>()).prop_map(|(writes, commits)| Step::Transaction(writes, commits)),
        3 => (at(), 0..9usize).prop_map(|(at, kind)| Step::Create(at, kind)),
        1 => at().prop_map(Step::Drop),
        1 => any::<bool>().prop_map(Step::DropDatabase),
        4 => (at(), at(), any::<bool>()).prop_map(|(from, to, drops)| Step::Rename(from, to, drops)),
        8 => (at(), 0..13usize).prop_map(|(at, number)| Step::CreateIndex(at, number)),
        3 => (at(), 0..13usize).prop_map(|(at, number)| Step::DropIndex(at, number)),
        6 => (at(), 0..12usize).prop_map(|(at, number)| Step::CollMod(at, number)),
        1 => at().prop_map(Step::ConvertToCapped),
        3 => (at(), at(), 0..5i32).prop_map(|(at, on, number)| Step::View(at, on, number)),
        1 => (at(), 0..5i32).prop_map(|(at, number)| Step::ModifyView(at, number)),
        1 => (0..3usize).prop_map(|number| Step::ModifySeries(SERIES, number)),
    ]
}

/// Carries out a step. Many steps are invalid in the current state, and are refused.
fn carry_out(test: &TestDb, counter: &mut i32, step: &Step) {
    let (db, op) = (&test.db, &test.op);
    match step {
        Step::Write(at, one) => drop(write_to(test, op, counter, *at, one)),
        Step::Transaction(writes, commits) => transaction(test, counter, writes, *commits),
        Step::Create(at, kind) => {
            let options = CollectionOptions::parse(collection_options(*kind).as_raw()).unwrap();
            drop(db.create_collection(op, &place(*at), options));
        }
        Step::Drop(at) => drop(db.drop_collection(op, &place(*at)).unwrap()),
        Step::DropDatabase(first) => {
            let name = if *first { "x" } else { "y" };
            db.drop_database(op, name).unwrap();
        }
        Step::Rename(from, to, drops) => {
            drop(db.rename_collection(op, &place(*from), &place(*to), *drops));
        }
        Step::CreateIndex(at, number) => {
            let (key, options) = index(*number);
            drop(db.create_indexes(op, &place(*at), &[index_spec(key, options)]));
        }
        Step::DropIndex(at, number) => {
            let (key, options) = index(*number);
            let name = index_spec(key, options).name;
            drop(db.drop_indexes(op, &place(*at), &IndexSelector::Names(vec![&name])));
        }
        Step::CollMod(at, number) => {
            let change = coll_mod(*number);
            drop(db.coll_mod(op, &place(*at), &CollMod::parse(change.as_raw()).unwrap()));
        }
        Step::ConvertToCapped(at) => {
            let options = doc! {"capped": true, "size": 4096};
            let options = CollectionOptions::parse(options.as_raw()).unwrap();
            drop(db.convert_to_capped(op, &place(*at), options.capped().unwrap()));
        }
        Step::View(at, on, number) => {
            let collation = CollationChoice::default();
            drop(db.create_view(
                op,
                &place(*at),
                place(*on).collection(),
                view_pipeline(*number).as_raw(),
                &collation,
            ));
        }
        Step::ModifyView(at, number) => {
            let pipeline = view_pipeline(*number);
            drop(db.modify_view(op, &place(*at), Some("other"), Some(pipeline.as_raw())));
        }
        Step::ModifySeries(at, number) => {
            let change = [
                doc! {"timeseries": {"granularity": "minutes"}},
                doc! {"timeseries": {"granularity": "hours"}, "expireAfterSeconds": "off"},
                doc! {"expireAfterSeconds": 7200},
            ][*number]
                .clone();
            let change = BucketsChange::parse(change.as_raw()).unwrap();
            drop(db.modify_timeseries(op, &place(*at), &change));
        }
    }
}

fn view_pipeline(number: i32) -> ArrayBuf {
    let stage = doc! {"$match": {"a": number}};
    ArrayBuf::from_values([RawValue::Document(stage.as_raw())])
}

fn transaction(test: &TestDb, counter: &mut i32, writes: &[(Place, Write)], commits: bool) {
    let transaction =
        Transaction::begin(&test.db, Duration::from_millis(5), Isolation::Snapshot).unwrap();
    for (at, write) in writes {
        let op = StatementContext::new().in_transaction(transaction.clone());
        if write_to(test, &op, counter, *at, write).is_err() {
            return transaction.abort();
        }
    }
    if !commits {
        return transaction.abort();
    }
    let lsid = doc! {"id": 5};
    let row = SessionRow::load(&test.db, &test.op, lsid.as_raw()).unwrap();
    row.advance(row.number() + 1);
    let origin = WriteOrigin {
        lsid,
        txn_number: row.number(),
    };
    let op = StatementContext::new().as_session_write(SessionWrite { origin, row });
    drop(transaction.commit(&op));
}

fn write_to(
    test: &TestDb,
    op: &StatementContext,
    counter: &mut i32,
    at: Place,
    write: &Write,
) -> sheaf_bson::Result<()> {
    let ns = place(at);
    let is_capped = test
        .db
        .catalog()
        .collection(&ns)
        .is_some_and(|c| c.options().capped().is_some());
    let by_id = |id: i32| doc! {"_id": id};
    match write {
        Write::Insert(id, doc) => {
            // The order of a capped collection is reproduced only if each `_id` is inserted once.
            *counter += 1;
            let id = if is_capped { 100 + *counter } else { *id };
            let mut out = DocBuilder::new();
            out.append("_id", id);
            out.extend(doc.as_raw());
            test.db.insert_one(op, &ns, out.finish().as_raw()).map(drop)
        }
        Write::Measure(meta, minutes) => {
            let series = place(SERIES);
            if op.transaction().is_some() {
                // The write would be refused and end the transaction.
                return Ok(());
            }
            if test.db.catalog().timeseries(&series).is_none() {
                let options = CollectionOptions::parse(collection_options(7).as_raw()).unwrap();
                test.db.create_collection(op, &series, options)?;
            }
            *counter += 1;
            let time = DateTime(1_700_000_000_000 + minutes * 60_000);
            let doc = doc! {"_id": 1000 + *counter, "t": time, "m": *meta, "a": *counter % 3};
            test.db.insert_one(op, &series, doc.as_raw()).map(drop)
        }
        Write::Update { id, change, upsert } => {
            let is_operator = change
                .as_raw()
                .first()
                .is_some_and(|e| e.key().starts_with('$'));
            let multi = id.is_none() && is_operator;
            let filter = id.map_or_else(|| doc! {}, by_id);
            let upsert = *upsert && id.is_some() && !is_capped;
            update(
                test,
                op,
                &ns,
                &filter,
                RawValue::Document(change.as_raw()),
                (multi, upsert),
            )
        }
        Write::Pipeline(id) => {
            let set = doc! {"$set": {"a": "$b", "e": {"$concatArrays": [[1], ["$_id"]]}}};
            let stages = ArrayBuf::from_values([RawValue::Document(set.as_raw())]);
            let change = RawValue::Array(stages.as_raw());
            update(test, op, &ns, &by_id(*id), change, (false, false))
        }
        Write::Delete(id) => delete(test, op, &ns, &by_id(*id)),
        Write::DeleteWhere(filter) => delete(test, op, &ns, filter),
    }
}

fn update(
    test: &TestDb,
    op: &StatementContext,
    ns: &Namespace,
    filter: &DocBuf,
    change: RawValue<'_>,
    (multi, upsert): (bool, bool),
) -> sheaf_bson::Result<()> {
    let statement = UpdateStatement {
        spec: FindSpec {
            filter: Some(filter.as_raw()),
            ..Default::default()
        },
        update: change,
        constants: None,
        array_filters: None,
        upsert,
        upsert_supplied: None,
        multi,
        return_document: Default::default(),
        projection: None,
    };
    let mut report = UpdateReport::default();
    let options = QueryOptions::default();
    modify::update(&test.db, op, ns, &statement, &options, &mut report)
}

fn delete(
    test: &TestDb,
    op: &StatementContext,
    ns: &Namespace,
    filter: &DocBuf,
) -> sheaf_bson::Result<()> {
    let statement = DeleteStatement {
        spec: FindSpec {
            filter: Some(filter.as_raw()),
            ..Default::default()
        },
        multi: true,
        return_document: Default::default(),
        projection: None,
    };
    let mut report = DeleteReport::default();
    let options = QueryOptions::default();
    modify::delete(&test.db, op, ns, &statement, &options, &mut report)
}

/// Everything that the oplog must reproduce, by name.
#[derive(Debug, PartialEq, Default)]
struct State(BTreeMap<String, Vec<String>>);

fn state(test: &TestDb, in_order: bool) -> State {
    let mut state = State::default();
    let (catalog, snapshot) = test.db.whole_view().unwrap();
    for collection in catalog.collections() {
        let ns = collection.ns();
        // Session rows are not reproduced by the oplog.
        if matches!(ns.db(), "local" | "config") {
            continue;
        }
        let mut indexes: Vec<String> = collection
            .index_list()
            .iter()
            .map(|index| index.spec().to_doc().to_string())
            .collect();
        let mut documents = Vec::new();
        let mut cursor = snapshot.cursor(collection.table()).unwrap();
        let mut on = cursor.seek_first().unwrap();
        while on {
            documents.push(typed(RawDoc::parse(cursor.value()).unwrap()));
            on = cursor.next().unwrap();
        }
        // A document inserted twice has the position of the second insert.
        if !in_order {
            indexes.sort();
            if collection.options().capped().is_none() {
                documents.sort();
            }
        }
        let mut lines = vec![
            format!("uuid {}", collection.uuid()),
            format!("options {}", collection.options().to_doc()),
        ];
        if ns.is_views() {
            // The oplog has the views, not the collection of their documents.
            lines.clear();
        }
        lines.extend(indexes);
        lines.extend(documents);
        if !lines.is_empty() {
            state.0.insert(ns.to_string(), lines);
        }
    }
    for (_, database) in catalog.databases() {
        for view in database.views() {
            let lines = vec![format!("view {}", view.options())];
            state.0.insert(view.ns().to_string(), lines);
        }
    }
    state
}

fn apply(test: &TestDb, entries: &[DocBuf], from: usize, to: usize, rules: ApplyRules) {
    let lookup = |at: OpTime| {
        let is_at = |entry: &&DocBuf| OpTime::of(entry.as_raw()) == Some(at);
        Ok(entries.iter().find(is_at).cloned())
    };
    let mut applier = Applier::new(&test.db, rules).with_lookup(Box::new(lookup));
    for entry in &entries[from..to] {
        if let Err(error) = applier.apply(&test.op, entry.as_raw()) {
            panic!("{error}\napplying {entry}\nfrom {from}, of {entries:#?}");
        }
    }
}

fn assert_all_valid(test: &TestDb) {
    let catalog = test.db.catalog();
    for collection in catalog.collections().filter(|c| c.ns().db() != "local") {
        let view = test.db.read_view(collection.ns()).unwrap();
        let report = sheaf_db::validate::validate(&test.op, &view).unwrap();
        assert!(report.is_valid(), "{}: {report:#?}", collection.ns());
    }
}

/// The kinds of entries that the workloads have written, and their numbers.
type Kinds = BTreeMap<String, usize>;

fn count(entry: RawDoc<'_>, kinds: &mut Kinds) {
    let Some(RawValue::Document(o)) = entry.get("o") else {
        panic!("{entry}");
    };
    let kind = match (entry.get("op"), entry.get("ns")) {
        (Some(RawValue::String("c")), _) => o.first().map_or("", |first| first.key()),
        (_, Some(RawValue::String(ns))) if ns.ends_with(".system.views") => "view",
        (_, Some(RawValue::String(ns))) if ns.contains(".system.buckets.") => "bucket",
        (Some(RawValue::String("u")), _) if o.get("diff").is_some() => "diff",
        (Some(RawValue::String(op)), _) => op,
        _ => panic!("{entry}"),
    };
    *kinds.entry(kind.to_owned()).or_default() += 1;
    if o.get("partialTxn").is_some() {
        *kinds.entry("partialTxn".to_owned()).or_default() += 1;
    }
    if let Some(RawValue::Array(operations)) = o.get("applyOps") {
        for operation in operations.iter().filter_map(|op| op.as_document()) {
            count(operation, kinds);
        }
    }
}

/// Checks the workload with eight of the positions from which its entries can be applied again,
/// including `k`.
fn check(steps: &[Step], j: usize, k: usize, kinds: &mut Kinds) {
    check_with(steps, j, k, 7, kinds);
}

fn check_with(steps: &[Step], j: usize, k: usize, positions: usize, kinds: &mut Kinds) {
    let source = TestDb::new(EngineKind::Memory, Events::default());
    source.db.oplog().set_transaction_entry_operations_max(2);
    source.db.turn_oplog_on(&source.op).unwrap();
    let mut counter = 0;
    for step in steps {
        carry_out(&source, &mut counter, step);
    }
    let entries = entries(&source);
    entries
        .iter()
        .for_each(|entry| count(entry.as_raw(), kinds));
    let all = entries.len();
    let shown = || format!("{entries:#?}");

    let once = TestDb::new(EngineKind::Memory, Events::default());
    apply(&once, &entries, 0, all, ApplyRules::ONCE);
    assert_eq!(state(&once, true), state(&source, true), "once {}", shown());
    assert_all_valid(&once);

    let expected = state(&source, false);
    let stride = (all / positions).max(1);
    for from in (0..all).step_by(stride).chain([k % all]) {
        apply(&once, &entries, from, all, ApplyRules::RECOVERY);
        assert_eq!(state(&once, false), expected, "from {from} {}", shown());
    }
    assert_all_valid(&once);

    let (j, k) = (j % (all + 1), k % (j % (all + 1) + 1));
    let partly = TestDb::new(EngineKind::Memory, Events::default());
    apply(&partly, &entries, 0, j, ApplyRules::RECOVERY);
    apply(&partly, &entries, k, all, ApplyRules::RECOVERY);
    let got = state(&partly, false);
    assert_eq!(got, expected, "to {j}, from {k} {}", shown());
    assert_all_valid(&partly);
}

/// What an entry can meet when it is applied again after later ones: each workload shows one case.
#[test]
fn entries_apply_again_after_later_ones() {
    let insert = |at, id, doc| Step::Write(at, Write::Insert(id, doc));
    let delete = |at, id| Step::Write(at, Write::Delete(id));
    let set = |at, id, change| {
        let id = Some(id);
        let upsert = false;
        Step::Write(at, Write::Update { id, change, upsert })
    };
    let workloads = [
        // A key of a unique index moves from one document to another.
        vec![
            Step::CreateIndex(0, 1),
            insert(0, 1, doc! {"a": 1}),
            delete(0, 1),
            insert(0, 2, doc! {"a": 1}),
            set(0, 2, doc! {"$set": {"a": 2}}),
            insert(0, 3, doc! {"a": 1}),
        ],
        // A unique index is created where there were duplicates before, and later are again.
        vec![
            insert(0, 1, doc! {"a": 1}),
            insert(0, 2, doc! {"a": 1}),
            delete(0, 1),
            Step::CreateIndex(0, 1),
            Step::DropIndex(0, 1),
            insert(0, 1, doc! {"a": 1}),
        ],
        // The same by collMod.
        vec![
            Step::CreateIndex(0, 0),
            insert(0, 1, doc! {"a": 1}),
            Step::CollMod(0, 2),
            Step::CollMod(0, 3),
            Step::CollMod(0, 0),
            Step::CollMod(0, 1),
            Step::DropIndex(0, 0),
            insert(0, 2, doc! {"a": 1}),
        ],
        // Two arrays in one index, before and after it existed.
        vec![
            Step::CreateIndex(0, 2),
            insert(0, 1, doc! {"a": [1, 2], "b": 1}),
            Step::DropIndex(0, 2),
            set(0, 1, doc! {"$set": {"b": [3, 4]}}),
        ],
        // A validator that rejects documents already in the collection.
        vec![
            insert(0, 1, doc! {"a": 1}),
            set(0, 1, doc! {"a": 2, "b": 3}),
            set(0, 1, doc! {"$set": {"b": 4}}),
            insert(0, 2, doc! {"b": 5}),
            Step::CollMod(0, 5),
        ],
        // A name that another collection has later, and a second collection of that name.
        vec![
            insert(0, 1, doc! {"a": 1}),
            Step::Rename(0, 1, false),
            insert(0, 1, doc! {"a": 2}),
            Step::Drop(1),
            Step::Rename(0, 1, false),
            Step::Create(0, 2),
            insert(0, 5, doc! {"a": 3}),
        ],
        // A dropped database, into which a collection is renamed afterwards.
        vec![
            insert(0, 1, doc! {"a": 1}),
            insert(3, 1, doc! {"a": 2}),
            Step::View(5, 3, 1),
            Step::DropDatabase(false),
            Step::Rename(0, 3, false),
            Step::View(4, 3, 2),
        ],
        // Another index of the same name.
        vec![
            insert(0, 1, doc! {"c": "x", "d": 1}),
            Step::CreateIndex(0, 10),
            Step::DropIndex(0, 10),
            Step::CreateIndex(0, 12),
        ],
        // A time-series collection that is created again with other options, and a view of the name
        // after it.
        vec![
            Step::Create(SERIES, 7),
            Step::Write(SERIES, Write::Measure(1, 5)),
            Step::ModifySeries(SERIES, 0),
            Step::Drop(SERIES),
            Step::Create(SERIES, 8),
            Step::Write(SERIES, Write::Measure(2, 6)),
            Step::ModifySeries(SERIES, 1),
            Step::Write(SERIES, Write::Measure(2, 7)),
        ],
        vec![
            Step::Create(0, 7),
            Step::Drop(0),
            Step::View(0, 1, 3),
            Step::ModifyView(0, 4),
            Step::Drop(0),
            insert(0, 1, doc! {"a": 1}),
            Step::ConvertToCapped(0),
            insert(0, 1, doc! {"a": 2}),
        ],
        // A transaction of several entries that creates its collection.
        vec![
            Step::Transaction(
                (0..7)
                    .map(|id| (2, Write::Insert(id, doc! {"a": id})))
                    .collect(),
                true,
            ),
            delete(2, 3),
            Step::Drop(2),
            insert(2, 3, doc! {"a": 9}),
        ],
    ];
    for steps in &workloads {
        for j in [0, 3, 5, 100] {
            check_with(steps, j, j / 2, usize::MAX, &mut Kinds::new());
        }
    }
}

/// `SHEAF_OPLOG_CASES` sets the number of workloads.
#[test]
fn entries_reproduce_the_database() {
    let mut runner = TestRunner::new(Config {
        cases: std::env::var("SHEAF_OPLOG_CASES").map_or(60, |n| n.parse().unwrap()),
        failure_persistence: None,
        ..Config::default()
    });
    let kinds = RefCell::new(Kinds::new());
    let steps = proptest::collection::vec(step(), 1..60);
    let outcome = runner.run(&(steps, any::<usize>(), any::<usize>()), |(steps, j, k)| {
        check(&steps, j, k, &mut kinds.borrow_mut());
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
    let kinds = kinds.into_inner();
    for kind in [
        "i",
        "u",
        "diff",
        "d",
        "bucket",
        "view",
        "create",
        "drop",
        "dropDatabase",
        "renameCollection",
        "createIndexes",
        "dropIndexes",
        "collMod",
        "applyOps",
        "partialTxn",
    ] {
        assert!(kinds.contains_key(kind), "no entry of {kind} in {kinds:?}");
    }
}
