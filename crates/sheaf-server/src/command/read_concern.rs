//! `readConcern`: what a read may see.

use sheaf_bson::{Error, ErrorCode, RawDoc, RawElement, RawValue, Timestamp};

use super::fields::{self, unknown_field};
use super::stage_facts;
use crate::command_facts::{Command, InTransaction};

const NAME: &str = "readConcern";

/// Values of `provenance`, which servers send to each other.
const PROVENANCES: &[&str] = &[
    "clientSupplied",
    "implicitDefault",
    "customDefault",
    "getLastErrorDefaults",
    "internalWriteDefault",
];

/// `readConcern` as given.
#[derive(Debug, Default, Clone, Copy)]
pub struct ReadConcernArgument<'a> {
    /// A document that is not empty was given.
    pub given: bool,
    /// `level`.
    pub level: Option<&'a str>,
    /// `atClusterTime`.
    pub at_cluster_time: Option<Timestamp>,
    /// `afterClusterTime`.
    pub after_cluster_time: Option<Timestamp>,
}

impl<'a> ReadConcernArgument<'a> {
    /// Parses the document.
    ///
    /// Errors: wrong types, unknown fields, values that contradict each other (`InvalidOptions`).
    pub fn parse(doc: RawDoc<'a>) -> Result<Self, Error> {
        let mut concern = ReadConcernArgument {
            given: !doc.is_empty(),
            ..Default::default()
        };
        for element in doc.iter() {
            match element.key() {
                "level" => concern.level = level(&element)?,
                "afterClusterTime" => concern.after_cluster_time = Some(time(&element)?),
                "atClusterTime" => concern.at_cluster_time = Some(time(&element)?),
                "provenance" => provenance(NAME, &element)?,
                other => return Err(unknown_field(NAME, other)),
            }
        }
        concern.check_times()?;
        Ok(concern)
    }

    /// Errors: `InvalidOptions` for a time that its level cannot have.
    fn check_times(&self) -> Result<(), Error> {
        let invalid = |message: &str| Err(Error::new(ErrorCode::INVALID_OPTIONS, message));
        if self.at_cluster_time.is_some() && self.level != Some("snapshot") {
            return invalid("readConcern.atClusterTime needs the level 'snapshot'");
        }
        let Some(time) = self.after_cluster_time else {
            return Ok(());
        };
        if time.as_u64() == 0 {
            return invalid("readConcern.afterClusterTime cannot be a null timestamp");
        }
        if self.at_cluster_time.is_some() {
            return invalid(
                "readConcern.afterClusterTime and readConcern.atClusterTime cannot be given together",
            );
        }
        if let Some("available" | "linearizable") = self.level {
            return invalid(
                "readConcern.afterClusterTime can be given only with the levels 'local', 'majority' and 'snapshot'",
            );
        }
        Ok(())
    }

    /// Rejects a level that the command, or a stage of its pipeline, does not support outside a
    /// transaction. Errors: `InvalidOptions`.
    pub fn check(&self, command: &Command, body: RawDoc<'_>) -> Result<(), Error> {
        let Some(level) = self.level.filter(|level| *level != "local") else {
            return Ok(());
        };
        let supported = match level {
            "available" | "majority" => command.read_concern.majority,
            "snapshot" => command.read_concern.snapshot,
            "linearizable" => command.read_concern.linearizable,
            // `serializable` is only for transactions.
            _ => false,
        };
        if !supported {
            return Err(unsupported(command.name, level));
        }
        match command.transaction {
            InTransaction::Pipeline => check_stages(body, level),
            _ => Ok(()),
        }
    }
}

fn unsupported(what: &str, level: &str) -> Error {
    Error::new(
        ErrorCode::INVALID_OPTIONS,
        format!("{what} does not support read concern level '{level}'"),
    )
}

/// Errors: `InvalidOptions` for a stage that does not take the level.
fn check_stages(body: RawDoc<'_>, level: &str) -> Result<(), Error> {
    let Some(RawValue::Array(stages)) = body.get("pipeline") else {
        return Ok(());
    };
    for stage in stages.iter() {
        let RawValue::Document(stage) = stage else {
            continue;
        };
        let name = stage.first().map_or("", |first| first.key());
        let facts = stage_facts::of(name);
        if facts.only_local || (facts.writes && level == "linearizable") {
            return Err(unsupported(name, level));
        }
    }
    Ok(())
}

fn level<'a>(element: &RawElement<'a>) -> Result<Option<&'a str>, Error> {
    if fields::is_absent(element.value()) {
        return Ok(None);
    }
    match fields::string(NAME, element)? {
        name @ ("local" | "available" | "majority" | "linearizable" | "snapshot"
        | "serializable") => Ok(Some(name)),
        name => Err(not_a_value(NAME, element.key(), name)),
    }
}

fn time(element: &RawElement<'_>) -> Result<Timestamp, Error> {
    match element.value() {
        RawValue::Timestamp(time) => Ok(time),
        _ => Err(fields::wrong_type(NAME, element, "timestamp")),
    }
}

/// Checks `provenance` of a read or write concern.
/// Errors: `TypeMismatch`; `BadValue` for an unknown one.
pub fn provenance(concern: &str, element: &RawElement<'_>) -> Result<(), Error> {
    if fields::is_absent(element.value()) {
        return Ok(());
    }
    let name = fields::string(concern, element)?;
    match PROVENANCES.contains(&name) {
        true => Ok(()),
        false => Err(not_a_value(concern, element.key(), name)),
    }
}

fn not_a_value(concern: &str, field: &str, value: &str) -> Error {
    Error::bad_value(format!(
        "Enumeration value '{value}' for field '{concern}.{field}' is not a valid value."
    ))
}
