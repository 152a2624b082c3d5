//! Access control: what a connection may do before and after its login, whose cursors, sessions and
//! operations it may touch, and when changes of users act.

use sheaf_auth::Mechanism;
use sheaf_bson::json::shell_doc;
use sheaf_bson::{DocBuilder, RawValue};

use super::client::{Client, command};
use super::logins::log_in;
use super::server::Server;

const MECHANISM: Mechanism = Mechanism::ScramSha256;

/// A command on the database `db`.
fn on(db: &str, text: &str) -> String {
    format!("{}, $db: '{db}'}}", text.strip_suffix('}').unwrap())
}

fn code(client: &mut Client, db: &str, text: &str) -> i64 {
    client.run(&command(&on(db, text))).code()
}

fn message(client: &mut Client, db: &str, text: &str) -> String {
    let reply = client.run(&command(&on(db, text)));
    let message = reply.body.get("errmsg").and_then(|m| m.as_str());
    message.unwrap_or_default().to_owned()
}

fn shown(client: &mut Client, db: &str, text: &str) -> String {
    shell_doc(client.ok(&command(&on(db, text))).as_raw())
}

fn server() -> Server {
    Server::start_with(&["--auth", "true"])
}

/// A client that is logged in as `admin.<user>`.
fn client_of(server: &Server, user: &str) -> Client {
    let mut client = server.client();
    let reply = log_in(&mut client, MECHANISM, user, "x");
    assert!(reply.is_ok(), "{user}: {reply:?}");
    client
}

/// Creates users of admin with these roles, through the first of them, which is `root`.
fn with_users(users: &[(&str, &str)]) -> (Server, Client) {
    let server = server();
    let mut first = server.client();
    let root = "{createUser: 'root', pwd: 'x', roles: ['root']}";
    assert_eq!(code(&mut first, "admin", root), 0);
    let mut root = client_of(&server, "root");
    for (user, roles) in users {
        let create = format!("{{createUser: '{user}', pwd: 'x', roles: {roles}}}");
        assert_eq!(code(&mut root, "admin", &create), 0, "{user}");
    }
    (server, root)
}

const READER: (&str, &str) = ("reader", "[{role: 'read', db: 'shop'}]");
const WRITER: (&str, &str) = ("writer", "[{role: 'readWrite', db: 'shop'}]");

#[test]
fn before_a_login_little_is_possible() {
    let (server, _root) = with_users(&[]);
    let mut client = server.client();
    for open in [
        "{hello: 1}",
        "{isMaster: 1}",
        "{ping: 1}",
        "{buildInfo: 1}",
        "{connectionStatus: 1}",
        "{logout: 1}",
    ] {
        assert_eq!(code(&mut client, "admin", open), 0, "{open}");
    }
    for closed in [
        "{find: 'c'}",
        "{listDatabases: 1}",
        "{createUser: 'eve', pwd: 'x', roles: ['root']}",
        "{getMore: NumberLong(1), collection: 'c'}",
        "{startSession: 1}",
        "{currentOp: 1, $ownOps: true}",
        "{getParameter: '*'}",
        "{explain: {find: 'c'}}",
        "{aggregate: 1, pipeline: [], cursor: {}}",
        "{aggregate: 1, pipeline: [{$documents: []}], cursor: {}}",
    ] {
        assert_eq!(code(&mut client, "admin", closed), 13, "{closed}");
    }
    assert_eq!(
        message(&mut client, "shop", "{find: 'c'}"),
        "Command find requires authentication"
    );
    assert_eq!(code(&mut client, "shop", "{noSuchCommand: 1}"), 59);
}

#[test]
fn the_localhost_exception_ends_with_the_first_user() {
    let server = server();
    let mut client = server.client();
    for closed in [
        "{find: 'c'}",
        "{listDatabases: 1}",
        "{insert: 'c', documents: [{}]}",
    ] {
        assert_eq!(code(&mut client, "admin", closed), 13, "{closed}");
    }
    let create = "{createUser: 'root', pwd: 'x', roles: ['root']}";
    assert_eq!(code(&mut client, "shop", create), 13);
    assert_eq!(code(&mut client, "admin", create), 0);
    let second = "{createUser: 'eve', pwd: 'x', roles: ['root']}";
    assert_eq!(code(&mut client, "admin", second), 13);
    let without = [
        "--auth",
        "true",
        "--setParameter",
        "enableLocalhostAuthBypass=false",
    ];
    let server = Server::start_with(&without);
    assert_eq!(code(&mut server.client(), "admin", create), 13);
}

#[test]
fn roles_decide() {
    let (server, mut root) = with_users(&[READER, WRITER]);
    let mut reader = client_of(&server, "reader");
    let mut writer = client_of(&server, "writer");
    let insert = "{insert: 'c', documents: [{_id: 1}]}";
    assert_eq!(code(&mut writer, "shop", insert), 0);
    assert_eq!(code(&mut reader, "shop", "{find: 'c'}"), 0);
    assert_eq!(code(&mut reader, "shop", insert), 13);
    assert_eq!(code(&mut writer, "home", insert), 13);
    assert_eq!(code(&mut root, "home", insert), 0);
    let words = message(&mut reader, "shop", insert);
    assert!(
        words.starts_with("not authorized on shop to execute command { insert: \"c\""),
        "{words}"
    );
    // What exists and what does not look alike.
    let other = message(&mut reader, "home", "{find: 'c'}");
    assert_eq!(
        other.replace("\"c\"", "\"d\""),
        message(&mut reader, "home", "{find: 'd'}")
    );
    for refused in [
        "{aggregate: 'c', pipeline: [{$out: 'd'}], cursor: {}}",
        "{aggregate: 'c', pipeline: [{$merge: 'd'}], cursor: {}}",
        "{aggregate: 'c', pipeline: [{$lookup: {from: {db: 'home', coll: 'c'}, pipeline: [], as: 'x'}}], cursor: {}}",
        "{aggregate: 'c', pipeline: [{$facet: {a: [{$lookup: {from: 'system.profile', pipeline: [], as: 'x'}}]}}], cursor: {}}",
        "{aggregate: 'c', pipeline: [{$unionWith: 'system.profile'}], cursor: {}}",
        "{aggregate: 'c', pipeline: [{$indexStats: {}}], cursor: {}}",
        "{explain: {delete: 'c', deletes: [{q: {}, limit: 0}]}}",
        "{findAndModify: 'c', query: {}, remove: true}",
        "{create: 'd'}",
        "{mapReduce: 'c', map: 'f', reduce: 'f', out: 'd'}",
        "{createUser: 'eve', pwd: 'x', roles: []}",
        "{usersInfo: 1}",
        "{dropDatabase: 1}",
    ] {
        assert_eq!(code(&mut reader, "shop", refused), 13, "{refused}");
    }
    assert_eq!(code(&mut reader, "admin", "{shutdown: 1}"), 13);
    assert_eq!(code(&mut reader, "admin", "{usersInfo: 'reader'}"), 0);
    assert_eq!(code(&mut reader, "admin", "{usersInfo: 'writer'}"), 13);
    let upsert = |upsert| {
        format!("{{update: 'c', updates: [{{q: {{_id: 1}}, u: {{}}, upsert: {upsert}}}]}}")
    };
    assert_eq!(code(&mut writer, "shop", &upsert(true)), 0);
    assert_eq!(code(&mut reader, "shop", &upsert(false)), 13);
    // root is not allowed everything.
    assert_eq!(
        code(
            &mut root,
            "admin",
            "{insert: 'system.roles', documents: [{_id: 1}]}"
        ),
        13
    );
    assert_eq!(code(&mut root, "admin", "{applyOps: []}"), 13);
}

#[test]
fn fields_that_occur_twice_hide_nothing() {
    let (server, mut root) = with_users(&[READER]);
    root.ok(&command(&on(
        "shop",
        "{insert: 'c', documents: [{_id: 1}]}",
    )));
    root.ok(&command(&on(
        "home",
        "{insert: 'c', documents: [{_id: 1}]}",
    )));
    let mut reader = client_of(&server, "reader");
    let twice = |inner: &dyn Fn(&mut DocBuilder)| {
        let mut out = DocBuilder::new();
        out.append("aggregate", "c");
        inner(&mut out);
        out.begin_document("cursor").end();
        out.append("$db", "shop");
        out.finish()
    };
    let pipelines = twice(&|out| {
        out.begin_array("pipeline").end();
        out.begin_array("pipeline");
        out.push_begin_document();
        out.append("$out", "d").end();
        out.end();
    });
    assert_eq!(reader.run(&pipelines).code(), 40413);
    let from = twice(&|out| {
        out.begin_array("pipeline");
        out.push_begin_document();
        out.begin_document("$lookup");
        out.append("from", "c");
        out.append("from", "system.profile");
        out.begin_array("pipeline").end();
        out.append("as", "x");
        out.end();
        out.end();
        out.end();
    });
    assert_eq!(reader.run(&from).code(), 13);
}

#[test]
fn changes_act_on_open_connections() {
    let (server, mut root) = with_users(&[READER]);
    root.ok(&command(&on(
        "shop",
        "{insert: 'c', documents: [{_id: 1}]}",
    )));
    let mut reader = client_of(&server, "reader");
    let find = "{find: 'c'}";
    assert_eq!(code(&mut reader, "shop", find), 0);
    let revoke = "{revokeRolesFromUser: 'reader', roles: [{role: 'read', db: 'shop'}]}";
    assert_eq!(code(&mut root, "admin", revoke), 0);
    assert_eq!(code(&mut reader, "shop", find), 13);
    let role = "{createRole: 'r', privileges: [{resource: {db: 'shop', collection: 'c'}, \
                actions: ['find']}], roles: []}";
    assert_eq!(code(&mut root, "admin", role), 0);
    assert_eq!(
        code(
            &mut root,
            "admin",
            "{grantRolesToUser: 'reader', roles: ['r']}"
        ),
        0
    );
    assert_eq!(code(&mut reader, "shop", find), 0);
    assert_eq!(
        code(&mut root, "admin", "{updateRole: 'r', privileges: []}"),
        0
    );
    assert_eq!(code(&mut reader, "shop", find), 13);
    // A direct write, as by mongorestore.
    let write = "{update: 'system.users', updates: [{q: {_id: 'admin.reader'}, \
                 u: {$set: {roles: [{role: 'read', db: 'shop'}]}}}]}";
    assert_eq!(code(&mut root, "admin", write), 0);
    assert_eq!(code(&mut reader, "shop", find), 0);
    // Another user of the same name is another user.
    assert_eq!(code(&mut root, "admin", "{dropUser: 'reader'}"), 0);
    let again = "{createUser: 'reader', pwd: 'x', roles: [{role: 'read', db: 'shop'}]}";
    assert_eq!(code(&mut root, "admin", again), 0);
    assert_eq!(
        message(&mut reader, "shop", find),
        "Command find requires authentication"
    );
}

#[test]
fn views_need_rights_on_the_view_only() {
    let (server, mut root) = with_users(&[
        ("viewer", "[]"),
        ("admin", "[{role: 'dbAdmin', db: 'shop'}]"),
        READER,
    ]);
    root.ok(&command(&on(
        "shop",
        "{insert: 'c', documents: [{_id: 1, secret: 2}]}",
    )));
    let view = "{create: 'v', viewOn: 'c', pipeline: [{$unset: 'secret'}]}";
    assert_eq!(code(&mut root, "shop", view), 0);
    let role = "{createRole: 'r', privileges: [{resource: {db: 'shop', collection: 'v'}, \
                actions: ['find']}], roles: []}";
    assert_eq!(code(&mut root, "admin", role), 0);
    assert_eq!(
        code(
            &mut root,
            "admin",
            "{grantRolesToUser: 'viewer', roles: ['r']}"
        ),
        0
    );
    let mut viewer = client_of(&server, "viewer");
    assert!(!shown(&mut viewer, "shop", "{find: 'v'}").contains("secret"));
    assert_eq!(code(&mut viewer, "shop", "{find: 'c'}"), 13);
    // Who may not read a view may define it without reading what it reads.
    let mut admin = client_of(&server, "admin");
    assert_eq!(
        code(
            &mut admin,
            "shop",
            "{create: 'w', viewOn: 'c', pipeline: []}"
        ),
        0
    );
    assert_eq!(code(&mut admin, "shop", "{find: 'w'}"), 13);
    let names = shown(
        &mut viewer,
        "shop",
        "{listCollections: 1, nameOnly: true, authorizedCollections: true}",
    );
    assert!(
        names.contains("\"v\"") && !names.contains("\"c\""),
        "{names}"
    );
    assert_eq!(code(&mut viewer, "shop", "{listCollections: 1}"), 13);
    let databases = shown(&mut viewer, "admin", "{listDatabases: 1, nameOnly: true}");
    assert!(
        databases.contains("shop") && !databases.contains("admin"),
        "{databases}"
    );
    let all = "{listDatabases: 1, authorizedDatabases: false}";
    assert_eq!(code(&mut viewer, "admin", all), 13);
}

#[test]
fn roles_are_visible_to_pipelines() {
    let (server, mut root) = with_users(&[READER]);
    root.ok(&command(&on(
        "shop",
        "{insert: 'c', documents: [{_id: 1, level: 'read'}, {_id: 2, level: 'root'}]}",
    )));
    let view = "{create: 'v', viewOn: 'c', pipeline: [{$redact: {$cond: [{$in: ['$level', \
                '$$USER_ROLES.role']}, '$$KEEP', '$$PRUNE']}}]}";
    assert_eq!(code(&mut root, "shop", view), 0);
    let mut reader = client_of(&server, "reader");
    let seen = shown(&mut reader, "shop", "{find: 'v'}");
    assert!(
        seen.contains("_id: 1") && !seen.contains("_id: 2"),
        "{seen}"
    );
    let seen = shown(&mut root, "shop", "{find: 'v'}");
    assert!(
        !seen.contains("_id: 1") && seen.contains("_id: 2"),
        "{seen}"
    );
    let own = "{aggregate: 1, pipeline: [{$documents: [{r: '$$USER_ROLES'}]}], cursor: {}}";
    let own = shown(&mut reader, "shop", own);
    assert!(
        own.contains(r#"r: [ { _id: "shop.read", role: "read", db: "shop" } ]"#),
        "{own}"
    );
}

#[test]
fn cursors_and_sessions_have_owners() {
    let (server, mut root) = with_users(&[READER, WRITER]);
    root.ok(&command(&on(
        "shop",
        "{insert: 'c', documents: [{}, {}, {}]}",
    )));
    let mut reader = client_of(&server, "reader");
    let mut writer = client_of(&server, "writer");
    let cursor = |client: &mut Client, lsid: &str| {
        let find = on("shop", &format!("{{find: 'c', batchSize: 1{lsid}}}"));
        let reply = client.ok(&command(&find));
        let cursor = reply.get("cursor").unwrap().as_document().unwrap();
        cursor.get("id").unwrap().as_i64_exact().unwrap()
    };
    let id = cursor(&mut reader, "");
    let more = format!("{{getMore: NumberLong('{id}'), collection: 'c', batchSize: 1}}");
    assert_eq!(code(&mut writer, "shop", &more), 13);
    assert_eq!(code(&mut root, "shop", &more), 13);
    assert_eq!(code(&mut reader, "shop", &more), 0);
    let kill = format!("{{killCursors: 'c', cursors: [NumberLong('{id}')]}}");
    assert_eq!(code(&mut writer, "shop", &kill), 13);
    assert_eq!(code(&mut reader, "shop", &kill), 0);
    let id = cursor(&mut reader, "");
    let kill = format!("{{killCursors: 'c', cursors: [NumberLong('{id}')]}}");
    assert_eq!(code(&mut root, "shop", &kill), 0);

    // One id, two users, two sessions.
    let lsid = ", lsid: {id: UUID('00000000-0000-4000-8000-000000000001')}";
    let begin = format!(
        "{{insert: 'c', documents: [{{_id: 'mine'}}]{lsid}, txnNumber: NumberLong(1), \
         autocommit: false, startTransaction: true}}"
    );
    assert_eq!(code(&mut writer, "shop", &begin), 0);
    let find = format!("{{find: 'c'{lsid}, txnNumber: NumberLong(1), autocommit: false}}");
    assert_eq!(code(&mut reader, "shop", &find), 251, "NoSuchTransaction");
    let end = format!("{{endSessions: [{{id: UUID('00000000-0000-4000-8000-000000000001')}}]}}");
    assert_eq!(code(&mut reader, "admin", &end), 0);
    assert_eq!(code(&mut writer, "shop", &find), 0);
    let other = on("shop", "{find: 'c'}");
    let mut forged = DocBuilder::from_doc(command(&other).as_raw());
    forged.begin_document("lsid");
    forged.append(
        "id",
        RawValue::Binary {
            subtype: 4,
            bytes: &[7; 16],
        },
    );
    forged.append(
        "uid",
        RawValue::Binary {
            subtype: 0,
            bytes: &[7; 32],
        },
    );
    forged.end();
    assert_eq!(reader.run(&forged.finish()).code(), 13);
    let sessions = "{aggregate: 1, pipeline: [{$listLocalSessions: {}}], cursor: {}}";
    assert_eq!(
        shown(&mut root, "admin", sessions)
            .matches("lastUse")
            .count(),
        0
    );
    assert_eq!(
        shown(&mut writer, "admin", sessions)
            .matches("lastUse")
            .count(),
        1
    );
    let all = "{aggregate: 1, pipeline: [{$listLocalSessions: {allUsers: true}}], cursor: {}}";
    assert_eq!(code(&mut writer, "admin", all), 13);
    assert_eq!(code(&mut root, "admin", all), 0);
    assert_eq!(code(&mut writer, "admin", "{killAllSessions: []}"), 13);
    assert_eq!(
        code(
            &mut writer,
            "admin",
            "{killAllSessions: [{user: 'reader', db: 'admin'}]}"
        ),
        13
    );
    assert_eq!(
        code(
            &mut writer,
            "admin",
            "{killAllSessions: [{user: 'writer', db: 'admin'}]}"
        ),
        0
    );
    assert_eq!(code(&mut writer, "shop", &find), 251, "NoSuchTransaction");
}

#[test]
fn operations_of_others_are_hidden() {
    let (server, mut root) = with_users(&[READER]);
    let mut reader = client_of(&server, "reader");
    let own = shown(&mut reader, "admin", "{currentOp: 1, $ownOps: true}");
    assert!(
        own.contains(r#"effectiveUsers: [ { user: "reader", db: "admin" } ]"#),
        "{own}"
    );
    assert_eq!(code(&mut reader, "admin", "{currentOp: 1}"), 13);
    assert_eq!(code(&mut root, "admin", "{currentOp: 1}"), 0);
    let stage =
        |spec: &str| format!("{{aggregate: 1, pipeline: [{{$currentOp: {spec}}}], cursor: {{}}}}");
    let idle = stage("{idleConnections: true}");
    assert!(!shown(&mut reader, "admin", &idle).contains("\"root\""));
    assert_eq!(code(&mut reader, "admin", &stage("{allUsers: true}")), 13);
    let all = stage("{allUsers: true, idleConnections: true}");
    assert!(shown(&mut root, "admin", &all).contains("\"reader\""));
    assert_eq!(code(&mut reader, "admin", "{killOp: 1, op: 1}"), 13);
    assert_eq!(code(&mut root, "admin", "{killOp: 1, op: 1}"), 0);
}

#[test]
fn users_change_their_own_password_if_allowed() {
    let (server, mut root) = with_users(&[("ada", "[]"), ("bob", "[]")]);
    let role = "{createRole: 'own', privileges: [{resource: {db: 'admin', collection: ''}, \
                actions: ['changeOwnPassword', 'changeOwnCustomData']}], roles: []}";
    assert_eq!(code(&mut root, "admin", role), 0);
    let mut ada = client_of(&server, "ada");
    let change = "{updateUser: 'ada', pwd: 'y', customData: {a: 1}}";
    assert_eq!(code(&mut ada, "admin", change), 13);
    assert_eq!(
        code(
            &mut root,
            "admin",
            "{grantRolesToUser: 'ada', roles: ['own']}"
        ),
        0
    );
    assert_eq!(code(&mut ada, "admin", change), 0);
    assert_eq!(code(&mut ada, "admin", "{updateUser: 'bob', pwd: 'y'}"), 13);
    assert_eq!(
        code(&mut ada, "admin", "{updateUser: 'ada', roles: ['root']}"),
        13
    );
    let words = message(
        &mut ada,
        "admin",
        "{createUser: 'eve', pwd: 'hidden', roles: []}",
    );
    assert!(
        words.contains("###") && !words.contains("hidden"),
        "{words}"
    );
}
