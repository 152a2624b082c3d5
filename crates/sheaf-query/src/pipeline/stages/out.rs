//! `$out`: the results take the place of a collection.

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::{DocBuilder, RawValue, Value, doc};

use crate::expression::location;
use crate::pipeline::PipelineSink;
use crate::pipeline::environment::ForeignName;
use crate::pipeline::stage::{ParsedStage, StageContext};
use crate::timeseries::TimeseriesOptions;

/// A parsed `$out`.
#[derive(Debug, Clone)]
pub struct Out {
    /// The collection that is replaced.
    pub to: ForeignName,
    /// It is one of measurements.
    pub timeseries: Option<TimeseriesOptions>,
}

/// Parses `"collection"` or `{db, coll, timeseries}`.
/// Errors: 16990 for another operand, FailedToParse for a field that is unknown or missing,
/// those of the options of time-series collections.
pub fn parse(value: RawValue<'_>, _: &StageContext<'_>) -> Result<ParsedStage> {
    let mut timeseries = None;
    let to = match value {
        RawValue::String(name) => ForeignName {
            db: None,
            collection: checked(name)?,
        },
        RawValue::Document(spec) => {
            let (mut db, mut collection) = (None, None);
            for element in spec {
                match (element.key(), element.value()) {
                    ("db", RawValue::String(name)) => db = Some(Box::from(name)),
                    ("coll", RawValue::String(name)) => collection = Some(checked(name)?),
                    ("db" | "coll", other) => {
                        return Err(Error::new(
                            ErrorCode::TYPE_MISMATCH,
                            format!(
                                "BSON field '$out.{}' is the wrong type '{}', expected type 'string'",
                                element.key(),
                                other.type_name()
                            ),
                        ));
                    }
                    ("timeseries", RawValue::Document(options)) => {
                        timeseries = Some(TimeseriesOptions::parse(options)?);
                    }
                    ("timeseries", other) => {
                        return Err(Error::new(
                            ErrorCode::TYPE_MISMATCH,
                            format!(
                                "BSON field '$out.timeseries' is the wrong type '{}', expected type 'object'",
                                other.type_name()
                            ),
                        ));
                    }
                    (other, _) => {
                        return Err(Error::new(
                            ErrorCode::IDL_UNKNOWN_FIELD,
                            format!("BSON field '$out.{other}' is an unknown field."),
                        ));
                    }
                }
            }
            let (Some(db), Some(collection)) = (db, collection) else {
                return Err(location(
                    16994,
                    "$out as an object needs both 'db' and 'coll'",
                ));
            };
            ForeignName {
                db: Some(db),
                collection,
            }
        }
        other => {
            return Err(location(
                16990,
                format!(
                    "$out only supports a string or object argument, but found {}",
                    other.type_name()
                ),
            ));
        }
    };
    Ok(ParsedStage::Sink(PipelineSink::Out(
        Out { to, timeseries }.into(),
    )))
}

fn checked(name: &str) -> Result<Box<str>> {
    if name.is_empty() {
        return Err(Error::new(
            ErrorCode::INVALID_NAMESPACE,
            "the collection of $out must not be empty",
        ));
    }
    Ok(name.into())
}

impl Out {
    /// As a value, for explain; `database` is where a target without one is.
    pub fn operand(&self, database: Option<&str>) -> Value {
        let name = match self.to.db.as_deref().or(database) {
            None => Value::String(self.to.collection.to_string()),
            Some(db) => Value::Document(doc! {"coll": &*self.to.collection, "db": db}),
        };
        let (Some(options), Value::Document(name)) = (&self.timeseries, &name) else {
            return name;
        };
        let mut out = DocBuilder::new();
        out.extend(name.as_raw());
        out.append("timeseries", &options.to_doc());
        Value::Document(out.finish())
    }
}
