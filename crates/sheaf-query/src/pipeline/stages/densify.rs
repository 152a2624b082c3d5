//! `$densify`: generates documents for missing values of a sequence.
//!
//! ```text
//!   field a, step 2        1     4 5         1, (3), 4, 5
//!   bounds "full"          every partition from the least to the greatest of all values
//!   bounds "partition"     each partition from its least to its greatest value
//!   bounds [0, 6]          0, 2, 4 in each partition, regardless of its values; 6 is excluded
//! ```
//!
//! The sequence is a grid: the lower bound plus multiples of the step. The operand is parsed to a
//! sort and the stage itself, which receives the values in ascending order, and generates the
//! documents of a gap when it receives the next value. Documents with a null or missing value pass
//! unchanged.

use std::collections::BTreeMap;
use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::fields;
use sheaf_bson::json::shell;
use sheaf_bson::keystring::{Directions, KeyStringBuilder};
use sheaf_bson::{
    Collator, DateTime, DocBuf, DocBuilder, RawDoc, RawValue, Value, compare_values, doc,
};

use crate::arithmetic::Number;
use crate::expression::projection_exec::ProjectionExec;
use crate::expression::{
    Expression, Unit, VariableScope, location, parse as parse_expression, shift_utc,
};
use crate::matcher::Dependencies;
use crate::pipeline::Stage;
use crate::pipeline::environment::Environment;
use crate::pipeline::stage::{ParsedStage, Passes, PipelineStage, Pushed, StageContext, StageExec};

use super::bucket::sort_by;

const NAME: &str = "$densify";

/// Maximum number of documents that one stage generates.
const GENERATED_MAX: u64 = 500_000;

/// A value of the sequence: a number, or a date in milliseconds.
#[derive(Debug, Clone, Copy)]
enum Place {
    Number(Number),
    Date(i64),
}

impl Place {
    fn of(value: RawValue<'_>) -> Option<Place> {
        match value {
            RawValue::DateTime(date) => Some(Place::Date(date.0)),
            other => Number::from_raw(other).map(Place::Number),
        }
    }

    fn value(self) -> Value {
        match self {
            Place::Number(n) => n.into(),
            Place::Date(millis) => Value::DateTime(DateTime(millis)),
        }
    }

    fn cmp(self, other: Place) -> std::cmp::Ordering {
        compare_values(self.value().as_raw(), other.value().as_raw())
    }
}

#[derive(Debug, Clone, Copy)]
enum Bounds {
    Full,
    Partition,
    /// From the first value (inclusive) to the second (exclusive).
    Range(Place, Place),
}

#[derive(Debug, Clone)]
struct Densify {
    spec: DocBuf,
    field: Box<str>,
    path: Expression,
    partition_by: Vec<(Box<str>, Expression)>,
    step: Number,
    unit: Option<Unit>,
    bounds: Bounds,
    /// The collation for text in partition values; `None` to compare by bytes.
    collator: Option<Arc<Collator>>,
}

fn failed(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::FAILED_TO_PARSE, message)
}

fn path_of(name: &str, scope: &VariableScope) -> Result<Expression> {
    if name.starts_with('$') {
        return Err(location(
            16410,
            format!("the field '{name}' of {NAME} must not begin with '$'"),
        ));
    }
    parse_expression(RawValue::String(&format!("${name}")), scope)
}

/// Parses `{field, partitionByFields, range: {step, unit, bounds}}`.
///
/// Errors: FailedToParse (9), 40414 and 40415 for invalid, missing and unknown fields; 5733401 and
/// 5733402 for invalid steps and bounds.
pub fn parse(value: RawValue<'_>, context: &StageContext<'_>) -> Result<ParsedStage> {
    let scope = &context.parse.variables;
    let RawValue::Document(spec) = value else {
        return Err(location(
            5733201,
            format!(
                "The {NAME} stage specification must be an object, found {}",
                value.type_name()
            ),
        ));
    };
    let (mut field, mut partition_by, mut range) = (None, Vec::new(), None);
    for element in spec {
        match (element.key(), element.value()) {
            ("field", RawValue::String(name)) => field = Some(name),
            ("partitionByFields", RawValue::Array(names)) => {
                for name in names {
                    let RawValue::String(name) = name else {
                        return Err(failed(format!(
                            "'partitionByFields' of {NAME} must contain strings"
                        )));
                    };
                    partition_by.push((Box::from(name), path_of(name, scope)?));
                }
            }
            ("range", RawValue::Document(doc)) => range = Some(doc),
            (name @ ("field" | "partitionByFields" | "range"), other) => {
                let expected = match name {
                    "field" => "string",
                    "partitionByFields" => "array",
                    _ => "object",
                };
                let field = format_args!("{NAME}.{name}");
                return Err(fields::wrong_type(field, other, expected));
            }
            (other, _) => {
                return Err(fields::unknown_field(format_args!("{NAME}.{other}")));
            }
        }
    }
    let missing = |name: &str| fields::missing_field(format_args!("{NAME}.{name}"));
    let field = field.ok_or_else(|| missing("field"))?;
    let range = range.ok_or_else(|| missing("range"))?;
    let path = path_of(field, scope)?;
    if partition_by.iter().any(|(name, _)| &**name == field) {
        return Err(location(
            8993000,
            format!("the field '{field}' cannot be densified and partitioned by"),
        ));
    }
    let (mut step, mut unit, mut bounds) = (None, None, None);
    for element in range {
        match (element.key(), element.value()) {
            ("step", value) => {
                let number = Number::from_raw(value).filter(|n| n.to_f64() > 0.0);
                step = Some(number.ok_or_else(|| {
                    location(
                        5733401,
                        format!("the step parameter in a range statement must be a strictly positive numeric value, not {}", shell(value)),
                    )
                })?);
            }
            ("unit", RawValue::String(name)) => {
                let found = Unit::find(name);
                unit =
                    Some(found.ok_or_else(|| failed(format!("unknown time unit value: {name}")))?);
            }
            ("bounds", value) => bounds = Some(value),
            (other, _) => {
                return Err(Error::new(
                    ErrorCode::IDL_UNKNOWN_FIELD,
                    format!("'{NAME}.range' has an unknown field or a wrong type: '{other}'"),
                ));
            }
        }
    }
    let mut step = step.ok_or_else(|| missing("range.step"))?;
    if unit.is_some() {
        // The step may have any numeric type.
        let whole = RawValue::from(step).as_i64_exact().ok_or_else(|| {
            location(
                6586400,
                "The step parameter in a range statement must be a whole number when densifying a date range",
            )
        })?;
        step = Number::Long(whole).narrowed();
    }
    let bounds = match bounds.ok_or_else(|| missing("range.bounds"))? {
        RawValue::String("full") => Bounds::Full,
        RawValue::String("partition") if partition_by.is_empty() => {
            return Err(location(
                5733408,
                "one may not specify the bounds as 'partition' without specifying a non-empty array of partitionByFields",
            ));
        }
        RawValue::String("partition") => Bounds::Partition,
        RawValue::Array(array) if array.count() == 2 => {
            let mut ends = array.iter().map(Place::of);
            let (Some(Some(lower)), Some(Some(upper))) = (ends.next(), ends.next()) else {
                return Err(location(
                    5733402,
                    "the bounds in a range statement must be numbers or dates",
                ));
            };
            match (lower, upper, unit) {
                (Place::Number(_), Place::Number(_), None)
                | (Place::Date(_), Place::Date(_), Some(_)) => {}
                _ => {
                    return Err(location(
                        5733409,
                        "the bounds of a range must be two numbers, or two dates with a unit",
                    ));
                }
            }
            if lower.cmp(upper).is_ge() {
                return Err(location(
                    5733402,
                    "the bounds in a range statement must be the string 'full', 'partition', or an ascending array of two numbers or two dates",
                ));
            }
            Bounds::Range(lower, upper)
        }
        other => {
            return Err(location(
                5733402,
                format!(
                    "the bounds in a range statement must be the string 'full', 'partition', or an ascending array of two numbers or two dates, not {}",
                    shell(other)
                ),
            ));
        }
    };
    let mut order = DocBuilder::new();
    if let Bounds::Partition = bounds {
        for (name, _) in &partition_by {
            order.append(name, 1);
        }
    }
    order.append(field, 1);
    let sort = sort_by(order.finish().as_raw(), context)?;
    let densify = Stage::Other(Arc::new(Densify {
        spec: spec.to_buf(),
        field: field.into(),
        path,
        partition_by,
        step,
        unit,
        bounds,
        collator: scope.collator().cloned(),
    }));
    Ok(ParsedStage::Stages(vec![sort, densify]))
}

impl PipelineStage for Densify {
    fn name(&self) -> &'static str {
        NAME
    }

    fn operand(&self) -> Value {
        Value::Document(self.spec.clone())
    }

    fn add_dependencies(&self, found: &mut Dependencies) -> Passes {
        self.path.add_dependencies(found);
        for (_, path) in &self.partition_by {
            path.add_dependencies(found);
        }
        Passes::Documents
    }

    fn start(&self) -> Box<dyn StageExec> {
        Box::new(Running {
            densify: self.clone(),
            partitions: BTreeMap::new(),
            bytes: 0,
            least: None,
            greatest: None,
            filling: None,
            then: None,
            ending: false,
            generated: 0,
        })
    }
}

/// One partition: the fields that start its documents, and the position in its grid.
struct Partition {
    begin: DocBuf,
    base: Place,
    /// The number of the next value in the grid.
    next: u64,
}

struct Running {
    densify: Densify,
    partitions: BTreeMap<Vec<u8>, Partition>,
    bytes: usize,
    least: Option<Place>,
    greatest: Option<Place>,
    /// The partition for which documents are being generated, and the end; `true` includes the end.
    filling: Option<(Vec<u8>, Place, bool)>,
    /// The document that follows the generated ones.
    then: Option<DocBuf>,
    ending: bool,
    generated: u64,
}

impl Running {
    fn place(&self, partition: &Partition) -> Result<Place> {
        let n = i64::try_from(partition.next).unwrap_or(i64::MAX);
        let out_of_range = || location(5733412, format!("{NAME} left the range of dates"));
        Ok(match (partition.base, self.densify.unit) {
            (Place::Number(base), _) => {
                Place::Number(base.plus(self.densify.step.times(Number::Long(n)).narrowed()))
            }
            (Place::Date(base), Some(unit)) => {
                let step = self.densify.step.as_integer().unwrap_or(1);
                let amount = step.checked_mul(n).ok_or_else(out_of_range)?;
                Place::Date(shift_utc(base, unit, amount).ok_or_else(out_of_range)?)
            }
            (date, None) => date,
        })
    }

    fn key_of(&self, doc: RawDoc<'_>) -> Result<Vec<u8>> {
        let mut key = KeyStringBuilder::new(Directions::default());
        for (_, path) in &self.densify.partition_by {
            let value = path.evaluate_on(doc)?;
            if let Some(RawValue::Array(_)) = value.as_raw() {
                return Err(Error::new(
                    ErrorCode::TYPE_MISMATCH,
                    format!("{NAME} cannot partition by an array"),
                ));
            }
            let value = value.as_raw().unwrap_or(RawValue::Null);
            key.append_with(value, self.densify.collator.as_deref());
        }
        Ok(key.finish().0)
    }

    /// A document with these fields set; dotted names become embedded documents.
    fn with(begin: RawDoc<'_>, fields: &[(&str, Value)]) -> Result<DocBuf> {
        if fields.iter().all(|(name, _)| !name.contains('.')) {
            let mut out = DocBuilder::from_doc(begin);
            for (name, value) in fields {
                out.append(name, value);
            }
            return Ok(out.finish());
        }
        let mut spec = DocBuilder::new();
        for (name, value) in fields {
            spec.append(name, &doc! {"$literal": value});
        }
        let scope = VariableScope::default();
        ProjectionExec::parse_add_fields(spec.finish().as_raw(), &scope)?.apply(begin)
    }

    fn open(
        &mut self,
        key: &[u8],
        doc: RawDoc<'_>,
        base: Place,
        next: u64,
        env: &dyn Environment,
    ) -> Result<()> {
        let is_open = self.partitions.contains_key(key);
        if is_open && self.densify.collator.is_none() {
            return Ok(());
        }
        let mut fields = Vec::new();
        for (name, path) in &self.densify.partition_by {
            if let Some(value) = path.evaluate_on(doc)?.into_value() {
                fields.push((&**name, value));
            }
        }
        let begin = Running::with(RawDoc::EMPTY, &fields)?;
        if let Some(partition) = self.partitions.get_mut(key) {
            // Equal by the collation, yet written differently: as in the document that ends the
            // gap.
            partition.begin = begin;
            return Ok(());
        }
        self.bytes += key.len() + begin.len_bytes() + size_of::<Partition>();
        if self.bytes > env.memory_bytes_max() {
            return Err(location(
                6007200,
                format!(
                    "{NAME} exceeded its memory limit of {} bytes: too many partitions",
                    env.memory_bytes_max()
                ),
            ));
        }
        let partition = Partition { begin, base, next };
        self.partitions.insert(key.to_vec(), partition);
        Ok(())
    }

    /// The next generated document of the current partition; `None` if the gap is filled.
    fn fill(&mut self) -> Result<Option<DocBuf>> {
        let Some((key, end, inclusive)) = &self.filling else {
            return Ok(None);
        };
        let found = match self.partitions.get(key) {
            Some(partition) => self.place(partition)?,
            None => return Ok(None),
        };
        let (order, inclusive) = (found.cmp(*end), *inclusive);
        let key = key.clone();
        if order.is_gt() || (order.is_eq() && !inclusive) {
            // An existing document is at this value of the grid.
            if order.is_eq()
                && self.then.is_some()
                && let Some(partition) = self.partitions.get_mut(&key)
            {
                partition.next += 1;
            }
            self.filling = None;
            return Ok(None);
        }
        self.generated += 1;
        if self.generated > GENERATED_MAX {
            return Err(location(
                5897900,
                format!(
                    "Generated {} documents in {NAME}, which is over the limit of {GENERATED_MAX}; use a larger step or narrower bounds",
                    self.generated
                ),
            ));
        }
        let field = [(&*self.densify.field, found.value())];
        let Some(partition) = self.partitions.get_mut(&key) else {
            return Ok(None);
        };
        partition.next += 1;
        Running::with(partition.begin.as_raw(), &field).map(Some)
    }
}

impl StageExec for Running {
    fn push(&mut self, doc: RawDoc<'_>, env: &dyn Environment) -> Result<Pushed> {
        let value = self.densify.path.evaluate_on(doc)?;
        let Some(raw) = value.non_null() else {
            return Ok(Pushed::Same);
        };
        let place = match (Place::of(raw), self.densify.unit) {
            (Some(place @ Place::Number(_)), None) | (Some(place @ Place::Date(_)), Some(_)) => {
                place
            }
            (Some(Place::Date(_)), None) => {
                return Err(location(
                    6053600,
                    format!("{NAME} found a date, but its range has no unit"),
                ));
            }
            (Some(Place::Number(_)), Some(_)) => {
                return Err(location(
                    6053600,
                    format!("{NAME} found a number, and its range has a unit"),
                ));
            }
            (None, _) => {
                return Err(location(
                    5733201,
                    format!(
                        "Densify field type must be numeric or a date, but found {}",
                        raw.type_name()
                    ),
                ));
            }
        };
        let least = *self.least.get_or_insert(place);
        self.greatest = Some(place);
        let key = self.key_of(doc)?;
        let end = match self.densify.bounds {
            Bounds::Full => {
                self.open(&key, doc, least, 0, env)?;
                place
            }
            Bounds::Partition => {
                if !self.partitions.contains_key(&key) {
                    // Input is sorted by partition, so the previous one is complete.
                    self.partitions.clear();
                    self.bytes = 0;
                }
                self.open(&key, doc, place, 0, env)?;
                place
            }
            Bounds::Range(lower, upper) => {
                self.open(&key, doc, lower, 0, env)?;
                if place.cmp(upper).is_gt() {
                    upper
                } else {
                    place
                }
            }
        };
        self.filling = Some((key, end, false));
        self.then = Some(doc.to_buf());
        Ok(Pushed::Pending)
    }

    fn end(&mut self, env: &dyn Environment) -> Result<()> {
        self.ending = true;
        if let Bounds::Range(lower, _) = self.densify.bounds
            && self.densify.partition_by.is_empty()
        {
            // Explicit bounds generate documents even without input.
            let key = self.key_of(RawDoc::EMPTY)?;
            self.open(&key, RawDoc::EMPTY, lower, 0, env)?;
        }
        Ok(())
    }

    fn next(&mut self, env: &dyn Environment) -> Result<Option<DocBuf>> {
        env.check_interrupt()?;
        loop {
            if let Some(doc) = self.fill()? {
                return Ok(Some(doc));
            }
            if let Some(doc) = self.then.take() {
                return Ok(Some(doc));
            }
            let (end, inclusive) = match (self.ending, self.densify.bounds, self.greatest) {
                (true, Bounds::Full, Some(greatest)) => (greatest, true),
                (true, Bounds::Range(_, upper), _) => (upper, false),
                _ => return Ok(None),
            };
            // Removes the partition if it is filled to its end.
            let Some((key, _)) = self.partitions.first_key_value() else {
                return Ok(None);
            };
            let key = key.clone();
            let full = match self.partitions.get(&key) {
                Some(partition) => {
                    let order = self.place(partition)?.cmp(end);
                    order.is_gt() || (order.is_eq() && !inclusive)
                }
                None => true,
            };
            if full {
                self.partitions.remove(&key);
            } else {
                self.filling = Some((key, end, inclusive));
            }
        }
    }
}
