//! Cluster parameters, which `setClusterParameter` sets and `getClusterParameter` shows.
//!
//! Each is a document, stored in `config.clusterParameters` and cached in memory. The one that
//! every read consults is cached as a number too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use sheaf_bson::{DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawValue, Timestamp};
use sheaf_db::{Db, Namespace, StatementContext};

use crate::repl::store_document;
use crate::stored::read_document;

const NAMESPACE: &str = "config.clusterParameters";
const TIME: &str = "clusterParameterTime";

/// A cluster parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterParameter {
    /// How long images of change streams are kept.
    ChangeStreamOptions,
    /// How long changes are kept.
    ChangeStreams,
    /// The time limit of reads that state none.
    DefaultMaxTime,
}

const ALL: [ClusterParameter; 3] = [
    ClusterParameter::ChangeStreamOptions,
    ClusterParameter::ChangeStreams,
    ClusterParameter::DefaultMaxTime,
];

impl ClusterParameter {
    /// As the commands spell it.
    pub fn name(self) -> &'static str {
        match self {
            ClusterParameter::ChangeStreamOptions => "changeStreamOptions",
            ClusterParameter::ChangeStreams => "changeStreams",
            ClusterParameter::DefaultMaxTime => "defaultMaxTimeMS",
        }
    }

    /// The parameter with this name.
    pub fn named(name: &str) -> Option<ClusterParameter> {
        ALL.into_iter().find(|parameter| parameter.name() == name)
    }

    fn default_value(self) -> DocBuf {
        let mut out = DocBuilder::new();
        match self {
            ClusterParameter::ChangeStreamOptions => {
                out.begin_document("preAndPostImages");
                out.append("expireAfterSeconds", "off").end();
            }
            ClusterParameter::ChangeStreams => drop(out.append("expireAfterSeconds", 3600i64)),
            ClusterParameter::DefaultMaxTime => drop(out.append("readOperations", 0i64)),
        }
        out.finish()
    }

    /// Checks a value and returns it as it is stored.
    /// Errors: `BadValue`; `DollarPrefixedFieldName`.
    fn checked(self, value: RawDoc<'_>) -> Result<DocBuf, Error> {
        if let Some(element) = value.iter().find(|element| element.key().starts_with('$')) {
            return Err(Error::new(
                ErrorCode::DOLLAR_PREFIXED_FIELD_NAME,
                format!("the field name '{}' may not begin with '$'", element.key()),
            ));
        }
        match self {
            ClusterParameter::ChangeStreamOptions => {
                let images = self.only_field(value, "preAndPostImages")?;
                let RawValue::Document(images) = images else {
                    return Err(self.wrong("preAndPostImages must be a document"));
                };
                let seconds = self.only_field(images, "expireAfterSeconds")?;
                if seconds != RawValue::String("off") {
                    self.number(seconds, 1, i64::MAX)?;
                }
            }
            ClusterParameter::ChangeStreams => {
                self.number(self.only_field(value, "expireAfterSeconds")?, 1, i64::MAX)?;
            }
            ClusterParameter::DefaultMaxTime => {
                let limit = self.only_field(value, "readOperations")?;
                self.number(limit, 0, i64::from(i32::MAX))?;
            }
        }
        let mut out = DocBuilder::new();
        for element in value.iter().filter(|element| element.key() != TIME) {
            out.append_raw_element(element);
        }
        Ok(out.finish())
    }

    /// The value of the field `name`, which must be the only one besides the server's own.
    fn only_field<'a>(self, doc: RawDoc<'a>, name: &str) -> Result<RawValue<'a>, Error> {
        let own = |key: &str| matches!(key, "_id" | TIME);
        if let Some(other) = doc.iter().find(|e| e.key() != name && !own(e.key())) {
            return Err(self.wrong(&format!("the field '{}' is unknown", other.key())));
        }
        doc.get(name)
            .ok_or_else(|| self.wrong(&format!("the field '{name}' is missing")))
    }

    fn number(self, value: RawValue<'_>, min: i64, max: i64) -> Result<(), Error> {
        match value.as_i64_exact() {
            Some(number) if (min..=max).contains(&number) => Ok(()),
            _ => Err(self.wrong(&format!("it must be a whole number from {min} to {max}"))),
        }
    }

    fn wrong(self, why: &str) -> Error {
        Error::bad_value(format!(
            "Invalid value for parameter {}: {why}",
            self.name()
        ))
    }
}

/// The values of all cluster parameters.
#[derive(Debug)]
pub struct ClusterParameters {
    /// In the order of [`ALL`], with the time of the last change.
    values: RwLock<Vec<(DocBuf, Timestamp)>>,
    default_max_time_ms: AtomicU64,
}

impl ClusterParameters {
    /// Reads the stored values.
    pub fn read(db: &Db) -> Result<ClusterParameters, Error> {
        let mut values = Vec::new();
        for parameter in ALL {
            let stored = read_document(db, NAMESPACE, parameter.name())?;
            let (value, time) = match &stored {
                Some(doc) => {
                    let mut value = DocBuilder::new();
                    let own = doc.iter().filter(|e| e.key() != "_id" && e.key() != TIME);
                    for element in own {
                        value.append_raw_element(element);
                    }
                    let time = match doc.get(TIME) {
                        Some(RawValue::Timestamp(time)) => time,
                        _ => Timestamp::default(),
                    };
                    (value.finish(), time)
                }
                None => (parameter.default_value(), Timestamp::default()),
            };
            values.push((value, time));
        }
        let parameters = ClusterParameters {
            values: RwLock::new(values),
            default_max_time_ms: AtomicU64::new(0),
        };
        parameters.publish();
        Ok(parameters)
    }

    /// The time limit of reads on user databases that state none.
    pub fn default_max_time(&self) -> Option<Duration> {
        match self.default_max_time_ms.load(Ordering::Relaxed) {
            0 => None,
            milliseconds => Some(Duration::from_millis(milliseconds)),
        }
    }

    /// Sets a parameter, stores it and waits until it is durable.
    /// Errors: those of an invalid value.
    pub fn set(
        &self,
        db: &Arc<Db>,
        op: &StatementContext,
        parameter: ClusterParameter,
        value: RawDoc<'_>,
    ) -> Result<(), Error> {
        let value = parameter.checked(value)?;
        let time = db.next_timestamp();
        let mut doc = DocBuilder::new();
        doc.append("_id", parameter.name());
        doc.append(TIME, time);
        doc.extend(value.as_raw());
        store_document(db, op, &Namespace::parse(NAMESPACE)?, &doc.finish())?;
        db.sync()?;
        self.values.write()[parameter as usize] = (value, time);
        self.publish();
        Ok(())
    }

    /// Pushes the documents of these parameters; all without names.
    pub fn push(&self, wanted: &[ClusterParameter], out: &mut DocBuilder) {
        let values = self.values.read();
        let wanted = if wanted.is_empty() { &ALL[..] } else { wanted };
        for parameter in wanted {
            let (value, time) = &values[*parameter as usize];
            out.push_begin_document();
            out.append("_id", parameter.name());
            out.append(TIME, *time);
            out.extend(value.as_raw());
            out.end();
        }
    }

    fn publish(&self) {
        let values = self.values.read();
        let (value, _) = &values[ClusterParameter::DefaultMaxTime as usize];
        let limit = value.get("readOperations").and_then(|v| v.as_i64_exact());
        let limit = limit
            .and_then(|limit| u64::try_from(limit).ok())
            .unwrap_or(0);
        self.default_max_time_ms.store(limit, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_bson::json::parse_doc;

    #[test]
    fn values_are_checked() {
        let check = |parameter: ClusterParameter, text: &str| {
            let doc = parse_doc(text).unwrap();
            parameter.checked(doc.as_raw()).map_err(|e| e.code().0)
        };
        let options = ClusterParameter::ChangeStreamOptions;
        for good in [
            "{preAndPostImages: {expireAfterSeconds: 10}}",
            r#"{preAndPostImages: {expireAfterSeconds: "off"}}"#,
        ] {
            assert!(check(options, good).is_ok(), "{good}");
        }
        for bad in [
            "{}",
            "{preAndPostImages: null}",
            "{preAndPostImages: {}}",
            "{preAndPostImages: {expireAfterSeconds: true}}",
            "{preAndPostImages: {expireAfterSeconds: 0}}",
            "{preAndPostImages: {expireAfterSeconds: 1}, more: 1}",
        ] {
            assert_eq!(check(options, bad), Err(2), "{bad}");
        }
        assert_eq!(check(options, "{$x: 1}"), Err(52));
        assert!(check(ClusterParameter::DefaultMaxTime, "{readOperations: 0}").is_ok());
        assert_eq!(
            check(ClusterParameter::DefaultMaxTime, "{readOperations: -1}"),
            Err(2)
        );
    }
}
