//! `$merge`: writes the results to a collection, one by one.
//!
//! ```text
//!   result ── on: fields with a unique index ──┬─ a document matches: whenMatched
//!                                              │    replace | keepExisting | merge | fail
//!                                              │    | [pipeline]
//!                                              └─ no match: whenNotMatched
//!                                                   insert | discard | fail
//! ```

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::{ArrayBuf, DocBuf, DocBuilder, RawDoc, RawValue, Value, doc};

use crate::expression::{Expression, field_path, location, parse as parse_expression};
use crate::pipeline::PipelineSink;
use crate::pipeline::environment::ForeignName;
use crate::pipeline::operand::Operand;
use crate::pipeline::stage::{ParsedStage, StageContext};

/// A parsed `$merge`.
#[derive(Debug, Clone)]
pub struct Merge {
    /// The collection to write to.
    pub into: ForeignName,
    /// The paths that identify a document; `None` is `_id`.
    pub on: Option<Vec<Box<str>>>,
    /// The action if a document has the same values.
    pub when_matched: WhenMatched,
    /// The action if no document does.
    pub when_not_matched: WhenNotMatched,
    let_spec: Option<DocBuf>,
    variables: Vec<(Box<str>, Expression)>,
}

/// The action for an existing document that matches a result.
#[derive(Debug, Clone, PartialEq)]
pub enum WhenMatched {
    /// The result replaces it.
    Replace,
    /// It is not changed.
    KeepExisting,
    /// The fields of the result are set in it.
    Merge,
    /// The pipeline fails.
    Fail,
    /// It is updated by these stages.
    Pipeline(ArrayBuf),
}

/// The action for a result that matches no document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenNotMatched {
    /// It is inserted.
    Insert,
    /// It is dropped.
    Discard,
    /// The pipeline fails.
    Fail,
}

impl WhenNotMatched {
    fn name(self) -> &'static str {
        match self {
            WhenNotMatched::Insert => "insert",
            WhenNotMatched::Discard => "discard",
            WhenNotMatched::Fail => "fail",
        }
    }
}

/// Parses `"collection"` or `{into, on, let, whenMatched, whenNotMatched}`.
///
/// Errors: TypeMismatch for another operand, 51181 for an unsupported combination of modes, 51199
/// for a `let` without a pipeline or with another `new`; the codes of [`Operand`]. The stages of a
/// `whenMatched` are parsed with the first result.
pub fn parse(value: RawValue<'_>, context: &StageContext<'_>) -> Result<ParsedStage> {
    let mut merge = Merge {
        into: ForeignName {
            db: None,
            collection: Box::default(),
        },
        on: None,
        when_matched: WhenMatched::Merge,
        when_not_matched: WhenNotMatched::Insert,
        let_spec: None,
        variables: Vec::new(),
    };
    match value {
        RawValue::String(_) => merge.into = target(value)?,
        RawValue::Document(spec) => read(spec, &mut merge)?,
        other => {
            return Err(Error::new(
                ErrorCode::TYPE_MISMATCH,
                format!(
                    "$merge only supports a string or object argument, but found {}",
                    other.type_name()
                ),
            ));
        }
    }
    check_modes(&merge)?;
    bind_variables(&mut merge, context)?;
    Ok(ParsedStage::Sink(PipelineSink::Merge(merge.into())))
}

fn target(value: RawValue<'_>) -> Result<ForeignName> {
    match value {
        RawValue::String("") => Err(location(
            5786800,
            "$merge 'into' field cannot be an empty string",
        )),
        RawValue::String(name) => Ok(ForeignName {
            db: None,
            collection: name.into(),
        }),
        RawValue::Document(spec) => {
            let operand = Operand::new("$merge.into", spec, &["db", "coll"])?;
            // An empty database name counts as absent.
            let db = operand.string("db")?.filter(|db| !db.is_empty());
            match operand.string("coll")? {
                Some(coll) if !coll.is_empty() => Ok(ForeignName {
                    db: db.map(Into::into),
                    collection: coll.into(),
                }),
                _ => Err(location(
                    5786801,
                    "$merge 'into' field must specify a 'coll' that is not empty, null or undefined",
                )),
            }
        }
        other => Err(location(
            51178,
            format!(
                "$merge 'into' field must be either a string or an object, but found {}",
                other.type_name()
            ),
        )),
    }
}

fn read(spec: RawDoc<'_>, merge: &mut Merge) -> Result<()> {
    let known = &["into", "on", "let", "whenMatched", "whenNotMatched"];
    let operand = Operand::new("$merge", spec, known)?;
    // For these three fields, null does not count as absent.
    let into = spec.get("into").ok_or_else(|| operand.missing("into"))?;
    merge.into = target(into)?;
    merge.on = spec.get("on").map(on_fields).transpose()?;
    if let Some(mode) = spec.get("whenMatched") {
        merge.when_matched = when_matched(mode)?;
    }
    merge.let_spec = operand.document("let")?.map(|vars| vars.to_buf());
    merge.when_not_matched = match operand.string("whenNotMatched")? {
        None | Some("insert") => WhenNotMatched::Insert,
        Some("discard") => WhenNotMatched::Discard,
        Some("fail") => WhenNotMatched::Fail,
        Some(other) => return Err(not_a_mode("whenNotMatched", other)),
    };
    Ok(())
}

fn when_matched(mode: RawValue<'_>) -> Result<WhenMatched> {
    match mode {
        RawValue::String("replace") => Ok(WhenMatched::Replace),
        RawValue::String("keepExisting") => Ok(WhenMatched::KeepExisting),
        RawValue::String("merge") => Ok(WhenMatched::Merge),
        RawValue::String("fail") => Ok(WhenMatched::Fail),
        RawValue::String(other) => Err(not_a_mode("whenMatched", other)),
        RawValue::Array(stages) => match stages.iter().find(|s| s.as_document().is_none()) {
            None => Ok(WhenMatched::Pipeline(stages.to_buf())),
            Some(other) => Err(Error::new(
                ErrorCode::TYPE_MISMATCH,
                format!(
                    "Each element of the 'pipeline' array must be an object, not {}",
                    other.type_name()
                ),
            )),
        },
        other => Err(location(
            51191,
            format!(
                "$merge 'whenMatched' field must be either a string or an array, but found {}",
                other.type_name()
            ),
        )),
    }
}

fn not_a_mode(field: &str, mode: &str) -> Error {
    Error::bad_value(format!(
        "Enumeration value '{mode}' for field '$merge.{field}' is not a valid value."
    ))
}

fn on_fields(value: RawValue<'_>) -> Result<Vec<Box<str>>> {
    let wrong = || {
        location(
            51186,
            format!(
                "$merge 'on' field must be either a string or an array of strings, but found {}",
                value.type_name()
            ),
        )
    };
    let mut paths: Vec<Box<str>> = Vec::new();
    let mut add = |path: &str| -> Result<()> {
        field_path::split(path)?;
        if paths.iter().any(|known| **known == *path) {
            return Err(location(
                31465,
                format!("Found a duplicate field in the $merge.on list: '{path}'"),
            ));
        }
        paths.push(path.into());
        Ok(())
    };
    match value {
        RawValue::String(path) => add(path)?,
        RawValue::Array(list) if list.is_empty() => {
            return Err(location(
                51187,
                "If explicitly specifying $merge 'on', must include at least one field",
            ));
        }
        RawValue::Array(list) => {
            for path in list {
                match path {
                    RawValue::String(path) => add(path)?,
                    other => {
                        return Err(location(
                            51134,
                            format!(
                                "$merge 'on' array elements must be strings, but found {}",
                                other.type_name()
                            ),
                        ));
                    }
                }
            }
        }
        _ => return Err(wrong()),
    }
    Ok(paths)
}

/// Checks the combination of modes: `whenMatched: fail` and `keepExisting` require `whenNotMatched:
/// insert`.
fn check_modes(merge: &Merge) -> Result<()> {
    let needs_insert = matches!(
        merge.when_matched,
        WhenMatched::KeepExisting | WhenMatched::Fail
    );
    if needs_insert && merge.when_not_matched != WhenNotMatched::Insert {
        return Err(location(
            51181,
            format!(
                "Combination of {{whenMatched: {}}} and {{whenNotMatched: {}}} is not supported",
                match merge.when_matched {
                    WhenMatched::Fail => "fail",
                    _ => "keepExisting",
                },
                merge.when_not_matched.name()
            ),
        ));
    }
    Ok(())
}

fn bind_variables(merge: &mut Merge, context: &StageContext<'_>) -> Result<()> {
    if !matches!(merge.when_matched, WhenMatched::Pipeline(_)) {
        if merge.let_spec.is_some() {
            return Err(location(
                51199,
                "Cannot use 'let' variables with 'whenMatched' that is not a pipeline",
            ));
        }
        return Ok(());
    }
    let mut inner = context.parse.clone();
    // Variables of the command; those of the stage shadow them.
    for (name, value) in inner.variables.constants() {
        let value = Expression::Constant(value.cloned());
        merge.variables.push((name.into(), value));
    }
    inner.variables.declare("new")?;
    for element in merge
        .let_spec
        .as_ref()
        .map_or(RawDoc::EMPTY, |spec| spec.as_raw())
    {
        if element.key() == "new" {
            if !matches!(element.value(), RawValue::String("$$ROOT")) {
                return Err(location(
                    51273,
                    "'let' may not define a value for the reserved 'new' variable other than '$$ROOT'",
                ));
            }
            continue;
        }
        let value = parse_expression(element.value(), &context.parse.variables)?;
        inner.variables.declare(element.key())?;
        merge.variables.push((element.key().into(), value));
    }
    Ok(())
}

impl Merge {
    /// The variables of the pipeline for one result, in the form of `let` of an update; `new` is
    /// the result.
    ///
    /// Errors: those of the expressions.
    pub fn variables(&self, new: RawDoc<'_>) -> Result<DocBuf> {
        let mut out = DocBuilder::new();
        let mut literal = |name: &str, value: RawValue<'_>| {
            out.begin_document(name);
            out.append("$literal", value);
            out.end();
        };
        literal("new", RawValue::Document(new));
        for (at, (name, value)) in self.variables.iter().enumerate() {
            let mut later = self.variables[at + 1..].iter();
            if &**name == "new" || later.any(|(later, _)| later == name) {
                continue;
            }
            let value = value.evaluate_on(new)?;
            literal(name, value.as_raw().unwrap_or(RawValue::Null));
        }
        Ok(out.finish())
    }

    /// The operand as a value, for explain; `database` is the default database of the target.
    pub fn operand(&self, database: Option<&str>) -> Value {
        let mut out = DocBuilder::new();
        let coll = &*self.into.collection;
        match self.into.db.as_deref().or(database) {
            None => out.append("into", coll),
            Some(db) => out.append("into", &doc! {"db": db, "coll": coll}),
        };
        match &self.on {
            None => {
                out.append("on", "_id");
            }
            Some(on) if on.len() == 1 => {
                out.append("on", &*on[0]);
            }
            Some(on) => {
                out.begin_array("on");
                on.iter().for_each(|path| {
                    out.push(&**path);
                });
                out.end();
            }
        }
        if let Some(vars) = &self.let_spec {
            out.append("let", vars);
        }
        match &self.when_matched {
            WhenMatched::Replace => out.append("whenMatched", "replace"),
            WhenMatched::KeepExisting => out.append("whenMatched", "keepExisting"),
            WhenMatched::Merge => out.append("whenMatched", "merge"),
            WhenMatched::Fail => out.append("whenMatched", "fail"),
            WhenMatched::Pipeline(stages) => out.append("whenMatched", stages),
        };
        out.append("whenNotMatched", self.when_not_matched.name());
        Value::Document(out.finish())
    }
}
