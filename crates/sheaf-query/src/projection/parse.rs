//! Parses a projection into its tree of fields.
//!
//! The first field other than `_id` that is kept or dropped decides between inclusion and
//! exclusion; the others must agree. Without such a field, `$elemMatch`, `.$` and computed fields
//! make an inclusion, `$slice` and `$meta` alone make an exclusion, and a projection of `_id` alone
//! is an inclusion or exclusion according to its value.

use sheaf_bson::error_code::ErrorCode;
use sheaf_bson::json::shell;
use sheaf_bson::path::FieldPath;
use sheaf_bson::{DocBuilder, Error, RawArray, RawDoc, RawValue};

use super::{Action, ElemMatch, Field, Kind, MetaField, Node, Projection, Slice};
use crate::expression::projection_exec::operator_is_known;
use crate::matcher::{self, ParseContext};

/// Maximum nesting of sub-projections.
const DEPTH_MAX: usize = 200;

fn location(code: i32, message: impl Into<String>) -> Error {
    Error::new(ErrorCode(code), message)
}

/// Parses the projection of a find; `{}` keeps everything.
///
/// Errors: 31249 and 31250 for colliding paths, 31253 and 31254 for a mix of inclusion and
/// exclusion, 31252 and 31310 for a computed field in an exclusion, 31274 and 31275 for an invalid
/// `$elemMatch`, 28667 and 28724 for an invalid `$slice`, 31394, 31395, 31276, 31255 and 31271 for
/// an invalid positional operator (31308 for its value), 51270 for an empty sub-projection, 40352,
/// 40353, 15998 and 16410 for invalid paths.
pub fn parse(spec: RawDoc<'_>, context: &ParseContext) -> Result<Projection, Error> {
    parse_as(None, spec, context)
}

/// Like [`parse`], for a pipeline's `$project`: unnamed fields are dropped, even if all named
/// fields are `$meta`. Errors: as [`parse`].
pub fn parse_inclusion(spec: RawDoc<'_>, context: &ParseContext) -> Result<Projection, Error> {
    parse_as(Some(Kind::Inclusion), spec, context)
}

fn parse_as(
    kind: Option<Kind>,
    spec: RawDoc<'_>,
    context: &ParseContext,
) -> Result<Projection, Error> {
    let mut parser = Parser {
        context,
        root: Node::default(),
        kind,
        id: None,
        positional: None,
        any_elem_match: false,
        any_operators: false,
        any_computed: false,
        meta: Vec::new(),
    };
    parser.level("", spec, 0)?;
    parser.finish(spec)
}

struct Parser<'c> {
    context: &'c ParseContext,
    root: Node,
    /// Set by the first field that is kept or dropped.
    kind: Option<Kind>,
    /// Whether `_id` itself is kept or dropped, if specified.
    id: Option<bool>,
    positional: Option<FieldPath>,
    any_elem_match: bool,
    any_operators: bool,
    any_computed: bool,
    meta: Vec<MetaField>,
}

impl Parser<'_> {
    /// Parses the fields of a projection, or of a sub-projection under `prefix`.
    fn level(&mut self, prefix: &str, spec: RawDoc<'_>, depth: usize) -> Result<(), Error> {
        if depth > DEPTH_MAX {
            return Err(Error::bad_value(format!(
                "a projection nests at most {DEPTH_MAX} levels deep"
            )));
        }
        for element in spec.iter() {
            let path = super::join(prefix, element.key());
            if element.key().is_empty() {
                return Err(location(
                    40352,
                    "FieldPath cannot be constructed with empty string",
                ));
            }
            self.field(&path, element.value(), depth)?;
        }
        Ok(())
    }

    fn field(&mut self, path: &str, value: RawValue<'_>, depth: usize) -> Result<(), Error> {
        if let Some(array_path) = path.strip_suffix(".$") {
            return self.positional(array_path, value);
        }
        match value {
            RawValue::Boolean(_) => self.plain(path, value.is_truthy()),
            _ if value.is_number() => self.plain(path, value.is_truthy()),
            RawValue::Document(doc) => match doc.first() {
                None => Err(location(
                    51270,
                    format!(
                        "An empty sub-projection is not a valid value. Found empty object at path {path}"
                    ),
                )),
                Some(first) if first.key().starts_with('$') => self.operator(path, doc),
                Some(_) => self.level(path, doc, depth + 1),
            },
            _ => self.computed(path, value),
        }
    }

    /// Parses `path: 1` or `path: 0`.
    fn plain(&mut self, path: &str, keep: bool) -> Result<(), Error> {
        let action = if keep {
            Action::Include
        } else {
            Action::Exclude
        };
        if path == "_id" {
            self.id = Some(keep);
            // An exclusion keeps `_id` like any other field; `finish` resolves this.
            return self.insert(path, action, false);
        }
        let kind = if keep {
            Kind::Inclusion
        } else {
            Kind::Exclusion
        };
        match self.kind {
            None => self.kind = Some(kind),
            Some(Kind::Exclusion) if keep => {
                return Err(location(
                    31253,
                    format!("Cannot do inclusion on field {path} in exclusion projection"),
                ));
            }
            Some(Kind::Inclusion) if !keep => {
                return Err(location(
                    31254,
                    format!("Cannot do exclusion on field {path} in inclusion projection"),
                ));
            }
            Some(_) => {}
        }
        self.insert(path, action, false)
    }

    /// Parses `path: {$operator: ...}`.
    fn operator(&mut self, path: &str, doc: RawDoc<'_>) -> Result<(), Error> {
        let Some(first) = doc.first() else {
            return Ok(());
        };
        only_field(path, doc)?;
        match (first.key(), first.value()) {
            // On the path of a positional operator, `$slice` is only the expression of that name.
            ("$slice", argument) => {
                match find_slice(argument).filter(|_| !self.is_positional(path)) {
                    Some(slice) => {
                        self.any_operators = true;
                        self.insert(path, Action::Slice(slice), false)
                    }
                    None => self.slice_expression(path, doc, argument),
                }
            }
            ("$elemMatch", argument) => self.elem_match(path, argument),
            ("$meta", argument) => self.meta(path, argument),
            (name, _) => {
                operator_is_known(name)?;
                self.computed(path, RawValue::Document(doc))
            }
        }
    }

    fn is_positional(&self, path: &str) -> bool {
        let own = self.positional.as_ref();
        own.is_some_and(|own| own.dotted() == path)
    }

    /// Parses a `$slice` that is not in find's syntax as the expression operator.
    fn slice_expression(
        &mut self,
        path: &str,
        doc: RawDoc<'_>,
        argument: RawValue<'_>,
    ) -> Result<(), Error> {
        let (why, count) = match argument {
            RawValue::Array(array) => (
                "Location31272: $slice array argument should be of form [skip, limit]",
                array.count(),
            ),
            _ => (
                "Location31273: $slice only supports numbers and [skip, limit] arrays",
                1,
            ),
        };
        if !(2..=3).contains(&count) {
            return Err(location(
                28667,
                format!(
                    "Invalid $slice syntax. The given syntax {} did not match the find() syntax because :: {why} :: The given syntax did not match the expression $slice syntax. :: caused by :: Expression $slice takes at least 2 arguments, and at most 3, but {count} were passed in.",
                    shell(doc)
                ),
            ));
        }
        // The expression requires an array as its first operand, so a constant number is an error.
        let is_null = |v: RawValue<'_>| matches!(v, RawValue::Null | RawValue::Undefined);
        if let RawValue::Array(array) = argument
            && !array.iter().any(is_null)
            && let Some(first) = array.get(0)
            && !matches!(
                first,
                RawValue::Array(_) | RawValue::Document(_) | RawValue::Null | RawValue::Undefined
            )
            && !first.as_str().is_some_and(|s| s.starts_with('$'))
        {
            return Err(location(
                28724,
                format!(
                    "First argument to $slice must be an array, but is of type: {}",
                    first.type_name()
                ),
            ));
        }
        self.computed(path, RawValue::Document(doc))
    }

    fn elem_match(&mut self, path: &str, argument: RawValue<'_>) -> Result<(), Error> {
        let RawValue::Document(condition) = argument else {
            return Err(location(
                31274,
                format!(
                    "elemMatch: Invalid argument, object required, but got {}",
                    argument.type_name()
                ),
            ));
        };
        check_path(path)?;
        if path.contains('.') {
            return Err(location(
                31275,
                "Cannot use $elemMatch projection on a nested field.",
            ));
        }
        if self.positional.is_some() {
            return Err(positional_and_elem_match(31255));
        }
        check_condition(condition)?;
        // The filter {"": {$elemMatch: ...}} is evaluated on the array itself.
        let mut filter = DocBuilder::new();
        filter.append("$elemMatch", condition);
        let filter = matcher::parse_predicate(filter.finish().as_raw(), self.context)?;
        self.any_elem_match = true;
        self.any_operators = true;
        let filter = filter.normalize();
        self.insert(path, Action::ElemMatch(ElemMatch { filter }), false)
    }

    fn meta(&mut self, path: &str, argument: RawValue<'_>) -> Result<(), Error> {
        let field = MetaField::parse(argument)?;
        self.meta.push(field);
        self.insert(path, Action::Meta(field), false)
    }

    /// Parses `"path.$": 1`.
    fn positional(&mut self, path: &str, value: RawValue<'_>) -> Result<(), Error> {
        if path.is_empty() || path.split('.').any(|part| part == "$") {
            return Err(middle_positional());
        }
        if !(value.is_number() || matches!(value, RawValue::Boolean(_))) {
            let code = match value {
                RawValue::Document(_) => 31271,
                _ => 31308,
            };
            return Err(location(
                code,
                "positional projection cannot be used with an expression, a literal or a sub object; write 'path.$': 1",
            ));
        }
        if !value.is_truthy() {
            return Err(location(
                31395,
                "positional projection cannot be used with exclusion",
            ));
        }
        if self.positional.is_some() {
            return Err(location(
                31276,
                "Cannot specify more than one positional projection per query.",
            ));
        }
        if self.any_elem_match {
            return Err(positional_and_elem_match(31256));
        }
        if self.kind == Some(Kind::Exclusion) {
            return Err(location(
                31395,
                "positional projection cannot be used with exclusion",
            ));
        }
        self.kind = Some(Kind::Inclusion);
        self.insert(path, Action::Include, true)?;
        self.positional = FieldPath::parse(path).ok();
        Ok(())
    }

    fn computed(&mut self, path: &str, value: RawValue<'_>) -> Result<(), Error> {
        if self.kind == Some(Kind::Exclusion) {
            let code = match value {
                RawValue::Document(_) => 31252,
                _ => 31310,
            };
            return Err(computed_in_exclusion(code, path));
        }
        let expression = crate::expression::parse(value, &self.context.variables)?;
        self.any_computed = true;
        self.insert(path, Action::Computed(Box::new(expression)), false)
    }

    /// Inserts the action at the end of the path. Errors: 31249 and 31250 for colliding paths.
    fn insert(&mut self, path: &str, action: Action, positional: bool) -> Result<(), Error> {
        check_path(path)?;
        let computed = matches!(action, Action::Computed(_) | Action::Meta(_));
        let mut node = &mut self.root;
        let mut rest = path;
        loop {
            node.has_computed |= computed;
            let (name, below) = match rest.split_once('.') {
                Some((name, below)) => (name, Some(below)),
                None => (rest, None),
            };
            let at = node.place(name.as_bytes());
            let Some(below) = below else {
                if at.is_some() {
                    return Err(location(31250, format!("Path collision at {path}")));
                }
                node.push(Field {
                    name: name.into(),
                    action,
                    positional,
                });
                return Ok(());
            };
            let at = at.unwrap_or_else(|| {
                node.push(Field {
                    name: name.into(),
                    action: Action::Nested(Node::default()),
                    positional: false,
                });
                node.fields.len() - 1
            });
            let field = &mut node.fields[at];
            field.positional |= positional;
            match &mut field.action {
                Action::Nested(inner) => node = inner,
                _ => {
                    return Err(location(
                        31249,
                        format!("Path collision at {path} remaining portion {below}"),
                    ));
                }
            }
            rest = below;
        }
    }

    fn finish(mut self, spec: RawDoc<'_>) -> Result<Projection, Error> {
        let kind = self.kind.unwrap_or(match self.id {
            _ if self.any_elem_match || self.any_computed => Kind::Inclusion,
            Some(true) => Kind::Inclusion,
            _ => Kind::Exclusion,
        });
        if kind == Kind::Exclusion && self.any_computed {
            let computed = self
                .root
                .fields
                .iter()
                .find(|f| matches!(&f.action, Action::Computed(_)))
                .map_or("", |f| &f.name);
            return Err(computed_in_exclusion(31252, computed));
        }
        // The treatment of `_id` depends on that of the other fields.
        match (kind, self.id) {
            (Kind::Inclusion, Some(false)) | (Kind::Exclusion, Some(true)) => {
                self.root.remove("_id");
            }
            (Kind::Inclusion, None) if self.root.find(b"_id").is_none() => {
                self.root.push(Field {
                    name: "_id".into(),
                    action: Action::Include,
                    positional: false,
                });
            }
            _ => {}
        }
        Ok(Projection {
            spec: spec.to_buf(),
            kind,
            root: self.root,
            positional: self.positional,
            meta: self.meta,
            show_record_id: false,
            has_computed: self.any_computed,
            has_operators: self.any_operators,
        })
    }
}

/// The error for a positional operator together with `$elemMatch`; the code depends on their order.
fn positional_and_elem_match(code: i32) -> Error {
    location(code, "Cannot specify positional operator and $elemMatch.")
}

/// Errors: QueryFeatureNotAllowed and 5626500 for operators that a projection does not allow.
fn check_condition(condition: RawDoc<'_>) -> Result<(), Error> {
    for element in condition {
        if element.key() == "$jsonSchema" {
            return Err(Error::new(
                ErrorCode::QUERY_FEATURE_NOT_ALLOWED,
                "$jsonSchema is not allowed in this context",
            ));
        }
        let sorts_by_distance = |doc: RawDoc<'_>| {
            let first = doc.first();
            first.is_some_and(|e| matches!(e.key(), "$near" | "$nearSphere" | "$geoNear"))
        };
        if element.value().as_document().is_some_and(sorts_by_distance) {
            return Err(location(
                5626500,
                "$near and $nearSphere are not allowed in the $elemMatch of a projection",
            ));
        }
    }
    Ok(())
}

fn middle_positional() -> Error {
    location(
        31394,
        "the positional operator may only be used at the end of a path, for example a.b.$; remove what follows it",
    )
}

fn computed_in_exclusion(code: i32, path: &str) -> Error {
    location(
        code,
        format!("Cannot use an expression for field {path} in an exclusion projection"),
    )
}

fn check_path(path: &str) -> Result<(), Error> {
    if path.ends_with('.') {
        return Err(location(40353, "FieldPath must not end with a '.'."));
    }
    for part in path.split('.') {
        if part.is_empty() {
            return Err(location(
                15998,
                "FieldPath field names may not be empty strings.",
            ));
        }
        if part == "$" && path != "$" {
            return Err(middle_positional());
        }
        if part.starts_with('$') && !matches!(part, "$id" | "$ref" | "$db") {
            return Err(location(
                16410,
                format!(
                    "FieldPath field names may not start with '$', given '{part}'. Consider using $getField or $setField."
                ),
            ));
        }
    }
    // FieldPath limits the number of components.
    FieldPath::parse(path)
        .map(|_| ())
        .map_err(|why| Error::bad_value(why.message()))
}

/// Checks that an operator is the only field of its document.
fn only_field(path: &str, doc: RawDoc<'_>) -> Result<(), Error> {
    match doc.iter().nth(1) {
        None => Ok(()),
        Some(second) => Err(location(
            16410,
            format!(
                "an operator must be the only field in its document at path {path}, but '{}' follows it",
                second.key()
            ),
        )),
    }
}

/// find's own `$slice`: a number, or `[skip, limit]` with a positive limit.
fn find_slice(argument: RawValue<'_>) -> Option<Slice> {
    match argument {
        RawValue::Array(array) => {
            let (skip, limit) = pair(array)?;
            let (skip, limit) = (saturated(skip)?, saturated(limit)?);
            (limit > 0).then_some(Slice {
                skip: Some(skip),
                limit,
            })
        }
        _ => saturated(argument).map(|limit| Slice { skip: None, limit }),
    }
}

fn pair(array: RawArray<'_>) -> Option<(RawValue<'_>, RawValue<'_>)> {
    let mut values = array.iter();
    match (values.next(), values.next(), values.next()) {
        (Some(first), Some(second), None) => Some((first, second)),
        _ => None,
    }
}

/// A number without its fraction, saturated to 64 bits; NaN is 0.
fn saturated(value: RawValue<'_>) -> Option<i64> {
    value
        .as_i64_exact()
        .or_else(|| value.as_f64().map(|x| x as i64))
}
