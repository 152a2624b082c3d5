//! The generic arguments, which every command accepts.

use std::time::Duration;

use sheaf_bson::{Error, ErrorCode, RawDoc, RawElement, RawValue, Timestamp};
use sheaf_db::Uuid;

use super::cluster_time;
use super::fields::{self, unknown_field};
use super::read_concern::ReadConcernArgument;
use crate::api_parameters::ApiParameters;
use crate::write_concern::WriteConcern;

/// Arguments that every command accepts; see the manual, "Database Commands".
#[derive(Default, Clone)]
pub struct GenericArguments<'a> {
    /// `$db`, if it is a string.
    pub db: Option<&'a str>,
    /// `maxTimeMS`.
    pub max_time: Option<Duration>,
    /// `comment`, any type.
    pub comment: Option<RawValue<'a>>,
    /// `lsid`.
    pub lsid: Option<RawDoc<'a>>,
    /// `readConcern`.
    pub read_concern: ReadConcernArgument<'a>,
    /// `$clusterTime`.
    pub cluster_time: Option<Timestamp>,
    /// `writeConcern`.
    pub write_concern: WriteConcern,
    /// A `writeConcern` was given.
    pub has_write_concern: bool,
    /// `txnNumber`, `autocommit`, `startTransaction`.
    pub transaction: RawTransactionArguments,
    /// `apiVersion`, `apiStrict`, `apiDeprecationErrors`.
    pub api: ApiParameters,
    /// `collectionUUID`: the collection that the client means by the name.
    pub collection_uuid: Option<Uuid>,
    /// `bypassDocumentValidation`, whose type the handlers check.
    pub bypasses_validation: bool,
    /// `bypassEmptyTsReplacement`, whose type the handlers check.
    pub keeps_empty_timestamps: bool,
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
            | "collectionUUID"
    )
}

/// The arguments of a command document that are not generic. Null and undefined count as absent.
pub fn arguments<'a>(body: RawDoc<'a>) -> impl Iterator<Item = RawElement<'a>> + use<'a> {
    arguments_as_sent(body).filter(fields::is_given)
}

/// As [`arguments`], with those that are null or undefined.
pub fn arguments_as_sent<'a>(body: RawDoc<'a>) -> impl Iterator<Item = RawElement<'a>> + use<'a> {
    body.iter()
        .skip(1)
        .filter(|element| !is_generic(element.key()))
}

impl<'a> GenericArguments<'a> {
    /// Parses the generic arguments of a command document. Null and undefined count as absent.
    pub fn parse(command: &str, body: RawDoc<'a>) -> Result<Self, Error> {
        let mut generic = GenericArguments::default();
        for element in body.iter().skip(1) {
            if !fields::is_null(&element) || element.key() == "comment" {
                generic.take(command, &element)?;
            }
        }
        generic.api.check()?;
        Ok(generic)
    }

    fn take(&mut self, command: &str, element: &RawElement<'a>) -> Result<(), Error> {
        match element.key() {
            "$db" => self.db = element.value().as_str(),
            "maxTimeMS" => {
                let ms = fields::max_time_ms(command, element)?;
                self.max_time = (ms > 0).then(|| Duration::from_millis(ms));
            }
            "comment" => self.comment = Some(element.value()),
            "lsid" => {
                let lsid = fields::document(command, element)?;
                check_lsid(lsid)?;
                self.lsid = Some(lsid);
            }
            "readConcern" => {
                let concern = fields::document(command, element)?;
                self.read_concern = ReadConcernArgument::parse(concern)?;
            }
            "$clusterTime" => self.cluster_time = Some(cluster_time::parse(element)?),
            "writeConcern" => {
                self.write_concern = WriteConcern::parse(fields::document(command, element)?)?;
                self.has_write_concern = true;
            }
            "txnNumber" => match element.value() {
                RawValue::Int64(number) => self.transaction.number = Some(number),
                _ => return Err(fields::wrong_type(command, element, "long")),
            },
            "autocommit" => {
                self.transaction.autocommit = Some(fields::strict_boolean(command, element)?);
            }
            "startTransaction" => {
                self.transaction.start = Some(fields::strict_boolean(command, element)?);
            }
            "apiVersion" => self.api.take_version(fields::string(command, element)?)?,
            "apiStrict" => self.api.strict = Some(fields::strict_boolean(command, element)?),
            "apiDeprecationErrors" => {
                self.api.deprecation_errors = Some(fields::strict_boolean(command, element)?);
            }
            "collectionUUID" => self.collection_uuid = Some(uuid(command, element)?),
            "bypassDocumentValidation" => self.bypasses_validation = element.value().is_truthy(),
            "bypassEmptyTsReplacement" => self.keeps_empty_timestamps = element.value().is_truthy(),
            _ => {}
        }
        Ok(())
    }
}

/// A UUID. Errors: `TypeMismatch` for another type, `InvalidUUID` for another length.
pub fn uuid(command: &str, element: &RawElement<'_>) -> Result<Uuid, Error> {
    match element.value() {
        RawValue::Binary {
            subtype: Uuid::SUBTYPE,
            bytes,
        } => bytes.try_into().map(Uuid).map_err(|_| {
            Error::new(
                ErrorCode::INVALID_UUID,
                format!(
                    "BSON field '{command}.{}' must be a UUID of 16 bytes, not of {}",
                    element.key(),
                    bytes.len()
                ),
            )
        }),
        _ => Err(fields::wrong_type(command, element, "uuid")),
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
