//! Projections of pipelines: `$project`, `$addFields`/`$set`, `$unset`.
//!
//! ```text
//!   $project {a: 1, "b.c": "$x", d: {e: 1}}        a include
//!                                                  b ── c compute $x
//!                                                  d ── e include
//! ```
//!
//! Kept fields stay in their position and are copied as bytes. Computed fields are appended in the
//! order of the specification, except that `$addFields` replaces existing fields in place. Paths
//! traverse arrays: every element is projected. All expressions see the input document.

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::json::shell;
use sheaf_bson::{DocBuf, DocBuilder, RawArray, RawDoc, RawElement, RawValue};

use super::eval::{EvalContext, EvalValue};
use super::variables::VariableScope;
use super::{Expression, budget, field_path, location, operators, parse};
use crate::key_table::KeyTable;
use crate::matcher::Dependencies;

/// Maximum nesting of a projection.
const DEPTH_MAX: usize = 200;

/// How fields that are not named are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// They are removed; named fields are kept or computed.
    Inclusion,
    /// They are kept; named fields are removed.
    Exclusion,
    /// They are kept; named fields are computed.
    AddFields,
}

/// A parsed projection.
#[derive(Debug, Clone)]
pub struct ProjectionExec {
    mode: Mode,
    root: Node,
}

#[derive(Debug, Clone, Default)]
struct Node {
    fields: Vec<(Box<str>, Action)>,
    /// The names of `fields`, under the same numbers.
    names: KeyTable,
    /// Whether this subtree contains an expression.
    computes: bool,
}

#[derive(Debug, Clone)]
enum Action {
    Include,
    Exclude,
    Compute(Expression),
    Nested(Node),
}

impl Node {
    fn find(&self, name: &[u8]) -> Option<usize> {
        self.names.find(name)
    }

    fn push(&mut self, name: &str, action: Action) {
        self.names.insert(name.as_bytes());
        self.fields.push((name.into(), action));
    }

    /// Inserts a path. Errors: it equals, or is an ancestor of, an existing path
    /// ([`Collisions::ancestor`]); it is a descendant of one ([`Collisions::descendant`]).
    fn insert(
        &mut self,
        path: &[&str],
        action: Action,
        whole: &str,
        codes: Collisions,
    ) -> Result<()> {
        let collision = |code: i32| {
            Err(location(
                code,
                format!(
                    "path collision at '{whole}': a path and one that leads to it cannot both be projected"
                ),
            ))
        };
        let Some((name, rest)) = path.split_first() else {
            return collision(codes.ancestor);
        };
        self.computes |= matches!(action, Action::Compute(_));
        match (self.find(name.as_bytes()), rest) {
            (Some(_), []) => collision(codes.ancestor),
            (Some(at), rest) => match &mut self.fields[at].1 {
                Action::Nested(node) => node.insert(rest, action, whole, codes),
                _ => collision(codes.descendant),
            },
            (None, []) => {
                self.push(name, action);
                Ok(())
            }
            (None, rest) => {
                let mut node = Node::default();
                node.insert(rest, action, whole, codes)?;
                self.push(name, Action::Nested(node));
                Ok(())
            }
        }
    }
}

/// The codes of colliding paths.
#[derive(Debug, Clone, Copy)]
struct Collisions {
    ancestor: i32,
    descendant: i32,
}

impl Mode {
    fn collisions(self) -> Collisions {
        let (ancestor, descendant) = match self {
            Mode::Inclusion | Mode::Exclusion => (31250, 31249),
            Mode::AddFields => (40176, 40176),
        };
        Collisions {
            ancestor,
            descendant,
        }
    }
}

/// What a specification requests for a path.
enum Said<'a> {
    Include,
    Exclude,
    Value(RawValue<'a>),
}

/// Whether the fields of a `$project` are kept or removed: the first field that is not metadata
/// decides, and `_id` only if it is computed or alone.
fn project_mode(said: &[(String, Said<'_>)]) -> Mode {
    let of_id = |path: &str| path == "_id" || path.starts_with("_id.");
    let decisive = said.iter().find(|(path, said)| match said {
        Said::Value(value) => !is_metadata(*value),
        Said::Include | Said::Exclude => !of_id(path),
    });
    match decisive.or(said.first()) {
        Some((_, Said::Exclude)) => Mode::Exclusion,
        _ => Mode::Inclusion,
    }
}

/// Whether the value is `{$meta: ...}`, which is allowed in inclusions and exclusions.
fn is_metadata(value: RawValue<'_>) -> bool {
    let first = value.as_document().and_then(|doc| doc.first());
    first.is_some_and(|first| first.key() == "$meta")
}

impl ProjectionExec {
    /// Parses the specification of `$project`. Errors: inclusion and exclusion are mixed (31253,
    /// 31254), a field is computed in an exclusion (31252 by an operator, 31310 otherwise), paths
    /// collide, an expression is invalid.
    pub fn parse_project(spec: RawDoc<'_>, scope: &VariableScope) -> Result<ProjectionExec> {
        let mut said = Vec::new();
        flatten(spec, "", true, 0, &mut said)?;
        if said.is_empty() {
            return Err(location(
                51272,
                "a projection specification must have at least one field",
            ));
        }
        let mode = project_mode(&said);
        let mut out = ProjectionExec {
            mode,
            root: Node::default(),
        };
        for (path, said) in said {
            let action = match (said, mode) {
                (Said::Include, Mode::Inclusion) => Action::Include,
                (Said::Exclude, Mode::Exclusion) => Action::Exclude,
                // `_id` may be included or excluded in either mode.
                (Said::Exclude, _) if path == "_id" => Action::Exclude,
                (Said::Include, _) if path == "_id" => Action::Include,
                (Said::Include, _) => {
                    return Err(location(
                        31253,
                        format!(
                            "cannot include the field '{path}' in a projection that excludes others"
                        ),
                    ));
                }
                (Said::Exclude, _) => {
                    return Err(location(
                        31254,
                        format!(
                            "cannot exclude the field '{path}' in a projection that includes others"
                        ),
                    ));
                }
                (Said::Value(value), Mode::Exclusion) if !is_metadata(value) => {
                    let code = match value {
                        RawValue::Document(_) => 31252,
                        _ => 31310,
                    };
                    return Err(location(
                        code,
                        format!(
                            "cannot compute the field '{path}' in a projection that excludes others"
                        ),
                    ));
                }
                (Said::Value(value), _) => Action::Compute(parse(value, scope)?),
            };
            out.insert(&path, action)?;
        }
        Ok(out)
    }

    /// Parses the specification of `$addFields` (and `$set`). Errors: paths collide, an expression
    /// is invalid.
    pub fn parse_add_fields(spec: RawDoc<'_>, scope: &VariableScope) -> Result<ProjectionExec> {
        let mut said = Vec::new();
        flatten(spec, "", false, 0, &mut said)?;
        let mut out = ProjectionExec {
            mode: Mode::AddFields,
            root: Node::default(),
        };
        for (path, said) in said {
            if let Said::Value(value) = said {
                out.insert(&path, Action::Compute(parse(value, scope)?))?;
            }
        }
        Ok(out)
    }

    /// The projection that removes these paths (`$unset`). Errors: a path is malformed, or paths
    /// collide.
    pub fn excluding<'a>(paths: impl IntoIterator<Item = &'a str>) -> Result<ProjectionExec> {
        let mut out = ProjectionExec {
            mode: Mode::Exclusion,
            root: Node::default(),
        };
        for path in paths {
            out.insert(path, Action::Exclude)?;
        }
        Ok(out)
    }

    /// The projection that keeps only the fields in `reads`. `None` if whole documents are read, or
    /// a path is not valid in a projection.
    pub(crate) fn keeping(reads: &Dependencies) -> Option<ProjectionExec> {
        if reads.whole_document {
            return None;
        }
        let mut out = ProjectionExec {
            mode: Mode::Inclusion,
            root: Node::default(),
        };
        for path in &reads.paths {
            out.insert(path, Action::Include).ok()?;
        }
        if out.root.find(b"_id").is_none() {
            out.root.push("_id", Action::Exclude);
        }
        Some(out)
    }

    fn insert(&mut self, path: &str, action: Action) -> Result<()> {
        let components = field_path::split(path)?;
        let components: Vec<&str> = components.iter().map(|c| &**c).collect();
        let codes = self.mode.collisions();
        self.root.insert(&components, action, path, codes)
    }

    /// How fields that are not named are handled.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether the projection only keeps or removes fields and computes none.
    pub fn is_plain(&self) -> bool {
        !self.root.computes
    }

    /// Whether the projection computes only `$meta` in top-level fields, and at least one: the find
    /// layer must evaluate it.
    pub fn asks_for_metadata(&self) -> bool {
        let mut any = false;
        let plain = self.root.fields.iter().all(|(_, action)| match action {
            Action::Include | Action::Exclude => true,
            Action::Compute(expression) => {
                let is_meta = super::meta::is_meta(expression);
                any |= is_meta;
                is_meta
            }
            Action::Nested(node) => !node.computes,
        });
        plain && any
    }

    /// Whether `_id` is kept without being named.
    fn keeps_id(&self) -> bool {
        self.mode == Mode::Inclusion && self.root.find(b"_id").is_none()
    }

    /// Projects a document. Errors: those of the expressions; nesting beyond the limit.
    pub fn apply(&self, doc: RawDoc<'_>) -> Result<DocBuf> {
        let mut out = DocBuilder::with_vec(Vec::with_capacity(doc.len_bytes()));
        let run = Run {
            mode: self.mode,
            ctx: EvalContext::new(doc),
        };
        run.document(&self.root, doc, self.keeps_id(), 0, &mut out)?;
        Ok(out.finish())
    }

    /// Adds the paths that the projection reads. Returns false if it also passes on fields that it
    /// does not name.
    pub fn add_dependencies(&self, found: &mut Dependencies) -> bool {
        if self.keeps_id() {
            found.insert("_id");
        }
        add_node_dependencies(&self.root, "", found);
        self.mode == Mode::Inclusion
    }

    /// Whether a filter on `path` has the same result before and after the projection.
    pub fn preserves(&self, path: &str) -> Preserved {
        if self.keeps_id() && sheaf_bson::path::is_path_prefix("_id", path) {
            return Preserved::Whole;
        }
        let (mut node, mut preserved) = (&self.root, Preserved::Whole);
        for (depth, part) in path.split('.').enumerate() {
            // Below the top a number may be a position in an array to a filter; to a projection
            // it is the name of a field in each element.
            if depth > 0 && sheaf_bson::path::array_index(part).is_some() {
                return Preserved::No;
            }
            match node.find(part.as_bytes()).map(|at| &node.fields[at].1) {
                None if self.mode == Mode::Inclusion => return Preserved::No,
                None | Some(Action::Include) => return preserved,
                Some(Action::Exclude | Action::Compute(_)) => return Preserved::No,
                Some(Action::Nested(inner)) => node = inner,
            }
            // Values that are not documents are replaced by documents or omitted.
            if node.computes || self.mode == Mode::Inclusion {
                preserved = Preserved::IfPresent;
            }
        }
        Preserved::No
    }
}

/// What a projection does to the values that a filter finds at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preserved {
    /// The values are unchanged, and a missing path remains missing.
    Whole,
    /// Existing values are unchanged. If the path is missing, it may change whether its parent is a
    /// document or another value, which matters to a filter for null within arrays.
    IfPresent,
    /// The values may change.
    No,
}

fn join(prefix: &str, name: &str) -> String {
    if prefix.is_empty() {
        name.to_owned()
    } else {
        format!("{prefix}.{name}")
    }
}

/// Normalizes nested documents and dotted names to dotted paths.
fn flatten<'a>(
    spec: RawDoc<'a>,
    prefix: &str,
    project: bool,
    depth: usize,
    out: &mut Vec<(String, Said<'a>)>,
) -> Result<()> {
    if depth > DEPTH_MAX {
        return Err(location(
            51271,
            format!("a projection must not be nested deeper than {DEPTH_MAX} levels"),
        ));
    }
    for element in spec {
        let name = element.key();
        let path = join(prefix, name);
        check_name(name, project)?;
        let said = match element.value() {
            RawValue::Document(inner) => match inner.first() {
                None if project => {
                    return Err(location(
                        51270,
                        format!(
                            "an empty sub-projection is not a valid value: found one at '{path}'"
                        ),
                    ));
                }
                Some(first) if !first.key().starts_with('$') => {
                    flatten(inner, &path, project, depth + 1, out)?;
                    continue;
                }
                Some(first) if project => {
                    check_operator(first.key(), inner, &path)?;
                    Said::Value(element.value())
                }
                _ => Said::Value(element.value()),
            },
            RawValue::Boolean(_)
            | RawValue::Int32(_)
            | RawValue::Int64(_)
            | RawValue::Double(_)
            | RawValue::Decimal128(_)
                if project =>
            {
                if element.value().is_truthy() {
                    Said::Include
                } else {
                    Said::Exclude
                }
            }
            value => Said::Value(value),
        };
        out.push((path, said));
    }
    Ok(())
}

/// Checks a name of a specification, in the order of the specification. Errors: those of paths; in
/// `$project`, 31324 for a positional operator.
fn check_name(name: &str, project: bool) -> Result<()> {
    if project && name.ends_with(".$") {
        return Err(location(
            31324,
            format!("Cannot use positional projection in aggregation projection stages: '{name}'"),
        ));
    }
    field_path::split(name).map(|_| ())
}

/// Checks the operator that computes the field at `path`. Errors: those of [`operator_is_known`];
/// InvalidPipelineOperator for an operator of finds; 16410 if another field is next to it.
fn check_operator(name: &str, doc: RawDoc<'_>, path: &str) -> Result<()> {
    if let Some(other) = doc.iter().nth(1) {
        return Err(location(
            16410,
            format!(
                "the field '{path}' of a projection has an operator and the field '{}' next to it",
                other.key()
            ),
        ));
    }
    if name == "$elemMatch" {
        return Err(Error::new(
            ErrorCode::INVALID_PIPELINE_OPERATOR,
            "Unrecognized expression '$elemMatch'",
        ));
    }
    operator_is_known(name)
}

/// Checks the name of an operator. Errors: 31325 if it is unknown; outside of projections this is
/// InvalidPipelineOperator.
pub(crate) fn operator_is_known(name: &str) -> Result<()> {
    match operators::find(name) {
        Some(_) => Ok(()),
        None => Err(location(31325, format!("Unknown expression {name}"))),
    }
}

fn add_node_dependencies(node: &Node, prefix: &str, found: &mut Dependencies) {
    for (name, action) in &node.fields {
        let path = join(prefix, name);
        match action {
            Action::Include => found.insert(&path),
            Action::Exclude => {}
            Action::Compute(expression) => {
                // Arrays on the path determine how many times the value is written.
                if !prefix.is_empty() {
                    found.insert(prefix);
                }
                expression.add_dependencies(found);
            }
            Action::Nested(node) => add_node_dependencies(node, &path, found),
        }
    }
}

/// The projection of one document.
struct Run<'e> {
    mode: Mode,
    ctx: EvalContext<'e>,
}

impl<'e> Run<'e> {
    fn document(
        &self,
        node: &'e Node,
        doc: RawDoc<'_>,
        keeps_id: bool,
        depth: usize,
        out: &mut DocBuilder,
    ) -> Result<()> {
        if depth > DEPTH_MAX {
            return Err(location(
                15,
                format!("a document nested deeper than {DEPTH_MAX} levels cannot be projected"),
            ));
        }
        let mut done = vec![false; node.fields.len()];
        for element in doc {
            let Some(at) = node.find(element.key_bytes()) else {
                if self.mode != Mode::Inclusion || (keeps_id && element.key_bytes() == b"_id") {
                    out.append_raw_element(element);
                }
                continue;
            };
            match &node.fields[at].1 {
                Action::Include => {
                    out.append_raw_element(element);
                }
                Action::Exclude => {}
                // In an inclusion, a computed field is a new field after the kept ones.
                Action::Compute(_) if self.mode == Mode::Inclusion => {}
                Action::Compute(expression) => {
                    if !std::mem::replace(&mut done[at], true) {
                        self.compute(expression, element.key(), out)?;
                    }
                }
                Action::Nested(inner) => {
                    done[at] = true;
                    self.nested(inner, element, depth, out)?;
                }
            }
        }
        for ((name, action), done) in node.fields.iter().zip(done) {
            match action {
                Action::Compute(expression) if !done => self.compute(expression, name, out)?,
                Action::Nested(inner) if !done && inner.computes => {
                    out.begin_document(name);
                    self.document(inner, RawDoc::EMPTY, false, depth + 1, out)?;
                    out.end();
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn compute(&self, expression: &'e Expression, name: &str, out: &mut DocBuilder) -> Result<()> {
        match expression.evaluate(self.ctx)? {
            EvalValue::Missing => {}
            value => {
                if let Some(raw) = value.as_raw() {
                    out.append(name, raw);
                    budget::check_value(out.current_len())?;
                }
            }
        }
        Ok(())
    }

    fn nested(
        &self,
        node: &'e Node,
        element: RawElement<'_>,
        depth: usize,
        out: &mut DocBuilder,
    ) -> Result<()> {
        match element.value() {
            RawValue::Document(doc) => {
                out.begin_document(element.key());
                self.document(node, doc, false, depth + 1, out)?;
                out.end();
            }
            RawValue::Array(array) => {
                out.begin_array(element.key());
                self.array(node, array, depth + 1, out)?;
                out.end();
            }
            // A computed field needs a document around it, so it replaces any other value.
            _ if node.computes => {
                out.begin_document(element.key());
                self.document(node, RawDoc::EMPTY, false, depth + 1, out)?;
                out.end();
            }
            _ if self.mode == Mode::Inclusion => {}
            _ => {
                out.append_raw_element(element);
            }
        }
        Ok(())
    }

    fn array(
        &self,
        node: &'e Node,
        array: RawArray<'_>,
        depth: usize,
        out: &mut DocBuilder,
    ) -> Result<()> {
        if depth > DEPTH_MAX {
            return Err(location(
                15,
                format!("an array nested deeper than {DEPTH_MAX} levels cannot be projected"),
            ));
        }
        for value in array {
            match value {
                RawValue::Document(doc) => {
                    out.push_begin_document();
                    self.document(node, doc, false, depth + 1, out)?;
                    out.end();
                }
                RawValue::Array(inner) => {
                    out.push_begin_array();
                    self.array(node, inner, depth + 1, out)?;
                    out.end();
                }
                _ if node.computes => {
                    out.push_begin_document();
                    self.document(node, RawDoc::EMPTY, false, depth + 1, out)?;
                    out.end();
                }
                _ if self.mode == Mode::Inclusion => {}
                other => {
                    out.push(other);
                }
            }
        }
        Ok(())
    }
}

/// Evaluates `newRoot`, which must be a document. Errors: 40228 if it is not.
pub fn evaluate_root(expression: &Expression, doc: RawDoc<'_>) -> Result<DocBuf> {
    let value = expression.evaluate_on(doc)?;
    match value.as_raw() {
        Some(RawValue::Document(root)) => Ok(root.to_buf()),
        other => Err(location(
            40228,
            format!(
                "'newRoot' must evaluate to an object, but the resulting value was {} of type {}; consider $mergeObjects with a default",
                other.map_or("missing".to_owned(), shell),
                value.type_name()
            ),
        )),
    }
}
