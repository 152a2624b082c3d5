//! `$group`: documents gathered by the value of an expression.
//!
//! Values that compare equal are one group (1 and 1.0, text by the collation),
//! so groups are found by KeyString; the first value met becomes the group's `_id`. Groups come
//! out in the order in which they were first met, though no one may rely on it.

use std::collections::HashMap;
use std::sync::Arc;

use sheaf_bson::error_code::{ErrorCode, Result};
use sheaf_bson::keystring::{Directions, KeyStringBuilder};
use sheaf_bson::{Collator, DocBuf, DocBuilder, RawDoc, RawValue, Value};

use crate::expression::{Expression, VariableScope, location, parse};
use crate::matcher::Dependencies;

use super::accumulator::{Accumulator, AccumulatorFeed, AccumulatorSpec};
use super::environment::{Environment, no_disk_use};

/// A parsed `$group`.
#[derive(Debug, Clone)]
pub struct Group {
    /// As written.
    pub spec: DocBuf,
    /// What documents are gathered by.
    pub id: Expression,
    /// What is computed for each group, in order.
    pub fields: Vec<GroupField>,
    /// How text compares; `None`: by bytes.
    pub collator: Option<Arc<Collator>>,
}

/// One computed field of a group.
#[derive(Debug, Clone)]
pub struct GroupField {
    /// Its name.
    pub name: Box<str>,
    /// What is accumulated.
    pub accumulator: AccumulatorSpec,
}

impl Group {
    pub(super) fn parse(value: RawValue<'_>, scope: &VariableScope) -> Result<Group> {
        let RawValue::Document(spec) = value else {
            return Err(location(
                15947,
                format!(
                    "the specification of $group must be an object, not {}",
                    value.type_name()
                ),
            ));
        };
        let mut id = None;
        let mut fields: Vec<GroupField> = Vec::new();
        for element in spec {
            let name = element.key();
            if name == "_id" {
                if id.is_some() {
                    return Err(location(15948, "a group's _id may only be specified once"));
                }
                id = Some(parse(element.value(), scope)?);
                continue;
            }
            if fields.iter().any(|f| &*f.name == name) {
                return Err(location(
                    ErrorCode::FAILED_TO_PARSE.0,
                    format!("the field '{name}' of $group is specified twice"),
                ));
            }
            fields.push(field(name, element.value(), scope)?);
        }
        let Some(id) = id else {
            return Err(location(15955, "a group specification must include an _id"));
        };
        Ok(Group {
            spec: spec.to_buf(),
            id,
            fields,
            collator: scope.collator().cloned(),
        })
    }

    /// Adds the paths that are read; a group passes nothing else on.
    pub(super) fn add_dependencies(&self, found: &mut Dependencies) {
        self.id.add_dependencies(found);
        for field in &self.fields {
            field.accumulator.add_dependencies(found);
        }
    }
}

fn field(name: &str, value: RawValue<'_>, scope: &VariableScope) -> Result<GroupField> {
    if name.starts_with('$') {
        return Err(location(
            40236,
            format!("the field name '{name}' of $group cannot be an operator name"),
        ));
    }
    if name.contains('.') {
        return Err(location(
            40235,
            format!("the field name '{name}' of $group cannot contain '.'"),
        ));
    }
    let spec = match value {
        RawValue::Document(doc) if doc.first().is_some() => doc,
        _ => {
            return Err(location(
                40234,
                format!("the field '{name}' of $group must be an accumulator object"),
            ));
        }
    };
    let mut operators = spec.iter();
    let (Some(operator), None) = (operators.next(), operators.next()) else {
        return Err(location(
            40238,
            format!("the field '{name}' of $group must specify one accumulator"),
        ));
    };
    if !operator.key().starts_with('$') {
        return Err(location(
            40234,
            format!("the field '{name}' of $group must be an accumulator object"),
        ));
    }
    Ok(GroupField {
        name: name.into(),
        accumulator: AccumulatorSpec::parse(operator.key(), operator.value(), scope)?,
    })
}

/// The running state of a `$group`.
#[derive(Debug)]
pub(super) struct Grouper {
    group: Arc<Group>,
    places: HashMap<Box<[u8]>, usize>,
    groups: Vec<(Value, Vec<Accumulator>)>,
    bytes: usize,
    key: KeyStringBuilder,
    feeds: Vec<AccumulatorFeed>,
    output: Option<std::vec::IntoIter<(Value, Vec<Accumulator>)>>,
}

impl Grouper {
    pub(super) fn new(group: Arc<Group>) -> Grouper {
        Grouper {
            feeds: group.fields.iter().map(|f| f.accumulator.feed()).collect(),
            group,
            places: HashMap::new(),
            groups: Vec::new(),
            bytes: 0,
            key: KeyStringBuilder::new(Directions::default()),
            output: None,
        }
    }

    /// Takes one document.
    /// Errors: those of expressions; more than the memory a stage may hold.
    pub(super) fn push(&mut self, doc: RawDoc<'_>, env: &dyn Environment) -> Result<()> {
        let group = Arc::clone(&self.group);
        let id = group.id.evaluate_on(doc)?;
        let id = id.as_raw().unwrap_or(RawValue::Null);
        self.key.reset();
        self.key.append_with(id, group.collator.as_deref());
        let at = match self.places.get(self.key.as_bytes()) {
            Some(at) => *at,
            None => {
                let key: Box<[u8]> = self.key.as_bytes().into();
                // The entry, its key twice over (here and in _id), and the accumulators.
                self.bytes += 128 + 2 * key.len() + 96 * group.fields.len();
                self.places.insert(key, self.groups.len());
                let states = group.fields.iter().map(|f| f.accumulator.start(id));
                self.groups
                    .push((id.to_value(), states.collect::<Result<_>>()?));
                self.groups.len() - 1
            }
        };
        let states = group.fields.iter().zip(&mut self.groups[at].1);
        for ((field, state), feed) in states.zip(&mut self.feeds) {
            self.bytes += feed.feed(&field.accumulator, doc, state)?;
        }
        if self.bytes > env.memory_bytes_max() {
            return Err(no_disk_use("$group", env.memory_bytes_max()));
        }
        Ok(())
    }

    /// The next group, once all documents were taken.
    pub(super) fn drain(&mut self, _: &dyn Environment) -> Result<Option<DocBuf>> {
        let groups = &mut self.groups;
        let output = self
            .output
            .get_or_insert_with(|| std::mem::take(groups).into_iter());
        self.places = HashMap::new();
        let Some((id, states)) = output.next() else {
            return Ok(None);
        };
        let mut out = DocBuilder::new();
        out.append("_id", &id);
        for (field, state) in self.group.fields.iter().zip(states) {
            out.append(&field.name, &state.finish());
        }
        Ok(Some(out.finish()))
    }

    pub(super) fn append_stats(&self, _: &mut DocBuilder) {}
}
