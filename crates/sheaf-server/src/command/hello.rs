//! `hello` and its legacy spellings: reports the role and the limits of the server.

use std::time::{Duration, Instant};

use sheaf_bson::{DateTime, DocBuilder, Error, ErrorCode, RawDoc, RawValue};
use sheaf_wire::MAX_MESSAGE_BYTES;

use super::access::sasl;
use super::context::CommandContext;
use super::fields;
use crate::client::ClientState;
use crate::repl::ReplicaSet;
use crate::session::SESSION_TIMEOUT_MINUTES;

/// The newest supported wire version: that of MongoDB 8.2.
pub const WIRE_VERSION_MAX: i32 = 27;
/// Maximum size of a document.
pub const BSON_BYTES_MAX: i32 = 16 * 1024 * 1024;
/// Maximum number of statements in one write command.
pub const WRITE_BATCH_MAX: usize = 100_000;

/// Interval at which a wait for a topology change checks that the client is still connected.
const AWAIT_SLICE: Duration = Duration::from_millis(200);

/// Client metadata larger than this is rejected (handshake specification).
const CLIENT_METADATA_BYTES_MAX: usize = 512;

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    let spelling = cx.first()?.key();
    let legacy = spelling != "hello";
    let (mut hello_ok, mut offered, mut await_time, mut topology) = (false, None, None, None);
    let (mut login, mut mechanisms_of) = (None, None);
    for element in cx.arguments() {
        match element.key() {
            "helloOk" => hello_ok = fields::boolean("hello", &element)?,
            "compression" => offered = Some(fields::array("hello", &element)?),
            "client" => take_client_metadata(cx, fields::document("hello", &element)?)?,
            "topologyVersion" => topology = Some(fields::document("hello", &element)?),
            "maxAwaitTimeMS" => {
                await_time = Some(fields::non_negative("hello", &element)?);
            }
            "saslSupportedMechs" => mechanisms_of = Some(fields::string("hello", &element)?),
            "speculativeAuthenticate" => login = Some(fields::document("hello", &element)?),
            // Ignored: there is no load balancer and no cluster.
            "loadBalanced" | "hostInfo" | "internalClient" | "forShell" | "secondaryOk"
            | "slaveOk" | "backpressure" => {}
            _ => cx.unknown_field(&element)?,
        }
    }
    match (topology, await_time) {
        (Some(known), Some(limit)) => {
            let since = Instant::now();
            await_change(cx, known, Duration::from_millis(limit));
            cx.report.waited = since.elapsed();
            cx.connection.exhaust = cx.exhaust_allowed;
        }
        (None, None) => {}
        _ => {
            return Err(Error::new(
                ErrorCode(31368),
                "topologyVersion and maxAwaitTimeMS must be given together",
            ));
        }
    }
    if hello_ok {
        out.append("helloOk", true);
    }
    out.append(
        if legacy {
            "ismaster"
        } else {
            "isWritablePrimary"
        },
        cx.server
            .repl
            .as_ref()
            .is_none_or(|set| set.config().is_some()),
    );
    out.begin_document("topologyVersion");
    out.append("processId", cx.server.process_id);
    let counter = cx.server.repl.as_ref().map_or(0, ReplicaSet::counter);
    out.append("counter", counter);
    out.end();
    if let Some(set) = &cx.server.repl {
        set.append_hello(&cx.server.db, out);
    }
    out.append("maxBsonObjectSize", BSON_BYTES_MAX);
    out.append("maxMessageSizeBytes", MAX_MESSAGE_BYTES as i32);
    out.append("maxWriteBatchSize", WRITE_BATCH_MAX as i32);
    out.append("localTime", DateTime::now());
    out.append("logicalSessionTimeoutMinutes", SESSION_TIMEOUT_MINUTES);
    out.append("connectionId", cx.connection.client.id() as i32);
    out.append("minWireVersion", 0);
    out.append("maxWireVersion", WIRE_VERSION_MAX);
    out.append("readOnly", false);
    if let Some(offered) = offered {
        let offered = offered.iter().filter_map(|value| value.as_str());
        let common = cx.server.compressors.negotiate(offered);
        if !common.is_empty() {
            out.begin_array("compression");
            for compressor in common.iter() {
                out.push(compressor.name());
            }
            out.end();
        }
    }
    if let Some(user) = mechanisms_of {
        sasl::append_mechanisms(cx, user, out)?;
    }
    if let Some(request) = login {
        sasl::speculate(cx, request, out)?;
    }
    Ok(())
}

/// Stores the client metadata, which only the first hello of a connection may carry.
fn take_client_metadata(cx: &mut CommandContext<'_>, client: RawDoc<'_>) -> Result<(), Error> {
    if cx.connection.client_metadata.is_some() {
        return Err(Error::new(
            ErrorCode::CLIENT_METADATA_CANNOT_BE_MUTATED,
            "The client metadata document may only be sent in the first hello",
        ));
    }
    if client.len_bytes() > CLIENT_METADATA_BYTES_MAX {
        return Err(Error::new(
            ErrorCode::CLIENT_METADATA_DOCUMENT_TOO_LARGE,
            format!(
                "The client metadata document must be less then or equal to \
                 {CLIENT_METADATA_BYTES_MAX} bytes"
            ),
        ));
    }
    if let Some(name) = application_name(cx.body) {
        cx.connection.operations.set_app_name(name);
    }
    cx.connection.operations.set_metadata(client.to_buf());
    cx.connection.client_metadata = Some(client.to_buf());
    Ok(())
}

/// `client.application.name` of a handshake.
pub fn application_name(body: RawDoc<'_>) -> Option<&str> {
    let client = body.get("client")?.as_document()?;
    client
        .get("application")?
        .as_document()?
        .get("name")?
        .as_str()
}

/// Waits until the topology changes, `limit` has passed or the client has disconnected. Without a
/// replica set the topology never changes.
///
/// Returns at once for a client that knows the topology of another process, except on later replies
/// of an exhaust stream: the first reply has sent it the current topology.
fn await_change(cx: &CommandContext<'_>, known: RawDoc<'_>, limit: Duration) {
    let same_process = matches!(
        known.get("processId"),
        Some(RawValue::ObjectId(id)) if id == cx.server.process_id
    );
    if !same_process && !cx.connection.follows {
        return;
    }
    let Some(set) = &cx.server.repl else {
        if cx.connection.client.state() == ClientState::Connected {
            cx.connection.client.wait_until_gone(limit);
        }
        return;
    };
    // The topology of a set changes when it is initiated or reconfigured.
    let seen = match known
        .get("counter")
        .and_then(|counter| counter.as_i64_exact())
    {
        Some(counter) if same_process && !cx.connection.follows => counter,
        _ => set.counter(),
    };
    let until = Instant::now() + limit;
    while set.counter() == seen && cx.connection.client.state() == ClientState::Connected {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        set.wait(seen, left.min(AWAIT_SLICE));
    }
}
