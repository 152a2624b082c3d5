//! `$out`: replaces a collection with the results.

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::{DocBuilder, RawValue, Value, doc};

use crate::expression::location;
use crate::pipeline::PipelineSink;
use crate::pipeline::environment::ForeignName;
use crate::pipeline::operand::Operand;
use crate::pipeline::stage::{ParsedStage, StageContext};
use crate::timeseries::TimeseriesOptions;

/// A parsed `$out`.
#[derive(Debug, Clone)]
pub struct Out {
    /// The collection that is replaced.
    pub to: ForeignName,
    /// Options of the time-series collection to create; `None` for a regular collection.
    pub timeseries: Option<TimeseriesOptions>,
}

/// Parses `"collection"` or `{db, coll, timeseries}`.
/// Errors: 16990 for another operand, the codes of [`Operand`], those of the options of time-series
/// collections.
pub fn parse(value: RawValue<'_>, _: &StageContext<'_>) -> Result<ParsedStage> {
    let out = match value {
        RawValue::String(name) => Out {
            to: ForeignName {
                db: None,
                collection: checked(name)?,
            },
            timeseries: None,
        },
        RawValue::Document(spec) => {
            let operand = Operand::new("$out", spec, &["db", "coll", "timeseries"])?;
            let required = |name| operand.string(name)?.ok_or_else(|| operand.missing(name));
            let (collection, db) = (checked(required("coll")?)?, required("db")?);
            let timeseries = operand.document("timeseries")?;
            Out {
                to: ForeignName {
                    db: Some(db.into()),
                    collection,
                },
                timeseries: timeseries.map(TimeseriesOptions::parse).transpose()?,
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
    Ok(ParsedStage::Sink(PipelineSink::Out(out.into())))
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
    /// The operand as a value, for explain; `database` is the default database of the target.
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
