//! Runs `testdata/planner/*.txt`.
//!
//! A script has blocks separated by empty lines: commands, `----`, and their output.
//! `UPDATE_EXPECT=1` rewrites the output.
//!
//! ```text
//!   fresh                          removes all indexes
//!   index {a: 1} [unique] [sparse] [hidden] [collation={..}] [partial={..}]
//!         [multikey=a.b,a] [name=x] [wildcard={..}]
//!                                  multikey lists the paths that are arrays; all of
//!                                  them for a wildcard index
//!   plan {..} [sort={..}] [proj={..}] [limit=n] [skip=n] [hint=..] [min={..}] [max={..}]
//!             [returnkey] [notablescan] [explode=n] [intersect] [hash] [collation={..}]
//!             [values=n] [keys=n] [solutions=n] [ors=n] [ands=n]
//!                                  all candidates, separated by "or"; with values
//!                                  or keys the planner has statistics: a million
//!                                  documents, n values in every field (1, 2, ...),
//!                                  n keys within any bounds (default 10)
//!   branches {..} [..]             the plan of a rooted $or, with the last candidate
//!                                  of each branch
//!   reached {..} [..]              the limits of the planner that were reached
//!   count {..} [skip=n] [limit=n] [hint=..]
//!   distinct path {..} [proj={..}] [hint=..]
//!   summary {..}                   the plan summary of each candidate
//!   signature {..}                 the candidates without their constants
//!   marks {..}                     the decisions about indexes that depend on constants
//!   express {..} [..] [collection={..}]   the index and the key that the express
//!                                  path looks up; also adds an index on _id with
//!                                  the collation of the collection
//!   explain {..}                   indexBounds of the first candidate's first scan
//!   bounds [multikey] [sparse]     followed by filters, one per line: their bounds on
//!                                  their field
//! ```

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use sheaf_bson::path::FieldPath;
use sheaf_bson::{CollationChoice, Collator, DocBuf, RawValue, Value, json};

use crate::canonical::{CanonicalQuery, FindSpec, Hint};
use crate::expression::VariableScope;
use crate::matcher::{self, MatchExpression, ParseContext};
use crate::planner::bounds_builder::{FieldTraits, bounds_of};
use crate::planner::explain_bounds;
use crate::planner::index_entry::{IndexEntry, fields_of};
use crate::planner::recipe::make;
use crate::planner::solution::{IndexScanNode, QuerySolution, SolutionNode};
use crate::planner::statistics::{KeyEstimate, Prefixes, Statistics};
use crate::planner::{
    PlannerOptions, PlannerParams, express_key, has_subplans, plan, plan_all, plan_branches,
    plan_count, plan_distinct, plan_summary, signatures, wildcard, write_discriminators,
};

#[test]
fn scripts() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/planner");
    let update = std::env::var_os("UPDATE_EXPECT").is_some();
    let mut files: Vec<_> = std::fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no scripts in {}", dir.display());
    let mut wrong = String::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let got = run(&text);
        if got == text {
            continue;
        }
        if update {
            std::fs::write(&file, &got).unwrap();
            continue;
        }
        for (line, (want, got)) in text.lines().zip(got.lines()).enumerate() {
            if want != got {
                let at = line + 1;
                let _ = writeln!(wrong, "{}:{at}\n  - {want}\n  + {got}", file.display());
                break;
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}(UPDATE_EXPECT=1 rewrites)");
}

/// The script with its current output.
fn run(text: &str) -> String {
    let mut indexes = Scene::default();
    let mut blocks = Vec::new();
    for block in text.trim_end().split("\n\n") {
        let commands = block.split("\n----").next().unwrap_or(block);
        let lines: Vec<&str> = commands
            .lines()
            .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
            .collect();
        let mut out = commands.to_owned();
        if !lines.is_empty() {
            let answer = answer(&lines, &mut indexes);
            let _ = write!(out, "\n----{}", if answer.is_empty() { "" } else { "\n" });
            out.push_str(answer.trim_end());
        }
        blocks.push(out);
    }
    blocks.join("\n\n") + "\n"
}

/// The current indexes.
#[derive(Default)]
struct Scene {
    indexes: Vec<Arc<IndexEntry>>,
    /// The array paths of each wildcard index, by ident.
    arrays: HashMap<u64, Vec<String>>,
}

fn answer(lines: &[&str], scene: &mut Scene) -> String {
    let mut out = String::new();
    let mut lines = lines.iter();
    while let Some(line) = lines.next() {
        let mut words = Words { rest: line };
        let command = words.word().unwrap_or_default();
        let result = match command {
            "fresh" => {
                *scene = Scene::default();
                Ok(String::new())
            }
            "index" => {
                let ident = scene.indexes.len() as u64 + 1;
                let mut arrays = Vec::new();
                let mut index = parse_index(&mut words, &mut arrays);
                index.ident = ident;
                let name = index.name.clone();
                scene.indexes.push(Arc::new(index));
                scene.arrays.insert(ident, arrays);
                Ok(name)
            }
            "bounds" => {
                let mut field = FieldTraits::default();
                while let Some(word) = words.word() {
                    match word {
                        "multikey" => field.multikey = true,
                        "sparse" => field.always_present = true,
                        other => panic!("bounds does not know {other}"),
                    }
                }
                Ok(lines
                    .by_ref()
                    .map(|line| bounds_line(line, field))
                    .collect())
            }
            _ => run_query(command, &mut words, scene),
        };
        match result {
            Ok(text) => out.push_str(&text),
            Err(e) => {
                let _ = write!(
                    out,
                    "error {} {}: {}",
                    e.code().0,
                    e.code_name(),
                    e.message()
                );
            }
        }
        if !out.is_empty() && !out.ends_with('\n') {
            out.push('\n');
        }
    }
    out
}

fn bounds_line(line: &str, mut field: FieldTraits) -> String {
    let filter = filter(&json::parse_doc(line).unwrap());
    let path = match &filter {
        MatchExpression::Not(child) => child.path(),
        other => other.path(),
    };
    field.positional = path.is_some_and(|p| (1..p.len()).any(|i| p.part_index(i).is_some()));
    let answer = match bounds_of(&filter, field, None) {
        None => "no index".to_owned(),
        Some(bounds) => {
            let list = bounds.list.to_string();
            format!("{}  {:?}", list.trim_start_matches(": "), bounds.tightness)
        }
    };
    format!("{line:<40} {answer}\n")
}

fn filter(doc: &DocBuf) -> MatchExpression {
    filter_by(doc, None)
}

fn filter_by(doc: &DocBuf, collator: Option<Arc<Collator>>) -> MatchExpression {
    let context = ParseContext {
        variables: VariableScope::default().with_collator(collator),
    };
    matcher::parse(doc.as_raw(), &context)
        .unwrap_or_else(|e| panic!("{doc}: {e}"))
        .normalize()
}

#[derive(Default)]
struct Options {
    sort: DocBuf,
    proj: DocBuf,
    limit: Option<u64>,
    skip: u64,
    hint: Option<Hint>,
    min: DocBuf,
    max: DocBuf,
    return_key: bool,
    no_table_scan: bool,
    explode: Option<usize>,
    intersect: bool,
    hash: bool,
    statistics: Option<Made>,
    solutions: Option<usize>,
    ors: Option<usize>,
    ands: Option<usize>,
    collation: Option<Arc<Collator>>,
    /// The collation of the collection.
    collection: Option<Arc<Collator>>,
}

/// Statistics of a million documents.
#[derive(Debug, Clone, Copy)]
struct Made {
    /// Number of distinct values of every field: 1, 2, ...
    values: u64,
    /// Number of keys within any bounds.
    keys: u64,
}

impl Statistics for Made {
    fn records(&self) -> u64 {
        1_000_000
    }

    fn keys_within(&self, _: &IndexScanNode) -> Option<KeyEstimate> {
        let keys = self.keys as f64;
        Some(KeyEstimate {
            keys,
            low: keys,
            high: keys,
        })
    }

    fn distinct_prefixes(&self, _: &IndexEntry, fields: usize) -> Option<u64> {
        self.values.checked_pow(fields as u32)
    }

    fn prefixes(&self, _: &IndexScanNode, fields: usize, max: usize) -> Option<Prefixes> {
        let count = self.values.checked_pow(fields as u32)?;
        let tuple = |mut at: u64| {
            let mut values: Vec<Value> = (0..fields)
                .map(|_| {
                    let value = at % self.values + 1;
                    at /= self.values;
                    Value::Int32(value as i32)
                })
                .collect();
            values.reverse();
            values
        };
        (count <= max as u64).then(|| Prefixes {
            values: (0..count).map(tuple).collect(),
            keys_examined: count,
            seeks: count,
        })
    }
}

fn collator(doc: &DocBuf) -> Option<Arc<Collator>> {
    let choice = CollationChoice::parse(doc.as_raw()).unwrap();
    choice.collator().cloned()
}

fn run_query(
    command: &str,
    words: &mut Words<'_>,
    scene: &Scene,
) -> Result<String, sheaf_bson::Error> {
    let key = (command == "distinct").then(|| words.word().unwrap());
    let filter = words.value();
    let Value::Document(filter) = filter else {
        panic!("a filter is a document");
    };
    let options = parse_options(words);
    let context = ParseContext {
        variables: VariableScope::default().with_collator(options.collation.clone()),
    };
    let spec = FindSpec {
        filter: Some(filter.as_raw()),
        sort: Some(options.sort.as_raw()),
        projection: Some(options.proj.as_raw()),
        skip: options.skip,
        limit: options.limit,
        hint: options.hint,
        min: Some(options.min.as_raw()),
        max: Some(options.max.as_raw()),
        return_key: options.return_key,
        ..FindSpec::default()
    };
    let query = CanonicalQuery::with_context(spec, &context)?;
    let mut is_array = |index: &IndexEntry, path: &str| {
        Ok(scene.arrays[&index.ident].iter().any(|array| array == path))
    };
    let expanded = wildcard::expand(&query.filter, &scene.indexes, &mut is_array)?;
    let indexes = expanded.as_deref().unwrap_or(&scene.indexes);
    let defaults = PlannerOptions::DEFAULT;
    let params = PlannerParams {
        statistics: options.statistics.as_ref().map(|s| s as &dyn Statistics),
        options: PlannerOptions {
            no_table_scan: options.no_table_scan,
            scans_to_explode_max: options.explode.unwrap_or(defaults.scans_to_explode_max),
            force_intersection: options.intersect,
            hash_intersection: options.hash,
            indexed_solutions_max: options.solutions.unwrap_or(defaults.indexed_solutions_max),
            or_solutions_max: options.ors.unwrap_or(defaults.or_solutions_max),
            intersections_max: options.ands.unwrap_or(defaults.intersections_max),
            ..defaults
        },
        ..PlannerParams::new(indexes)
    };
    let one = |solution: Option<crate::planner::solution::QuerySolution>| match solution {
        None => "none".to_owned(),
        Some(solution) => solution.to_string(),
    };
    Ok(match command {
        "plan" => {
            let solutions = plan(&query, &params)?;
            for solution in &solutions {
                let text = solution.to_string();
                let blocks = ["SORT {", "AND_HASH"]
                    .iter()
                    .any(|stage| text.contains(stage));
                assert_eq!(blocks, solution.has_blocking_stage, "{text}");
            }
            let texts: Vec<String> = solutions.iter().map(|s| s.to_string()).collect();
            texts.join("\nor\n")
        }
        "branches" => {
            assert!(has_subplans(&query), "{filter}");
            let mut pick = |_: &Arc<CanonicalQuery>, of: &[QuerySolution]| Ok(of.len() - 1);
            let planned = plan_branches(&query, &params, &mut pick, &|| true)?;
            match planned {
                None => "none".to_owned(),
                Some((planned, recipe)) => {
                    let text = planned.solutions[0].to_string();
                    if let Some(recipe) = recipe {
                        let again = make(&recipe, &query, &params).unwrap();
                        assert_eq!(again.to_string(), text);
                    }
                    text
                }
            }
        }
        "reached" => {
            let reached = plan_all(&query, &params)?.reached;
            format!(
                "or: {}  and: {}  explode: {}",
                reached.or, reached.and, reached.explode
            )
        }
        "summary" => {
            let solutions = plan(&query, &params)?;
            let texts: Vec<String> = solutions.iter().map(|s| plan_summary(&s.root)).collect();
            texts.join("\nor\n")
        }
        "signature" => {
            let solutions = plan(&query, &params)?;
            let texts = signatures(&solutions);
            let distinct: std::collections::BTreeSet<&String> = texts.iter().collect();
            assert_eq!(distinct.len(), texts.len(), "{texts:?}");
            texts.join("\nor\n")
        }
        "marks" => {
            let mut marks = String::new();
            write_discriminators(&query, indexes, &mut marks);
            marks
        }
        "count" => one(plan_count(&query, &params)?),
        "distinct" => {
            let key = FieldPath::parse(key.unwrap()).unwrap();
            one(plan_distinct(&query, &key, &params)?)
        }
        "express" => {
            let mut id = index_of(sheaf_bson::doc! {"_id": 1});
            (id.name, id.unique) = ("_id_".to_owned(), true);
            id.collator = options.collection.clone();
            let indexes: Vec<_> = [Arc::new(id)].into_iter().chain(indexes.to_vec()).collect();
            match express_key(&query, &indexes) {
                None => "no".to_owned(),
                Some(key) => format!("{} {}", key.index.name, key.value),
            }
        }
        "explain" => {
            let solutions = plan(&query, &params)?;
            let scan = first_scan(&solutions[0].root).expect("an index scan");
            explain_bounds::to_doc(&scan.bounds, &scan.index).to_string()
        }
        other => panic!("no command {other}"),
    })
}

fn first_scan(node: &SolutionNode) -> Option<&crate::planner::solution::IndexScanNode> {
    match node {
        SolutionNode::IndexScan(scan) => Some(scan),
        SolutionNode::Fetch { child, .. }
        | SolutionNode::Sort { child, .. }
        | SolutionNode::Limit { child, .. }
        | SolutionNode::Projection { child, .. } => first_scan(child),
        _ => None,
    }
}

const USUAL: Made = Made {
    values: 3,
    keys: 10,
};

fn parse_options(words: &mut Words<'_>) -> Options {
    let mut options = Options::default();
    while let Some((name, value)) = words.option() {
        let doc = || match &value {
            Some(Value::Document(doc)) => doc.clone(),
            other => panic!("{name} is a document, not {other:?}"),
        };
        let number = || match &value {
            Some(Value::Int32(n)) => *n as u64,
            other => panic!("{name} is a number, not {other:?}"),
        };
        match name {
            "sort" => options.sort = doc(),
            "proj" => options.proj = doc(),
            "limit" => options.limit = Some(number()),
            "skip" => options.skip = number(),
            "hint" => options.hint = Hint::parse(value.as_ref().unwrap().as_raw()).unwrap(),
            "min" => options.min = doc(),
            "max" => options.max = doc(),
            "returnkey" => options.return_key = true,
            "notablescan" => options.no_table_scan = true,
            "explode" => options.explode = Some(number() as usize),
            "intersect" => options.intersect = true,
            "hash" => options.hash = true,
            "values" => options.statistics.get_or_insert(USUAL).values = number(),
            "keys" => options.statistics.get_or_insert(USUAL).keys = number(),
            "solutions" => options.solutions = Some(number() as usize),
            "ors" => options.ors = Some(number() as usize),
            "ands" => options.ands = Some(number() as usize),
            "collation" => options.collation = collator(&doc()),
            "collection" => options.collection = collator(&doc()),
            other => panic!("no option {other}"),
        }
    }
    options
}

fn parse_index(words: &mut Words<'_>, arrays: &mut Vec<String>) -> IndexEntry {
    let Value::Document(pattern) = words.value() else {
        panic!("a key pattern is a document");
    };
    let mut index = index_of(pattern);
    while let Some((name, value)) = words.option() {
        match (name, value) {
            ("unique", None) => index.unique = true,
            ("clustered", None) => (index.unique, index.clustered) = (true, true),
            ("sparse", None) => index.sparse = true,
            ("hidden", None) => index.hidden = true,
            ("multikey", Some(Value::String(paths))) if index.wildcard().is_some() => {
                arrays.extend(paths.split(',').map(str::to_owned));
            }
            ("wildcard", Some(Value::Document(projection))) => {
                let pattern = index.key_pattern.clone();
                let fields = fields_of(pattern.as_raw(), Some(projection.as_raw()));
                index.kind = fields.unwrap().1;
            }
            ("multikey", Some(Value::String(paths))) => set_multikey(&mut index, &paths),
            ("name", Some(Value::String(name))) => index.name = name,
            ("collation", Some(Value::Document(doc))) => index.collator = collator(&doc),
            ("partial", Some(Value::Document(doc))) => {
                let filter = filter_by(&doc, index.collator.clone());
                index.partial_filter = Some(Arc::new(filter));
                index.partial_filter_spec = Some(doc);
            }
            (name, value) => panic!("index does not know {name}={value:?}"),
        }
    }
    index
}

/// An index with this key pattern and no options.
pub(crate) fn index_of(pattern: DocBuf) -> IndexEntry {
    let name: Vec<String> = pattern
        .iter()
        .map(|element| match element.value() {
            RawValue::String(plugin) => format!("{}_{plugin}", element.key()),
            value => format!("{}_{value}", element.key()),
        })
        .collect();
    let (fields, kind) = fields_of(pattern.as_raw(), None).unwrap();
    IndexEntry {
        name: name.join("_"),
        ident: 0,
        key_pattern: pattern,
        multikey: false,
        multikey_paths: vec![Vec::new(); fields.len()],
        fields,
        kind,
        clustered: false,
        unique: false,
        sparse: false,
        partial_filter: None,
        partial_filter_spec: None,
        collator: None,
        hidden: false,
        version: 2,
    }
}

/// Marks paths, in the notation of explain's multiKeyPaths, as arrays.
pub(super) fn set_multikey(index: &mut IndexEntry, paths: &str) {
    for array in paths.split(',') {
        let array = FieldPath::parse(array).unwrap();
        for (field, positions) in index.fields.iter().zip(&mut index.multikey_paths) {
            if array.is_prefix_of(&field.path) && !positions.contains(&(array.len() - 1)) {
                positions.push(array.len() - 1);
                positions.sort_unstable();
                index.multikey = true;
            }
        }
    }
    assert!(index.multikey, "no field of {} is in {paths}", index.name);
}

struct Words<'l> {
    rest: &'l str,
}

impl<'l> Words<'l> {
    fn word(&mut self) -> Option<&'l str> {
        let rest = self.rest.trim_start();
        let end = rest.find(' ').unwrap_or(rest.len());
        let word;
        (word, self.rest) = rest.split_at(end);
        (!word.is_empty()).then_some(word)
    }

    fn value(&mut self) -> Value {
        let (value, end) =
            json::parse_prefix(self.rest).unwrap_or_else(|e| panic!("{}: {e}", self.rest));
        self.rest = &self.rest[end..];
        value
    }

    /// Parses `name`, `name=value` or `name=bare`.
    fn option(&mut self) -> Option<(&'l str, Option<Value>)> {
        let rest = self.rest.trim_start();
        if rest.is_empty() {
            return None;
        }
        let end = rest.find([' ', '=']).unwrap_or(rest.len());
        let name;
        (name, self.rest) = rest.split_at(end);
        let Some(value) = self.rest.strip_prefix('=') else {
            return Some((name, None));
        };
        self.rest = value;
        if value.starts_with('{') || value.starts_with(|c: char| c.is_ascii_digit()) {
            return Some((name, Some(self.value())));
        }
        let word = self.word().unwrap_or_default();
        Some((name, Some(Value::String(word.to_owned()))))
    }
}
