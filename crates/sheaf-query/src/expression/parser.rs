//! Parses BSON into an [`Expression`].
//!
//! ```text
//! "$a.b"            a path              "$$v.b"   a variable's path
//! {$op: operand}    an operator         {a: e}    a document of expressions
//! [e, e]            an array            other     itself
//! ```

use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::json::shell;
use sheaf_bson::{RawDoc, RawValue, Value};

use super::entry::{Entry, Named};
use super::field_path::{self, Base, FieldPathExpr};
use super::variables::{Binding, VariableScope, check_read_name, check_user_name};
use super::{Expression, arithmetic, budget, folding, location, script_parser};

/// Maximum nesting of operators, documents and arrays together.
const DEPTH_MAX: usize = 200;

/// The state of a parse: the visible constants and the variables bound so far.
pub struct Parser<'s> {
    scope: &'s VariableScope,
    /// Looks up an operator by its name.
    find: fn(&str) -> Option<&'static Entry>,
    /// Variable names by slot; an inner name hides an outer one.
    locals: Vec<Box<str>>,
    depth: usize,
    /// The first error of a call of constants.
    failure: Option<Error>,
}

impl<'s> Parser<'s> {
    /// A parser of expressions with the operators that `find` knows. `locals` are the variables
    /// bound before, by slot.
    pub(super) fn new(
        scope: &'s VariableScope,
        find: fn(&str) -> Option<&'static Entry>,
        locals: Vec<Box<str>>,
    ) -> Parser<'s> {
        Parser {
            scope,
            find,
            locals,
            depth: 0,
            failure: None,
        }
    }

    /// Parses a whole expression. Errors: those of its text, then those of calls of constants.
    pub(super) fn whole(mut self, value: RawValue<'_>) -> Result<Expression> {
        let body = self.operand(value)?;
        // The whole text is parsed first: a call of constants that fails is the later error.
        self.failure.map_or(Ok(body), Err)
    }
}

impl Parser<'_> {
    /// Parses an operand.
    pub(super) fn operand(&mut self, value: RawValue<'_>) -> Result<Expression> {
        if self.depth >= DEPTH_MAX {
            let message =
                format!("an expression must not be nested deeper than {DEPTH_MAX} levels");
            return Err(Error::new(ErrorCode::OVERFLOW, message));
        }
        self.depth += 1;
        let out = match value {
            RawValue::String(text) => self.string(text),
            RawValue::Document(doc) => self.document(doc),
            RawValue::Array(array) => {
                let values = array.iter().map(|v| self.operand(v)).collect::<Result<_>>();
                values.map(|values| self.fold(Expression::Array(values)))
            }
            other => Ok(Expression::constant(other.to_value())),
        };
        self.depth -= 1;
        out
    }

    /// The operands of a call: the values of an array, or the one value.
    fn operands(&mut self, value: RawValue<'_>) -> Result<Vec<Expression>> {
        match value {
            RawValue::Array(array) => array.iter().map(|v| self.operand(v)).collect(),
            other => Ok(vec![self.operand(other)?]),
        }
    }

    /// Parses `body` with `names` bound to the next slots.
    pub(super) fn with_locals(&mut self, names: &[&str], body: RawValue<'_>) -> Result<Expression> {
        let outer = self.locals.len();
        self.locals
            .extend(names.iter().map(|name| Box::from(*name)));
        let parsed = self.operand(body);
        self.locals.truncate(outer);
        parsed
    }

    /// The visible constants.
    pub(super) fn scope(&self) -> &VariableScope {
        self.scope
    }

    /// Checks a name to bind. Errors: FailedToParse if the user may not bind it.
    pub(super) fn check_name(&self, name: &str) -> Result<()> {
        check_user_name(name)
    }

    fn string(&mut self, text: &str) -> Result<Expression> {
        let Some(path) = text.strip_prefix('$') else {
            budget::check_string(text.len())?;
            return Ok(Expression::constant(text));
        };
        if path.is_empty() {
            return Err(location(16872, "'$' by itself is not a valid field path"));
        }
        let Some(variable) = path.strip_prefix('$') else {
            let components = field_path::split(path)?;
            return Ok(self.path_of(self.current(), components));
        };
        let (name, rest) = match variable.split_once('.') {
            Some((name, rest)) => (name, Some(rest)),
            None => (variable, None),
        };
        check_read_name(name)?;
        let components = match rest {
            Some(rest) => field_path::split(rest)?,
            None => Box::default(),
        };
        self.variable(name, components)
    }

    fn current(&self) -> Base {
        self.local("CURRENT").unwrap_or(Base::Root)
    }

    fn local(&self, name: &str) -> Option<Base> {
        self.locals
            .iter()
            .rposition(|n| &**n == name)
            .map(Base::Slot)
    }

    fn path_of(&self, base: Base, components: Box<[Box<str>]>) -> Expression {
        Expression::FieldPath(FieldPathExpr { base, components })
    }

    fn variable(&self, name: &str, components: Box<[Box<str>]>) -> Result<Expression> {
        if let Some(base) = self.local(name) {
            return Ok(self.path_of(base, components));
        }
        match name {
            "ROOT" | "CURRENT" => return Ok(self.path_of(Base::Root, components)),
            "REMOVE" => return Ok(Expression::Constant(None)),
            _ => {}
        }
        let constant = match name {
            "NOW" | "CLUSTER_TIME" if self.scope.is_in_let() => {
                return Err(location(
                    51144,
                    format!("the variable $${name} is not available in the values of 'let'"),
                ));
            }
            "NOW" => match self.scope.now() {
                Some(now) => Arc::new(Value::DateTime(now)),
                None => {
                    return Err(location(51144, "Builtin variable '$$NOW' is not available"));
                }
            },
            "CLUSTER_TIME" => match self.scope.cluster_time() {
                Some(time) => Arc::new(Value::Timestamp(time)),
                None => {
                    return Err(location(
                        10071200,
                        "system variable $$CLUSTER_TIME is not available: this server is not part of a replica set",
                    ));
                }
            },
            "USER_ROLES" => super::user_roles::current(),
            _ => match self.scope.binding(name) {
                Some(Binding::Constant(Some(value))) => value.clone(),
                Some(Binding::Constant(None)) => return Ok(Expression::Constant(None)),
                // No frame has this slot: the value is missing, and is never folded.
                Some(Binding::Unknown) => {
                    return Ok(self.path_of(Base::Slot(usize::MAX), components));
                }
                None => {
                    return Err(location(
                        17276,
                        format!("Use of undefined variable: {name}"),
                    ));
                }
            },
        };
        if components.is_empty() {
            return Ok(Expression::Constant(Some(constant)));
        }
        Ok(Expression::Constant(
            field_path::in_value(constant.as_raw(), &components)
                .into_value()
                .map(Arc::new),
        ))
    }

    fn document(&mut self, doc: RawDoc<'_>) -> Result<Expression> {
        let Some(first) = doc.first() else {
            return Ok(Expression::constant(doc));
        };
        if first.key().starts_with('$') {
            if doc.iter().nth(1).is_some() {
                return Err(location(
                    15983,
                    format!(
                        "an object that is an expression must have exactly one field, its operator: {}",
                        shell(doc)
                    ),
                ));
            }
            return self.operator(first.key(), first.value());
        }
        let mut fields: Vec<(Box<str>, Expression)> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for element in doc {
            let name = element.key();
            if name.contains('.') {
                return Err(location(
                    16412,
                    format!("the field name '{name}' in an object expression must not contain '.'"),
                ));
            }
            field_path::check_component(name, name)?;
            if !seen.insert(name) {
                return Err(location(
                    16406,
                    format!(
                        "the field name '{name}' occurs twice in the object expression {}",
                        shell(doc)
                    ),
                ));
            }
            fields.push((name.into(), self.operand(element.value())?));
        }
        Ok(self.fold(Expression::Object(fields)))
    }

    /// Folds constants. A call of constants that fails is left unchanged, and its error is reported
    /// at the end of the parse unless errors are deferred.
    fn fold(&mut self, expression: Expression) -> Expression {
        let check = folding::check(&expression);
        let (folded, outcome) = folding::fold(expression, self.scope, self.locals.len());
        self.note(check.and(outcome));
        folded
    }

    /// Records the first error caused by constants, unless errors are deferred.
    fn note(&mut self, outcome: Result<()>) {
        if let Err(e) = outcome
            && self.failure.is_none()
            && !self.scope.defers_errors()
        {
            self.failure = Some(e);
        }
    }

    fn operator(&mut self, name: &str, operand: RawValue<'_>) -> Result<Expression> {
        match (self.find)(name) {
            Some(Entry::Form(_, parse)) => parse(self, operand).map(|e| self.fold(e)),
            Some(Entry::Named(named)) => self.named(named, operand).map(|e| self.fold(e)),
            Some(Entry::Call(operator)) => {
                let args = self.operands(operand)?;
                operator.check_arity(args.len())?;
                if operator.name == "$ifNull" && args.len() < 2 {
                    return Err(location(
                        1257300,
                        format!("$ifNull needs at least two arguments, had: {}", args.len()),
                    ));
                }
                let mut call = self.fold(Expression::Call { operator, args });
                if self.scope.is_in_group()
                    && let Expression::Call { operator, .. } = &mut call
                    && let Some(own) = arithmetic::IN_GROUP
                        .iter()
                        .find(|o| o.name == operator.name)
                {
                    *operator = own;
                }
                Ok(folding::sorted_set(
                    call,
                    self.scope.collator().map(|c| &**c),
                ))
            }
            None if name == "$_internalJsEmit" => script_parser::parse_emit(self, operand),
            None => Err(Error::new(
                ErrorCode::INVALID_PIPELINE_OPERATOR,
                format!("Unrecognized expression '{name}'"),
            )),
        }
    }
}

impl Parser<'_> {
    /// Parses the operands of an operator with named operands.
    fn named(&mut self, named: &'static Named, operand: RawValue<'_>) -> Result<Expression> {
        let operator = &named.operator;
        let is_options = |doc: RawDoc<'_>| doc.first().is_none_or(|e| !e.key().starts_with('$'));
        let doc = match operand {
            RawValue::Document(doc) if !named.shorthand || is_options(doc) => doc,
            only if named.shorthand => {
                let only = match only {
                    RawValue::Array(array) => match array.get(0) {
                        Some(only) if array.count() == 1 => only,
                        _ => {
                            return Err(operator.error(
                                named.not_object,
                                format_args!(
                                    "accepts exactly one argument if given an array, but was given {}",
                                    array.count()
                                ),
                            ));
                        }
                    },
                    other => other,
                };
                let mut args = vec![self.given(only)?];
                args.resize(named.fields.len(), Expression::Constant(None));
                return Ok(Expression::Call { operator, args });
            }
            other => {
                return Err(operator.error(
                    named.not_object,
                    format_args!("takes an object as its argument, not {}", other.type_name()),
                ));
            }
        };
        for element in doc {
            if !named.fields.iter().any(|(name, _)| *name == element.key()) {
                return Err(operator.error(
                    named.unknown,
                    format_args!("does not know the argument '{}'", element.key()),
                ));
            }
        }
        let mut args = Vec::with_capacity(named.fields.len());
        for (name, required) in named.fields {
            args.push(match (doc.get(name), required) {
                (Some(value), _) => self.given(value)?,
                (None, None) => Expression::Constant(None),
                (None, Some(code)) => {
                    return Err(
                        operator.error(*code, format_args!("requires the argument '{name}'"))
                    );
                }
            });
        }
        self.note((named.check)(operator, &args));
        Ok(Expression::Call { operator, args })
    }

    /// Parses an operand that was given. Wraps a constant *missing*, so that it is not taken for an
    /// absent operand.
    fn given(&mut self, value: RawValue<'_>) -> Result<Expression> {
        Ok(match self.operand(value)? {
            missing @ Expression::Constant(None) => Expression::Let {
                values: Vec::new(),
                body: Box::new(missing),
            },
            other => other,
        })
    }
}

/// The named arguments of a form: `{input: ..., in: ...}`.
pub(super) struct Arguments<'a> {
    name: &'static str,
    doc: RawDoc<'a>,
}

impl<'a> Arguments<'a> {
    /// Takes the operand of a form. Errors: it is not a document (`not_object`), or has an argument
    /// that is not in `known` (`unknown`).
    pub(super) fn new(
        name: &'static str,
        operand: RawValue<'a>,
        known: &[&str],
        not_object: i32,
        unknown: i32,
    ) -> Result<Arguments<'a>> {
        let RawValue::Document(doc) = operand else {
            return Err(location(
                not_object,
                format!(
                    "{name} takes an object as its argument, not {}",
                    operand.type_name()
                ),
            ));
        };
        for element in doc {
            if !known.contains(&element.key()) {
                return Err(location(
                    unknown,
                    format!("Unrecognized parameter to {name}: '{}'", element.key()),
                ));
            }
        }
        Ok(Arguments { name, doc })
    }

    pub(super) fn get(&self, key: &str) -> Option<RawValue<'a>> {
        self.doc.get(key)
    }

    /// A required argument. Errors: it is absent (`missing`).
    pub(super) fn required(&self, key: &str, missing: i32) -> Result<RawValue<'a>> {
        self.get(key).ok_or_else(|| {
            location(
                missing,
                format!("Missing '{key}' parameter to {}", self.name),
            )
        })
    }
}
