//! The cluster time in commands and replies, with which clients get causal consistency.
//!
//! ```text
//!   command {.., $clusterTime: {clusterTime, signature}}               advances the clock
//!           {.., readConcern: {afterClusterTime}}                      waits until it can be read
//!   reply   {.., $clusterTime: {clusterTime, signature}, operationTime}
//! ```
//!
//! Without users nothing is signed: replies carry the signature that MongoDB sends without
//! authentication, and received signatures are not verified. See the manual, "Causal Consistency
//! and Read and Write Concerns", and the drivers' specification of causal consistency.

use sheaf_bson::{DocBuilder, Error, ErrorCode, RawElement, RawValue, Timestamp};

use super::fields;
use crate::parameters::Parameter;
use crate::server::Server;

/// `$clusterTime` and `operationTime` as encoded in a reply, with both times 0.
const TIMES: &[u8; 125] = b"\x03$clusterTime\0\x58\0\0\0\
    \x11clusterTime\0\0\0\0\0\0\0\0\0\
    \x03signature\0\x33\0\0\0\
    \x05hash\0\x14\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
    \x12keyId\0\0\0\0\0\0\0\0\0\
    \0\0\
    \x11operationTime\0\0\0\0\0\0\0\0\0";
/// Offset of the cluster time in [`TIMES`].
const CLUSTER_TIME_AT: usize = 31;
/// Offset of the operation time in [`TIMES`].
const OPERATION_TIME_AT: usize = 117;

/// Appends `$clusterTime` and `operationTime`.
pub fn append_times(server: &Server, out: &mut DocBuilder) {
    // Read the operation time first, so that it is never after the cluster time.
    let operation = server.db.operation_time().as_u64();
    let cluster = server.db.cluster_time().as_u64();
    let mut times = *TIMES;
    times[CLUSTER_TIME_AT..][..8].copy_from_slice(&cluster.to_le_bytes());
    times[OPERATION_TIME_AT..][..8].copy_from_slice(&operation.to_le_bytes());
    out.append_element_bytes(&times);
}

/// Parses `$clusterTime` of a command.
/// Errors: `TypeMismatch`; 40414 if `clusterTime` is missing.
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

/// Advances the clock to the cluster time that the client sent, if that is later.
/// Errors: `ClusterTimeFailsRateLimiter`.
pub fn advance(server: &Server, time: Timestamp) -> Result<(), Error> {
    let ahead = server
        .parameters
        .int(Parameter::MaxAcceptableLogicalClockDriftSecs);
    server.db.advance_cluster_time(time, ahead.unsigned_abs())
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
