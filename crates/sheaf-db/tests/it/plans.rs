//! Plans with their counters, through the public API: the scripts in `testdata/plans`.
//!
//! ```text
//!   fresh [clustered] [collation={..}]   an empty collection
//!   docs {..} {..} ...           documents
//!   fill 100 {a: "=i % 10"}      that many; text that begins with = is computed, i is 0, 1, ...
//!   index {..} [{options}]
//!   find {..} [sort={..}] [proj={..}] [skip=n] [limit=n] [hint=..] [min={..}] [max={..}]
//!        [collation={..}] [returnkey] [extensions] [forced] [hash] [explode=n]
//!        [deep=n] [many=n]     within n $nor; n alternatives of it
//!   count {..} [..]
//!   update {..} {changes} [multi]     delete {..} [multi]     explained only: nothing is changed
//!   filter {..} [index, ..] [..]      an index filter for queries of this shape; [] removes it
//!   distinct path {..} [..]
//!   aggregate [..]
//!   results [..]                 a pipeline's results, by its plan and by the plain one
//!   ids {..} [..]                the `_id`s in the order returned
//!   summary {..} [..]            planSummary of the log line
//! ```
//!
//! In a query the text "0..4" within an array means 0, 1, 2 and 3. Below a command is its
//! answer: the winning plan as explain shows it, an input below and to the right of the stage that
//! reads it, and what was examined:
//!
//! ```text
//!   FETCH
//!     IXSCAN a_1 forward  a: [5, 5]
//!   10 returned, 10 keys, 10 documents, 1 seek
//! ```
//!
//! Plans are MongoDB's published ones unless the line has `extensions`. Every find is also run as
//! a collection scan and must return the same documents. If a stage has more than twelve inputs, or
//! a field more than twelve intervals, only the first, the last and their number are shown.
//! `UPDATE_EXPECT=1` rewrites the answers.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sheaf_bson::json::{parse_prefix, typed};
use sheaf_bson::path::FieldPath;
use sheaf_bson::{
    ArrayBuf, CollationChoice, DateTime, DocBuf, DocBuilder, Error, RawDoc, RawValue, Value, doc,
};
use sheaf_db::QueryOptions;
use sheaf_db::aggregate::AggregateContext;
use sheaf_db::aggregate::explain::{ExplainRequest, explain as explain_pipeline};
use sheaf_db::explain::Verbosity;
use sheaf_db::explain::query::{self, Explained};
use sheaf_db::find;
use sheaf_db::modify::explain::{Target, explain_delete, explain_update};
use sheaf_db::modify::{DeleteStatement, ReturnDocument, UpdateStatement};
use sheaf_db::planning::index_filters::{FilteredIndex, IndexFilter};
use sheaf_db::{CollectionOptions, Events, ReadView, ResultSource};
use sheaf_query::canonical::{CanonicalQuery, FindSpec, Hint};
use sheaf_query::expression::VariableScope;
use sheaf_query::matcher::ParseContext;
use sheaf_query::pipeline::Pipeline;

use crate::pipelines::run_with;
use crate::support::{EngineKind, TestDb, ns};

const NAME: &str = "c";

/// A query as written in a script.
#[derive(Default)]
struct Query {
    filter: DocBuf,
    sort: DocBuf,
    proj: DocBuf,
    skip: u64,
    limit: Option<u64>,
    hint: Option<Hint>,
    min: DocBuf,
    max: DocBuf,
    collation: CollationChoice,
    return_key: bool,
    options: QueryOptions,
}

impl Query {
    fn spec(&self) -> FindSpec<'_> {
        FindSpec {
            filter: Some(self.filter.as_raw()),
            sort: Some(self.sort.as_raw()),
            projection: Some(self.proj.as_raw()),
            skip: self.skip,
            limit: self.limit,
            hint: self.hint.clone(),
            min: Some(self.min.as_raw()),
            max: Some(self.max.as_raw()),
            return_key: self.return_key,
            collation: self.collation.clone(),
            ..FindSpec::default()
        }
    }
}

/// The words of a line.
struct Words<'l>(&'l str);

impl<'l> Words<'l> {
    fn word(&mut self) -> Option<&'l str> {
        let rest = self.0.trim_start();
        let (word, rest) = rest.split_at(rest.find([' ', '=']).unwrap_or(rest.len()));
        self.0 = rest;
        (!word.is_empty()).then_some(word)
    }

    fn value(&mut self) -> Value {
        let (value, end) = parse_prefix(self.0).unwrap_or_else(|e| panic!("{}: {e}", self.0));
        self.0 = &self.0[end..];
        value
    }

    fn doc(&mut self) -> DocBuf {
        match self.value() {
            Value::Document(doc) => doc,
            other => panic!("{other} is no document"),
        }
    }

    /// Errors: those of an invalid hint.
    fn query(&mut self) -> Result<Query, Error> {
        let mut query = Query {
            filter: counted_out(&self.doc()),
            ..Query::default()
        };
        query.options.planner_extensions = false;
        while let Some(name) = self.word() {
            let assigned = self.0.strip_prefix('=');
            if let Some(rest) = assigned {
                self.0 = rest;
            }
            let options = &mut query.options;
            match name {
                "returnkey" => query.return_key = true,
                "extensions" => options.planner_extensions = true,
                "forced" => options.planner.force_intersection = true,
                "hash" => options.planner.hash_intersection = true,
                "explode" => options.planner.scans_to_explode_max = self.number(),
                "skip" => query.skip = self.number() as u64,
                "limit" => query.limit = Some(self.number() as u64),
                "deep" => query.filter = nested(query.filter, self.number()),
                "many" => query.filter = repeated(&query.filter, self.number()),
                "sort" => query.sort = self.doc(),
                "proj" => query.proj = self.doc(),
                "min" => query.min = self.doc(),
                "max" => query.max = self.doc(),
                "hint" => query.hint = Hint::parse(self.value().as_raw())?,
                "collation" => {
                    query.collation = CollationChoice::parse(self.doc().as_raw())?;
                }
                other => panic!("unknown option {other}"),
            }
        }
        Ok(query)
    }

    fn number(&mut self) -> usize {
        let value = self.value();
        let number = value.as_raw().as_i64_exact();
        number.unwrap_or_else(|| panic!("{value} is no number")) as usize
    }
}

/// The filter within `levels` `$nor`s.
fn nested(filter: DocBuf, levels: usize) -> DocBuf {
    (0..levels).fold(filter, |filter, _| doc! {"$nor": [filter]})
}

/// The filter `times` times, as alternatives; the zeros of each are replaced by a distinct number.
fn repeated(filter: &DocBuf, times: usize) -> DocBuf {
    let text = filter.to_string();
    let each = (0..times).map(|n| {
        let text = text.replace('0', &n.to_string());
        parse_prefix(&text)
            .unwrap_or_else(|e| panic!("{text}: {e}"))
            .0
    });
    doc! {"$or": Value::Array(ArrayBuf::from_values(&each.collect::<Vec<Value>>()))}
}

/// Expands `["0..4"]` to the numbers it represents.
fn counted_out(doc: &DocBuf) -> DocBuf {
    fn value_of(value: RawValue<'_>) -> Value {
        let numbers = |text: &str| {
            let (from, to) = text.split_once("..")?;
            Some(from.parse::<i32>().ok()?..to.parse().ok()?)
        };
        match value {
            RawValue::Document(doc) => Value::Document(counted_out(&doc.to_buf())),
            RawValue::Array(array) => {
                let each =
                    array
                        .iter()
                        .flat_map(|element| match element.as_str().and_then(numbers) {
                            Some(range) => range.map(Value::Int32).collect(),
                            None => vec![value_of(element)],
                        });
                Value::Array(ArrayBuf::from_values(&each.collect::<Vec<Value>>()))
            }
            other => other.to_value(),
        }
    }
    let mut out = DocBuilder::new();
    for element in doc.iter() {
        out.append_value(element.key(), &value_of(element.value()));
    }
    out.finish()
}

/// Evaluates `i % 10`: integers, from left to right.
fn computed(text: &str, i: i64) -> i64 {
    let term = |word: &str| match word {
        "i" => i,
        number => number.parse().unwrap_or_else(|_| panic!("{text}")),
    };
    let mut words = text.split_whitespace();
    let mut value = term(words.next().unwrap());
    while let (Some(operator), Some(word)) = (words.next(), words.next()) {
        let by = term(word);
        value = match operator {
            "+" => value + by,
            "-" => value - by,
            "*" => value * by,
            "/" => value / by,
            "%" => value % by,
            other => panic!("unknown operator {other}"),
        };
    }
    value
}

fn filled(value: RawValue<'_>, i: i64) -> Value {
    match value {
        RawValue::String(text) => match text.split_once('=') {
            Some(("", formula)) => Value::from(computed(formula, i) as i32),
            Some((before, formula)) => Value::from(format!("{before}{}", computed(formula, i))),
            None => Value::from(text.to_owned()),
        },
        RawValue::Array(array) => {
            let elements: Vec<Value> = array.iter().map(|element| filled(element, i)).collect();
            Value::Array(ArrayBuf::from_values(elements.iter()))
        }
        RawValue::Document(doc) => Value::Document(filled_doc(doc, i)),
        other => other.to_value(),
    }
}

fn filled_doc(template: RawDoc<'_>, i: i64) -> DocBuf {
    let mut out = DocBuilder::new();
    for element in template {
        out.append_value(element.key(), &filled(element.value(), i));
    }
    out.finish()
}

fn error(error: &Error) -> Vec<String> {
    vec![format!(
        "error {} {}: {}",
        error.code().0,
        error.code_name(),
        error.message()
    )]
}

/// The plan of an explain, and what it examined.
fn shown(explain: RawDoc<'_>) -> Vec<String> {
    let within = |doc: RawDoc<'_>, name: &str| -> DocBuf {
        let found = doc.get(name).and_then(|value| value.as_document());
        found.unwrap_or_else(|| panic!("no {name}")).to_buf()
    };
    let planner = within(explain, "queryPlanner");
    let execution = within(explain, "executionStats");
    let mut lines = Vec::new();
    let mut seeks = 0;
    stage(
        within(execution.as_raw(), "executionStages").as_raw(),
        0,
        &mut lines,
        &mut seeks,
    );
    let number = |name: &str| execution.get(name).unwrap().as_i64_exact().unwrap();
    let several = |n: i64, one: &str| format!("{n} {one}{}", if n == 1 { "" } else { "s" });
    let mut line = format!(
        "{} returned, {}, {}, {}",
        number("nReturned"),
        several(number("totalKeysExamined"), "key"),
        several(number("totalDocsExamined"), "document"),
        several(seeks, "seek"),
    );
    if let Some(RawValue::Array(rejected)) = planner.get("rejectedPlans")
        && !rejected.is_empty()
    {
        let _ = write!(line, ", {} rejected", rejected.iter().count());
    }
    lines.push(line);
    for limit in [
        "maxIndexedOrSolutionsReached",
        "maxIndexedAndSolutionsReached",
        "maxScansToExplodeReached",
    ] {
        if matches!(planner.get(limit), Some(RawValue::Boolean(true))) {
            lines.push(limit.to_owned());
        }
    }
    lines
}

fn stage(doc: RawDoc<'_>, depth: usize, out: &mut Vec<String>, seeks: &mut i64) {
    let mut line = "  ".repeat(depth) + doc.get("stage").unwrap().as_str().unwrap();
    for name in ["indexName", "direction"] {
        if let Some(value) = doc.get(name) {
            let _ = write!(line, " {}", value.as_str().unwrap());
        }
    }
    if let Some(RawValue::Document(bounds)) = doc.get("indexBounds") {
        for field in bounds {
            match field.value() {
                RawValue::Array(list) => {
                    let mut list: Vec<String> = (list.iter().filter_map(|v| v.as_str()))
                        .map(str::to_owned)
                        .collect();
                    if list.len() > 12 {
                        let several = format!("... {} in all ...", list.len());
                        list.splice(1..list.len() - 1, [several]);
                    }
                    let _ = write!(line, "  {}: {}", field.key(), list.join(" "));
                }
                other => {
                    let _ = write!(line, "  {}: {other}", field.key());
                }
            }
        }
    }
    if matches!(doc.get("isMultiKey"), Some(RawValue::Boolean(true))) {
        line += "  multikey";
    }
    for name in [
        "filter",
        "sortPattern",
        "limitAmount",
        "skipAmount",
        "transformBy",
        "skipScan",
        "explodedPrefixes",
    ] {
        if let Some(value) = doc.get(name) {
            let _ = write!(line, "  {}", value);
        }
    }
    out.push(line);
    *seeks += doc
        .get("seeks")
        .and_then(|value| value.as_i64_exact())
        .unwrap_or(0);
    if let Some(RawValue::Document(input)) = doc.get("inputStage") {
        stage(input, depth + 1, out, seeks);
    }
    if let Some(RawValue::Array(inputs)) = doc.get("inputStages") {
        let count = inputs.count();
        for (at, input) in inputs.iter().enumerate() {
            let mut shown = Vec::new();
            let input = input.as_document().unwrap();
            stage(input, depth + 1, &mut shown, seeks);
            match at {
                _ if count <= 12 || at == 0 || at + 1 == count => out.append(&mut shown),
                1 => out.push(format!("{}... {count} in all", "  ".repeat(depth + 1))),
                _ => {}
            }
        }
    }
}

struct Script {
    t: TestDb,
}

impl Script {
    fn view(&self) -> ReadView {
        self.t.db.read_view(&ns(NAME)).unwrap()
    }

    fn answer(&self, line: &str) -> Vec<String> {
        self.answered(line).unwrap_or_else(|e| error(&e))
    }

    fn answered(&self, line: &str) -> Result<Vec<String>, Error> {
        let mut words = Words(line);
        match words.word().unwrap_or_default() {
            "fresh" => self.fresh(words),
            "docs" => {
                while !words.0.trim().is_empty() {
                    self.t.insert(NAME, words.doc()).unwrap();
                }
                Ok(Vec::new())
            }
            "fill" => {
                let n = words.number() as i64;
                let template = words.doc();
                let docs: Vec<DocBuf> = (0..n).map(|i| filled_doc(template.as_raw(), i)).collect();
                for part in docs.chunks(1000) {
                    self.t.insert_all(NAME, part);
                }
                Ok(Vec::new())
            }
            "index" => {
                let key = words.doc();
                let options = match words.0.trim().is_empty() {
                    true => DocBuf::new(),
                    false => words.doc(),
                };
                let created = self.t.create_index(NAME, key, options);
                created.map(|()| Vec::new())
            }
            "find" => self.find(&words.query()?),
            "ids" => self.results(&words.query()?).map(|docs| {
                let ids: Vec<String> = docs
                    .iter()
                    .map(|doc| doc.get("_id").unwrap().to_string())
                    .collect();
                vec![ids.join(" ")]
            }),
            "summary" => self.summary(&words.query()?),
            "update" => self.update(words),
            "delete" => self.delete(words),
            "filter" => self.filter(words),
            "count" => self.explained(&words.query()?, |explained, out| {
                query::count(explained, out)
            }),
            "distinct" => {
                let key = FieldPath::parse(words.word().unwrap()).unwrap();
                self.distinct(&key, &words.query()?)
            }
            "aggregate" => self.aggregate(&words.value()),
            "results" => self.piped(&words.value()),
            other => panic!("unknown statement {other}"),
        }
    }

    fn fresh(&self, mut words: Words<'_>) -> Result<Vec<String>, Error> {
        self.t.db.drop_collection(&self.t.op, &ns(NAME))?;
        let mut options = DocBuilder::new();
        while let Some(word) = words.word() {
            match word {
                "collation" => {
                    words.0 = &words.0[1..];
                    options.append_bson("collation", &words.doc());
                }
                "clustered" => {
                    let index = doc! {"key": {"_id": 1}, "unique": true};
                    options.append_bson("clusteredIndex", &index);
                }
                other => panic!("unknown option {other}"),
            }
        }
        let options = CollectionOptions::parse(options.finish().as_raw())?;
        let (op, name) = (&self.t.op, ns(NAME));
        self.t.db.create_collection(op, &name, options)?;
        Ok(Vec::new())
    }

    /// The explain of a write, by MongoDB's published plans.
    fn written(
        &self,
        how: impl Fn(&Target<'_>, &mut DocBuilder) -> Result<(), Error>,
    ) -> Result<Vec<String>, Error> {
        let options = QueryOptions {
            planner_extensions: false,
            ..QueryOptions::default()
        };
        let target = Target {
            view: &self.view(),
            op: &self.t.op,
            options: &options,
            namespace: "test.c",
            verbosity: Verbosity::ExecutionStats,
            engine: &**self.t.db.engine(),
        };
        let mut out = DocBuilder::new();
        how(&target, &mut out)?;
        Ok(shown(out.finish().as_raw()))
    }

    fn update(&self, mut words: Words<'_>) -> Result<Vec<String>, Error> {
        let (filter, changes) = (words.doc(), words.doc());
        let statement = UpdateStatement {
            spec: FindSpec {
                filter: Some(filter.as_raw()),
                ..FindSpec::default()
            },
            update: RawValue::Document(changes.as_raw()),
            constants: None,
            upsert_supplied: None,
            array_filters: None,
            upsert: false,
            multi: words.word() == Some("multi"),
            return_document: ReturnDocument::None,
            projection: None,
        };
        self.written(|target, out| explain_update(target, &statement, out))
    }

    fn delete(&self, mut words: Words<'_>) -> Result<Vec<String>, Error> {
        let filter = words.doc();
        let statement = DeleteStatement {
            spec: FindSpec {
                filter: Some(filter.as_raw()),
                ..FindSpec::default()
            },
            multi: words.word() == Some("multi"),
            return_document: ReturnDocument::None,
            projection: None,
        };
        self.written(|target, out| explain_delete(target, &statement, out))
    }

    fn filter(&self, mut words: Words<'_>) -> Result<Vec<String>, Error> {
        let filter = words.doc();
        let Value::Array(indexes) = words.value() else {
            panic!("a filter needs its indexes");
        };
        let rest = format!("{filter} {}", words.0);
        let query = Words(&rest).query()?;
        let indexes: Vec<FilteredIndex> = (indexes.as_raw().iter())
            .map(|index| match index {
                RawValue::String(name) => FilteredIndex::Name(name.to_owned()),
                RawValue::Document(pattern) => FilteredIndex::KeyPattern(pattern.to_buf()),
                other => panic!("{other:?} is no index"),
            })
            .collect();
        let canonical = self.canonical(&query)?;
        let collection = self.t.collection(NAME);
        match indexes.is_empty() {
            true => collection.index_filters().clear(Some(&canonical)),
            false => collection.index_filters().set(
                &canonical,
                IndexFilter {
                    query: query.filter.clone(),
                    sort: query.sort.clone(),
                    projection: query.proj.clone(),
                    collation: DocBuf::new(),
                    indexes,
                },
            ),
        }
        Ok(Vec::new())
    }

    fn canonical(&self, query: &Query) -> Result<Arc<CanonicalQuery>, Error> {
        find::canonicalize(&self.view(), query.spec()).map(Arc::new)
    }

    fn results(&self, query: &Query) -> Result<Vec<DocBuf>, Error> {
        let (view, canonical) = (self.view(), self.canonical(query)?);
        let mut source = find::find(&view, &self.t.op, canonical, &query.options)?;
        let mut found = Vec::new();
        while let Some(doc) = source.next(&self.t.op)? {
            found.push(doc.as_raw().to_buf());
        }
        Ok(found)
    }

    fn explained(
        &self,
        query: &Query,
        how: impl Fn(&Explained<'_>, &mut DocBuilder) -> Result<(), Error>,
    ) -> Result<Vec<String>, Error> {
        let (view, canonical) = (self.view(), self.canonical(query)?);
        let explained = Explained {
            view: &view,
            op: &self.t.op,
            query: &canonical,
            options: &query.options,
            namespace: "test.c",
            verbosity: Verbosity::AllPlansExecution,
            is_pipeline: false,
        };
        let mut out = DocBuilder::new();
        how(&explained, &mut out)?;
        Ok(shown(out.finish().as_raw()))
    }

    fn find(&self, query: &Query) -> Result<Vec<String>, Error> {
        let shown = self.explained(query, |explained, out| query::find(explained, out))?;
        self.compare_with_scan(query)?;
        Ok(shown)
    }

    /// The query finds exactly what a collection scan finds.
    fn compare_with_scan(&self, query: &Query) -> Result<(), Error> {
        if query.return_key || !query.min.is_empty() || !query.max.is_empty() {
            return Ok(());
        }
        let of = |hint: Option<Hint>| {
            let spec = FindSpec {
                sort: None,
                skip: 0,
                limit: None,
                hint,
                ..query.spec()
            };
            let (view, op) = (self.view(), &self.t.op);
            let canonical = Arc::new(find::canonicalize(&view, spec)?);
            let mut source = find::find(&view, op, canonical, &query.options)?;
            let mut found = Vec::new();
            while let Some(doc) = source.next(op)? {
                // A covered projection returns the fields in the index's order.
                let mut fields: Vec<_> = doc.as_raw().iter().collect();
                fields.sort_by_key(|element| element.key());
                let mut in_order = DocBuilder::new();
                for element in fields {
                    in_order.append_raw_element(element);
                }
                found.push(typed(&in_order.finish()));
            }
            found.sort();
            Ok::<_, Error>(found)
        };
        // A hint may name an index that lacks documents, which is then intended.
        if query.hint.is_none() {
            assert_eq!(of(None)?, of(Some(Hint::Natural(1)))?, "{}", query.filter);
        }
        Ok(())
    }

    fn summary(&self, query: &Query) -> Result<Vec<String>, Error> {
        let (view, canonical) = (self.view(), self.canonical(query)?);
        let source = find::find(&view, &self.t.op, canonical, &query.options)?;
        Ok(vec![source.plan().summary().unwrap_or_default()])
    }

    fn distinct(&self, key: &FieldPath, query: &Query) -> Result<Vec<String>, Error> {
        let (view, op) = (self.view(), &self.t.op);
        let canonical = self.canonical(query)?;
        let found =
            sheaf_db::distinct::distinct(&view, op, key, canonical.clone(), &query.options)?;
        let mut lines = self.explained(query, |explained, out| {
            let (executor, _) =
                sheaf_db::distinct::start(&view, op, key, &canonical, &query.options, true)?;
            query::executor(explained, executor, out)
        })?;
        let values: Vec<String> = found
            .values
            .as_raw()
            .iter()
            .map(|v| v.to_string())
            .collect();
        let first = values[..values.len().min(12)].join(" ");
        lines.push(match values.len() {
            0..=12 => format!("values {first}"),
            several => format!("values {first} ... ({several})"),
        });
        Ok(lines)
    }

    fn piped(&self, stages: &Value) -> Result<Vec<String>, Error> {
        let Value::Array(stages) = stages else {
            panic!("{stages} is no pipeline");
        };
        let run = |optimize| run_with(&self.t, NAME, stages, QueryOptions::default(), optimize);
        let docs: Vec<String> = run(true)?.iter().map(typed).collect();
        let plain: Vec<String> = run(false)?.iter().map(typed).collect();
        assert_eq!(docs, plain);
        Ok(docs)
    }

    fn aggregate(&self, stages: &Value) -> Result<Vec<String>, Error> {
        let Value::Array(stages) = stages else {
            panic!("{stages} is no pipeline");
        };
        let parse = || ParseContext {
            variables: VariableScope::new(DateTime(1_700_000_000_000)),
        };
        let pipeline = Pipeline::parse(stages.as_raw(), &parse())?.optimize();
        let name = ns(NAME);
        let options = QueryOptions {
            planner_extensions: false,
            ..QueryOptions::default()
        };
        let cx = AggregateContext::new(&self.t.db, name.db(), parse(), options, None);
        let view = cx.view(&self.t.op, &name)?;
        let request = ExplainRequest {
            view: &view,
            op: &self.t.op,
            namespace: name.as_str(),
            verbosity: Verbosity::ExecutionStats,
            hint: None,
        };
        let mut out = DocBuilder::new();
        explain_pipeline(&cx, &request, &pipeline, &mut out)?;
        let out = out.finish();
        let cursor = match out.get("stages") {
            Some(RawValue::Array(stages)) => stages
                .get(0)
                .and_then(|first| first.as_document()?.get("$cursor")?.as_document())
                .unwrap_or_else(|| panic!("no $cursor")),
            _ => out.as_raw(),
        };
        Ok(shown(cursor))
    }
}

fn run(file: &Path) -> String {
    let text = std::fs::read_to_string(file).unwrap();
    let script = Script {
        t: TestDb::new(EngineKind::Memory, Events::default()),
    };
    let mut out = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let _ = writeln!(out, "{line}");
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        while lines.next_if(|next| next.starts_with("  ")).is_some() {}
        for line in script.answer(line) {
            let _ = writeln!(out, "  {line}");
        }
    }
    out
}

#[test]
fn scripts() {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/plans");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty());
    let mut wrong = String::new();
    for file in files {
        let (text, got) = (std::fs::read_to_string(&file).unwrap(), run(&file));
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(&file, got).unwrap();
            continue;
        }
        let mut lines = text.lines().zip(got.lines()).enumerate();
        if let Some((at, (want, got))) = lines.find(|(_, (want, got))| want != got) {
            let at = at + 1;
            let _ = writeln!(wrong, "{}:{at}\n  - {want}\n  + {got}", file.display());
        } else if text.lines().count() != got.lines().count() {
            let _ = writeln!(wrong, "{}: the answers end differently", file.display());
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}(UPDATE_EXPECT=1 rewrites)");
}
