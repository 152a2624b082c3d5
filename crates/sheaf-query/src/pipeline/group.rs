//! `$group`: groups documents by the value of an expression.
//!
//! Values that compare equal are one group (1 and 1.0, text by the collation), so groups are looked
//! up by KeyString; the first value becomes the `_id` of the group. Groups are returned in the
//! order of their first document, but clients must not rely on it: after a spill they are in key
//! order.

use std::collections::HashSet;
use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::keystring::{Directions, KeyStringBuilder};
use sheaf_bson::{Collator, DocBuf, DocBuilder, RawDoc, RawValue, Value, doc};

use crate::expression::{EvalContext, EvalValue, Expression, VariableScope, location, parse};
use crate::key_table::KeyTable;
use crate::matcher::Dependencies;
use crate::sort::chunks::Chunks;

use super::accumulator::{Accumulator, AccumulatorFeed, AccumulatorSpec};
use super::environment::{Environment, SpillStats, SpillStore, SpilledRecord};
use super::limits::BLOCKING_BYTES_MAX;
use super::unwind::Unwind;

/// A parsed `$group`.
#[derive(Debug, Clone)]
pub struct Group {
    /// The operand as specified by the user.
    pub spec: DocBuf,
    /// The group key.
    pub id: Expression,
    /// The computed fields of each group, in order.
    pub fields: Vec<GroupField>,
    /// The collation for text; `None` to compare by bytes.
    pub collator: Option<Arc<Collator>>,
    /// For an `_id` that is a document with exactly one field: the document with null in that
    /// field, which is the `_id` if the value is missing. With more fields, a missing one is
    /// omitted, as in MongoDB.
    pub(super) id_of_missing: Option<DocBuf>,
}

/// One computed field of a group.
#[derive(Debug, Clone)]
pub struct GroupField {
    /// The output field name.
    pub name: Box<str>,
    /// The accumulator that computes it.
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
        let scope = &scope.clone().with_group_codes();
        let (mut id, mut id_of_missing) = (None, None);
        let mut fields: Vec<GroupField> = Vec::new();
        let mut names = HashSet::new();
        for element in spec {
            let name = element.key();
            if name == "_id" {
                if id.is_some() {
                    return Err(location(15948, "a group's _id may only be specified once"));
                }
                id = Some(parse(element.value(), scope)?);
                id_of_missing = id_of_missing_field(element.value());
                continue;
            }
            if !names.insert(name) {
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
            id_of_missing,
        })
    }

    /// Adds the paths that are read; a group passes no other fields on.
    pub(super) fn add_dependencies(&self, found: &mut Dependencies) {
        self.id.add_dependencies(found);
        for field in &self.fields {
            field.accumulator.add_dependencies(found);
        }
    }
}

/// See [`Group::id_of_missing`].
fn id_of_missing_field(id: RawValue<'_>) -> Option<DocBuf> {
    let RawValue::Document(fields) = id else {
        return None;
    };
    let mut names = fields.iter();
    match (names.next(), names.next()) {
        (Some(only), None) if !only.key().starts_with('$') => {
            Some(doc! {only.key(): RawValue::Null.to_value()})
        }
        _ => None,
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

/// Replaces the code of an expression's or accumulator's error by the one that MongoDB reports in
/// `$group`, which MongoDB runs in another execution engine.
#[cold]
fn as_group_error(error: Error) -> Error {
    let code = match error.code().0 {
        2 if error.message().contains("divide by zero") => 4848401,
        // `$mod` by zero.
        16610 | 5733415 => 4848403,
        // `$mergeObjects` of something else.
        40400 => 5911200,
        _ => return error,
    };
    location(code, error.message())
}

/// Number of groups per block of states.
const BLOCK: usize = 512;

/// The `_id`s and accumulator states, by group number.
///
/// States are stored in blocks, so that they do not move when groups are added, and many groups
/// need few allocations.
#[derive(Default)]
struct Groups {
    ids: Vec<Value>,
    blocks: Vec<Vec<Accumulator>>,
}

impl Groups {
    /// Adds a group. Errors: those of starting an accumulator.
    fn begin(&mut self, group: &Group, id: RawValue<'_>) -> Result<()> {
        if self.ids.len().is_multiple_of(BLOCK) {
            self.blocks.push(Vec::new());
        }
        if let Some(block) = self.blocks.last_mut() {
            for field in &group.fields {
                block.push(field.accumulator.start(id)?);
            }
        }
        self.ids.push(id.to_value());
        Ok(())
    }

    /// The states of a group of `fields` fields.
    #[inline]
    fn states(&mut self, at: usize, fields: usize) -> &mut [Accumulator] {
        let first = at % BLOCK * fields;
        &mut self.blocks[at / BLOCK][first..first + fields]
    }

    /// All groups of `fields` fields, by number.
    fn into_groups(self, fields: usize) -> GroupsInOrder {
        GroupsInOrder {
            ids: self.ids.into_iter(),
            blocks: self.blocks.into_iter(),
            block: Vec::new().into_iter(),
            fields,
        }
    }
}

/// Returns groups one by one; frees a block after its last group.
struct GroupsInOrder {
    ids: std::vec::IntoIter<Value>,
    blocks: std::vec::IntoIter<Vec<Accumulator>>,
    block: std::vec::IntoIter<Accumulator>,
    fields: usize,
}

impl Iterator for GroupsInOrder {
    type Item = (Value, Vec<Accumulator>);

    fn next(&mut self) -> Option<Self::Item> {
        let id = self.ids.next()?;
        if self.block.as_slice().is_empty()
            && let Some(block) = self.blocks.next()
        {
            self.block = block.into_iter();
        }
        Some((id, self.block.by_ref().take(self.fields).collect()))
    }
}

/// The running state of a `$group`.
///
/// ```text
///   memory full ──> write the groups, ordered by key, as one run to disk; start again
///   at the end  ──> merge the runs by key: the states of one group are merged to one state
/// ```
pub(super) struct Grouper {
    group: Arc<Group>,
    places: KeyTable,
    groups: Groups,
    bytes: usize,
    /// By field: the current and the maximum size of the states, in bytes.
    state_bytes: Vec<(usize, usize)>,
    key: KeyStringBuilder,
    feeds: Vec<AccumulatorFeed>,
    store: Option<Box<dyn SpillStore>>,
    output: Output,
    stats: SpillStats,
}

enum Output {
    /// The input has not ended.
    None,
    Memory(GroupsInOrder),
    /// The first record of the next group, which has been read already.
    Store(Option<SpilledRecord>),
}

impl Grouper {
    pub(super) fn new(group: Arc<Group>) -> Grouper {
        Grouper {
            feeds: group.fields.iter().map(|f| f.accumulator.feed()).collect(),
            state_bytes: vec![(0, 0); group.fields.len()],
            group,
            places: KeyTable::new(),
            groups: Groups::default(),
            bytes: 0,
            key: KeyStringBuilder::new(Directions::default()),
            store: None,
            output: Output::None,
            stats: SpillStats::default(),
        }
    }

    /// Processes one document.
    ///
    /// Errors: those of expressions; the memory limit is exceeded and disk use is not allowed.
    pub(super) fn push(&mut self, doc: RawDoc<'_>, env: &dyn Environment) -> Result<()> {
        let group = Arc::clone(&self.group);
        let id = group.id.evaluate_on(doc).map_err(as_group_error)?;
        let at = self.place(id.as_raw().unwrap_or(RawValue::Null))?;
        let states = self.groups.states(at, group.fields.len());
        let states = group.fields.iter().zip(states);
        for (((field, state), feed), bytes) in
            states.zip(&mut self.feeds).zip(&mut self.state_bytes)
        {
            let grown = feed
                .feed(&field.accumulator, doc, state)
                .map_err(as_group_error)?;
            self.bytes += grown;
            bytes.0 += grown;
        }
        if self.bytes > env.memory_bytes_max() {
            self.spill(env)?;
        }
        Ok(())
    }

    /// Processes the documents that unwinding `doc` would produce, without building them.
    ///
    /// Errors: those of [`Grouper::push`].
    pub(super) fn push_unwound(
        &mut self,
        doc: RawDoc<'_>,
        unwound: &UnwoundGroup,
        env: &dyn Environment,
    ) -> Result<()> {
        if unwound.passes_whole(doc) {
            return self.push(doc, env);
        }
        let context = EvalContext::new(doc);
        let mut at = None;
        unwound.for_each_element(doc, &mut |element| {
            env.check_interrupt()?;
            // Slot 0 of the expressions.
            context.with_slots(&[element], |context| {
                let place = match at {
                    Some(place) => place,
                    None => {
                        let id = unwound.id.evaluate(context).map_err(as_group_error)?;
                        let place = self.place(id.as_raw().unwrap_or(RawValue::Null))?;
                        // If all elements have the same `_id`, it is looked up once, as long as the
                        // groups stay in memory.
                        at = unwound.id_is_of_document.then_some(place);
                        place
                    }
                };
                let states = self.groups.states(place, unwound.arguments.len());
                let states = unwound.arguments.iter().zip(states);
                for (((argument, state), feed), bytes) in
                    states.zip(&mut self.feeds).zip(&mut self.state_bytes)
                {
                    let value = argument.evaluate(context).map_err(as_group_error)?;
                    let grown = feed
                        .feed_value(doc, &value, state)
                        .map_err(as_group_error)?;
                    self.bytes += grown;
                    bytes.0 += grown;
                }
                if self.bytes > env.memory_bytes_max() {
                    self.spill(env)?;
                    at = None;
                }
                Ok(())
            })
        })
    }

    /// The number of the group with this `_id`; starts a new group if there is none.
    fn place(&mut self, id: RawValue<'_>) -> Result<usize> {
        let group = Arc::clone(&self.group);
        let id = match (id, &group.id_of_missing) {
            (RawValue::Document(id), Some(null)) if id.is_empty() => {
                RawValue::Document(null.as_raw())
            }
            (id, _) => id,
        };
        self.key.reset();
        self.key.append_with(id, group.collator.as_deref());
        let key = self.key.as_bytes();
        let (at, is_new) = self.places.insert(key);
        if is_new {
            // The entry, its key twice (here and in _id), and the accumulators.
            self.bytes += 128 + 2 * key.len() + 96 * group.fields.len();
            self.groups.begin(&group, id)?;
        }
        Ok(at)
    }

    /// Writes the current groups to disk and starts again with none.
    fn spill(&mut self, env: &dyn Environment) -> Result<()> {
        for (now, most) in &mut self.state_bytes {
            *most = (*most).max(*now);
            *now = 0;
        }
        let store = match &mut self.store {
            Some(store) => store,
            None => self.store.insert(env.spill("$group")?),
        };
        // After an interruption, the remaining groups stay here and are freed with the stage.
        let groups = &mut self.groups;
        let mut ordered = Chunks::default();
        for place in self.places.keys().zip(0..) {
            env.check_interrupt()?;
            ordered.push(place);
        }
        store.begin_run()?;
        for (key, at) in ordered.take() {
            env.check_interrupt()?;
            let mut payload = DocBuilder::new();
            payload.append("_id", &std::mem::take(&mut groups.ids[at]));
            payload.begin_array("s");
            for state in groups.states(at, self.group.fields.len()) {
                payload.push(state.take_partial().as_raw());
            }
            payload.end();
            store.push(key, payload.finish().as_bytes())?;
            self.stats.records += 1;
        }
        self.places = KeyTable::new();
        self.groups = Groups::default();
        self.stats.count(self.bytes, store.bytes_written());
        self.bytes = 0;
        Ok(())
    }

    /// The next group, after the end of the input.
    pub(super) fn drain(&mut self, env: &dyn Environment) -> Result<Option<DocBuf>> {
        if let Output::None = self.output {
            if self.store.is_some() {
                self.spill(env)?;
            }
            self.places = KeyTable::new();
            for (now, most) in &mut self.state_bytes {
                *most = (*most).max(*now);
            }
            self.output = match &mut self.store {
                Some(store) => Output::Store(store.next()?),
                None => {
                    let groups = std::mem::take(&mut self.groups);
                    Output::Memory(groups.into_groups(self.group.fields.len()))
                }
            };
        }
        let state = match &mut self.output {
            Output::Memory(groups) => groups.next(),
            Output::None => None,
            Output::Store(next) => match (next.take(), &mut self.store) {
                (Some(first), Some(store)) => {
                    let (state, after) = merged(&self.group, &mut **store, first, env)?;
                    *next = after;
                    Some(state)
                }
                _ => None,
            },
        };
        let Some((id, states)) = state else {
            return Ok(None);
        };
        let mut out = DocBuilder::new();
        out.append("_id", &id);
        for (field, state) in self.group.fields.iter().zip(states) {
            out.append(&field.name, &state.finish()?);
        }
        let out = out.finish();
        self.stats.output_bytes += out.len_bytes() as u64;
        Ok(Some(out))
    }

    pub(super) fn append_stats(&self, out: &mut DocBuilder) {
        out.begin_document("maxAccumulatorMemoryUsageBytes");
        for (field, (now, most)) in self.group.fields.iter().zip(&self.state_bytes) {
            out.append(&field.name, (*now).max(*most) as i64);
        }
        out.end();
        out.append("totalOutputDataSizeBytes", self.stats.output_bytes as i64);
        self.stats.append(out);
    }
}

/// A `$group` after an `$unwind`, whose expressions read the element from slot 0, without building
/// a document for each element.
///
/// ```text
///   {$unwind: "$lines"}, {$group: {_id: "$country", n: {$sum: "$lines.price"}}}
///        reads country once per document, price once per element
/// ```
pub(super) struct UnwoundGroup {
    unwind: Unwind,
    id: Expression,
    /// Whether the `_id` does not depend on the element.
    id_is_of_document: bool,
    arguments: Vec<Expression>,
}

impl UnwoundGroup {
    /// Fuses the two stages; `None` if positions are included or whole documents are needed.
    pub(super) fn of(unwind: &Unwind, group: &Group) -> Option<UnwoundGroup> {
        if unwind.index_path().is_some() || group.fields.iter().any(|f| f.accumulator.sorts()) {
            return None;
        }
        let path = unwind.parts();
        let arguments = group.fields.iter();
        let arguments = arguments.map(|f| f.accumulator.argument.with_path_as_variable(path));
        Some(UnwoundGroup {
            id: group.id.with_path_as_variable(path)?,
            id_is_of_document: group.id.dependencies().is_independent_of(&unwind.path()),
            arguments: arguments.collect::<Option<_>>()?,
            unwind: unwind.clone(),
        })
    }

    /// Whether the document is preserved although the path is missing. The slot cannot be used in
    /// this case: the path may traverse an array, in which `$unwind` finds nothing, but an
    /// expression does.
    fn passes_whole(&self, doc: RawDoc<'_>) -> bool {
        self.unwind.preserves() && self.unwind.find(doc).is_none()
    }

    fn for_each_element(
        &self,
        doc: RawDoc<'_>,
        visit: &mut dyn FnMut(EvalValue<'_>) -> Result<()>,
    ) -> Result<()> {
        match self.unwind.find(doc) {
            Some(RawValue::Array(array)) if !array.is_empty() => array
                .iter()
                .try_for_each(|element| visit(EvalValue::Raw(element))),
            Some(RawValue::Array(_)) if self.unwind.preserves() => visit(EvalValue::Missing),
            Some(null @ (RawValue::Null | RawValue::Undefined)) if self.unwind.preserves() => {
                visit(EvalValue::Raw(null))
            }
            None | Some(RawValue::Array(_) | RawValue::Null | RawValue::Undefined) => Ok(()),
            Some(value) => visit(EvalValue::Raw(value)),
        }
    }
}

/// The merged state of the group whose first record is `first`, and the first record of the next
/// group.
fn merged(
    group: &Group,
    store: &mut dyn SpillStore,
    first: SpilledRecord,
    env: &dyn Environment,
) -> Result<((Value, Vec<Accumulator>), Option<SpilledRecord>)> {
    let damaged = || {
        Error::new(
            ErrorCode::INTERNAL_ERROR,
            "a spilled group is damaged; the disk of temporary files may be failing",
        )
    };
    let read = |record: &SpilledRecord| -> Result<DocBuf> {
        Ok(RawDoc::parse(&record.payload)
            .map_err(|_| damaged())?
            .to_buf())
    };
    let payload = read(&first)?;
    let id = payload.get("_id").ok_or_else(damaged)?;
    let states = group.fields.iter().map(|f| f.accumulator.start(id));
    let mut states: Vec<Accumulator> = states.collect::<Result<_>>()?;
    let id = id.to_value();
    let (mut payload, mut bytes) = (payload, 0);
    loop {
        env.check_interrupt()?;
        let partials = payload.get("s").and_then(|s| s.as_array());
        for (state, partial) in states.iter_mut().zip(partials.ok_or_else(damaged)?) {
            bytes += state.merge(partial)?;
        }
        // One group cannot be spilled in part.
        if bytes > BLOCKING_BYTES_MAX {
            return Err(Error::new(
                ErrorCode::EXCEEDED_MEMORY_LIMIT,
                format!(
                    "the accumulators of one group of $group hold more than {BLOCKING_BYTES_MAX} bytes; accumulate fewer or smaller values per group"
                ),
            ));
        }
        match store.next()? {
            Some(record) if record.key == first.key => payload = read(&record)?,
            after => return Ok(((id, states), after)),
        }
    }
}
