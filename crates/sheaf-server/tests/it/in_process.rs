//! Commands without a connection: errors, cursors, transactions, and no panics.

use std::sync::Arc;

use sheaf_bson::json::parse_doc;
use sheaf_bson::{DocBuf, RawValue};
use sheaf_server::control::NoControl;
use sheaf_server::log::{Destination, Log, LogOptions, Rotation};
use sheaf_server::traffic::NoTraffic;
use sheaf_server::{Server, Session, Settings};
use tempfile::TempDir;

pub struct Running {
    pub server: Arc<Server>,
    _folder: TempDir,
}

pub fn server() -> Running {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = Settings::in_folder(folder.path());
    settings.storage.engine = Some("memory".to_owned());
    let log = Log::open(LogOptions {
        destination: Destination::File {
            path: folder.path().join("log"),
            append: false,
        },
        utc: true,
        verbosity: 0,
        rotation: Rotation::Rename,
    })
    .unwrap();
    let db = sheaf_server::open::open(&settings, &log).unwrap();
    let (control, traffic) = (Arc::new(NoControl), Arc::new(NoTraffic));
    let server = Server::new(db, Arc::new(settings), log, control, traffic).unwrap();
    Running {
        server,
        _folder: folder,
    }
}

pub fn run(session: &mut Session, command: &str) -> DocBuf {
    session.run("d", parse_doc(command).unwrap().as_raw())
}

pub fn ok(session: &mut Session, command: &str) -> DocBuf {
    let reply = run(session, command);
    assert_eq!(reply.get("ok"), Some(RawValue::Double(1.0)), "{reply:?}");
    reply
}

pub fn code(session: &mut Session, command: &str) -> i64 {
    let reply = run(session, command);
    assert_eq!(reply.get("ok"), Some(RawValue::Double(0.0)), "{reply:?}");
    reply
        .get("code")
        .and_then(|code| code.as_i64_exact())
        .unwrap()
}

fn cursor_id(reply: &DocBuf) -> i64 {
    let cursor = reply.get("cursor").and_then(|cursor| cursor.as_document());
    cursor
        .unwrap()
        .get("id")
        .and_then(|id| id.as_i64_exact())
        .unwrap()
}

#[test]
fn errors_are_replies() {
    let running = server();
    let session = &mut Session::new(&running.server);
    assert_eq!(code(session, "{noSuchCommand: 1}"), 59);
    assert_eq!(code(session, "{}"), 59);
    assert_eq!(code(session, "{find: 'c', filter: {$no: 1}}"), 2);
    assert_eq!(code(session, "{listDatabases: 1}"), 13);
    // The embedding program decides when the server stops.
    let shutdown = parse_doc("{shutdown: 1}").unwrap();
    let reply = session.run("admin", shutdown.as_raw());
    assert_eq!(reply.get("code"), Some(RawValue::Int32(20)), "{reply:?}");
    ok(session, "{ping: 1}");
}

#[test]
fn cursors_belong_to_the_server_and_not_to_a_session() {
    let running = server();
    let one = &mut Session::new(&running.server);
    ok(
        one,
        "{insert: 'c', documents: [{_id: 1}, {_id: 2}, {_id: 3}]}",
    );
    let id = cursor_id(&ok(one, "{find: 'c', batchSize: 1}"));
    assert_ne!(id, 0);
    let other = &mut Session::new(&running.server);
    let more = format!("{{getMore: {{$numberLong: '{id}'}}, collection: 'c'}}");
    let reply = ok(other, &more);
    assert_eq!(cursor_id(&reply), 0);
    assert_eq!(code(one, &more), 43);
}

#[test]
fn transactions_isolate_and_end() {
    let running = server();
    let (inside, outside) = (
        &mut Session::new(&running.server),
        &mut Session::new(&running.server),
    );
    ok(inside, "{create: 'c'}");
    let lsid = "lsid: {id: {$binary: {base64: 'AAAAAAAAAAAAAAAAAAAAAQ==', subType: '04'}}}";
    let arguments = format!("{lsid}, txnNumber: {{$numberLong: '1'}}, autocommit: false");
    ok(
        inside,
        &format!("{{insert: 'c', documents: [{{_id: 1}}], {arguments}, startTransaction: true}}"),
    );
    let count = |session: &mut Session| {
        let reply = ok(session, "{count: 'c'}");
        reply.get("n").and_then(|n| n.as_i64_exact())
    };
    assert_eq!(count(outside), Some(0));
    let commit = parse_doc(&format!("{{commitTransaction: 1, {arguments}}}")).unwrap();
    let reply = inside.run("admin", commit.as_raw());
    assert_eq!(reply.get("ok"), Some(RawValue::Double(1.0)), "{reply:?}");
    assert_eq!(count(outside), Some(1));
}

#[test]
fn two_users_with_one_id_have_two_sessions() {
    let running = server();
    let session = &mut Session::new(&running.server);
    ok(session, "{create: 'c'}");
    let statement = |user: char, n: i32, start: bool| {
        let uid = format!("{}A=", user.to_string().repeat(42));
        let start = if start {
            ", startTransaction: true"
        } else {
            ""
        };
        format!(
            "{{insert: 'c', documents: [{{_id: {n}}}], txnNumber: {{$numberLong: '1'}}, \
             autocommit: false{start}, lsid: {{id: {{$binary: {{base64: \
             'AAAAAAAAAAAAAAAAAAAAAQ==', subType: '04'}}}}, uid: {{$binary: {{base64: '{uid}', \
             subType: '00'}}}}}}}}"
        )
    };
    ok(session, &statement('A', 1, true));
    // In one session the second start would be refused.
    ok(session, &statement('B', 2, true));
    ok(session, &statement('A', 3, false));
    let refused = statement('C', 4, false).replace("subType: '00'", "subType: '04'");
    assert_eq!(code(session, &refused), 14);
}
