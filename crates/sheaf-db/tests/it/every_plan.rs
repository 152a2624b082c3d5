//! Runs a query with every plan there is for it, under every option that plans depend on.
//!
//! ```text
//!   query ──> candidates under each of PLANNERS ──┬──> as they are      what the model returns
//!     │                                           └──> reversed         the same, from its end
//!     ├──> hinted at every index that has all documents                 what the model returns
//!     ├──> other constants, by the plan cache                           what the model returns
//!     └──> projections and pipelines the model does not know            what COLLSCAN returns
//! ```

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use sheaf_bson::{CollationChoice, DateTime, DocBuf, DocBuilder, Error, RawDoc, RawValue, Value};
use sheaf_db::QueryOptions;
use sheaf_db::aggregate::{self, AggregateContext};
use sheaf_db::find;
use sheaf_db::{ReadView, ResultSource};
use sheaf_query::canonical::{CanonicalQuery, FindSpec, Hint};
use sheaf_query::expression::VariableScope;
use sheaf_query::matcher::ParseContext;
use sheaf_query::pipeline::Pipeline;
use sheaf_query::planner::PlannerOptions;
use sheaf_query::planner::index_entry::{IndexEntry, IndexKind};
use sheaf_query::planner::plan_summary;
use sheaf_query::planner::solution::{IndexScanNode, ProjectionKind, QuerySolution, SolutionNode};
use sheaf_testkit::model::{self, Query};

use crate::support::{TestDb, ns};

type Checked = Result<(), String>;

thread_local! {
    static MET: RefCell<BTreeMap<&'static str, u64>> = const { RefCell::new(BTreeMap::new()) };
}

/// How many of the executed plans contained each stage.
pub fn stages_met() -> BTreeMap<&'static str, u64> {
    MET.with_borrow(BTreeMap::clone)
}

fn note(root: &SolutionNode) {
    root.for_each(&mut |node| {
        let name = match node {
            SolutionNode::IndexScan(scan) if scan.skips > 0 => "IXSCAN, skipping",
            SolutionNode::IndexScan(_) => "IXSCAN",
            SolutionNode::ClusteredScan(_) => "CLUSTERED_IXSCAN",
            SolutionNode::CollScan { .. } => "COLLSCAN",
            SolutionNode::Fetch { .. } => "FETCH",
            SolutionNode::Sort { .. } => "SORT",
            SolutionNode::SortMerge { .. } => "SORT_MERGE",
            SolutionNode::Or { .. } => "OR",
            SolutionNode::AndSorted { .. } => "AND_SORTED",
            SolutionNode::AndHash { .. } => "AND_HASH",
            SolutionNode::Limit { .. } => "LIMIT",
            SolutionNode::Skip { .. } => "SKIP",
            SolutionNode::Projection { kind, .. } => match kind {
                ProjectionKind::Covered => "PROJECTION, covered",
                _ => "PROJECTION",
            },
            _ => "others",
        };
        MET.with_borrow_mut(|met| *met.entry(name).or_default() += 1);
    });
}

/// The planner options under test.
pub fn planners() -> [(&'static str, QueryOptions); 4] {
    let default = QueryOptions::default;
    [
        ("with extensions", default()),
        (
            "as published",
            QueryOptions {
                planner_extensions: false,
                or_children_independently: false,
                ..default()
            },
        ),
        (
            "intersections forced",
            QueryOptions {
                planner_extensions: false,
                planner: PlannerOptions {
                    force_intersection: true,
                    hash_intersection: true,
                    ..PlannerOptions::DEFAULT
                },
                ..default()
            },
        ),
        (
            "few scans, little memory",
            QueryOptions {
                planner: PlannerOptions {
                    scans_to_explode_max: 2,
                    ..PlannerOptions::DEFAULT
                },
                sort_memory_bytes_max: 200,
                ..default()
            },
        ),
    ]
}

/// What a query is run against.
pub struct Asker<'t> {
    pub t: &'t TestDb,
    pub view: ReadView,
    /// The collation that the operation requests.
    pub said: CollationChoice,
}

impl Asker<'_> {
    fn spec<'q>(&self, query: &'q Query) -> FindSpec<'q> {
        FindSpec {
            filter: Some(query.filter.as_raw()),
            sort: Some(query.sort.as_raw()),
            projection: Some(query.projection.as_raw()),
            skip: query.skip,
            limit: Some(query.limit),
            collation: self.said.clone(),
            ..FindSpec::default()
        }
    }

    fn canonical(&self, spec: FindSpec<'_>) -> Result<Arc<CanonicalQuery>, Error> {
        find::canonicalize(&self.view, spec).map(Arc::new)
    }

    /// The results of a plan.
    fn run(
        &self,
        query: &Arc<CanonicalQuery>,
        options: &QueryOptions,
        solution: QuerySolution,
    ) -> Result<Vec<DocBuf>, Error> {
        note(&solution.root);
        let (view, op) = (&self.view, &self.t.op);
        let mut executor = sheaf_db::planning::start_solution(view, op, query, options, solution)?;
        let mut found = Vec::new();
        while let Some(member) = executor.next(op)? {
            let doc = member.doc.as_ref().map(|doc| doc.as_raw().to_buf());
            found.push(doc.unwrap_or_default());
            if found.len() % 2 == 1 {
                executor.suspend();
                self.t.assert_all_suspended();
            }
        }
        Ok(found)
    }

    /// The results of a find by the plan that is selected.
    fn chosen(
        &self,
        query: &Arc<CanonicalQuery>,
        options: &QueryOptions,
    ) -> Result<Vec<DocBuf>, Error> {
        let mut source = find::find(&self.view, &self.t.op, query.clone(), options)?;
        let mut found = Vec::new();
        while let Some(doc) = source.next(&self.t.op)? {
            found.push(doc.as_raw().to_buf());
        }
        Ok(found)
    }

    /// Every candidate returns what the model returns.
    pub fn check_candidates(&self, query: &Query, docs: &[DocBuf]) -> Checked {
        let canonical = self
            .canonical(self.spec(query))
            .map_err(|e| e.to_string())?;
        for (how, options) in &planners() {
            for solution in self.candidates(&canonical, options)? {
                let root = solution.root.clone();
                let got = self.run(&canonical, options, solution);
                check_of(is_covered(&root))(docs, query, got.as_deref().map_err(|e| e.code().0))
                    .map_err(|e| format!("{e}\n  {how}, by {}: {root:?}", plan_summary(&root)))?;
            }
        }
        Ok(())
    }

    fn candidates(
        &self,
        query: &CanonicalQuery,
        options: &QueryOptions,
    ) -> Result<Vec<QuerySolution>, String> {
        match self.view.collection {
            Some(_) => {
                sheaf_db::planning::plan(&self.view, query, options).map_err(|e| e.to_string())
            }
            None => Ok(Vec::new()),
        }
    }

    /// Every candidate, reversed, returns the same documents from the last to the first.
    pub fn check_reversed(&self, query: &Query) -> Checked {
        let all = Query {
            filter: query.filter.clone(),
            ..Query::default()
        };
        let canonical = self.canonical(self.spec(&all)).map_err(|e| e.to_string())?;
        for (how, options) in &planners()[..3] {
            for solution in self.candidates(&canonical, options)? {
                let Some(turned) = reversed_plan(&solution.root) else {
                    continue;
                };
                let one_walk = is_one_walk(&solution.root);
                let shown = format!("{:?}", solution.root);
                let has_blocking_stage = solution.has_blocking_stage;
                let mut forward = self
                    .run(&canonical, options, solution)
                    .map_err(|e| e.to_string())?;
                let turned = QuerySolution {
                    root: turned,
                    has_blocking_stage,
                };
                let mut backward = self
                    .run(&canonical, options, turned)
                    .map_err(|e| e.to_string())?;
                match one_walk {
                    true => backward.reverse(),
                    false => {
                        in_one_order(&mut forward);
                        in_one_order(&mut backward);
                    }
                }
                if forward != backward {
                    return Err(format!(
                        "forward {forward:?}\n  backward, from its end {backward:?}\n  {how}, by {shown}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Whatever index is hinted, sort, projection and page are applied.
    pub fn check_hinted(&self, query: &Query, docs: &[DocBuf]) -> Checked {
        for index in self.whole_indexes() {
            let spec = FindSpec {
                hint: Some(Hint::Name(index.name.clone())),
                ..self.spec(query)
            };
            let canonical = self.canonical(spec).map_err(|e| e.to_string())?;
            for (how, options) in &planners()[..2] {
                let got = self.chosen(&canonical, options);
                let got = got.as_deref().map_err(|e| e.code().0);
                model::check_in_any_field_order(docs, query, got)
                    .map_err(|e| format!("{e}\n  {how}, hinted at {}", index.name))?;
            }
        }
        Ok(())
    }

    /// Indexes that contain every document.
    pub fn whole_indexes(&self) -> Vec<Arc<IndexEntry>> {
        let indexes = self.view.collection.as_ref().map(|c| c.indexes());
        let has_all = |index: &&Arc<IndexEntry>| {
            matches!(index.kind, IndexKind::Btree)
                && !index.sparse
                && !index.hidden
                && !index.clustered
                && index.partial_filter.is_none()
        };
        indexes
            .unwrap_or_default()
            .iter()
            .filter(has_all)
            .cloned()
            .collect()
    }

    /// A query of the same shape takes its plan from the cache, with its own constants.
    pub fn check_other_constants(&self, query: &Query, docs: &[DocBuf]) -> Checked {
        for (how, options) in &planners()[..2] {
            for step in 1..3 {
                let other = Query {
                    filter: with_other_constants(&query.filter, step),
                    ..query.clone()
                };
                let canonical = self
                    .canonical(self.spec(&other))
                    .map_err(|e| e.to_string())?;
                let got = self.chosen(&canonical, options);
                let got = got.as_deref().map_err(|e| e.code().0);
                model::check_in_any_field_order(docs, &other, got)
                    .map_err(|e| format!("{e}\n  {how}, for {other:?} after {query:?}"))?;
            }
        }
        Ok(())
    }

    /// A projection that the model does not support returns what it returns on a collection scan.
    pub fn check_projected(&self, filter: &DocBuf, projection: &DocBuf) -> Checked {
        let spec = |hint| FindSpec {
            filter: Some(filter.as_raw()),
            projection: Some(projection.as_raw()),
            collation: self.said.clone(),
            hint,
            ..FindSpec::default()
        };
        let by_scan = match self.canonical(spec(Some(Hint::Natural(1)))) {
            Ok(canonical) => self.chosen(&canonical, &planners()[1].1),
            // A projection that the filter does not allow is refused, whatever the plan.
            Err(_) => return Ok(()),
        };
        let by_scan = by_scan.map_err(|e| e.code());
        let wanted = by_scan.map(any_order);
        let canonical = self.canonical(spec(None)).map_err(|e| e.to_string())?;
        for (how, options) in &planners() {
            for solution in self.candidates(&canonical, options)? {
                let shown = format!("{:?}", solution.root);
                let got = self.run(&canonical, options, solution);
                let got = got.map(any_order).map_err(|e| e.code());
                if got != wanted {
                    return Err(format!(
                        "{got:?}\n  instead of {wanted:?}\n  {how}, by {shown}"
                    ));
                }
            }
            let got = self.chosen(&canonical, options);
            let got = got.map(any_order).map_err(|e| e.code());
            if got != wanted {
                return Err(format!("{got:?}\n  instead of {wanted:?}\n  {how}"));
            }
        }
        Ok(())
    }

    /// A pipeline returns what it returns on a collection scan.
    pub fn check_pipeline(&self, stages: &[DocBuf]) -> Checked {
        if self.view.collection.is_none() || self.order_is_open(stages) {
            return Ok(());
        }
        let by_scan = self.piped(stages, Some(&Hint::Natural(1)), &planners()[1].1);
        for (how, options) in &planners() {
            let got = self.piped(stages, None, options);
            let same = match (&got, &by_scan) {
                (Ok(got), Ok(wanted)) => {
                    let equal =
                        |(a, b): (&Value, &Value)| model::compare(a.as_raw(), b.as_raw()).is_eq();
                    got.len() == wanted.len() && got.iter().zip(wanted).all(equal)
                }
                (Err(got), Err(wanted)) => got == wanted,
                _ => false,
            };
            if !same {
                return Err(format!("{got:?}\n  instead of {by_scan:?}\n  {how}"));
            }
        }
        Ok(())
    }

    /// The order is undefined where documents with different arrays sort alike.
    fn order_is_open(&self, stages: &[DocBuf]) -> bool {
        let sort = stages
            .iter()
            .find_map(|stage| stage.get("$sort")?.as_document());
        let Some(sort) = sort else {
            return false;
        };
        let parts: Vec<&str> = sort.iter().flat_map(|part| part.key().split('.')).collect();
        self.t.documents("c").iter().any(|doc| {
            let on_the_way = doc.iter().filter(|element| parts.contains(&element.key()));
            on_the_way.map(|element| element.value()).any(has_array)
        })
    }

    fn piped(
        &self,
        stages: &[DocBuf],
        hint: Option<&Hint>,
        options: &QueryOptions,
    ) -> Result<Vec<Value>, i32> {
        let context = || ParseContext {
            variables: VariableScope::new(DateTime(1_700_000_000_000))
                .with_collator(self.view.collator(&self.said)),
        };
        let stages: Vec<Value> = stages.iter().cloned().map(Value::Document).collect();
        let stages = sheaf_bson::ArrayBuf::from_values(&stages);
        let run = || {
            let pipeline = Pipeline::parse(stages.as_raw(), &context())?.optimize();
            let cx = AggregateContext::new(&self.t.db, "test", context(), options.clone(), None);
            let view = cx.view(&self.t.op, &ns("c"))?;
            let mut source = aggregate::start(&cx, &view, &self.t.op, &pipeline, hint)?;
            let mut found = Vec::new();
            while let Some(doc) = source.next(&self.t.op)? {
                found.push(Value::Document(doc.as_raw().to_buf()));
            }
            Ok(found)
        };
        let mut found = run().map_err(|e: Error| e.code().0)?;
        found.sort_by(|a, b| model::compare(a.as_raw(), b.as_raw()));
        Ok(found)
    }
}

fn has_array(value: RawValue<'_>) -> bool {
    match value {
        RawValue::Array(_) => true,
        RawValue::Document(doc) => doc.iter().any(|element| has_array(element.value())),
        _ => false,
    }
}

fn in_one_order(docs: &mut [DocBuf]) {
    docs.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
}

/// Documents and their fields in no order.
fn any_order(docs: Vec<DocBuf>) -> Vec<DocBuf> {
    let mut docs: Vec<DocBuf> = docs.iter().map(|doc| by_name(doc.as_raw())).collect();
    in_one_order(&mut docs);
    docs
}

fn by_name(doc: RawDoc<'_>) -> DocBuf {
    let mut elements: Vec<_> = doc.iter().collect();
    elements.sort_by_key(|element| element.key());
    let mut out = DocBuilder::new();
    for element in elements {
        out.append_raw_element(element);
    }
    out.finish()
}

/// The filter with numbers 0, 1 and 2 replaced by others of them. Only compared values change, not
/// other arguments (a size, a type, a remainder).
fn with_other_constants(filter: &DocBuf, by: i32) -> DocBuf {
    let mut out = DocBuilder::new();
    for element in filter.iter() {
        let name = element.key();
        let kept = matches!(name, "$exists" | "$type" | "$size" | "$mod" | "$expr")
            || name.starts_with("$bits");
        match kept {
            true => drop(out.append_raw_element(element)),
            false => drop(out.append_value(name, &moved(element.value(), by))),
        }
    }
    out.finish()
}

fn moved(value: RawValue<'_>, by: i32) -> Value {
    match value {
        RawValue::Int32(n @ 0..=2) => Value::Int32((n + by) % 3),
        RawValue::Document(doc) => Value::Document(with_other_constants(&doc.to_buf(), by)),
        RawValue::Array(array) => {
            let values: Vec<Value> = array.iter().map(|value| moved(value, by)).collect();
            Value::Array(sheaf_bson::ArrayBuf::from_values(&values))
        }
        other => other.to_value(),
    }
}

/// The plan with every scan reversed; `None` if its stages depend on the direction.
fn reversed_plan(node: &SolutionNode) -> Option<SolutionNode> {
    let turn = |scan: &IndexScanNode| IndexScanNode {
        bounds: scan.bounds.clone().reversed(),
        direction: -scan.direction,
        ..scan.clone()
    };
    Some(match node {
        SolutionNode::CollScan { direction, filter } => SolutionNode::CollScan {
            direction: -direction,
            filter: filter.clone(),
        },
        SolutionNode::IndexScan(scan) => SolutionNode::IndexScan(turn(scan)),
        SolutionNode::ClusteredScan(scan) => SolutionNode::ClusteredScan(turn(scan)),
        SolutionNode::Fetch { filter, child } => SolutionNode::Fetch {
            filter: filter.clone(),
            child: Box::new(reversed_plan(child)?),
        },
        SolutionNode::Or {
            dedup,
            filter,
            children,
        } => SolutionNode::Or {
            dedup: *dedup,
            filter: filter.clone(),
            children: children.iter().map(reversed_plan).collect::<Option<_>>()?,
        },
        SolutionNode::AndHash { children } => SolutionNode::AndHash {
            children: children.iter().map(reversed_plan).collect::<Option<_>>()?,
        },
        _ => return None,
    })
}

/// Whether the plan is a scan of one index in which each key is a different document.
fn is_one_walk(node: &SolutionNode) -> bool {
    match node {
        SolutionNode::Fetch { child, .. } => is_one_walk(child),
        SolutionNode::IndexScan(scan) => !scan.dedup,
        SolutionNode::CollScan { .. } | SolutionNode::ClusteredScan(_) => true,
        _ => false,
    }
}

/// Whether the plan is a covered projection, which returns fields in the order of the index.
pub fn is_covered(node: &SolutionNode) -> bool {
    match node {
        SolutionNode::Projection { kind, child, .. } => {
            *kind == ProjectionKind::Covered || !reads_documents(child)
        }
        SolutionNode::Limit { child, .. }
        | SolutionNode::Skip { child, .. }
        | SolutionNode::Sort { child, .. } => is_covered(child),
        _ => false,
    }
}

fn reads_documents(node: &SolutionNode) -> bool {
    let mut reads = false;
    node.for_each(&mut |node| {
        reads |= matches!(
            node,
            SolutionNode::Fetch { .. }
                | SolutionNode::CollScan { .. }
                | SolutionNode::ClusteredScan(_)
        );
    });
    reads
}

type Check = fn(&[DocBuf], &Query, Result<&[DocBuf], i32>) -> Checked;

/// How the results of such a plan are checked.
pub fn check_of(covered: bool) -> Check {
    match covered {
        true => model::check_in_any_field_order,
        false => model::check,
    }
}
