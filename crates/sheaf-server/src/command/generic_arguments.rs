//! The generic arguments, which every command accepts.

use std::time::Duration;

use sheaf_bson::{Error, ErrorCode, RawDoc, RawValue, Timestamp};

use super::cluster_time;
use super::fields::{self, unknown_field};
use crate::write_concern::WriteConcern;

/// Arguments that every command accepts; see the manual, "Database Commands".
#[derive(Default, Clone)]
pub struct GenericArguments<'a> {
    /// `maxTimeMS`.
    pub max_time: Option<Duration>,
    /// `comment`, any type.
    pub comment: Option<RawValue<'a>>,
    /// `lsid`.
    pub lsid: Option<RawDoc<'a>>,
    /// `readConcern.level`.
    pub read_concern_level: Option<&'a str>,
    /// `readConcern.atClusterTime`.
    pub at_cluster_time: Option<Timestamp>,
    /// `readConcern.afterClusterTime`.
    pub after_cluster_time: Option<Timestamp>,
    /// `$clusterTime`.
    pub cluster_time: Option<Timestamp>,
    /// A non-empty `readConcern` was given.
    pub has_read_concern: bool,
    /// `writeConcern`.
    pub write_concern: WriteConcern,
    /// A `writeConcern` was given.
    pub has_write_concern: bool,
    /// `txnNumber`, `autocommit`, `startTransaction`.
    pub transaction: RawTransactionArguments,
}

/// The transaction arguments as received, not yet checked.
#[derive(Debug, Default, Clone, Copy)]
pub struct RawTransactionArguments {
    /// `txnNumber`.
    pub number: Option<i64>,
    /// `autocommit`.
    pub autocommit: Option<bool>,
    /// `startTransaction`.
    pub start: Option<bool>,
}

/// Whether `name` is a generic argument.
pub fn is_generic(name: &str) -> bool {
    matches!(
        name,
        "$db"
            | "lsid"
            | "comment"
            | "maxTimeMS"
            | "maxTimeMSOpOnly"
            | "writeConcern"
            | "readConcern"
            | "$readPreference"
            | "$clusterTime"
            | "$audit"
            | "$client"
            | "$configServerState"
            | "$oplogQueryData"
            | "$queryOptions"
            | "$replData"
            | "$configTime"
            | "$topologyTime"
            | "apiVersion"
            | "apiStrict"
            | "apiDeprecationErrors"
            | "txnNumber"
            | "autocommit"
            | "startTransaction"
            | "stmtId"
            | "stmtIds"
            | "mayBypassWriteBlocking"
            | "rawData"
    )
}

impl<'a> GenericArguments<'a> {
    /// Parses the generic arguments of a command document.
    pub fn parse(command: &str, body: RawDoc<'a>) -> Result<Self, Error> {
        let mut generic = GenericArguments::default();
        for element in body.iter().skip(1) {
            match element.key() {
                "maxTimeMS" => {
                    let ms = fields::max_time_ms(&element)?;
                    generic.max_time = (ms > 0).then(|| Duration::from_millis(ms));
                }
                "comment" => generic.comment = Some(element.value()),
                "lsid" => {
                    let lsid = fields::document(command, &element)?;
                    check_lsid(lsid)?;
                    generic.lsid = Some(lsid);
                }
                "readConcern" => {
                    let concern = fields::document(command, &element)?;
                    generic.read_concern_level = read_concern(concern)?;
                    generic.at_cluster_time = at_cluster_time(concern)?;
                    generic.after_cluster_time = cluster_time::after_cluster_time(concern)?;
                    generic.has_read_concern = !concern.is_empty();
                }
                "$clusterTime" => generic.cluster_time = Some(cluster_time::parse(&element)?),
                "writeConcern" => {
                    generic.write_concern =
                        WriteConcern::parse(fields::document(command, &element)?)?;
                    generic.has_write_concern = true;
                }
                "txnNumber" => match element.value() {
                    RawValue::Int64(number) => generic.transaction.number = Some(number),
                    _ => return Err(fields::wrong_type(command, &element, "long")),
                },
                "autocommit" => {
                    generic.transaction.autocommit = Some(fields::boolean(command, &element)?);
                }
                "startTransaction" => {
                    generic.transaction.start = Some(fields::boolean(command, &element)?);
                }
                "apiVersion" => {
                    if fields::string(command, &element)? != "1" {
                        return Err(Error::new(
                            ErrorCode::API_VERSION_ERROR,
                            "apiVersion must be \"1\"",
                        ));
                    }
                }
                "apiStrict" | "apiDeprecationErrors" => {
                    fields::boolean(command, &element)?;
                }
                _ => {}
            }
        }
        Ok(generic)
    }
}

/// `atClusterTime`, which requires `level: "snapshot"`.
fn at_cluster_time(concern: RawDoc<'_>) -> Result<Option<Timestamp>, Error> {
    match concern.get("atClusterTime") {
        None => Ok(None),
        Some(_) if concern.get("level") != Some(RawValue::String("snapshot")) => Err(Error::new(
            ErrorCode::INVALID_OPTIONS,
            "readConcern.atClusterTime needs the level 'snapshot'",
        )),
        Some(RawValue::Timestamp(time)) => Ok(Some(time)),
        Some(_) => Err(Error::new(
            ErrorCode::TYPE_MISMATCH,
            "BSON field 'readConcern.atClusterTime' is the wrong type, expected type 'timestamp'",
        )),
    }
}

fn check_lsid(lsid: RawDoc<'_>) -> Result<(), Error> {
    for element in lsid.iter() {
        match element.key() {
            "id" | "uid" => {}
            other => return Err(unknown_field("lsid", other)),
        }
    }
    match lsid.get("uid") {
        None => {}
        Some(RawValue::Binary { subtype: 0, bytes }) if bytes.len() == 32 => {}
        Some(_) => {
            return Err(Error::new(
                ErrorCode::TYPE_MISMATCH,
                "BSON field 'lsid.uid' must be a SHA-256 digest (binary of 32 bytes)",
            ));
        }
    }
    match lsid.get("id") {
        Some(RawValue::Binary { subtype: 4, bytes }) if bytes.len() == 16 => Ok(()),
        Some(_) => Err(Error::new(
            ErrorCode::TYPE_MISMATCH,
            "BSON field 'lsid.id' must be a UUID (binary of subtype 4)",
        )),
        None => Err(fields::missing("lsid", "id")),
    }
}

fn read_concern<'a>(doc: RawDoc<'a>) -> Result<Option<&'a str>, Error> {
    let mut level = None;
    for element in doc.iter() {
        match element.key() {
            "level" => {
                let name = fields::string("readConcern", &element)?;
                match name {
                    "local" | "available" | "majority" | "linearizable" | "snapshot"
                    | "serializable" => {
                        level = Some(name);
                    }
                    _ => {
                        return Err(Error::bad_value(format!(
                            "Enumeration value '{name}' for field 'readConcern.level' is not a \
                             valid value."
                        )));
                    }
                }
            }
            "afterClusterTime" | "atClusterTime" | "provenance" => {}
            other => return Err(unknown_field("readConcern", other)),
        }
    }
    Ok(level)
}
