//! The cluster time in commands and replies: with it clients keep their order of events.
//!
//! ```text
//!   command {.., $clusterTime: {clusterTime, signature}}               the clock goes on from there
//!           {.., readConcern: {afterClusterTime}}                      waits until that can be read
//!   reply   {.., $clusterTime: {clusterTime, signature}, operationTime}
//! ```
//!
//! Without users there is nobody to sign for: the signature is the one that MongoDB sends without authentication,
//! and none that comes is looked at. See the manual, "Causal Consistency and Read and Write Concerns", and the
//! drivers' specification of causal consistency.

use sheaf_bson::{DocBuilder, Error, ErrorCode, RawDoc, RawElement, RawValue, Timestamp};

use super::fields;
use crate::parameters::Parameter;
use crate::server::Server;

/// `$clusterTime` and `operationTime` as they stand in a reply, with both times 0.
const TIMES: &[u8; 125] = b"\x03$clusterTime\0\x58\0\0\0\
    \x11clusterTime\0\0\0\0\0\0\0\0\0\
    \x03signature\0\x33\0\0\0\
    \x05hash\0\x14\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
    \x12keyId\0\0\0\0\0\0\0\0\0\
    \0\0\
    \x11operationTime\0\0\0\0\0\0\0\0\0";
/// Where the cluster time is in it.
const CLUSTER_TIME_AT: usize = 31;
/// Where the operation time is in it.
const OPERATION_TIME_AT: usize = 117;

/// Appends `$clusterTime` and `operationTime`.
pub fn append_times(server: &Server, out: &mut DocBuilder) {
    // The operation time first: it is never after the cluster time.
    let operation = server.db.operation_time().as_u64();
    let cluster = server.db.cluster_time().as_u64();
    let mut times = *TIMES;
    times[CLUSTER_TIME_AT..][..8].copy_from_slice(&cluster.to_le_bytes());
    times[OPERATION_TIME_AT..][..8].copy_from_slice(&operation.to_le_bytes());
    out.append_element_bytes(&times);
}

/// `$clusterTime` of a command.
/// Errors: `TypeMismatch`, and for what is missing.
pub fn parse(element: &RawElement<'_>) -> Result<Timestamp, Error> {
    let doc = fields::document("command", element)?;
    let wrong = |field: &str, expected: &str| {
        Error::new(
            ErrorCode::TYPE_MISMATCH,
            format!(
                "BSON field '$clusterTime.{field}' is the wrong type, expected type '{expected}'"
            ),
        )
    };
    match doc.get("signature") {
        None | Some(RawValue::Document(_)) => {}
        Some(_) => return Err(wrong("signature", "object")),
    }
    match doc.get("clusterTime") {
        Some(RawValue::Timestamp(time)) => Ok(time),
        Some(_) => Err(wrong("clusterTime", "timestamp")),
        None => Err(fields::missing("$clusterTime", "clusterTime")),
    }
}

/// `afterClusterTime` of a `readConcern`.
/// Errors: `TypeMismatch`; `InvalidOptions` for time 0, beside `atClusterTime`, and with a level that cannot wait.
pub fn after_cluster_time(concern: RawDoc<'_>) -> Result<Option<Timestamp>, Error> {
    let invalid = |message: &str| Err(Error::new(ErrorCode::INVALID_OPTIONS, message));
    let time = match concern.get("afterClusterTime") {
        None => return Ok(None),
        Some(RawValue::Timestamp(time)) => time,
        Some(_) => {
            return Err(Error::new(
                ErrorCode::TYPE_MISMATCH,
                "BSON field 'readConcern.afterClusterTime' is the wrong type, expected type 'timestamp'",
            ));
        }
    };
    if time.as_u64() == 0 {
        return invalid("readConcern.afterClusterTime cannot be a null timestamp");
    }
    if concern.get("atClusterTime").is_some() {
        return invalid(
            "readConcern.afterClusterTime and readConcern.atClusterTime cannot be given together",
        );
    }
    if let Some(RawValue::String("available" | "linearizable")) = concern.get("level") {
        return invalid(
            "readConcern.afterClusterTime can be given only with the levels 'local', 'majority' and 'snapshot'",
        );
    }
    Ok(Some(time))
}

/// Has the clock go on from the time that the client has heard of.
/// Errors: `ClusterTimeFailsRateLimiter`.
pub fn hear(server: &Server, time: Timestamp) -> Result<(), Error> {
    let ahead = server
        .parameters
        .int(Parameter::MaxAcceptableLogicalClockDriftSecs);
    server.db.hear_of(time, ahead.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_bson::doc;

    #[test]
    fn the_bytes_are_those_of_the_document() {
        let mut out = DocBuilder::new();
        let mut bytes = *TIMES;
        bytes[CLUSTER_TIME_AT..][..8].copy_from_slice(&(7u64 << 32 | 1).to_le_bytes());
        bytes[OPERATION_TIME_AT..][..8].copy_from_slice(&(6u64 << 32 | 2).to_le_bytes());
        out.append_element_bytes(&bytes);
        let hash = RawValue::Binary {
            subtype: 0,
            bytes: &[0; 20],
        };
        let expected = doc! {
            "$clusterTime": {
                "clusterTime": Timestamp { time: 7, increment: 1 },
                "signature": { "hash": hash, "keyId": 0i64 },
            },
            "operationTime": Timestamp { time: 6, increment: 2 },
        };
        assert_eq!(
            out.finish().as_raw().as_bytes(),
            expected.as_raw().as_bytes()
        );
    }
}
