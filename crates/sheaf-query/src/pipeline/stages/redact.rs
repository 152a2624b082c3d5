//! `$redact`: an expression decides at every level of a document what to keep.
//!
//! ```text
//!   $$KEEP      keeps this level and everything below
//!   $$PRUNE     removes it
//!   $$DESCEND   keeps the plain fields; evaluates the expression on embedded documents
//! ```
//!
//! At each level `$$CURRENT`, and thereby every path, refers to the document of that level;
//! `$$ROOT` is always the whole document.

use std::sync::Arc;

use sheaf_bson::error_code::Result;
use sheaf_bson::{ArrayBuilder, DocBuf, DocBuilder, RawArray, RawDoc, RawValue, Value};

use crate::expression::{LevelExpression, location};
use crate::matcher::Dependencies;
use crate::pipeline::environment::Environment;
use crate::pipeline::stage::{ParsedStage, Passes, PipelineStage, Pushed, StageContext, StageExec};

/// The values of the variables. As in MongoDB, an equal string in a document has the same effect.
const DESCEND: &str = "descend";
const PRUNE: &str = "prune";
const KEEP: &str = "keep";

/// Maximum nesting depth, which exceeds that of any valid document; deeper levels are kept
/// unchanged.
const DEPTH_MAX: usize = 200;

#[derive(Debug)]
struct Redact {
    spec: Value,
    expression: Arc<LevelExpression>,
}

/// Parses the expression. Errors: those of expressions.
pub fn parse(value: RawValue<'_>, context: &StageContext<'_>) -> Result<ParsedStage> {
    let mut scope = context.parse.variables.clone();
    for (name, value) in [("DESCEND", DESCEND), ("PRUNE", PRUNE), ("KEEP", KEEP)] {
        scope.bind(name, Value::from(value));
    }
    Ok(ParsedStage::of(Redact {
        spec: value.to_value(),
        expression: Arc::new(LevelExpression::parse(value, &scope)?),
    }))
}

impl PipelineStage for Redact {
    fn name(&self) -> &'static str {
        "$redact"
    }

    fn operand(&self) -> Value {
        self.spec.clone()
    }

    fn add_dependencies(&self, found: &mut Dependencies) -> Passes {
        // The result also depends on the nesting of all fields.
        found.whole_document = true;
        Passes::Documents
    }

    fn start(&self) -> Box<dyn StageExec> {
        Box::new(Redactor(Arc::clone(&self.expression)))
    }
}

struct Redactor(Arc<LevelExpression>);

/// The result of the expression for one level.
enum Verdict {
    Descend,
    Prune,
    Keep,
}

impl Redactor {
    fn verdict(&self, root: RawDoc<'_>, level: RawDoc<'_>) -> Result<Verdict> {
        let value = self.0.evaluate(root, level)?;
        match value.as_raw() {
            Some(RawValue::String(DESCEND)) => Ok(Verdict::Descend),
            Some(RawValue::String(PRUNE)) => Ok(Verdict::Prune),
            Some(RawValue::String(KEEP)) => Ok(Verdict::Keep),
            other => Err(location(
                17053,
                format!(
                    "$redact's expression should not return anything aside from the variables $$KEEP, $$DESCEND, and $$PRUNE, but returned {}",
                    other.map_or("missing".to_owned(), sheaf_bson::json::shell)
                ),
            )),
        }
    }

    /// The redacted level; `None` if it is pruned.
    fn redact(&self, root: RawDoc<'_>, level: RawDoc<'_>, depth: usize) -> Result<Option<DocBuf>> {
        match self.verdict(root, level)? {
            Verdict::Prune => return Ok(None),
            Verdict::Keep => return Ok(Some(level.to_buf())),
            Verdict::Descend if depth >= DEPTH_MAX => return Ok(Some(level.to_buf())),
            Verdict::Descend => {}
        }
        let mut out = DocBuilder::new();
        for element in level {
            match element.value() {
                RawValue::Document(inner) => {
                    if let Some(kept) = self.redact(root, inner, depth + 1)? {
                        out.append(element.key(), &kept);
                    }
                }
                RawValue::Array(array) => {
                    let kept = self.redact_array(root, array, depth + 1)?;
                    out.append(element.key(), RawValue::Array(kept.finish().as_raw()));
                }
                _ => {
                    out.append_raw_element(element);
                }
            }
        }
        Ok(Some(out.finish()))
    }

    fn redact_array(
        &self,
        root: RawDoc<'_>,
        array: RawArray<'_>,
        depth: usize,
    ) -> Result<ArrayBuilder> {
        let mut out = ArrayBuilder::new();
        for value in array {
            match value {
                RawValue::Document(inner) => {
                    if let Some(kept) = self.redact(root, inner, depth + 1)? {
                        out.push(RawValue::Document(kept.as_raw()));
                    }
                }
                RawValue::Array(inner) if depth < DEPTH_MAX => {
                    let kept = self.redact_array(root, inner, depth + 1)?;
                    out.push(RawValue::Array(kept.finish().as_raw()));
                }
                plain => {
                    out.push(plain);
                }
            }
        }
        Ok(out)
    }
}

impl StageExec for Redactor {
    fn push(&mut self, doc: RawDoc<'_>, _: &dyn Environment) -> Result<Pushed> {
        Ok(match self.redact(doc, doc, 0)? {
            Some(kept) => Pushed::One(kept),
            None => Pushed::Nothing,
        })
    }
}
