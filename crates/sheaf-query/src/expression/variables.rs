//! What expressions may name with `$$`: system variables and the user's `let`;
//! and by which collation text compares.
//!
//! System variables and `let` of a command are constants for the length of an
//! operation, so the parser replaces them by their values. Variables bound
//! inside an expression (`$let`, `$map`, ...) are numbered by the parser and
//! never appear here.

use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::{Collator, DateTime, RawDoc, Timestamp, Value};

/// The constants an expression is parsed with.
#[derive(Debug, Clone, Default)]
pub struct VariableScope {
    now: DateTime,
    cluster_time: Option<Timestamp>,
    constants: Vec<(Box<str>, Binding)>,
    collator: Option<Arc<Collator>>,
    vector_score: bool,
}

/// What a name stands for.
#[derive(Debug, Clone)]
pub(super) enum Binding {
    /// A value, or none (missing).
    Constant(Option<Arc<Value>>),
    /// A value that will be known only when the expression is parsed again.
    Unknown,
}

impl VariableScope {
    /// A scope whose `$$NOW` is `now`, without other variables.
    pub fn new(now: DateTime) -> VariableScope {
        VariableScope {
            now,
            ..VariableScope::default()
        }
    }

    /// Text compares by this collation; `None`: by bytes. To be said before
    /// anything is parsed with the scope.
    pub fn with_collator(mut self, collator: Option<Arc<Collator>>) -> VariableScope {
        self.collator = collator;
        self
    }

    /// By which collation text compares.
    pub fn collator(&self) -> Option<&Arc<Collator>> {
        self.collator.as_ref()
    }

    /// Whether documents carry a score that `{$meta: "vectorSearchScore"}` can ask for.
    pub fn with_vector_score(mut self, known: bool) -> VariableScope {
        self.vector_score = known;
        self
    }

    /// As [`VariableScope::with_vector_score`] says.
    pub fn knows_vector_score(&self) -> bool {
        self.vector_score
    }

    /// Gives `$$CLUSTER_TIME` a value; without one, naming it is an error.
    pub fn with_cluster_time(mut self, time: Timestamp) -> VariableScope {
        self.cluster_time = Some(time);
        self
    }

    /// Adds the variables of a command's `let`. Values are expressions without
    /// field paths; each sees the variables before it.
    /// Errors: a bad name (FailedToParse), a value that reads the document.
    pub fn with_let(mut self, vars: RawDoc<'_>) -> Result<VariableScope> {
        for element in vars {
            let name = element.key();
            check_user_name(name)?;
            let expression = super::parse(element.value(), &self)?;
            let reads = expression.dependencies();
            if reads.whole_document || !reads.paths.is_empty() {
                return Err(Error::new(
                    ErrorCode(4890500),
                    format!(
                        "the value of the variable '{name}' in 'let' must not refer to fields of a document"
                    ),
                ));
            }
            let value = expression.evaluate_on(RawDoc::EMPTY)?.into_value();
            // A missing value ($$REMOVE) leaves the variable undefined-as-null.
            self.bind(name, value.unwrap_or(Value::Null));
        }
        Ok(self)
    }

    /// Binds one constant; a later binding hides an earlier one.
    pub fn bind(&mut self, name: &str, value: Value) {
        let value = Binding::Constant(Some(Arc::new(value)));
        self.constants.push((name.into(), value));
    }

    /// Binds one constant that may be missing.
    pub fn bind_optional(&mut self, name: &str, value: Option<Value>) {
        let value = Binding::Constant(value.map(Arc::new));
        self.constants.push((name.into(), value));
    }

    /// Makes the name known without a value: expressions can be parsed, so that errors are found, and
    /// are parsed again when the value is there.
    /// Errors: a bad name (FailedToParse).
    pub fn declare(&mut self, name: &str) -> Result<()> {
        check_user_name(name)?;
        self.constants.push((name.into(), Binding::Unknown));
        Ok(())
    }

    /// What `$$NOW` is.
    pub fn now(&self) -> DateTime {
        self.now
    }

    /// What `$$CLUSTER_TIME` is, if it is known.
    pub fn cluster_time(&self) -> Option<Timestamp> {
        self.cluster_time
    }

    /// What this name stands for.
    pub(super) fn binding(&self, name: &str) -> Option<&Binding> {
        self.constants
            .iter()
            .rev()
            .find(|(n, _)| &**n == name)
            .map(|(_, v)| v)
    }
}

/// A name the user may bind: a lowercase ASCII letter or a non-ASCII character
/// first (CURRENT is the one exception), then letters, digits and underscores.
pub(super) fn check_user_name(name: &str) -> Result<()> {
    if name == "CURRENT" {
        return Ok(());
    }
    let refuse = |why: &str| {
        Err(Error::new(
            ErrorCode::FAILED_TO_PARSE,
            format!("'{name}' is not a valid variable name: {why}"),
        ))
    };
    match name.chars().next() {
        None => return refuse("it is empty"),
        Some(c) if c.is_ascii_lowercase() || !c.is_ascii() => {}
        Some(c) => {
            return refuse(&format!(
                "it starts with '{c}', not with a lowercase letter"
            ));
        }
    }
    match name
        .chars()
        .find(|c| c.is_ascii() && !c.is_ascii_alphanumeric() && *c != '_')
    {
        Some(c) => refuse(&format!("it contains '{c}'")),
        None => Ok(()),
    }
}
