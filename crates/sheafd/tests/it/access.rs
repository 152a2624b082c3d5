//! Access control over a socket: logins, and requests whose parts contradict one another.

use sheaf_auth::Mechanism;
use sheaf_auth::scram::client::Login;
use sheaf_bson::{DocBuf, DocBuilder, RawDoc, RawValue, doc};

use super::client::Client;
use super::server::Server;
use super::write_commands::command;

/// A message of a login.
fn message(name: &str, payload: &str) -> DocBuf {
    let mut out = DocBuilder::new();
    out.append(name, 1);
    out.append("mechanism", Mechanism::ScramSha256.name());
    let bytes = payload.as_bytes();
    out.append("payload", RawValue::Binary { subtype: 0, bytes });
    out.begin_document("options");
    out.append("skipEmptyExchange", true).end();
    out.append("$db", "admin");
    out.finish()
}

fn log_in(client: &mut Client, user: &str, password: &str) {
    let mut login = Login::new(Mechanism::ScramSha256, user, password, "nonce");
    let first = client.ok(&message("saslStart", &login.first()));
    let Some(RawValue::Binary { bytes, .. }) = first.get("payload") else {
        panic!("{first:?}");
    };
    let last = login.last(std::str::from_utf8(bytes).unwrap()).unwrap();
    let mut proof = DocBuilder::new();
    proof.append("saslContinue", 1).append("conversationId", 1);
    let bytes = last.as_bytes();
    proof.append("payload", RawValue::Binary { subtype: 0, bytes });
    proof.append("$db", "admin");
    client.ok(&proof.finish());
}

#[test]
fn a_field_cannot_come_in_the_body_and_as_a_sequence() {
    let server = Server::start_with(&["--auth"]);
    let mut root = server.client();
    root.ok(&command(
        "{createUser: 'root', pwd: 'x', roles: ['root'], $db: 'admin'}",
    ));
    log_in(&mut root, "root", "x");
    root.ok(&command(
        "{createUser: 'writer', pwd: 'x', roles: [{role: 'readWrite', db: 'mine'}], $db: 'admin'}",
    ));
    let mut writer = server.client();
    log_in(&mut writer, "writer", "x");
    let ops = [doc! {"insert": 0, "document": {"_id": 1}}];
    let ops: Vec<RawDoc<'_>> = ops.iter().map(DocBuf::as_raw).collect();
    let [mine, other] = [doc! {"ns": "mine.c"}, doc! {"ns": "other.c"}];
    let bulk = doc! {"bulkWrite": 1, "$db": "admin"};
    let reply = writer.run_with(&bulk, &[("ops", &ops), ("nsInfo", &[mine.as_raw()])]);
    assert!(reply.is_ok(), "{:?}", reply.body);
    let reply = writer.run_with(&bulk, &[("ops", &ops), ("nsInfo", &[other.as_raw()])]);
    assert_eq!(reply.code(), 13, "{:?}", reply.body);
    let both = command("{bulkWrite: 1, nsInfo: [{ns: 'mine.c'}], $db: 'admin'}");
    let sequences: &[(&str, &[RawDoc<'_>])] = &[("ops", &ops), ("nsInfo", &[other.as_raw()])];
    assert!(!writer.run_with(&both, sequences).is_ok());
    let mine = &[mine.as_raw()];
    let twice: &[(&str, &[RawDoc<'_>])] = &[
        ("ops", &ops),
        ("nsInfo", mine),
        ("nsInfo", &[other.as_raw()]),
    ];
    assert!(!writer.run_with(&bulk, twice).is_ok());
    let count = root.ok(&command("{count: 'c', $db: 'other'}"));
    assert_eq!(count.get("n"), Some(RawValue::Int32(0)));
}
