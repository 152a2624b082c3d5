//! Pipelines in the operands of stages: over other collections, with variables from the outer
//! documents.
//!
//! ```text
//!   {$lookup: {from: "b", let: {x: "$a"}, pipeline: [{$match: {$expr: {$eq: ["$b", "$$x"]}}}], ...}}
//!        parsed once with x declared      errors are found before anything runs
//!        parsed per document with x = 7   constants reach the planner: {b: 7} can use an index
//! ```
//!
//! A pipeline that uses none of its variables is parsed once, and its results can be cached. A
//! pipeline that uses them only in its leading filters is parsed and optimised once; only the
//! filter is parsed for each document.

use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::{ArrayBuf, DocBuf, RawArray, RawDoc, RawValue};

use crate::expression::{Expression, parse};
use crate::matcher::{Dependencies, ParseContext};
use crate::pipeline::stage::StageContext;
use crate::pipeline::{OptimizedPipeline, Pipeline, PipelinePlace, PipelineSource, Stage};

/// A sub-pipeline with its variables.
#[derive(Debug, Clone)]
pub struct SubPipeline {
    text: ArrayBuf,
    let_spec: DocBuf,
    variables: Vec<(Box<str>, Expression)>,
    context: ParseContext,
    depth: usize,
    in_facet: bool,
    within: &'static str,
    /// Parsed with the variables declared, but not bound.
    declared: Arc<Pipeline>,
    /// The same, optimised, if only the filter of its prefix uses variables.
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
            in_facet: context.in_facet,
            within,
            declared: Arc::new(declared),
            correlated,
        })
    }

    /// The pipeline as specified by the user.
    pub fn text(&self) -> &ArrayBuf {
        &self.text
    }

    /// `let`, as specified by the user.
    pub fn let_spec(&self) -> &DocBuf {
        &self.let_spec
    }

    /// Whether its results depend on the outer document.
    pub fn is_correlated(&self) -> bool {
        self.correlated
    }

    /// Whether the pipeline produces its own documents and needs no collection.
    pub fn makes_documents(&self) -> bool {
        matches!(self.declared.source, PipelineSource::Documents(_))
    }

    /// The pipeline with its variables declared, but not bound; if it is not correlated, it can be
    /// run directly.
    pub fn declared(&self) -> &Arc<Pipeline> {
        &self.declared
    }

    /// The context with which [`SubPipeline::declared`] was parsed, without the variables of `let`.
    pub fn context(&self) -> &ParseContext {
        &self.context
    }

    /// The optimised pipeline for all outer documents, if only the filter of its prefix uses
    /// variables. That filter must be parsed with the variables of [`SubPipeline::bind_variables`].
    pub fn prepared(&self) -> Option<&Arc<OptimizedPipeline>> {
        self.prepared.as_ref()
    }

    /// The parse context with the values of the variables for one outer document.
    ///
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

    /// Adds the fields of the outer document that the variables read.
    pub fn add_dependencies(&self, found: &mut Dependencies) {
        for (_, value) in &self.variables {
            value.add_dependencies(found);
        }
    }

    /// The pipeline for one outer document, and the context with which it was parsed.
    ///
    /// Errors: those of the variables' expressions, and those of parsing the pipeline with their
    /// values.
    pub fn bind(&self, outer: RawDoc<'_>) -> Result<(Arc<Pipeline>, ParseContext)> {
        if !self.correlated {
            return Ok((self.declared.clone(), self.context.clone()));
        }
        let context = self.bind_variables(outer)?;
        let stage_context = StageContext {
            parse: &context,
            depth: self.depth,
            place: PipelinePlace::Within(self.within),
            in_facet: self.in_facet,
            target: None,
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

/// Whether a string within the value names the variable. May return a false positive, because it
/// includes strings that are not expressions.
pub(super) fn names_variable(value: RawValue<'_>, name: &str) -> bool {
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

/// Calls `visit` for each value at a dotted path: arrays on the path are traversed, a numeric name
/// also selects an element, and each element of an array at the end is visited. Returns false if
/// the path does not exist.
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

/// The name of another collection in the operand of a stage.
///
/// Errors: FailedToParse if it is not a string, InvalidNamespace if it is empty or contains a NUL.
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
