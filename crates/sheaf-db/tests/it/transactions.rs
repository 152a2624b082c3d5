//! Transactions, statement by statement: `testdata/transactions.txt`.
//!
//! A line without indent is a statement of `t1`, of `t2` or outside of transactions (`plain`); the
//! indented line below it is its answer. Interleavings run as written: one thread carries all of
//! them out.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sheaf_bson::json::{parse_doc, parse_prefix};
use sheaf_bson::{DocBuf, Error, RawDoc, RawValue, doc};
use sheaf_db::find;
use sheaf_db::modify::{self, DeleteReport, DeleteStatement, UpdateReport, UpdateStatement};
use sheaf_db::txn::{Isolation, Transaction};
use sheaf_db::{CollectionOptions, Namespace, OpContext, StatementContext};
use sheaf_db::{QueryOptions, ResultSource};
use sheaf_query::canonical::{CanonicalQuery, FindSpec};

use crate::support::{TestDb, ns, on_every_engine};

struct Run<'t> {
    test: &'t TestDb,
    /// `c` is clustered, which must not change any answer.
    clustered: bool,
    open: HashMap<String, Arc<Transaction>>,
}

impl Run<'_> {
    /// Carries out one line, and returns its answer.
    fn line(&mut self, line: &str) -> Result<String, Error> {
        let (who, rest) = line.split_once(' ').unwrap_or((line, ""));
        if who == "data" {
            self.reset(rest)?;
            return Ok(String::new());
        }
        let (name, rest) = match rest.strip_prefix("in ") {
            Some(rest) => rest.split_once(' ').expect("in COLLECTION STATEMENT"),
            None => ("c", rest),
        };
        let (what, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let mut op =
            StatementContext::from(OpContext::new().with_max_time(Duration::from_secs(20)));
        match what {
            "begin" => {
                let isolation = match rest {
                    "serializable" => Isolation::Serializable,
                    _ => Isolation::Snapshot,
                };
                let wait = Duration::from_millis(5);
                let transaction = Transaction::begin(&self.test.db, wait, isolation)?;
                self.open.insert(who.into(), transaction);
                return Ok(String::new());
            }
            "commit" => return self.open[who].commit(&op).map(|()| String::new()),
            "abort" => {
                self.open[who].abort();
                return Ok(String::new());
            }
            _ => {}
        }
        if who != "plain" {
            op = op.in_transaction(self.open[who].clone());
        }
        let done = self.statement(&op, &ns(name), what, &documents(rest));
        // As in the server, a statement that fails ends its transaction.
        if done.is_err()
            && let Some(transaction) = op.transaction()
        {
            transaction.abort();
        }
        done
    }

    fn statement(
        &self,
        op: &StatementContext,
        ns: &Namespace,
        what: &str,
        docs: &[DocBuf],
    ) -> Result<String, Error> {
        let db = &self.test.db;
        let options = QueryOptions::default();
        let spec = FindSpec {
            filter: docs.first().map(DocBuf::as_raw),
            ..Default::default()
        };
        match what {
            "find" => {
                let query = Arc::new(CanonicalQuery::new(sheaf_bson::DateTime(0), spec)?);
                let view = db.view(op, ns)?;
                let mut source = find::find(&view, op, query, &options)?;
                let mut found = Vec::new();
                while let Some(doc) = source.next(op)? {
                    found.push(doc.as_raw().to_buf());
                }
                found.sort_by_key(|doc| doc.get("_id").and_then(|id| id.as_i64_exact()));
                let texts: Vec<String> = found.iter().map(|doc| text(doc.as_raw())).collect();
                Ok(texts.join(" "))
            }
            "insert" => {
                let docs: Vec<RawDoc<'_>> = docs.iter().map(DocBuf::as_raw).collect();
                let mut result = db.insert(op, ns, &docs, true)?;
                match result.errors.pop() {
                    Some(refused) => Err(refused.error),
                    None => Ok("inserted".into()),
                }
            }
            "update" | "updateMany" => {
                let statement = UpdateStatement {
                    spec,
                    update: RawValue::Document(docs[1].as_raw()),
                    constants: None,
                    upsert_supplied: None,
                    array_filters: None,
                    upsert: false,
                    multi: what == "updateMany",
                    return_document: Default::default(),
                    projection: None,
                };
                let mut report = UpdateReport::default();
                modify::update(db, op, ns, &statement, &options, &mut report)?;
                let result = report.result;
                Ok(format!(
                    "matched {}, modified {}",
                    result.matched, result.modified
                ))
            }
            "delete" => {
                let statement = DeleteStatement {
                    spec,
                    multi: true,
                    return_document: Default::default(),
                    projection: None,
                };
                let mut report = DeleteReport::default();
                modify::delete(db, op, ns, &statement, &options, &mut report)?;
                Ok(format!("deleted {}", report.result.deleted))
            }
            other => panic!("unknown statement {other}"),
        }
    }

    /// Starts a new paragraph: aborts all open transactions, and `c` holds these documents.
    fn reset(&mut self, docs: &str) -> Result<(), Error> {
        for transaction in self.open.values() {
            transaction.abort();
        }
        self.open.clear();
        let op = &self.test.op;
        for name in ["c", "other", "twice", "later"] {
            if self.test.db.catalog().collection(&ns(name)).is_some() {
                self.test.db.drop_collection(op, &ns(name))?;
            }
        }
        if self.clustered {
            let spec = doc! {"clusteredIndex": {"key": {"_id": 1}, "unique": true}};
            let options = CollectionOptions::parse(spec.as_raw())?;
            self.test.db.create_collection(op, &ns("c"), options)?;
        }
        self.test.create_index("c", doc! {"v": 1}, doc! {})?;
        let docs = documents(docs);
        let docs: Vec<RawDoc<'_>> = docs.iter().map(DocBuf::as_raw).collect();
        let result = self.test.db.insert(op, &ns("c"), &docs, true)?;
        assert!(result.errors.is_empty());
        Ok(())
    }
}

fn documents(mut text: &str) -> Vec<DocBuf> {
    let mut docs = Vec::new();
    while !text.trim().is_empty() {
        let (_, end) = parse_prefix(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        docs.push(parse_doc(text[..end].trim()).unwrap());
        text = &text[end..];
    }
    docs
}

/// In the notation of the script.
fn text(doc: RawDoc<'_>) -> String {
    let text = doc.to_string().replace("{ ", "{").replace(" }", "}");
    text.replace("[ ", "[").replace(" ]", "]")
}

#[test]
fn interleavings() {
    interleavings_of(false);
}

#[test]
fn interleavings_on_a_clustered_collection() {
    interleavings_of(true);
}

fn interleavings_of(clustered: bool) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/transactions.txt");
    let script = std::fs::read_to_string(path).unwrap();
    on_every_engine(|test| {
        let mut run = Run {
            test: &test,
            clustered,
            open: HashMap::new(),
        };
        let mut lines = script.lines().enumerate().peekable();
        let mut statements = 0;
        while let Some((n, line)) = lines.next() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let expected = lines.next_if(|(_, next)| next.starts_with("  "));
            let expected = expected.map_or("", |(_, answer)| answer.trim());
            let answer = match run.line(line) {
                Ok(answer) => answer,
                Err(error) => error.code_name().into_owned(),
            };
            assert_eq!(answer, expected, "line {}: {line}", n + 1);
            statements += 1;
        }
        assert!(statements > 100);
    });
}
