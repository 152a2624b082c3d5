//! `replSetInitiate`, `replSetGetStatus`, `replSetGetConfig`, `replSetReconfig`: a single-member
//! replica set.

use sheaf_bson::{DateTime, DocBuilder, Error, ErrorCode, RawDoc, RawValue};
use sheaf_db::oplog::Term;

use super::context::CommandContext;
use super::fields;
use crate::host::host_name;
use crate::repl::{ReplicaSet, append_optime, date_of, member, not_initialized};

/// The replica set. Errors: `NoReplicationEnabled`.
pub(super) fn set<'c>(cx: &'c CommandContext<'_>) -> Result<&'c ReplicaSet, Error> {
    cx.server.repl.as_ref().ok_or_else(|| {
        Error::new(
            ErrorCode::NO_REPLICATION_ENABLED,
            "This node was not started with replication enabled; start it with --replSet NAME.",
        )
    })
}

fn first_document<'a>(cx: &CommandContext<'a>) -> Result<RawDoc<'a>, Error> {
    Ok(match cx.first()?.value() {
        RawValue::Document(doc) => doc,
        _ => RawDoc::EMPTY,
    })
}

/// The default member address of this server, used if the configuration does not specify one.
fn own_address(cx: &CommandContext<'_>) -> String {
    let local = cx.server.settings.bind.iter().all(|entry| {
        matches!(entry.as_str(), "localhost" | "127.0.0.1" | "::1") || entry.contains('/')
    });
    let host = if local {
        "127.0.0.1".to_owned()
    } else {
        host_name()
    };
    format!("{host}:{}", cx.port())
}

/// Runs `replSetInitiate`.
pub fn initiate(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    cx.no_arguments()?;
    let config = first_document(cx)?;
    set(cx)?.initiate(&cx.server.db, &cx.op, config, &own_address(cx))?;
    cx.server.log_primary();
    Ok(())
}

/// Runs `replSetReconfig`.
pub fn reconfigure(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    for element in cx.arguments() {
        match element.key() {
            "force" => drop(fields::boolean("replSetReconfig", &element)?),
            _ => cx.unknown_field(&element)?,
        }
    }
    let config = first_document(cx)?;
    set(cx)?.reconfigure(&cx.server.db, &cx.op, config)
}

/// Runs `replSetGetConfig`.
pub fn config(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    for element in cx.arguments() {
        match element.key() {
            "commitmentStatus" => drop(fields::boolean("replSetGetConfig", &element)?),
            _ => cx.unknown_field(&element)?,
        }
    }
    let config = set(cx)?.config().ok_or_else(not_initialized)?;
    out.append_bson("config", &*config);
    Ok(())
}

/// Runs `replSetGetStatus`.
pub fn status(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    for element in cx.arguments() {
        match element.key() {
            "initialSync" => {}
            _ => cx.unknown_field(&element)?,
        }
    }
    append_status(cx, out)
}

/// Appends the set's status.
/// Errors: the server is not a member of an initiated set.
pub fn append_status(cx: &CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    let set = set(cx)?;
    let config = set.config().ok_or_else(not_initialized)?;
    let visible = cx.server.db.oplog().visible();
    let config_version = config.get("version").unwrap_or(RawValue::Int32(1));
    out.append("set", set.name());
    out.append("date", DateTime::now());
    out.append("myState", 1);
    out.append("term", Term::FIRST.0);
    out.append("syncSourceHost", "");
    out.append("syncSourceId", -1);
    out.append("heartbeatIntervalMillis", 2000i64);
    out.append("majorityVoteCount", 1);
    out.append("writeMajorityCount", 1);
    out.append("votingMembersCount", 1);
    out.append("writableVotingMembersCount", 1);
    out.begin_document("optimes");
    append_optime(out, "lastCommittedOpTime", visible);
    out.append("lastCommittedWallTime", date_of(visible));
    append_optime(out, "readConcernMajorityOpTime", visible);
    append_optime(out, "appliedOpTime", visible);
    append_optime(out, "durableOpTime", visible);
    out.append("lastAppliedWallTime", date_of(visible));
    out.append("lastDurableWallTime", date_of(visible));
    out.end();
    out.begin_array("members");
    out.push_begin_document();
    let id = member(config.as_raw()).and_then(|m| m.get("_id"));
    out.append("_id", id.unwrap_or(RawValue::Int32(0)));
    out.append("name", ReplicaSet::host(config.as_raw()).as_str());
    out.append("health", 1.0);
    out.append("state", 1);
    out.append("stateStr", "PRIMARY");
    out.append("uptime", cx.server.started.elapsed().as_secs() as i32);
    append_optime(out, "optime", visible);
    out.append("optimeDate", date_of(visible));
    out.append("syncSourceHost", "");
    out.append("syncSourceId", -1);
    out.append("infoMessage", "");
    out.append("configVersion", config_version);
    out.append("configTerm", Term::FIRST.0 as i32);
    out.append("self", true);
    out.append("lastHeartbeatMessage", "");
    out.end();
    out.end();
    Ok(())
}
