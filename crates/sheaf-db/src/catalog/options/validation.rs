//! `validator`, `validationLevel`, `validationAction`: document validation.
//!
//! ```text
//!   insert          ─┐                        ┌─ passes: written
//!   update old, new ─┴─> level off? bypassed? ┼─ fails, moderate, old fails too: written
//!                                             └─ fails: rejected (error), or written and logged (warn)
//! ```
//!
//! The validator is compiled when the collection's options are read, once per version of the
//! collection's shape. It matches documents as raw bytes. The reasons of a failure are computed
//! only when it occurs.

use std::fmt;
use std::sync::Arc;

use sheaf_bson::fields::wrong_type;
use sheaf_bson::{
    Collator, DateTime, DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawValue, Result, doc,
};
use sheaf_query::expression::VariableScope;
use sheaf_query::matcher::{self, MatchExpression, ParseContext};
use sheaf_query::validation::{failure_details, not_in_validators};

use crate::catalog::namespace::Namespace;
use crate::system_names::is_internal_database;

/// Which documents are validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValidationLevel {
    /// None.
    Off,
    /// All.
    Strict,
    /// All except updates of documents that already fail.
    Moderate,
}

/// What happens to a document that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValidationAction {
    /// Rejected.
    Error,
    /// Written and logged.
    Warn,
    /// Rejected and logged.
    ErrorAndLog,
}

impl ValidationLevel {
    /// Errors: `TypeMismatch`, `BadValue`.
    pub(crate) fn parse(command: &str, value: RawValue<'_>) -> Result<ValidationLevel> {
        const NAME: &str = "validationLevel";
        match value {
            RawValue::String("off") => Ok(ValidationLevel::Off),
            RawValue::String("strict") => Ok(ValidationLevel::Strict),
            RawValue::String("moderate") => Ok(ValidationLevel::Moderate),
            RawValue::String(other) => {
                Err(not_among(command, NAME, other, "off, strict, moderate"))
            }
            value => Err(wrong_type(
                format_args!("{command}.{NAME}"),
                value,
                "string",
            )),
        }
    }

    fn name(self) -> &'static str {
        match self {
            ValidationLevel::Off => "off",
            ValidationLevel::Strict => "strict",
            ValidationLevel::Moderate => "moderate",
        }
    }
}

impl ValidationAction {
    /// Errors: `TypeMismatch`, `BadValue`.
    pub(crate) fn parse(command: &str, value: RawValue<'_>) -> Result<ValidationAction> {
        const NAME: &str = "validationAction";
        match value {
            RawValue::String("error") => Ok(ValidationAction::Error),
            RawValue::String("warn") => Ok(ValidationAction::Warn),
            RawValue::String("errorAndLog") => Ok(ValidationAction::ErrorAndLog),
            RawValue::String(other) => {
                Err(not_among(command, NAME, other, "error, warn, errorAndLog"))
            }
            value => Err(wrong_type(
                format_args!("{command}.{NAME}"),
                value,
                "string",
            )),
        }
    }

    fn name(self) -> &'static str {
        match self {
            ValidationAction::Error => "error",
            ValidationAction::Warn => "warn",
            ValidationAction::ErrorAndLog => "errorAndLog",
        }
    }
}

fn not_among(command: &str, field: &str, value: &str, known: &str) -> Error {
    Error::bad_value(format!(
        "Enumeration value '{value}' for field '{command}.{field}' is not a valid value; it is one of {known}"
    ))
}

/// A compiled validator.
#[derive(Clone)]
struct Validator {
    spec: DocBuf,
    expression: Arc<MatchExpression>,
    context: ParseContext,
    /// It uses `$$NOW`, so it is compiled for each use.
    depends_on_time: bool,
}

impl fmt::Debug for Validator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spec.fmt(f)
    }
}

fn context(collator: Option<&Arc<Collator>>) -> ParseContext {
    ParseContext {
        variables: VariableScope::new(DateTime::now())
            .with_collator(collator.cloned())
            .with_deferred_errors(),
    }
}

impl Validator {
    fn parse(spec: RawDoc<'_>, collator: Option<&Arc<Collator>>) -> Result<Validator> {
        if let Some(name) = not_in_validators(spec) {
            let code = match name {
                "$function" | "$_internalJsEmit" => ErrorCode::QUERY_FEATURE_NOT_ALLOWED,
                _ => ErrorCode::BAD_VALUE,
            };
            return Err(Error::new(
                code,
                format!("{name} is not allowed in a collection's validator"),
            ));
        }
        let context = context(collator);
        let text = spec.as_bytes();
        let names = |variable: &[u8]| text.windows(variable.len()).any(|own| own == variable);
        Ok(Validator {
            expression: Arc::new(matcher::parse(spec, &context)?.normalize()),
            spec: spec.to_buf(),
            context,
            depends_on_time: names(b"$$NOW") || names(b"$$CLUSTER_TIME"),
        })
    }

    fn passes(&self, doc: RawDoc<'_>) -> Result<bool> {
        if self.depends_on_time {
            let now = context(self.context.collator());
            return matcher::parse(self.spec.as_raw(), &now)?.matches(doc);
        }
        self.expression.matches(doc)
    }
}

/// The three options of a collection, as far as given.
#[derive(Debug, Clone, Default)]
pub struct Validation {
    validator: Option<Validator>,
    level: Option<ValidationLevel>,
    action: Option<ValidationAction>,
}

/// The result of validating a document.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The document is written.
    Passes,
    /// The document is written, and this reason for the failure is logged.
    Warned(DocBuf),
    /// The document is rejected.
    Refused {
        /// `DocumentValidationFailure`.
        error: Error,
        /// Also logged, if set.
        logged: Option<DocBuf>,
    },
}

impl Validation {
    /// The same with another validator; an empty document removes it.
    /// Errors: those of the filter, and for operators not allowed in a validator.
    pub(crate) fn with_validator(
        mut self,
        spec: RawDoc<'_>,
        collator: Option<&Arc<Collator>>,
    ) -> Result<Validation> {
        self.validator = match spec.is_empty() {
            true => None,
            false => Some(Validator::parse(spec, collator)?),
        };
        Ok(self)
    }

    pub(crate) fn with_level(mut self, level: ValidationLevel) -> Validation {
        self.level = Some(level);
        self
    }

    pub(crate) fn with_action(mut self, action: ValidationAction) -> Validation {
        self.action = Some(action);
        self
    }

    /// The validator as given.
    pub fn validator(&self) -> Option<RawDoc<'_>> {
        self.validator.as_ref().map(|own| own.spec.as_raw())
    }

    /// Which documents are validated; strict by default.
    pub fn level(&self) -> ValidationLevel {
        self.level.unwrap_or(ValidationLevel::Strict)
    }

    /// What happens to documents that fail; an error by default.
    pub fn action(&self) -> ValidationAction {
        self.action.unwrap_or(ValidationAction::Error)
    }

    pub(super) fn append(&self, out: &mut DocBuilder) {
        if let Some(validator) = &self.validator {
            out.append_bson("validator", &validator.spec);
        }
        if let Some(level) = self.level {
            out.append("validationLevel", level.name());
        }
        if let Some(action) = self.action {
            out.append("validationAction", action.name());
        }
    }

    /// Checks that a collection with this name may have a validator.
    /// Errors: `InvalidOptions`.
    pub(crate) fn check_namespace(&self, ns: &Namespace) -> Result<()> {
        if self.validator.is_none() {
            return Ok(());
        }
        if is_internal_database(ns.db()) {
            return Err(Error::new(
                ErrorCode::INVALID_OPTIONS,
                format!(
                    "Document validators are not allowed on collections in the {} database",
                    ns.db()
                ),
            ));
        }
        if ns.is_system() {
            return Err(Error::new(
                ErrorCode::INVALID_OPTIONS,
                format!("Document validators not allowed on system collection {ns}"),
            ));
        }
        Ok(())
    }

    /// Whether the document matches the validator, whatever the level.
    /// Errors: those of matching.
    pub fn passes(&self, doc: RawDoc<'_>) -> Result<bool> {
        match &self.validator {
            Some(validator) => validator.passes(doc),
            None => Ok(true),
        }
    }

    /// Validates a new document, or the result of updating `old`.
    /// Errors: those of matching.
    pub(crate) fn judge(&self, new: RawDoc<'_>, old: Option<RawDoc<'_>>) -> Result<Verdict> {
        let Some(validator) = &self.validator else {
            return Ok(Verdict::Passes);
        };
        if self.level() == ValidationLevel::Off {
            return Ok(Verdict::Passes);
        }
        match validator.passes(new) {
            Ok(true) => return Ok(Verdict::Passes),
            Ok(false) => {}
            // A warning lets documents through that the validator cannot be evaluated for, too.
            Err(error) if self.action() == ValidationAction::Warn => {
                let details = doc! {"reason": error.message()};
                return Ok(Verdict::Warned(failing(new, &details)));
            }
            Err(error) => return Err(error),
        }
        if self.level() == ValidationLevel::Moderate
            && let Some(old) = old
            && !validator.passes(old)?
        {
            return Ok(Verdict::Passes);
        }
        let details = failure_details(validator.spec.as_raw(), &validator.context, new)?;
        let info = failing(new, &details);
        if self.action() == ValidationAction::Warn {
            return Ok(Verdict::Warned(info));
        }
        let logged = (self.action() == ValidationAction::ErrorAndLog).then(|| info.clone());
        let mut extra = DocBuilder::new();
        extra.append_bson("errInfo", &info);
        let error = Error::new(
            ErrorCode::DOCUMENT_VALIDATION_FAILURE,
            "Document failed validation",
        );
        Ok(Verdict::Refused {
            error: error.with_extra(extra.finish()),
            logged,
        })
    }
}

/// `errInfo` of a document that fails validation.
fn failing(new: RawDoc<'_>, details: &DocBuf) -> DocBuf {
    let mut info = DocBuilder::new();
    if let Some(id) = new.get("_id") {
        info.append("failingDocumentId", id);
    }
    info.append_bson("details", details);
    info.finish()
}
