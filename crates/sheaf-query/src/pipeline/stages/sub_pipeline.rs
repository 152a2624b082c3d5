//! Pipelines within the operands of stages: over other collections, with
//! variables of the documents outside.
//!
//! ```text
//!   {$lookup: {from: "b", let: {x: "$a"}, pipeline: [{$match: {$expr: {$eq: ["$b", "$$x"]}}}], ...}}
//!        parsed once with x declared      errors are found before anything runs
//!        parsed per document with x = 7   constants reach the planner: {b: 7} can use an index
//! ```
//!
//! A pipeline whose text names none of its variables is parsed once, and what
//! it gives can be kept. One that names them only in the filters that it begins
//! with is parsed and optimised once, and of each document only its filter is
//! parsed.

use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::{ArrayBuf, DocBuf, RawArray, RawDoc, RawValue};

use crate::expression::{Expression, parse};
use crate::matcher::{Dependencies, ParseContext};
use crate::pipeline::stage::{PipelinePlace, StageContext};
use crate::pipeline::{OptimizedPipeline, Pipeline, PipelineSource, Stage};

/// A sub-pipeline with its variables.
#[derive(Debug, Clone)]
pub struct SubPipeline {
    text: ArrayBuf,
    let_spec: DocBuf,
    variables: Vec<(Box<str>, Expression)>,
    context: ParseContext,
    depth: usize,
    within: &'static str,
    /// Parsed with the variables declared, not bound.
    declared: Arc<Pipeline>,
    /// The same, optimised, where only its prefix's filter names variables.
    prepared: Option<Arc<OptimizedPipeline>>,
    correlated: bool,
}

impl SubPipeline {
    /// Parses and checks a sub-pipeline of the stage `within`.
    /// Errors: those of the stages; a `let` that is not well-formed.
    pub fn parse(
        text: RawArray<'_>,
        let_spec: Option<RawDoc<'_>>,
        within: &'static str,
        context: &StageContext<'_>,
    ) -> Result<SubPipeline> {
        let mut variables = Vec::new();
        let mut inner = context.parse.clone();
        for element in let_spec.unwrap_or(RawDoc::EMPTY) {
            let value = parse(element.value(), &context.parse.variables)?;
            inner.variables.declare(element.key())?;
            variables.push((Box::from(element.key()), value));
        }
        let stage_context = StageContext {
            parse: &inner,
            ..*context
        };
        let declared = Pipeline::parse_sub(text, within, &stage_context)?;
        let correlated = variables
            .iter()
            .any(|(name, _)| names_variable(RawValue::Array(text), name));
        let names_any = |value: RawValue<'_>| {
            let mut names = variables.iter().map(|(name, _)| &**name);
            names.any(|name| names_variable(value, name))
        };
        let prepared = match correlated {
            true => prepared(text, &declared, &names_any),
            false => None,
        };
        Ok(SubPipeline {
            prepared,
            text: text.to_buf(),
            let_spec: let_spec.unwrap_or(RawDoc::EMPTY).to_buf(),
            variables,
            context: context.parse.clone(),
            depth: context.depth,
            within,
            declared: Arc::new(declared),
            correlated,
        })
    }

    /// As written.
    pub fn text(&self) -> &ArrayBuf {
        &self.text
    }

    /// `let`, as written.
    pub fn let_spec(&self) -> &DocBuf {
        &self.let_spec
    }

    /// Whether what it gives depends on the document outside.
    pub fn is_correlated(&self) -> bool {
        self.correlated
    }

    /// Whether it makes its own documents and needs no collection.
    pub fn makes_documents(&self) -> bool {
        matches!(self.declared.source, PipelineSource::Documents(_))
    }

    /// The pipeline with its variables declared only: what runs, where it is not correlated.
    pub fn declared(&self) -> &Arc<Pipeline> {
        &self.declared
    }

    /// What [`SubPipeline::declared`] was parsed with, but for the variables that it does not name.
    pub fn context(&self) -> &ParseContext {
        &self.context
    }

    /// What runs over a collection for every document outside, where only the prefix's filter
    /// names variables: it is to be parsed with those of [`SubPipeline::bind_variables`].
    pub fn prepared(&self) -> Option<&Arc<OptimizedPipeline>> {
        self.prepared.as_ref()
    }

    /// The values of the variables for one document outside, with what else it is parsed with.
    /// Errors: those of the variables' expressions.
    pub fn bind_variables(&self, outer: RawDoc<'_>) -> Result<ParseContext> {
        let mut context = self.context.clone();
        for (name, value) in &self.variables {
            let value = value.evaluate_on(outer)?.into_value();
            context.variables.bind_optional(name, value);
        }
        Ok(context)
    }

    /// Visits the names of other collections that its stages read.
    pub fn for_each_foreign(&self, visit: &mut dyn FnMut(&str)) {
        for stage in &self.declared.stages {
            stage.for_each_foreign(visit);
        }
    }

    /// What the variables read of the document outside.
    pub fn add_dependencies(&self, found: &mut Dependencies) {
        for (_, value) in &self.variables {
            value.add_dependencies(found);
        }
    }

    /// The pipeline for one document outside, and what it was parsed with.
    /// Errors: those of the variables' expressions; what is wrong with the pipeline for their values.
    pub fn bind(&self, outer: RawDoc<'_>) -> Result<(Arc<Pipeline>, ParseContext)> {
        if !self.correlated {
            return Ok((self.declared.clone(), self.context.clone()));
        }
        let context = self.bind_variables(outer)?;
        let stage_context = StageContext {
            parse: &context,
            depth: self.depth,
            place: PipelinePlace::Within(self.within),
        };
        let pipeline = Pipeline::parse_sub(self.text.as_raw(), self.within, &stage_context)?;
        Ok((Arc::new(pipeline), context))
    }
}

/// See [`SubPipeline::prepared`].
fn prepared(
    text: RawArray<'_>,
    declared: &Pipeline,
    names_any: &dyn Fn(RawValue<'_>) -> bool,
) -> Option<Arc<OptimizedPipeline>> {
    if !matches!(declared.source, PipelineSource::Collection) {
        return None;
    }
    let is_match = |stage: &RawValue<'_>| {
        let first = stage.as_document().and_then(|stage| stage.first());
        first.is_some_and(|first| first.key() == "$match")
    };
    let mut behind = text.iter().skip_while(is_match);
    if behind.any(names_any) {
        return None;
    }
    let optimized = declared.clone().optimize();
    let is_bound = |stage: &Stage| match stage {
        Stage::Match { spec, .. } => !names_any(RawValue::Document(spec.as_raw())),
        _ => true,
    };
    optimized
        .rest
        .stages
        .iter()
        .all(is_bound)
        .then(|| Arc::new(optimized))
}

/// Whether a string within the value names the variable. Too often rather than too seldom: a string
/// that is no expression counts too.
fn names_variable(value: RawValue<'_>, name: &str) -> bool {
    match value {
        RawValue::String(text) => text
            .strip_prefix("$$")
            .and_then(|text| text.strip_prefix(name))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.')),
        RawValue::Document(doc) => doc.iter().any(|e| names_variable(e.value(), name)),
        RawValue::Array(array) => array.iter().any(|v| names_variable(v, name)),
        _ => false,
    }
}

/// Calls `visit` for each value at a dotted path: arrays on the way are walked, a name that is a
/// number also picks an element, and of an array at the end each element is visited. False when
/// there is nothing at the path at all.
pub fn visit_values<'d>(
    doc: RawDoc<'d>,
    path: &[Box<str>],
    visit: &mut dyn FnMut(RawValue<'d>),
) -> bool {
    walk(RawValue::Document(doc), path, visit)
}

fn walk<'d>(value: RawValue<'d>, path: &[Box<str>], visit: &mut dyn FnMut(RawValue<'d>)) -> bool {
    let Some((name, rest)) = path.split_first() else {
        match value {
            RawValue::Array(array) => array.iter().for_each(visit),
            other => visit(other),
        }
        return true;
    };
    match value {
        RawValue::Document(doc) => match doc.get(name) {
            Some(inner) => walk(inner, rest, visit),
            None => false,
        },
        RawValue::Array(array) => {
            let mut found = false;
            for element in array {
                if let RawValue::Document(_) = element {
                    found |= walk(element, path, visit);
                }
            }
            if let Some(at) = sheaf_bson::path::array_index(name)
                && let Some(element) = array.iter().nth(at as usize)
            {
                found |= walk(element, rest, visit);
            }
            found
        }
        _ => false,
    }
}

/// The name of another collection in a stage's operand.
/// Errors: FailedToParse for what is no string, InvalidNamespace for an empty one.
pub fn collection_name(stage: &str, field: &str, value: RawValue<'_>) -> Result<Box<str>> {
    match value {
        RawValue::String("") => Err(Error::new(
            ErrorCode::INVALID_NAMESPACE,
            format!("the field '{field}' of {stage} must not be empty"),
        )),
        RawValue::String(name) if name.contains('\0') => Err(Error::new(
            ErrorCode::INVALID_NAMESPACE,
            format!("the field '{field}' of {stage} must not contain a zero byte"),
        )),
        RawValue::String(name) => Ok(name.into()),
        other => Err(Error::new(
            ErrorCode::FAILED_TO_PARSE,
            format!(
                "the field '{field}' of {stage} must be the name of a collection, a string, not {}",
                other.type_name()
            ),
        )),
    }
}
