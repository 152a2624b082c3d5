//! The rounds of the database's differential test, run against a server over its socket: this
//! includes commands, cursors with several batches, and replies.
//!
//! `SHEAF_DIFF_SEED` and `SHEAF_DIFF_ROUNDS` set where the seeds begin and how many rounds run.

use sheaf_bson::{ArrayBuf, DocBuf, RawValue, Value, compare_values, doc};
use sheaf_testkit::differential::{Round, Step, run, setting};
use sheaf_testkit::model::{self, Query, Updated};

use super::client::Client;
use super::server::Server;

type Checked = Result<(), String>;

/// Errors that indexes cause: parallel arrays, duplicate keys, values that cannot be keys, and
/// conflicts with existing indexes.
const REFUSED_BY_INDEXES: [i64; 8] = [171, 11000, 16746, 67, 85, 86, 16766, 201];

#[test]
fn replies_never_depend_on_indexes() {
    let server = Server::start();
    let mut client = server.client();
    let mut number = 0;
    let rounds = setting("SHEAF_DIFF_ROUNDS", 20);
    run(setting("SHEAF_DIFF_SEED", 5001), rounds, |round| {
        number += 1;
        let mut session = Session {
            client: &mut client,
            collection: format!("c{number}"),
            docs: Vec::new(),
            finds: 0,
        };
        if number % 2 == 0 {
            // Records are in the order of _id, which is the order of insertion.
            session.command(&doc! {
                "create": session.collection.as_str(), "$db": "test",
                "clusteredIndex": {"key": {"_id": 1}, "unique": true}
            });
        }
        let done = session.carry_out(round);
        session.command(&doc! {"drop": session.collection.as_str(), "$db": "test"});
        done
    });
}

/// One collection over one connection.
struct Session<'c> {
    client: &'c mut Client,
    collection: String,
    /// Its expected content.
    docs: Vec<DocBuf>,
    finds: i32,
}

impl Session<'_> {
    /// Runs a command; returns the body of the reply, also if it is an error.
    fn command(&mut self, command: &DocBuf) -> DocBuf {
        self.client.run(command).body
    }

    fn carry_out(&mut self, round: &Round) -> Checked {
        if round.indexes_first {
            self.create_indexes(round)?;
        }
        self.insert(&round.docs)?;
        if !round.indexes_first {
            self.create_indexes(round)?;
        }
        for step in &round.steps {
            let done = match step {
                Step::Find(query) => self.find(query),
                Step::Distinct { path, filter } => self.distinct(path, filter),
                Step::Update {
                    filter,
                    update,
                    multi,
                } => self.update(filter, update, *multi),
                Step::Delete { filter, multi } => self.delete(filter, *multi),
                Step::Insert(docs) => self.insert(docs),
                Step::Projected { filter, projection } => self.projected(filter, projection),
                // Compared by the database's test; the server passes pipelines on unchanged.
                Step::Pipeline(_) => Ok(()),
                Step::By(..) => Err("rounds over the socket do not use collations".to_owned()),
            };
            done.map_err(|e| format!("{e}\n  in {step:?}"))?;
        }
        let valid = self.command(&doc! {"validate": self.collection.as_str(), "$db": "test"});
        match valid.get("valid") {
            Some(RawValue::Boolean(true)) | None => Ok(()),
            _ => Err(format!("{valid:?}")),
        }
    }

    fn create_indexes(&mut self, round: &Round) -> Checked {
        for (at, (key, options)) in round.indexes.iter().enumerate() {
            let mut spec = sheaf_bson::DocBuilder::from_doc(options.as_raw());
            spec.append_bson("key", key);
            spec.append("name", format!("i{at}").as_str());
            let spec = spec.finish();
            let reply = self.command(&doc! {
                "createIndexes": self.collection.as_str(), "indexes": [spec], "$db": "test"
            });
            refused_by_index(code(&reply), &reply)?;
        }
        Ok(())
    }

    fn insert(&mut self, docs: &[DocBuf]) -> Checked {
        if docs.is_empty() {
            return Ok(());
        }
        let reply = self.command(&doc! {
            "insert": self.collection.as_str(), "documents": docs, "ordered": false, "$db": "test"
        });
        let mut refused = Vec::new();
        for error in write_errors(&reply) {
            refused_by_index(code(&error), &error)?;
            refused.push(integer(&error, "index") as usize);
        }
        for (at, doc) in docs.iter().enumerate() {
            if !refused.contains(&at) {
                self.docs.push(doc.clone());
            }
        }
        match integer(&reply, "n") as usize == docs.len() - refused.len() {
            true => Ok(()),
            false => Err(format!("{reply:?}")),
        }
    }

    fn find(&mut self, query: &Query) -> Checked {
        self.finds += 1;
        let got = self.all(query, 1 + self.finds % 7);
        let got = match &got {
            Ok(docs) => Ok(docs.as_slice()),
            Err(code) => Err(*code as i32),
        };
        // Covered projections return fields in the order of the index.
        model::check(&self.docs, query, got)
            .or_else(|_| model::check_in_any_field_order(&self.docs, query, got))?;
        let mut count = sheaf_bson::DocBuilder::new();
        count.append("count", self.collection.as_str());
        count.append_bson("query", &query.filter);
        count.append("skip", query.skip as i64);
        count.append("limit", query.limit as i64);
        count.append("$db", "test");
        let reply = self.command(&count.finish());
        let matching = model::matching(&self.docs, query.filter.as_raw()).len();
        let wanted = model::wanted_count(query, matching);
        match integer(&reply, "n") as usize == wanted {
            true => Ok(()),
            false => Err(format!("count is {reply:?} instead of {wanted}")),
        }
    }

    /// All batches of a find, or its error code.
    fn all(&mut self, query: &Query, batch_size: i32) -> Result<Vec<DocBuf>, i64> {
        let mut found = Vec::new();
        let mut reply = self.command(&doc! {
            "find": self.collection.as_str(), "filter": query.filter, "sort": query.sort,
            "projection": query.projection, "skip": query.skip as i64,
            "limit": query.limit as i64, "batchSize": batch_size, "$db": "test"
        });
        let mut field = "firstBatch";
        loop {
            if code(&reply) != 0 {
                return Err(code(&reply));
            }
            let cursor = reply.get("cursor").and_then(|c| c.as_document());
            let cursor = cursor.unwrap_or_else(|| panic!("{reply:?}")).to_buf();
            let batch = cursor.get(field).and_then(|b| b.as_array());
            let batch = batch.unwrap_or_else(|| panic!("{reply:?}"));
            assert!(batch.count() <= batch_size as usize, "{reply:?}");
            found.extend(batch.iter().map(|doc| doc.as_document().unwrap().to_buf()));
            let id = integer(&cursor, "id");
            if id == 0 {
                return Ok(found);
            }
            field = "nextBatch";
            reply = self.command(&doc! {
                "getMore": id, "collection": self.collection.as_str(),
                "batchSize": batch_size, "$db": "test"
            });
        }
    }

    /// A projection returns the same documents with and without indexes.
    fn projected(&mut self, filter: &DocBuf, projection: &DocBuf) -> Checked {
        let mut gives = |hint: DocBuf| {
            let reply = self.command(&doc! {
                "find": self.collection.as_str(), "filter": filter, "projection": projection,
                "hint": hint, "batchSize": 1000, "$db": "test"
            });
            let cursor = reply.get("cursor").and_then(|c| c.as_document());
            let batch = cursor.and_then(|cursor| cursor.get("firstBatch")?.as_array());
            let mut docs: Vec<Vec<String>> = (batch.into_iter())
                .flat_map(|batch| batch.iter().filter_map(|doc| doc.as_document()))
                .map(|doc| doc.iter().map(|field| format!("{field:?}")).collect())
                .collect();
            docs.iter_mut().for_each(|fields| fields.sort());
            docs.sort();
            (code(&reply), docs)
        };
        let (got, wanted) = (gives(doc! {}), gives(doc! {"$natural": 1}));
        match got == wanted {
            true => Ok(()),
            false => Err(format!("{got:?} instead of {wanted:?}")),
        }
    }

    fn distinct(&mut self, path: &str, filter: &DocBuf) -> Checked {
        let reply = self.command(&doc! {
            "distinct": self.collection.as_str(), "key": path, "query": filter, "$db": "test"
        });
        let values = reply.get("values").and_then(|v| v.as_array());
        let values = values.ok_or_else(|| format!("{reply:?}"))?;
        let got: Vec<Value> = values.iter().map(RawValue::to_value).collect();
        let matching = model::matching(&self.docs, filter.as_raw());
        let wanted = model::distinct(matching.into_iter().map(DocBuf::as_raw), path);
        let same = compare_values(
            RawValue::Array(ArrayBuf::from_values(&got).as_raw()),
            RawValue::Array(ArrayBuf::from_values(&wanted).as_raw()),
        );
        match same.is_eq() {
            true => Ok(()),
            false => Err(format!("{got:?} instead of {wanted:?}")),
        }
    }

    /// All documents, in the order of insertion.
    fn stored(&mut self) -> Vec<DocBuf> {
        let everything = Query::default();
        self.all(&everything, 50).expect("a find of everything")
    }

    fn update(&mut self, filter: &DocBuf, update: &DocBuf, multi: bool) -> Checked {
        let matching = model::matching(&self.docs, filter.as_raw()).len();
        let mut wanted = Vec::new();
        for doc in &self.docs {
            if !model::matches(filter.as_raw(), doc.as_raw()) {
                wanted.push(doc.clone());
                continue;
            }
            match model::update(update.as_raw(), doc.as_raw()) {
                Updated::To(doc) => wanted.push(doc),
                Updated::Refused => return Ok(()),
            }
        }
        let reply = self.command(&doc! {
            "update": self.collection.as_str(),
            "updates": [{"q": filter, "u": update, "multi": multi}], "$db": "test"
        });
        let stored = self.stored();
        let both = stored.iter().zip(&self.docs);
        let changed = both.clone().filter(|(now, before)| now != before).count();
        let fits =
            |((now, before), after): ((&DocBuf, &DocBuf), &DocBuf)| now == before || now == after;
        if stored.len() != wanted.len() || !both.zip(&wanted).all(fits) {
            return Err(format!("{stored:?}\n  instead of {wanted:?}"));
        }
        let errors = write_errors(&reply);
        for error in &errors {
            refused_by_index(code(error), error)?;
        }
        let expected = if multi { matching } else { matching.min(1) };
        let right = !errors.is_empty()
            || (integer(&reply, "n") as usize == expected
                && integer(&reply, "nModified") as usize == changed
                && (!multi || stored == wanted)
                && (multi || changed <= 1));
        self.docs = stored;
        match right {
            true => Ok(()),
            false => Err(format!("{matching} match, {changed} changed: {reply:?}")),
        }
    }

    fn delete(&mut self, filter: &DocBuf, multi: bool) -> Checked {
        let matching: Vec<DocBuf> = model::matching(&self.docs, filter.as_raw())
            .into_iter()
            .cloned()
            .collect();
        let reply = self.command(&doc! {
            "delete": self.collection.as_str(),
            "deletes": [{"q": filter, "limit": i32::from(!multi)}], "$db": "test"
        });
        let stored = self.stored();
        let gone: Vec<&DocBuf> = (self.docs.iter())
            .filter(|doc| !stored.contains(doc))
            .collect();
        let expected = if multi {
            matching.len()
        } else {
            matching.len().min(1)
        };
        let right = integer(&reply, "n") as usize == expected
            && gone.len() == expected
            && gone.iter().all(|doc| matching.contains(doc));
        if !right {
            return Err(format!("deleted {gone:?} of {matching:?}: {reply:?}"));
        }
        self.docs = stored;
        Ok(())
    }
}

fn integer(doc: &DocBuf, field: &str) -> i64 {
    let value = doc.get(field).and_then(|v| v.as_i64_exact());
    value.unwrap_or_else(|| panic!("{field} in {doc:?}"))
}

fn code(reply: &DocBuf) -> i64 {
    reply
        .get("code")
        .and_then(|v| v.as_i64_exact())
        .unwrap_or(0)
}

fn write_errors(reply: &DocBuf) -> Vec<DocBuf> {
    let errors = reply.get("writeErrors").and_then(|v| v.as_array());
    let errors = errors.into_iter().flat_map(|list| list.iter());
    errors.map(|e| e.as_document().unwrap().to_buf()).collect()
}

fn refused_by_index(code: i64, reply: &DocBuf) -> Checked {
    match code == 0 || REFUSED_BY_INDEXES.contains(&code) {
        true => Ok(()),
        false => Err(format!("{reply:?}")),
    }
}
