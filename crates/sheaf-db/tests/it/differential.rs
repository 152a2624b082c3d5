//! Whatever the indexes, the plan and the batch size, a query returns what the naive model returns.
//!
//! ```text
//!   round ──> collection with indexes ──> find     every candidate plan, both ways; the usual path, count
//!                │                        distinct, projections, pipelines
//!                └──> the model           update, delete ──> same documents, indexes as if rebuilt
//! ```
//!
//! `SHEAF_DIFF_SEED` and `SHEAF_DIFF_ROUNDS` set where the seeds begin and how many rounds run.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use sheaf_bson::path::FieldPath;
use sheaf_bson::{CollationChoice, DateTime, DocBuf, DocBuilder, Error, RawValue, Value, doc};
use sheaf_db::QueryOptions;
use sheaf_db::catalog::clustered::record_id_of_id;
use sheaf_db::count::count;
use sheaf_db::distinct::{Distinct, distinct};
use sheaf_db::find::{self, Find};
use sheaf_db::modify::{
    self, DeleteReport, DeleteStatement, ReturnDocument, UpdateReport, UpdateStatement,
};
use sheaf_db::{CollectionOptions, Events, ReadView, ResultSource};
use sheaf_query::canonical::{CanonicalQuery, FindSpec, Hint};
use sheaf_query::planner::PlannerOptions;
use sheaf_testkit::differential::{Round, Step, run, run_by_id, run_collated, setting};
use sheaf_testkit::model::{self, Query, Updated};

use crate::every_plan::{Asker, planners, stages_met};
use crate::support::{EngineKind, TestDb, ns};

/// Errors that indexes cause: parallel arrays, duplicate keys, arrays in hashed or wildcard
/// indexes, and values that cannot be keys.
const REFUSED_BY_INDEXES: [i32; 6] = [171, 11000, 16746, 67, 16766, 201];

#[test]
fn results_never_depend_on_indexes() {
    let rounds = setting("SHEAF_DIFF_ROUNDS", 40);
    run(setting("SHEAF_DIFF_SEED", 1), rounds, carry_out);
    // The generators still produce what planners distinguish.
    let met = stages_met();
    for stage in [
        "AND_HASH",
        "AND_SORTED",
        "COLLSCAN",
        "FETCH",
        "IXSCAN",
        "IXSCAN, skipping",
        "LIMIT",
        "OR",
        "PROJECTION, covered",
        "SKIP",
        "SORT",
        "SORT_MERGE",
    ] {
        assert!(rounds < 40 || met.contains_key(stage), "{stage}: {met:?}");
    }
}

#[test]
fn results_never_depend_on_indexes_by_any_collation() {
    let rounds = setting("SHEAF_DIFF_ROUNDS", 40);
    run_collated(setting("SHEAF_DIFF_SEED", 1), rounds, carry_out);
}

#[test]
fn results_never_depend_on_how_records_are_ordered() {
    let rounds = setting("SHEAF_DIFF_ROUNDS", 24);
    let first = setting("SHEAF_DIFF_SEED", 1);
    run_by_id(first, rounds, |round| carry_out_in(round, true));
    // The same queries of `_id` where it has an index.
    run_by_id(first, rounds / 4, carry_out);
    run(first, rounds, |round| carry_out_in(round, true));
}

/// Rounds that once found a wrong result.
#[test]
fn rounds_that_once_failed() {
    let find = |query: Query| vec![Step::Find(query)];
    let rounds = [
        // The projection ran before the sort, and the second document lost its null.
        Round {
            docs: vec![
                doc! {"_id": 1, "a": [{"b": 3}]},
                doc! {"_id": 2, "a": [{"b": 4}, 0]},
            ],
            collation: doc! {},
            indexes_first: false,
            indexes: Vec::new(),
            steps: find(Query {
                sort: doc! {"a.b": 1},
                projection: doc! {"a.b": 1, "_id": 0},
                ..Query::default()
            }),
        },
        // A covered projection returned null for the key of a missing field.
        Round {
            docs: vec![doc! {"_id": 1, "c": [1]}],
            collation: doc! {},
            indexes_first: false,
            indexes: vec![(doc! {"c": 1, "b": 1}, doc! {})],
            steps: find(Query {
                filter: doc! {"c": {"$gte": 0}},
                projection: doc! {"b": 1, "_id": 0},
                ..Query::default()
            }),
        },
        // In a sparse index an element without the field has no key, not even null.
        Round {
            docs: vec![doc! {"_id": 1, "a": [{"b": 2}, {"c": 0}]}],
            collation: doc! {},
            indexes_first: false,
            indexes: vec![(doc! {"a.b": 1}, doc! {"sparse": true})],
            steps: find(Query {
                filter: doc! {"a.b": 2, "a": {"$elemMatch": {"b": null, "c": 0}}},
                ..Query::default()
            }),
        },
        Round {
            docs: vec![doc! {"_id": 1, "a": [{"b": 2}, {"c": 0}]}],
            collation: doc! {},
            indexes_first: false,
            indexes: vec![(doc! {"a.b": 1}, doc! {"sparse": true})],
            steps: find(Query {
                filter: doc! {"a": {"$elemMatch": {"b": {"$ne": 2}}}, "a.b": {"$gt": 1}},
                ..Query::default()
            }),
        },
        // Distinct returned null for the key of a missing field.
        Round {
            docs: vec![doc! {"_id": 1}, doc! {"_id": 2, "a": 1}],
            collation: doc! {},
            indexes_first: true,
            indexes: vec![(doc! {"a": 1}, doc! {})],
            steps: vec![Step::Distinct {
                path: "a".to_owned(),
                filter: doc! {},
            }],
        },
    ];
    for round in rounds {
        carry_out(&round).unwrap_or_else(|e| panic!("{e}\n{round:#?}"));
    }
}

/// The same for clustered collections.
#[test]
fn rounds_that_once_failed_on_clustered_collections() {
    // A backward scan included the record at the exclusive upper end.
    let round = Round {
        docs: (1..4)
            .map(|n| doc! {"_id": Value::DateTime(DateTime(n))})
            .collect(),
        collation: doc! {},
        indexes_first: true,
        indexes: Vec::new(),
        steps: vec![
            Step::Find(Query {
                filter: doc! {"_id": {"$lt": Value::DateTime(DateTime(2))}},
                sort: doc! {"_id": -1},
                ..Query::default()
            }),
            Step::Find(Query {
                filter: doc! {"_id": {
                    "$gt": Value::DateTime(DateTime(1)), "$lt": Value::DateTime(DateTime(3))
                }},
                sort: doc! {"_id": -1},
                limit: 1,
                ..Query::default()
            }),
        ],
    };
    carry_out_in(&round, true).unwrap_or_else(|e| panic!("{e}\n{round:#?}"));
}

type Checked = Result<(), String>;

fn carry_out(round: &Round) -> Checked {
    carry_out_in(round, false)
}

/// On a collection that is clustered, or not.
fn carry_out_in(round: &Round, clustered: bool) -> Checked {
    let t = TestDb::new(EngineKind::Memory, Events::default());
    if !round.collation.is_empty() || clustered {
        let mut options = DocBuilder::new();
        if !round.collation.is_empty() {
            options.append_bson("collation", &round.collation);
        }
        if clustered {
            let index = doc! {"key": {"_id": 1}, "unique": true};
            options.append_bson("clusteredIndex", &index);
        }
        let options = CollectionOptions::parse(options.finish().as_raw());
        let made = t.db.create_collection(&t.op, &ns("c"), options.unwrap());
        made.map_err(|e| e.to_string())?;
    }
    let own = choice(&round.collation);
    if round.indexes_first {
        create_indexes(&t, round)?;
    }
    let mut docs = Vec::new();
    insert(&t, &round.docs, &mut docs)?;
    if !round.indexes_first {
        create_indexes(&t, round)?;
    }
    for step in &round.steps {
        let (said, step) = match step {
            Step::By(collation, step) => (choice(collation), &**step),
            step => (CollationChoice::Unsaid, step),
        };
        let collator = said.resolve(own.collator());
        SAID.set(said);
        model::by_collation(collator, || carry_out_step(&t, step, &mut docs))
            .map_err(|e| format!("{e}\n  in {step:?}"))?;
        check_documents(&t, &docs)?;
    }
    t.assert_valid("c");
    Ok(())
}

thread_local! {
    /// Writes so far: selects their hints in turn.
    static WRITES: Cell<usize> = const { Cell::new(0) };
    /// The collation that the current step requests.
    static SAID: RefCell<CollationChoice> = const { RefCell::new(CollationChoice::Unsaid) };
}

fn choice(collation: &DocBuf) -> CollationChoice {
    CollationChoice::parse(collation.as_raw()).unwrap()
}

fn said() -> CollationChoice {
    SAID.with_borrow(CollationChoice::clone)
}

fn insert(t: &TestDb, new: &[DocBuf], docs: &mut Vec<DocBuf>) -> Checked {
    for doc in new {
        match t.insert("c", doc.clone()) {
            Ok(()) => docs.push(doc.clone()),
            Err(error) => refused_by_index("insert", &error)?,
        }
    }
    put_in_order(t, docs);
    Ok(())
}

/// Sorts documents in the order of a clustered collection.
fn put_in_order(t: &TestDb, docs: &mut [DocBuf]) {
    if let Some(collection) = &view(t).collection
        && collection.clustered().is_some()
    {
        let collator = collection.collator().map(|collator| &**collator);
        docs.sort_by_cached_key(|doc| doc.get("_id").map(|id| record_id_of_id(id, collator)));
    }
}

fn create_indexes(t: &TestDb, round: &Round) -> Checked {
    for (key, options) in &round.indexes {
        if let Err(error) = t.create_index("c", key.clone(), options.clone()) {
            // 85, 86: an index of this name or key exists
            if !matches!(error.code().0, 85 | 86) {
                refused_by_index("createIndexes", &error)?;
            }
        }
    }
    Ok(())
}

fn refused_by_index(what: &str, error: &Error) -> Checked {
    match REFUSED_BY_INDEXES.contains(&error.code().0) {
        true => Ok(()),
        false => Err(format!("{what}: {error}")),
    }
}

fn check_documents(t: &TestDb, docs: &[DocBuf]) -> Checked {
    let stored = t.documents("c");
    match stored == docs {
        true => Ok(()),
        false => Err(format!("stored {stored:?}\n  instead of {docs:?}")),
    }
}

fn carry_out_step(t: &TestDb, step: &Step, docs: &mut Vec<DocBuf>) -> Checked {
    match step {
        Step::Find(query) => check_find(t, query, docs),
        Step::Distinct { path, filter } => check_distinct(t, path, filter, docs),
        Step::Update {
            filter,
            update,
            multi,
        } => check_update(t, filter, update, *multi, docs),
        Step::Projected { filter, projection } => asker(t).check_projected(filter, projection),
        Step::Pipeline(stages) => asker(t).check_pipeline(stages),
        Step::Insert(new) => insert(t, new, docs),
        Step::Delete { filter, multi } => check_delete(t, filter, *multi, docs),
        Step::By(..) => Err("a step has one collation".to_owned()),
    }
}

fn spec(query: &Query) -> FindSpec<'_> {
    FindSpec {
        filter: Some(query.filter.as_raw()),
        sort: Some(query.sort.as_raw()),
        projection: Some(query.projection.as_raw()),
        skip: query.skip,
        limit: Some(query.limit),
        collation: said(),
        ..FindSpec::default()
    }
}

fn canonical(t: &TestDb, spec: FindSpec<'_>) -> Result<Arc<CanonicalQuery>, String> {
    let query = find::canonicalize(&view(t), spec).map_err(|e| format!("refused: {e}"))?;
    Ok(Arc::new(query))
}

fn asker(t: &TestDb) -> Asker<'_> {
    Asker {
        t,
        view: view(t),
        said: said(),
    }
}

fn view(t: &TestDb) -> ReadView {
    t.db.read_view(&ns("c")).unwrap()
}

/// The results of a find of these parts, in no order.
fn found(t: &TestDb, spec: FindSpec<'_>) -> Result<Vec<DocBuf>, String> {
    let query = canonical(t, spec)?;
    let found = find::find(&view(t), &t.op, query, &QueryOptions::default());
    let mut docs = found
        .and_then(|found| all(t, found))
        .map_err(|e| e.to_string())?;
    docs.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
    Ok(docs)
}

/// A hint of an index that has every document does not change the results. The results below a key
/// (`max`) and from that key on (`min`) are together all results, each once, if no document has
/// several keys.
fn check_hints(t: &TestDb, query: &Query) -> Checked {
    let hinted = |hint: Hint| FindSpec {
        filter: Some(query.filter.as_raw()),
        hint: Some(hint),
        collation: said(),
        ..FindSpec::default()
    };
    let view = view(t);
    let Some(collection) = &view.collection else {
        return Ok(());
    };
    // Errors are compared elsewhere.
    let Ok(scanned) = found(t, hinted(Hint::Natural(1))) else {
        return Ok(());
    };
    for index in asker(t).whole_indexes() {
        for hint in [
            Hint::Name(index.name.clone()),
            Hint::KeyPattern(index.key_pattern.clone()),
        ] {
            // A hint by key pattern is ambiguous if two indexes have the pattern.
            let Ok(got) = found(t, hinted(hint.clone())) else {
                continue;
            };
            if got != scanned {
                return Err(format!("hint {hint:?}: {got:?}\n  instead of {scanned:?}"));
            }
        }
        if index.collator.is_some() || said().resolve(collection.collator()).is_some() {
            continue;
        }
        let by_name = || hinted(Hint::Name(index.name.clone()));
        let keys = found(
            t,
            FindSpec {
                return_key: true,
                ..by_name()
            },
        )?;
        let Some(middle) = keys.get(keys.len() / 2) else {
            continue;
        };
        let from = found(
            t,
            FindSpec {
                min: Some(middle.as_raw()),
                ..by_name()
            },
        )?;
        let mut both = found(
            t,
            FindSpec {
                max: Some(middle.as_raw()),
                ..by_name()
            },
        )?;
        both.extend(from);
        both.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
        if index.multikey {
            both.dedup();
        }
        if both != scanned {
            let name = &index.name;
            return Err(format!(
                "min and max {middle} of {name}: {both:?}\n  instead of {scanned:?}"
            ));
        }
    }
    Ok(())
}

fn check_find(t: &TestDb, query: &Query, docs: &[DocBuf]) -> Checked {
    check_hints(t, query)?;
    let options = QueryOptions::default();
    let view = view(t);
    let asker = asker(t);
    asker.check_candidates(query, docs)?;
    asker.check_reversed(query)?;
    asker.check_hinted(query, docs)?;
    let canonical_query = canonical(t, spec(query))?;
    // The second may take its plan from the cache; the third has so little memory and budget that
    // trials end early and sorts spill.
    let tight = QueryOptions {
        sort_memory_bytes_max: 200,
        planner: PlannerOptions {
            scans_to_explode_max: 2,
            ..PlannerOptions::DEFAULT
        },
        evaluation_works: 3,
        evaluation_results_max: 2,
        ..QueryOptions::default()
    };
    for options in [&options, &options, &tight] {
        let got = find::find(&view, &t.op, canonical_query.clone(), options)
            .and_then(|found| all(t, found));
        model::check_in_any_field_order(docs, query, got.as_deref().map_err(|e| e.code().0))
            .map_err(|e| format!("{e}\n  by the usual path"))?;
    }
    asker.check_other_constants(query, docs)?;
    let unordered = Query {
        sort: DocBuf::new(),
        projection: DocBuf::new(),
        ..query.clone()
    };
    let counted = count(&view, &t.op, canonical(t, spec(&unordered))?, &options);
    let counted = counted.map_err(|e| format!("count: {e}"))?;
    let matching = model::matching(docs, query.filter.as_raw()).len();
    let wanted = model::wanted_count(query, matching);
    if counted.count as usize != wanted {
        return Err(format!(
            "count is {} instead of {wanted} by {:?}",
            counted.count,
            counted.plan.summary()
        ));
    }
    Ok(())
}

fn all(t: &TestDb, mut source: Find) -> Result<Vec<DocBuf>, Error> {
    let mut found = Vec::new();
    while let Some(doc) = source.next(&t.op)? {
        found.push(doc.as_raw().to_buf());
        if found.len() % 3 == 1 {
            source.suspend();
            t.assert_all_suspended();
        }
    }
    assert!(source.is_exhausted());
    assert!(source.next(&t.op)?.is_none());
    Ok(found)
}

fn check_distinct(t: &TestDb, path: &str, filter: &DocBuf, docs: &[DocBuf]) -> Checked {
    let key = FieldPath::parse(path).unwrap();
    let query = canonical(
        t,
        FindSpec {
            filter: Some(filter.as_raw()),
            collation: said(),
            ..FindSpec::default()
        },
    )?;
    for (how, options) in &planners() {
        check_values(t, path, filter, docs, |view| {
            distinct(view, &t.op, &key, query.clone(), options)
        })
        .map_err(|e| format!("{e}\n  {how}"))?;
    }
    Ok(())
}

fn check_values(
    t: &TestDb,
    path: &str,
    filter: &DocBuf,
    docs: &[DocBuf],
    distinct: impl FnOnce(&ReadView) -> Result<Distinct, Error>,
) -> Checked {
    let found = distinct(&view(t)).map_err(|e| e.to_string())?;
    let got: Vec<Value> = found
        .values
        .as_raw()
        .iter()
        .map(RawValue::to_value)
        .collect();
    let matching = model::matching(docs, filter.as_raw());
    let wanted = model::distinct(matching.into_iter().map(DocBuf::as_raw), path);
    let same = got.len() == wanted.len()
        && (got.iter().zip(&wanted)).all(|(a, b)| model::compare(a.as_raw(), b.as_raw()).is_eq());
    match same {
        true => Ok(()),
        false => Err(format!(
            "{got:?} instead of {wanted:?} by {:?}",
            found.plan.summary()
        )),
    }
}

/// A hint for a write: none, or one of the indexes that have all documents, in turn.
fn next_hint(t: &TestDb) -> Option<Hint> {
    WRITES.set(WRITES.get() + 1);
    let indexes = asker(t).whole_indexes();
    let at = WRITES.get() % (indexes.len() + 1);
    let index = indexes.get(at.checked_sub(1)?)?;
    Some(Hint::Name(index.name.clone()))
}

fn check_update(
    t: &TestDb,
    filter: &DocBuf,
    update: &DocBuf,
    multi: bool,
    docs: &mut Vec<DocBuf>,
) -> Checked {
    let matching = model::matching(docs, filter.as_raw()).len();
    let updated: Vec<Option<DocBuf>> = docs
        .iter()
        .map(|doc| {
            if !model::matches(filter.as_raw(), doc.as_raw()) {
                return Some(doc.clone());
            }
            match model::update(update.as_raw(), doc.as_raw()) {
                Updated::To(doc) => Some(doc),
                Updated::Refused => None,
            }
        })
        .collect();
    let Some(updated) = updated.into_iter().collect::<Option<Vec<_>>>() else {
        return Ok(());
    };
    let statement = UpdateStatement {
        spec: FindSpec {
            filter: Some(filter.as_raw()),
            collation: said(),
            hint: next_hint(t),
            ..FindSpec::default()
        },
        update: RawValue::Document(update.as_raw()),
        constants: None,
        upsert_supplied: None,
        array_filters: None,
        upsert: false,
        multi,
        return_document: ReturnDocument::None,
        projection: None,
    };
    let mut report = UpdateReport::default();
    let options = QueryOptions::default();
    let done = modify::update(&t.db, &t.op, &ns("c"), &statement, &options, &mut report);
    let stored = t.documents("c");
    let changed = stored
        .iter()
        .zip(docs.iter())
        .filter(|(a, b)| a != b)
        .count();
    if stored.len() != docs.len() {
        return Err(format!("{} documents became {}", docs.len(), stored.len()));
    }
    for ((now, before), after) in stored.iter().zip(docs.iter()).zip(&updated) {
        if now != before && now != after {
            return Err(format!("{before:?} became {now:?} instead of {after:?}"));
        }
    }
    match done {
        Err(error) => refused_by_index("update", &error)?,
        Ok(()) if multi => {
            if report.result.matched as usize != matching || stored != updated {
                return Err(format!("{matching} to update: {report:?}, {stored:?}"));
            }
        }
        Ok(()) => {
            if report.result.matched as usize != matching.min(1) || changed > 1 {
                return Err(format!("{matching} match: {report:?}"));
            }
        }
    }
    if report.result.modified as usize != changed {
        return Err(format!("{changed} changed: {report:?}"));
    }
    *docs = stored;
    Ok(())
}

fn check_delete(t: &TestDb, filter: &DocBuf, multi: bool, docs: &mut Vec<DocBuf>) -> Checked {
    // If a sort is given, the written document must be first in that order.
    let sort = match WRITES.get() % 3 {
        0 if !multi => doc! {"b": 1},
        1 if !multi => doc! {"a": -1, "_id": 1},
        _ => doc! {},
    };
    let statement = DeleteStatement {
        spec: FindSpec {
            filter: Some(filter.as_raw()),
            sort: Some(sort.as_raw()),
            collation: said(),
            hint: next_hint(t),
            ..FindSpec::default()
        },
        multi,
        return_document: ReturnDocument::None,
        projection: None,
    };
    let mut report = DeleteReport::default();
    let options = QueryOptions::default();
    modify::delete(&t.db, &t.op, &ns("c"), &statement, &options, &mut report)
        .map_err(|e| e.to_string())?;
    let stored = t.documents("c");
    let gone: Vec<&DocBuf> = docs.iter().filter(|doc| !stored.contains(doc)).collect();
    let matching = model::matching(docs, filter.as_raw());
    let wanted = if multi {
        matching.len()
    } else {
        matching.len().min(1)
    };
    if gone.len() != wanted
        || report.result.deleted as usize != wanted
        || !gone.iter().all(|doc| matching.contains(doc))
    {
        return Err(format!("deleted {gone:?} of {matching:?}: {report:?}"));
    }
    let place = |doc: &DocBuf| model::sort_key(sort.as_raw(), doc.as_raw()).unwrap();
    for (gone, other) in gone
        .iter()
        .flat_map(|gone| matching.iter().map(move |m| (gone, m)))
    {
        if !multi && model::compare_tuples(sort.as_raw(), &place(gone), &place(other)).is_gt() {
            return Err(format!(
                "deleted {gone:?}, and {other:?} is before it by {sort}"
            ));
        }
    }
    docs.retain(|doc| stored.contains(doc));
    Ok(())
}
