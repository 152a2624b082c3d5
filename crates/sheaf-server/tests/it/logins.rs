//! Logins: SCRAM over the commands, in hello, and what a client can learn from failures.

use sheaf_auth::Mechanism;
use sheaf_auth::scram::Credentials;
use sheaf_auth::scram::client::Login;
use sheaf_bson::json::{parse_doc, shell_doc};
use sheaf_bson::{DocBuf, DocBuilder, RawValue};

use super::client::{Client, Reply, command};
use super::server::Server;

/// The document of a user with keys of these mechanisms, as MongoDB stores it.
fn stored_user(user: &str, password: &str, mechanisms: &[Mechanism]) -> DocBuf {
    let mut doc = DocBuilder::new();
    doc.append("_id", format!("admin.{user}").as_str());
    doc.append("user", user).append("db", "admin");
    doc.begin_document("credentials");
    for mechanism in mechanisms {
        let keys = Credentials::of_password(*mechanism, user, password, 5000).unwrap();
        keys.append(*mechanism, &mut doc);
    }
    doc.end();
    doc.begin_array("roles").end();
    doc.finish()
}

fn insert(client: &mut Client, user: &DocBuf) {
    let mut insert = DocBuilder::new();
    insert.append("insert", "system.users");
    insert.begin_array("documents");
    insert.push_document_bytes(user.as_bytes());
    insert.end();
    insert.append("$db", "admin");
    client.ok(&insert.finish());
}

fn server() -> (Server, Client) {
    let server = Server::start();
    let mut client = server.client();
    insert(&mut client, &stored_user("ada", "pencil", &Mechanism::ALL));
    insert(
        &mut client,
        &stored_user("old", "ink", &[Mechanism::ScramSha1]),
    );
    (server, client)
}

fn binary(key: &str, bytes: &[u8], out: &mut DocBuilder) {
    out.append(key, RawValue::Binary { subtype: 0, bytes });
}

/// `saslStart` on admin.
pub fn start(mechanism: Mechanism, message: &str, skips: bool) -> DocBuf {
    let mut out = DocBuilder::new();
    out.append("saslStart", 1)
        .append("mechanism", mechanism.name());
    binary("payload", message.as_bytes(), &mut out);
    out.begin_document("options");
    out.append("skipEmptyExchange", skips).end();
    out.append("$db", "admin");
    out.finish()
}

/// `saslContinue` on admin.
pub fn proceed(message: &str) -> DocBuf {
    let mut out = DocBuilder::new();
    out.append("saslContinue", 1).append("conversationId", 1);
    binary("payload", message.as_bytes(), &mut out);
    out.append("$db", "admin");
    out.finish()
}

/// The text in `payload`.
pub fn payload(reply: &DocBuf) -> String {
    match reply.get("payload") {
        Some(RawValue::Binary { bytes, .. }) => String::from_utf8(bytes.to_vec()).unwrap(),
        other => panic!("{other:?} in {reply:?}"),
    }
}

/// Logs in to admin. Returns the last reply.
pub fn log_in(client: &mut Client, mechanism: Mechanism, user: &str, password: &str) -> Reply {
    let mut login = Login::new(mechanism, user, password, "fyko+d2lbbFgONRv9qkxdawL");
    let first = client.run(&start(mechanism, &login.first(), true));
    assert!(first.is_ok(), "{first:?}");
    let last = login.last(&payload(&first.body)).unwrap();
    let reply = client.run(&proceed(&last));
    if reply.is_ok() {
        assert_eq!(reply.body.get("done"), Some(RawValue::Boolean(true)));
        assert!(login.is_server(&payload(&reply.body)));
    }
    reply
}

/// The names in `connectionStatus`.
fn users(client: &mut Client) -> String {
    let status = client.ok(&command("{connectionStatus: 1, $db: 'admin'}"));
    let info = status.get("authInfo").unwrap().as_document().unwrap();
    shell_doc(info.to_buf().as_raw())
}

#[test]
fn both_mechanisms_log_in_and_logout_ends_it() {
    let (server, _) = server();
    for mechanism in Mechanism::ALL {
        let mut client = server.client();
        let reply = log_in(&mut client, mechanism, "ada", "pencil");
        assert!(reply.is_ok(), "{reply:?}");
        assert!(users(&mut client).contains(r#"user: "ada", db: "admin""#));
        client.ok(&command("{logout: 1, $db: 'test'}"));
        assert!(users(&mut client).contains("ada"), "of another database");
        client.ok(&command("{logout: 1, $db: 'admin'}"));
        assert!(!users(&mut client).contains("ada"));
    }
}

#[test]
fn a_login_without_skip_takes_one_more_message() {
    let (server, _) = server();
    let mut client = server.client();
    let mechanism = Mechanism::ScramSha256;
    let mut login = Login::new(mechanism, "ada", "pencil", "nonce");
    let first = client.ok(&start(mechanism, &login.first(), false));
    let reply = client.ok(&proceed(&login.last(&payload(&first)).unwrap()));
    assert_eq!(reply.get("done"), Some(RawValue::Boolean(false)));
    assert!(!users(&mut client).contains("ada"));
    let reply = client.ok(&proceed(""));
    assert_eq!(reply.get("done"), Some(RawValue::Boolean(true)));
    assert!(users(&mut client).contains("ada"));
}

#[test]
fn failures_look_alike() {
    let (server, _) = server();
    for (mechanism, user) in [
        (Mechanism::ScramSha256, "ada"),
        (Mechanism::ScramSha1, "ada"),
        (Mechanism::ScramSha256, "nobody"),
        (Mechanism::ScramSha1, "nobody"),
        // Has no keys of this mechanism.
        (Mechanism::ScramSha256, "old"),
    ] {
        let mut salts = Vec::new();
        for _ in 0..2 {
            let mut client = server.client();
            let login = Login::new(mechanism, user, "wrong", "nonce");
            let first = client.ok(&start(mechanism, &login.first(), true));
            let first = payload(&first);
            salts.push(first.split(',').nth(1).unwrap().to_owned());
            let reply = log_in(&mut client, mechanism, user, "wrong");
            let body = &reply.body;
            assert_eq!(
                (reply.code(), reply.code_name()),
                (18, "AuthenticationFailed")
            );
            let message = body.get("errmsg").and_then(|m| m.as_str());
            assert_eq!(message, Some("Authentication failed."), "{user}");
            assert!(!users(&mut client).contains(user));
            // A login that has failed is over.
            assert_eq!(client.run(&proceed("")).code(), 17);
        }
        assert_eq!(salts[0], salts[1], "{user}");
    }
}

#[test]
fn hello_reports_mechanisms_and_begins_a_login() {
    let (server, _) = server();
    let mut client = server.client();
    let mut mechanisms = |user: &str| {
        let hello = format!("{{hello: 1, saslSupportedMechs: '{user}', $db: 'admin'}}");
        let reply = client.ok(&command(&hello));
        let list = reply.get("saslSupportedMechs").unwrap().as_array().unwrap();
        let names: Vec<_> = list.iter().filter_map(|m| m.as_str()).collect();
        names.join(" ")
    };
    assert_eq!(mechanisms("admin.ada"), "SCRAM-SHA-256 SCRAM-SHA-1");
    assert_eq!(mechanisms("admin.old"), "SCRAM-SHA-1");
    assert_eq!(mechanisms("admin.nobody"), "SCRAM-SHA-256 SCRAM-SHA-1");
    let wrong = command("{hello: 1, saslSupportedMechs: 'ada', $db: 'admin'}");
    assert_eq!(client.run(&wrong).code(), 2);

    let mechanism = Mechanism::ScramSha256;
    let mut login = Login::new(mechanism, "ada", "pencil", "nonce");
    let mut speculative = start(mechanism, &login.first(), true);
    let mut out = DocBuilder::from_doc(speculative.as_raw());
    out.append("db", "admin");
    speculative = out.finish();
    let mut hello = DocBuilder::new();
    hello.append("hello", 1);
    hello.append_bson("speculativeAuthenticate", &speculative);
    hello.append("$db", "admin");
    let hello = hello.finish();
    let reply = client.ok(&hello);
    let answer = reply.get("speculativeAuthenticate").unwrap();
    let answer = answer.as_document().unwrap().to_buf();
    assert_eq!(answer.get("ok"), None);
    let reply = client.ok(&proceed(&login.last(&payload(&answer)).unwrap()));
    assert_eq!(reply.get("done"), Some(RawValue::Boolean(true)));
    assert!(users(&mut client).contains("ada"));
    // What cannot begin is left out; hello itself succeeds.
    let other = "{hello: 1, speculativeAuthenticate: {saslStart: 1, mechanism: 'PLAIN', db: 'x'}, \
                 $db: 'admin'}";
    let reply = client.ok(&command(other));
    assert_eq!(reply.get("speculativeAuthenticate"), None);
}

#[test]
fn what_is_absent_is_refused_by_name() {
    let server = Server::start_with(&["--setParameter", "authenticationMechanisms=SCRAM-SHA-256"]);
    let mut client = server.client();
    for name in [
        "PLAIN",
        "GSSAPI",
        "MONGODB-AWS",
        "MONGODB-OIDC",
        "MONGODB-X509",
    ] {
        for text in [
            format!("{{saslStart: 1, mechanism: '{name}', payload: '', $db: 'admin'}}"),
            format!("{{authenticate: 1, mechanism: '{name}', $db: '$external'}}"),
        ] {
            let reply = client.run(&command(&text));
            assert_eq!(reply.code(), 334, "{reply:?}");
            let message = reply.body.get("errmsg").and_then(|m| m.as_str()).unwrap();
            assert!(message.contains(name), "{message}");
        }
    }
    let disabled = "{saslStart: 1, mechanism: 'SCRAM-SHA-1', payload: '', $db: 'admin'}";
    assert_eq!(client.run(&command(disabled)).code(), 334);
    let malformed = "{saslStart: 1, mechanism: 'SCRAM-SHA-256', payload: 'AAAA', $db: 'admin'}";
    assert_eq!(client.run(&command(malformed)).code(), 18);
    assert_eq!(client.run(&proceed("x")).code(), 17);
    let shown = client.ok(&command(
        "{getParameter: 1, authenticationMechanisms: 1, $db: 'admin'}",
    ));
    let wanted = parse_doc("{authenticationMechanisms: ['SCRAM-SHA-256']}").unwrap();
    let name = "authenticationMechanisms";
    assert_eq!(shown.get(name), wanted.get(name));
}

#[test]
fn messages_of_a_login_are_not_recorded() {
    let (server, mut client) = server();
    client.ok(&command("{profile: 2, $db: 'admin'}"));
    let mut other = server.client();
    assert!(log_in(&mut other, Mechanism::ScramSha256, "ada", "pencil").is_ok());
    let profile = client.ok(&command(
        "{find: 'system.profile', filter: {'command.saslContinue': 1}, $db: 'admin'}",
    ));
    let text = shell_doc(profile.as_raw());
    assert!(text.contains(r####"payload: "###""####), "{text}");
}
