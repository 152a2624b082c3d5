//! Vector indexes: searches against the naive answer, through writes, builds, restarts and
//! retraining.

use std::sync::Arc;

use sheaf_bson::{DocBuf, RawDoc, RawValue, doc};
use sheaf_db::QueryOptions;
use sheaf_db::aggregate;
use sheaf_db::ddl::search_indexes::{SearchIndexSelector, list_search_indexes};
use sheaf_db::txn::{Isolation, Transaction};
use sheaf_db::{Namespace, ResultSource, StatementContext};
use sheaf_query::pipeline::Pipeline;
use sheaf_query::vector::{self, VectorIndexDefinition};

use crate::pipelines::{create_search_index, run_with};
use crate::support::{EngineKind, TestDb, code, ns, on_every_engine, with_field};

/// Random numbers, reproducible by seed.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// From -1 to 1.
    fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}

fn vector_doc(dimensions: usize, similarity: &str) -> DocBuf {
    doc! {"fields": [
        {"type": "vector", "path": "v", "numDimensions": (dimensions as i32), "similarity": similarity},
        {"type": "filter", "path": "g"},
    ]}
}

/// A random vector near one of `centres` centres.
fn random_vector(dice: &mut Dice, dimensions: usize, centres: u64) -> Vec<f32> {
    let mut centre = Dice(1 + dice.below(centres).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    (0..dimensions)
        .map(|_| centre.unit() + 0.2 * dice.unit())
        .collect()
}

fn as_value(dice: &mut Dice, vector: &[f32]) -> sheaf_bson::Value {
    let bytes: Vec<u8> = match dice.below(3) {
        0 => {
            let mut out = sheaf_bson::ArrayBuilder::new();
            vector.iter().for_each(|c| {
                out.push(f64::from(*c));
            });
            return sheaf_bson::Value::Array(out.finish());
        }
        1 => [0x27, 0]
            .into_iter()
            .chain(vector.iter().flat_map(|c| c.to_le_bytes()))
            .collect(),
        _ => [0x03, 0]
            .into_iter()
            .chain(vector.iter().map(|c| (c * 100.0) as i8 as u8))
            .collect(),
    };
    let binary = RawValue::Binary {
        subtype: vector::BINARY_SUBTYPE,
        bytes: &bytes,
    };
    binary.to_value()
}

fn random_doc(dice: &mut Dice, id: i32, dimensions: usize) -> DocBuf {
    let mut out = sheaf_bson::DocBuilder::new();
    out.append("_id", id);
    out.append("g", dice.below(5) as i32);
    match dice.below(12) {
        0 => {}
        1 => {
            out.append("v", "no vector");
        }
        _ => {
            let vector = random_vector(dice, dimensions, 7);
            out.append_value("v", &as_value(dice, &vector));
        }
    }
    out.finish()
}

/// The expected result: `_id`s and scores by the formulas, in 64 bits, the best first.
fn naive(docs: &[DocBuf], similarity: &str, query: &[f32], group: Option<i32>) -> Vec<(i32, f64)> {
    let mut found: Vec<(i32, f64)> = Vec::new();
    for doc in docs {
        let passes = group.is_none_or(|g| doc.get("g") == Some(RawValue::Int32(g)));
        let vector = doc.get("v").and_then(vector::components);
        let Some(vector) = vector.filter(|v| passes && v.len() == query.len()) else {
            continue;
        };
        let pairs = || vector.iter().zip(query).map(|(a, b)| (*a, f64::from(*b)));
        let dot: f64 = pairs().map(|(a, b)| a * b).sum();
        let score = match similarity {
            "euclidean" => 1.0 / (1.0 + pairs().map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()),
            "dotProduct" => (1.0 + dot) / 2.0,
            _ => {
                let lengths = pairs().map(|(a, _)| a * a).sum::<f64>().sqrt()
                    * pairs().map(|(_, b)| b * b).sum::<f64>().sqrt();
                if lengths == 0.0 {
                    continue;
                }
                (1.0 + dot / lengths) / 2.0
            }
        };
        let id = doc.get("_id").and_then(|id| id.as_i64_exact()).unwrap();
        found.push((id as i32, score));
    }
    found.sort_by(|a, b| b.1.total_cmp(&a.1));
    found
}

fn stage(query: &[f32], how: DocBuf, limit: i32, group: Option<i32>) -> DocBuf {
    let mut search = sheaf_bson::DocBuilder::new();
    search.append("index", "i");
    search.append("path", "v");
    search.begin_array("queryVector");
    for component in query {
        search.push(f64::from(*component));
    }
    search.end();
    search.append("limit", limit);
    search.extend(how.as_raw());
    if let Some(group) = group {
        search.append("filter", &doc! {"g": group});
    }
    doc! {"$vectorSearch": search.finish()}
}

fn search(test: &TestDb, stage: DocBuf) -> Vec<(i32, f64)> {
    let stages = sheaf_bson::array![stage, {"$project": {"s": {"$meta": "vectorSearchScore"}}}];
    let found = run_with(test, "c", &stages, QueryOptions::default(), true).unwrap();
    let pair = |doc: &DocBuf| {
        let id = doc.get("_id").and_then(|id| id.as_i64_exact()).unwrap();
        (id as i32, doc.get("s").and_then(|s| s.as_f64()).unwrap())
    };
    found.iter().map(pair).collect()
}

/// The result is as good as the expected one: the scores are equal up to rounding, and each is that
/// of its own document.
fn assert_found(found: &[(i32, f64)], expected: &[(i32, f64)], limit: usize) {
    assert_eq!(
        found.len(),
        expected.len().min(limit),
        "{found:?} {expected:?}"
    );
    let close = |a: f64, b: f64| (a - b).abs() <= 1e-4 * (1.0 + a.abs());
    for ((id, score), (_, best)) in found.iter().zip(expected) {
        assert!(close(*score, *best), "{found:?} {expected:?}");
        let own = expected.iter().find(|(other, _)| other == id);
        assert!(own.is_some_and(|(_, own)| close(*score, *own)), "{id}");
    }
}

fn check(test: &TestDb, dice: &mut Dice, similarity: &str, dimensions: usize) {
    let docs = test.documents("c");
    let query = random_vector(dice, dimensions, 7);
    for group in [None, Some(2), Some(99)] {
        let expected = naive(&docs, similarity, &query, group);
        for limit in [1, 10, 1000] {
            let exact = stage(&query, doc! {"exact": true}, limit, group);
            assert_found(&search(test, exact), &expected, limit as usize);
            // A small collection is searched exactly, whatever `numCandidates` is.
            let near = stage(&query, doc! {"numCandidates": limit}, limit, group);
            assert_found(&search(test, near), &expected, limit as usize);
        }
    }
    test.assert_valid("c");
}

#[test]
fn searches_agree_with_the_naive_search_through_writes_and_restarts() {
    for (turn, similarity) in ["euclidean", "cosine", "dotProduct"]
        .into_iter()
        .enumerate()
    {
        on_every_engine(|mut test| {
            let mut dice = Dice(77 + turn as u64);
            let dimensions = [3, 16, 21][turn];
            let docs: Vec<DocBuf> = (0..60)
                .map(|id| random_doc(&mut dice, id, dimensions))
                .collect();
            // Half of the documents are inserted before the index is created, half after.
            test.insert_all("c", &docs[..30]);
            create_search_index(&test, "c", "i", &vector_doc(dimensions, similarity)).unwrap();
            test.insert_all("c", &docs[30..]);
            check(&test, &mut dice, similarity, dimensions);
            for round in 0..3 {
                for _ in 0..15 {
                    let id = dice.below(70) as i32;
                    let is = |doc: RawDoc<'_>| doc.get("_id") == Some(RawValue::Int32(id));
                    match dice.below(3) {
                        0 => {
                            let new = random_doc(&mut dice, id, dimensions);
                            let replace = |_: RawDoc<'_>| new.clone();
                            test.update("c", is, replace, false).1.unwrap();
                        }
                        1 => {
                            let group = dice.below(5) as i32;
                            let regroup = |doc: RawDoc<'_>| with_field(doc, "g", group);
                            test.update("c", is, regroup, false).1.unwrap();
                        }
                        _ => {
                            test.delete("c", is, false);
                        }
                    }
                }
                check(&test, &mut dice, similarity, dimensions);
                if round == 1 {
                    test.reopen();
                    check(&test, &mut dice, similarity, dimensions);
                }
            }
        });
    }
}

/// Many vectors: the index has lists; an approximate search reads some of them and finds most of
/// the best.
fn many(test: &TestDb, dice: &mut Dice, ids: std::ops::Range<i32>) {
    let docs: Vec<DocBuf> = ids.map(|id| random_doc(dice, id, 8)).collect();
    test.insert_all("c", &docs);
}

fn lists_of(test: &TestDb) -> usize {
    let collection = test.collection("c");
    let index = collection.vector_index("i").unwrap();
    index.vector_lists(0).unwrap().count()
}

fn retrain(test: &TestDb) -> u64 {
    let mut failed = |index: &str, error: &sheaf_bson::Error| panic!("{index}: {error}");
    test.db
        .retrain_search_indexes(&test.op, &mut failed)
        .unwrap()
}

#[test]
fn a_large_index_has_lists_which_follow_the_documents() {
    for kind in [EngineKind::Memory, EngineKind::Sheaf] {
        let mut test = TestDb::new(kind, Default::default());
        let mut dice = Dice(5);
        many(&test, &mut dice, 0..6000);
        create_search_index(&test, "c", "i", &vector_doc(8, "euclidean")).unwrap();
        assert!(lists_of(&test) > 20, "{}", lists_of(&test));
        assert_eq!(retrain(&test), 0);
        let large = |test: &TestDb, dice: &mut Dice| {
            let docs = test.documents("c");
            let query = random_vector(dice, 8, 7);
            let expected = naive(&docs, "euclidean", &query, None);
            let exact = stage(&query, doc! {"exact": true}, 10, None);
            assert_found(&search(test, exact), &expected, 10);
            let near = stage(&query, doc! {"numCandidates": 10}, 10, None);
            let near = search(test, near.clone());
            let best: Vec<i32> = expected[..10].iter().map(|(id, _)| *id).collect();
            let hits = near.iter().filter(|(id, _)| best.contains(id)).count();
            assert!(hits >= 8, "{near:?} {expected:?}");
            // Each result has its own document's score, and scores descend.
            assert!(near.is_sorted_by(|a, b| a.1 >= b.1));
            for (id, score) in &near {
                let own = expected.iter().find(|(other, _)| other == id).unwrap();
                assert!((own.1 - score).abs() < 1e-4);
            }
            // A selective filter makes the search exact.
            let expected = naive(&docs, "euclidean", &query, Some(3));
            let few = stage(&query, doc! {"numCandidates": 100}, 100, Some(3));
            assert_found(&search(test, few), &expected, 100);
            test.assert_valid("c");
        };
        large(&test, &mut dice);
        // Replaced, deleted and inserted with the same centroids.
        let third =
            |doc: RawDoc<'_>| doc.get("_id").and_then(|id| id.as_i64_exact()).unwrap() % 3 == 0;
        let seed = dice.next();
        let moved = |doc: RawDoc<'_>| {
            let id = doc.get("_id").and_then(|id| id.as_i64_exact()).unwrap();
            random_doc(&mut Dice(seed ^ (id as u64 + 1)), id as i32, 8)
        };
        test.update("c", third, moved, true).1.unwrap();
        large(&test, &mut dice);
        test.reopen();
        assert!(lists_of(&test) > 20);
        large(&test, &mut dice);
        // Most documents are deleted: one list is enough, and every search is exact again.
        test.delete(
            "c",
            |doc| doc.get("_id").and_then(|id| id.as_i64_exact()).unwrap() >= 500,
            true,
        );
        assert_eq!(retrain(&test), 1);
        assert_eq!(lists_of(&test), 1);
        check(&test, &mut dice, "euclidean", 8);
        // Many again: an index built for few vectors is rebuilt.
        many(&test, &mut dice, 10_000..16_000);
        assert_eq!(lists_of(&test), 1);
        assert_eq!(retrain(&test), 1);
        assert!(lists_of(&test) > 20);
        assert_eq!(retrain(&test), 0);
        large(&test, &mut dice);
        // Tables that no index names are dropped from the engine too.
        let named = test.collection("c").index_list().len() + 2;
        assert_eq!(test.engine().tables().unwrap().len(), named);
    }
}

#[test]
fn an_approximate_search_reads_a_part() {
    let test = TestDb::new(EngineKind::Memory, Default::default());
    let mut dice = Dice(9);
    many(&test, &mut dice, 0..8000);
    create_search_index(&test, "c", "i", &vector_doc(8, "cosine")).unwrap();
    let index = test.collection("c").vector_index("i").unwrap().clone();
    let spec = index.spec().vector.clone().unwrap();
    let (number, field) = spec.definition.vector_at("v").unwrap();
    let view = test.db.read_view(&ns("c")).unwrap();
    let components = random_vector(&mut dice, 8, 7);
    let query = vector::QueryVector::new(components).unwrap();
    let mut read = Vec::new();
    for candidates in [Some(1), Some(200), Some(1000), None] {
        let search = sheaf_db::index::vector::search::Search {
            index: &index,
            number,
            field,
            query: &query,
            filter: None,
            candidates,
            limit: 10,
        };
        let (hits, stats) = search.run(&*view.snapshot, &test.op).unwrap();
        assert_eq!(hits.len(), 10);
        assert_eq!(stats.keys_examined, stats.vectors_compared);
        read.push(stats.vectors_compared);
    }
    assert!(read[0] >= 2000 && read[0] < 2600, "{read:?}");
    assert!(read.is_sorted() && read[1] < read[2], "{read:?}");
    assert_eq!(read[2], read[3], "{read:?}");
}

#[test]
fn search_indexes_are_listed_changed_and_dropped() {
    on_every_engine(|mut test| {
        test.insert_all(
            "c",
            &[
                doc! {"_id": 1, "v": [1, 0]},
                doc! {"_id": 2, "v": [1, 0, 0]},
            ],
        );
        create_search_index(&test, "c", "i", &vector_doc(2, "euclidean")).unwrap();
        test.create_index("c", doc! {"x": 1}, doc! {"name": "i"})
            .unwrap();
        let listed =
            |test: &TestDb| list_search_indexes(&test.db.read_view(&ns("c")).unwrap(), None);
        let before = listed(&test);
        let id = before[0]
            .get("id")
            .and_then(|id| id.as_str())
            .unwrap()
            .to_owned();
        let expected = doc! {
            "id": id.as_str(), "name": "i", "type": "vectorSearch", "status": "READY", "queryable": true,
            "latestVersion": 0_i64, "latestDefinitionVersion": {"version": 0_i64},
            "latestDefinition": vector_doc(2, "euclidean"), "statusDetail": [],
        };
        assert_eq!(before, [expected]);
        // Commands for ordinary indexes do not show it.
        assert_eq!(test.collection("c").list_index_docs().len(), 2);
        assert_eq!(test.collection("c").index_count(), 2);

        let query = [1.0, 0.0, 0.0];
        let definition = VectorIndexDefinition::parse(vector_doc(3, "euclidean").as_raw());
        let definition = Arc::new(definition.unwrap());
        let by_name = SearchIndexSelector::Name("i");
        test.db
            .update_search_index(&test.op, &ns("c"), by_name, definition.clone())
            .unwrap();
        let found = search(&test, stage(&query, doc! {"exact": true}, 5, None));
        assert_eq!(found, [(2, 1.0)]);
        assert_eq!(listed(&test)[0].get("id"), Some(RawValue::String(&id)));
        assert_eq!(
            listed(&test)[0].get("latestVersion"),
            Some(RawValue::Int64(1))
        );
        // The same definition again changes nothing.
        test.db
            .update_search_index(&test.op, &ns("c"), by_name, definition.clone())
            .unwrap();
        assert_eq!(
            listed(&test)[0].get("latestVersion"),
            Some(RawValue::Int64(1))
        );
        test.reopen();
        assert_eq!(
            listed(&test)[0].get("latestVersion"),
            Some(RawValue::Int64(1))
        );
        test.assert_valid("c");

        let update = |test: &TestDb, which| {
            code(
                test.db
                    .update_search_index(&test.op, &ns("c"), which, definition.clone()),
            )
        };
        assert_eq!(update(&test, SearchIndexSelector::Name("no")), 27);
        assert_eq!(update(&test, SearchIndexSelector::Id("no")), 27);
        let dropped = |test: &TestDb, of: &str, which| {
            code(test.db.drop_search_index(&test.op, &ns(of), which))
        };
        assert_eq!(dropped(&test, "none", by_name), 26);

        // It follows a rename of its collection.
        test.db
            .rename_collection(&test.op, &ns("c"), &ns("d"), false)
            .unwrap();
        test.db
            .rename_collection(&test.op, &ns("d"), &ns("c"), false)
            .unwrap();
        assert_eq!(
            search(&test, stage(&query, doc! {"exact": true}, 5, None)).len(),
            1
        );
        let all = sheaf_db::IndexSelector::All;
        test.db.drop_indexes(&test.op, &ns("c"), &all).unwrap();
        assert_eq!(listed(&test).len(), 1);
        let by_id = SearchIndexSelector::Id(&id);
        test.db
            .drop_search_index(&test.op, &ns("c"), by_id)
            .unwrap();
        assert_eq!(listed(&test).len(), 0);
        assert_eq!(dropped(&test, "c", by_name), 27);
        assert_eq!(
            search(&test, stage(&query, doc! {"exact": true}, 5, None)),
            []
        );
        test.assert_valid("c");
    });
}

#[test]
fn a_transactions_vectors_are_visible_only_to_it() {
    on_every_engine(|test| {
        test.insert_all("c", &[doc! {"_id": 1, "v": [1, 0]}]);
        create_search_index(&test, "c", "i", &vector_doc(2, "euclidean")).unwrap();
        let nearest = |op: &StatementContext| -> Vec<DocBuf> {
            let parse = Default::default();
            let stages = sheaf_bson::array![stage(&[0.0, 1.0], doc! {"exact": true}, 1, None)];
            let pipeline = Pipeline::parse(stages.as_raw(), &parse).unwrap().optimize();
            let cx = aggregate::AggregateContext::new(
                &test.db,
                "test",
                parse,
                Default::default(),
                op.transaction(),
            );
            let view = test.db.view(op, &ns("c")).unwrap();
            let mut found = aggregate::start(&cx, &view, op, &pipeline, None).unwrap();
            let mut out = Vec::new();
            while let Some(doc) = found.next(op).unwrap() {
                out.push(doc.as_raw().to_buf());
            }
            out
        };
        let wait = std::time::Duration::from_millis(5);
        let transaction = Transaction::begin(&test.db, wait, Isolation::Snapshot).unwrap();
        let op = StatementContext::new().in_transaction(transaction.clone());
        let two = doc! {"_id": 2, "v": [0, 1]};
        let inserted = test
            .db
            .insert(&op, &ns("c"), &[two.as_raw()], true)
            .unwrap();
        assert_eq!(inserted.inserted, 1);
        assert_eq!(nearest(&op), [two]);
        assert_eq!(nearest(&test.op), [doc! {"_id": 1, "v": [1, 0]}]);
        transaction.abort();
        assert_eq!(nearest(&test.op), [doc! {"_id": 1, "v": [1, 0]}]);
        test.assert_valid("c");
    });
}

#[test]
fn a_killed_search_ends() {
    let test = TestDb::new(EngineKind::Memory, Default::default());
    test.insert_all("c", &[doc! {"_id": 1, "v": [1, 0]}]);
    create_search_index(&test, "c", "i", &vector_doc(2, "euclidean")).unwrap();
    test.op.kill(sheaf_bson::ErrorCode::INTERRUPTED);
    let stages = sheaf_bson::array![stage(&[0.0, 1.0], doc! {"exact": true}, 1, None)];
    let found = run_with(&test, "c", &stages, QueryOptions::default(), true);
    assert_eq!(code(found), 11601);
}

#[test]
fn a_crashed_build_leaves_the_old_index() {
    let mut test = TestDb::new(EngineKind::Sheaf, Default::default());
    let mut dice = Dice(3);
    let docs: Vec<DocBuf> = (0..50).map(|id| random_doc(&mut dice, id, 8)).collect();
    test.insert_all("c", &docs);
    create_search_index(&test, "c", "i", &vector_doc(8, "euclidean")).unwrap();
    // As after a crash during a replacement: a table that no row names.
    let mut unit = test.db.storage().begin().unwrap();
    unit.create_table(sheaf_storage::TableId(900));
    unit.put(sheaf_storage::TableId(900), b"x", b"y".to_vec());
    unit.commit(sheaf_storage::Durability::Synced).unwrap();
    test.reopen();
    assert!(
        !test
            .engine()
            .tables()
            .unwrap()
            .contains(&sheaf_storage::TableId(900))
    );
    check(&test, &mut dice, "euclidean", 8);
    let rebuilt = test.db.rebuild_indexes(&test.op).unwrap();
    let names: Vec<&str> = rebuilt[0].indexes.iter().map(String::as_str).collect();
    assert_eq!(names, ["_id_", "i"]);
    check(&test, &mut dice, "euclidean", 8);
}

#[test]
fn a_copy_into_a_capped_collection_keeps_the_index() {
    let test = TestDb::new(EngineKind::Memory, Default::default());
    let mut dice = Dice(4);
    let docs: Vec<DocBuf> = (0..50).map(|id| random_doc(&mut dice, id, 8)).collect();
    test.insert_all("c", &docs);
    create_search_index(&test, "c", "i", &vector_doc(8, "euclidean")).unwrap();
    let limit = sheaf_db::catalog::options::Capped {
        bytes: 1 << 20,
        documents: None,
    };
    let name: Namespace = ns("c");
    test.db.convert_to_capped(&test.op, &name, limit).unwrap();
    check(&test, &mut dice, "euclidean", 8);
}
