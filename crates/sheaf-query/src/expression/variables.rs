//! The constants that expressions refer to with `$$`: system variables and the user's `let`. Also
//! the collation for text.
//!
//! System variables and the `let` of a command are constant during an operation, so the parser
//! replaces them with their values. Variables bound inside an expression (`$let`, `$map`, ...) are
//! numbered by the parser and do not occur here.

use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::{Collator, DateTime, Timestamp, Value};

/// The constants used to parse an expression. The default one has no `$$NOW`.
#[derive(Debug, Clone, Default)]
pub struct VariableScope {
    now: Option<DateTime>,
    cluster_time: Option<Timestamp>,
    constants: Vec<(Box<str>, Binding)>,
    collator: Option<Arc<Collator>>,
    vector_score: bool,
    /// A value of the command's `let` is being parsed, which cannot refer to [`SYSTEM_CONSTANTS`].
    in_let: bool,
    defers_errors: bool,
    in_group: bool,
    allows_where: bool,
}

/// The system variables that a command sets for all its expressions.
pub(super) const SYSTEM_CONSTANTS: &[&str] = &[
    "NOW",
    "CLUSTER_TIME",
    "JS_SCOPE",
    "IS_MR",
    "SEARCH_META",
    "USER_ROLES",
];

/// The value of a name.
#[derive(Debug, Clone)]
pub(super) enum Binding {
    /// A value; `None` is missing.
    Constant(Option<Arc<Value>>),
    /// A value that is not known yet. The expression is parsed again when it is.
    Unknown,
}

impl VariableScope {
    /// A scope whose `$$NOW` is `now`, without other variables.
    pub fn new(now: DateTime) -> VariableScope {
        VariableScope {
            now: Some(now),
            ..VariableScope::default()
        }
    }

    /// Sets the collation for text; `None`: by bytes. Call this before parsing anything with the
    /// scope.
    pub fn with_collator(mut self, collator: Option<Arc<Collator>>) -> VariableScope {
        self.collator = collator;
        self
    }

    /// The collation for text; `None`: by bytes.
    pub fn collator(&self) -> Option<&Arc<Collator>> {
        self.collator.as_ref()
    }

    /// Sets whether documents carry the score that `{$meta: "vectorSearchScore"}` reads.
    pub fn with_vector_score(mut self, known: bool) -> VariableScope {
        self.vector_score = known;
        self
    }

    /// Reports the error of a failing call of constants at evaluation instead of at parse time. For
    /// stored expressions, such as validators, which must always parse.
    pub fn with_deferred_errors(mut self) -> VariableScope {
        self.defers_errors = true;
        self
    }

    /// Whether calls of constants that fail are kept.
    pub fn defers_errors(&self) -> bool {
        self.defers_errors
    }

    /// For the expressions of `$group`, in which divisions by zero have separate codes.
    pub fn with_group_codes(mut self) -> VariableScope {
        self.in_group = true;
        self
    }

    /// Whether expressions belong to `$group`.
    pub(super) fn is_in_group(&self) -> bool {
        self.in_group
    }

    /// Whether documents carry a vector search score.
    pub fn knows_vector_score(&self) -> bool {
        self.vector_score
    }

    /// Allows `$where` in filters: those of find, count, distinct, update and delete on a
    /// collection.
    pub fn allowing_where(mut self) -> VariableScope {
        self.allows_where = true;
        self
    }

    /// Whether a filter may have `$where`.
    pub fn allows_where(&self) -> bool {
        self.allows_where
    }

    /// Sets `$$CLUSTER_TIME`. Without it, a reference to the variable is an error.
    pub fn with_cluster_time(mut self, time: Option<Timestamp>) -> VariableScope {
        self.cluster_time = time;
        self
    }

    /// Whether the values of a command's `let` are being parsed.
    pub(super) fn set_in_let(&mut self, in_let: bool) {
        self.in_let = in_let;
    }

    /// The bound names with their values, in order of binding; `None` is missing.
    pub fn constants(&self) -> impl Iterator<Item = (&str, Option<&Arc<Value>>)> {
        self.constants
            .iter()
            .filter_map(|(name, binding)| match binding {
                Binding::Constant(value) => Some((&**name, value.as_ref())),
                Binding::Unknown => None,
            })
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

    /// Declares a name without a value, so that an expression can be parsed and checked for errors
    /// now and parsed again when the value is known. Errors: FailedToParse for an invalid name.
    pub fn declare(&mut self, name: &str) -> Result<()> {
        check_user_name(name)?;
        self.constants.push((name.into(), Binding::Unknown));
        Ok(())
    }

    /// Whether the value of a command's `let` is being parsed.
    pub(super) fn is_in_let(&self) -> bool {
        self.in_let
    }

    /// The names that were declared without a value.
    pub(crate) fn unknown(&self) -> impl Iterator<Item = &str> {
        self.constants
            .iter()
            .filter(|(_, binding)| matches!(binding, Binding::Unknown))
            .map(|(name, _)| &**name)
    }

    /// The value of `$$NOW`; `None` where it is not available.
    pub fn now(&self) -> Option<DateTime> {
        self.now
    }

    /// The value of `$$CLUSTER_TIME`, if known.
    pub fn cluster_time(&self) -> Option<Timestamp> {
        self.cluster_time
    }

    /// The value of this name; `None` if it is not bound.
    pub(super) fn binding(&self, name: &str) -> Option<&Binding> {
        self.constants
            .iter()
            .rev()
            .find(|(n, _)| &**n == name)
            .map(|(_, v)| v)
    }
}

/// Checks the name of a variable that is read: letters, digits and underscores, with a letter
/// first. Errors: FailedToParse.
pub(super) fn check_read_name(name: &str) -> Result<()> {
    let refuse = |why: String| Err(Error::new(ErrorCode::FAILED_TO_PARSE, why));
    let Some(first) = name.chars().next() else {
        return refuse("empty variable names are not allowed".to_owned());
    };
    if first.is_ascii() && !first.is_ascii_alphabetic() {
        return refuse(format!(
            "'{name}' starts with an invalid character for a variable name"
        ));
    }
    match name
        .chars()
        .find(|c| c.is_ascii() && !c.is_ascii_alphanumeric() && *c != '_')
    {
        Some(c) => refuse(format!(
            "'{name}' contains an invalid character for a variable name: '{c}'"
        )),
        None => Ok(()),
    }
}

/// Checks a name that the user binds. Valid names start with a lowercase ASCII letter or a
/// non-ASCII character (CURRENT is the only exception), followed by letters, digits and
/// underscores.
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
