//! Users and roles: every command, and what they store.

use sheaf_auth::Mechanism;
use sheaf_bson::json::shell_doc;

use super::client::{Client, command, script};
use super::logins::log_in;
use super::server::Server;

/// A command on the database `db`.
fn on(db: &str, text: &str) -> String {
    format!("{}, $db: '{db}'}}", text.strip_suffix('}').unwrap())
}

fn admin(text: &str) -> String {
    on("admin", text)
}

fn reply(client: &mut Client, text: &str) -> String {
    shell_doc(client.ok(&command(text)).as_raw())
}

/// Runs commands that succeed, or fail with this code.
fn codes(client: &mut Client, db: &str, rows: &[(&str, i64)]) {
    for (text, expected) in rows {
        let reply = client.run(&command(&on(db, text)));
        assert_eq!(reply.code(), *expected, "{text}: {reply:?}");
        assert_eq!(reply.is_ok(), *expected == 0, "{text}: {reply:?}");
    }
}

#[test]
fn a_user_from_creation_to_drop() {
    let server = Server::start();
    let mut client = server.client();
    codes(
        &mut client,
        "shop",
        &[
            (
                "{createUser: 'ada', pwd: 'pencil', roles: ['read'], customData: {n: 1}}",
                0,
            ),
            ("{createUser: 'ada', pwd: 'pencil', roles: []}", 51003),
            ("{createUser: 'bob', pwd: 'x', roles: ['reader']}", 31),
            ("{createUser: 'bob', pwd: 'x'}", 40414),
            ("{createUser: 'bob', roles: []}", 2),
            ("{createUser: 'bob', pwd: '', roles: []}", 2),
            ("{createUser: '', pwd: 'x', roles: []}", 2),
            ("{createUser: 1, pwd: 'x', roles: []}", 14),
            (
                "{createUser: 'bob', pwd: 'x', roles: [], mechanisms: []}",
                2,
            ),
            (
                "{createUser: 'bob', pwd: 'x', roles: [], mechanisms: ['PLAIN']}",
                2,
            ),
            (
                "{createUser: 'bob', pwd: 'x', roles: [], digestPassword: false}",
                2,
            ),
            ("{createUser: 'bob', pwd: 'x', roles: [], no: 1}", 40415),
            (
                "{createUser: 'bob', pwd: 'x', roles: [], authenticationRestrictions: [{x: 1}]}",
                2,
            ),
            ("{updateUser: 'ada'}", 2),
            ("{updateUser: 'eve', pwd: 'x'}", 11),
            ("{updateUser: 'ada', roles: ['nothing']}", 31),
            (
                "{grantRolesToUser: 'ada', roles: [{role: 'readWrite', db: 'home'}, 'read']}",
                0,
            ),
            ("{grantRolesToUser: 'ada', roles: []}", 2),
            ("{grantRolesToUser: 'eve', roles: ['read']}", 11),
            ("{revokeRolesFromUser: 'ada', roles: ['read']}", 0),
        ],
    );
    let shown = reply(&mut client, &on("shop", "{usersInfo: 'ada'}"));
    for part in [
        r#"_id: "shop.ada""#,
        "userId: UUID(",
        r#"user: "ada", db: "shop", customData: { n: 1 }"#,
        r#"roles: [ { role: "readWrite", db: "home" } ]"#,
        r#"mechanisms: [ "SCRAM-SHA-1", "SCRAM-SHA-256" ]"#,
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains("storedKey"), "{shown}");
    codes(
        &mut client,
        "shop",
        &[
            (
                "{updateUser: 'ada', mechanisms: ['SCRAM-SHA-256'], customData: {n: 2}}",
                0,
            ),
            ("{updateUser: 'ada', mechanisms: ['SCRAM-SHA-1']}", 2),
            ("{dropUser: 'ada'}", 0),
            ("{dropUser: 'ada'}", 11),
            ("{createUser: 'a', pwd: 'x', roles: []}", 0),
            ("{createUser: 'b', pwd: 'x', roles: []}", 0),
        ],
    );
    script(
        &mut client,
        &[(
            &on("shop", "{dropAllUsersFromDatabase: 1}"),
            "{n: 2, ok: 1.0}",
        )],
    );
    codes(
        &mut client,
        "local",
        &[("{createUser: 'a', pwd: 'x', roles: []}", 2)],
    );
    codes(
        &mut client,
        "$external",
        &[
            ("{createUser: 'CN=a', roles: []}", 0),
            ("{createUser: 'CN=b', pwd: 'x', roles: []}", 2),
        ],
    );
}

#[test]
fn passwords_change_and_privileges_are_reported() {
    let server = Server::start();
    let mut client = server.client();
    let roles = "[{role: 'read', db: 'shop'}]";
    client.ok(&command(&admin(&format!(
        "{{createUser: 'ada', pwd: 'one', roles: {roles}}}"
    ))));
    let mut ada = server.client();
    assert!(log_in(&mut ada, Mechanism::ScramSha256, "ada", "one").is_ok());
    client.ok(&command(&admin("{updateUser: 'ada', pwd: 'two'}")));
    let mut ada = server.client();
    assert_eq!(
        log_in(&mut ada, Mechanism::ScramSha1, "ada", "one").code(),
        18
    );
    assert!(log_in(&mut ada, Mechanism::ScramSha1, "ada", "two").is_ok());
    let status = reply(
        &mut ada,
        &admin("{connectionStatus: 1, showPrivileges: true}"),
    );
    assert!(
        status.contains(r#"authenticatedUserRoles: [ { role: "read", db: "shop" } ]"#),
        "{status}"
    );
    assert!(
        status
            .contains(r#"{ resource: { db: "shop", collection: "" }, actions: [ "changeStream","#),
        "{status}"
    );
    let parameter = reply(
        &mut client,
        &admin("{getParameter: 1, authSchemaVersion: 1}"),
    );
    assert!(parameter.contains("authSchemaVersion: 5"));
    let version = admin("{find: 'system.version', filter: {_id: 'authSchema'}}");
    assert!(reply(&mut client, &version).contains("currentVersion: 5"));
}

#[test]
fn forms_and_options_of_users_info() {
    let server = Server::start();
    let mut client = server.client();
    for (db, user) in [("a", "u"), ("a", "v"), ("b", "u")] {
        let create = format!("{{createUser: '{user}', pwd: 'x', roles: ['read']}}");
        client.ok(&command(&on(db, &create)));
    }
    let mut ids = |text: &str| {
        let reply = client.ok(&command(&on("a", text)));
        let users = reply.get("users").unwrap().as_array().unwrap();
        let ids: Vec<_> = users
            .iter()
            .filter_map(|user| user.as_document()?.get("_id")?.as_str())
            .collect();
        ids.join(" ")
    };
    assert_eq!(ids("{usersInfo: 1}"), "a.u a.v");
    assert_eq!(ids("{usersInfo: 'v'}"), "a.v");
    assert_eq!(ids("{usersInfo: {user: 'u', db: 'b'}}"), "b.u");
    assert_eq!(ids("{usersInfo: ['v', {user: 'u', db: 'b'}]}"), "a.v b.u");
    assert_eq!(ids("{usersInfo: {forAllDBs: true}}"), "a.u a.v b.u");
    assert_eq!(ids("{usersInfo: 1, filter: {user: 'u'}}"), "a.u");
    assert_eq!(ids("{usersInfo: 'nobody'}"), "");
    let all = reply(
        &mut client,
        &on(
            "a",
            "{usersInfo: 'u', showPrivileges: true, showCredentials: true, \
             showAuthenticationRestrictions: true}",
        ),
    );
    for part in [
        "storedKey",
        r#"inheritedRoles: [ { role: "read", db: "a" } ]"#,
        "inheritedPrivileges: [",
        "authenticationRestrictions: []",
        "inheritedAuthenticationRestrictions: []",
    ] {
        assert!(all.contains(part), "{part}: {all}");
    }
    codes(
        &mut client,
        "a",
        &[
            ("{usersInfo: 1, showPrivileges: true}", 20),
            ("{usersInfo: {forAllDBs: false}}", 2),
            ("{usersInfo: {user: 'u'}}", 2),
            ("{usersInfo: true}", 2),
        ],
    );
}

#[test]
fn roles_inherit_without_circles() {
    let server = Server::start();
    let mut client = server.client();
    let find = "[{resource: {db: 'shop', collection: 'c'}, actions: ['find']}]";
    let elsewhere = "[{resource: {db: 'home', collection: 'c'}, actions: ['find']}]";
    let rows = [
        (format!("{{createRole: 'a', privileges: {find}, roles: []}}"), 0),
        ("{createRole: 'a', privileges: [], roles: []}".into(), 51002),
        ("{createRole: 'read', privileges: [], roles: []}".into(), 2),
        ("{createRole: 'b', privileges: [], roles: ['a', 'read']}".into(), 0),
        ("{createRole: 'c', privileges: [], roles: ['b']}".into(), 0),
        ("{createRole: 'd', privileges: []}".into(), 40414),
        ("{createRole: 'd', roles: []}".into(), 40414),
        ("{createRole: 'd', privileges: [], roles: ['none']}".into(), 31),
        ("{createRole: 'd', privileges: [], roles: [{role: 'read', db: 'x'}]}".into(), 49),
        (format!("{{createRole: 'd', privileges: {elsewhere}, roles: []}}"), 49),
        ("{createRole: 'd', privileges: [{resource: {cluster: true}, actions: []}], roles: []}".into(), 49),
        ("{createRole: 'd', privileges: [{resource: {db: 'shop', collection: ''}, actions: ['fly']}], roles: []}".into(), 2),
        ("{grantRolesToRole: 'a', roles: ['c']}".into(), 49),
        ("{grantRolesToRole: 'a', roles: ['a']}".into(), 49),
        ("{updateRole: 'a', roles: ['b']}".into(), 49),
        ("{updateRole: 'a'}".into(), 2),
        ("{updateRole: 'read', roles: []}".into(), 49),
        ("{updateRole: 'none', roles: []}".into(), 31),
        ("{grantPrivilegesToRole: 'a', privileges: []}".into(), 2),
        (format!("{{grantPrivilegesToRole: 'a', privileges: {elsewhere}}}"), 49),
        (
            "{grantPrivilegesToRole: 'a', privileges: [{resource: {db: 'shop', collection: 'c'}, \
             actions: ['insert', 'update']}]}"
                .into(),
            0,
        ),
        (
            "{revokePrivilegesFromRole: 'a', privileges: [{resource: {db: 'shop', collection: 'c'}, \
             actions: ['update']}]}"
                .into(),
            0,
        ),
        ("{createUser: 'u', pwd: 'x', roles: ['c']}".into(), 0),
    ];
    for (text, code) in rows {
        codes(&mut client, "shop", &[(&text, code)]);
    }
    script(
        &mut client,
        &[(
            &on("shop", "{rolesInfo: 'a', showPrivileges: true}"),
            "{roles: [{_id: 'shop.a', role: 'a', db: 'shop', privileges: [{resource: \
             {db: 'shop', collection: 'c'}, actions: ['find', 'insert']}], roles: [], \
             isBuiltin: false, inheritedRoles: [], inheritedPrivileges: [{resource: \
             {db: 'shop', collection: 'c'}, actions: ['find', 'insert']}]}]}",
        )],
    );
    let info = reply(&mut client, &on("shop", "{rolesInfo: 'c'}"));
    assert!(
        info.contains(
            r#"inheritedRoles: [ { role: "b", db: "shop" }, { role: "a", db: "shop" }, { role: "read", db: "shop" } ]"#
        ),
        "{info}"
    );
    let fragment = on(
        "shop",
        "{rolesInfo: ['c'], showPrivileges: 'asUserFragment'}",
    );
    let fragment = reply(&mut client, &fragment);
    assert!(
        fragment
            .contains(r#"userFragment: { roles: [ { role: "c", db: "shop" } ], inheritedRoles:"#)
            && fragment.contains(r#""find", "insert""#),
        "{fragment}"
    );
    let all = reply(&mut client, &on("shop", "{rolesInfo: 1}"));
    assert_eq!(all.matches("isBuiltin: false").count(), 3, "{all}");
    let builtin = on("shop", "{rolesInfo: 1, showBuiltinRoles: true}");
    assert_eq!(
        reply(&mut client, &builtin)
            .matches("isBuiltin: true")
            .count(),
        6
    );
    codes(
        &mut client,
        "shop",
        &[
            ("{rolesInfo: 1, showPrivileges: 'asUserFragment'}", 20),
            ("{revokeRolesFromRole: 'c', roles: ['b']}", 0),
            ("{grantRolesToRole: 'c', roles: ['a']}", 0),
            ("{dropRole: 'a'}", 0),
            ("{dropRole: 'a'}", 31),
            ("{dropRole: 'read'}", 49),
        ],
    );
    let info = reply(&mut client, &on("shop", "{rolesInfo: 'c'}"));
    assert!(info.contains("inheritedRoles: []"), "{info}");
    let dropped = reply(&mut client, &on("shop", "{dropAllRolesFromDatabase: 1}"));
    assert_eq!(dropped, "{ n: 2, ok: 1.0 }");
    let user = reply(&mut client, &on("shop", "{usersInfo: 'u'}"));
    assert!(user.contains("roles: []"), "{user}");
}

#[test]
fn restrictions_limit_where_a_user_logs_in() {
    let server = Server::start();
    let mut client = server.client();
    let list = "[{clientSource: ['10.0.0.0/8']}]";
    codes(
        &mut client,
        "admin",
        &[
            (
                &format!(
                    "{{createUser: 'ada', pwd: 'x', roles: [], authenticationRestrictions: {list}}}"
                ),
                0,
            ),
            (
                &format!(
                    "{{createRole: 'far', privileges: [], roles: [], authenticationRestrictions: {list}}}"
                ),
                0,
            ),
            ("{createUser: 'bob', pwd: 'x', roles: ['far']}", 0),
        ],
    );
    // The clients of this test have no address.
    for user in ["ada", "bob"] {
        let mut other = server.client();
        assert_eq!(
            log_in(&mut other, Mechanism::ScramSha256, user, "x").code(),
            18
        );
    }
    let role = admin("{rolesInfo: 'far', showAuthenticationRestrictions: true}");
    let role = reply(&mut client, &role);
    assert!(
        role.contains(r#"authenticationRestrictions: [ [ { clientSource: [ "10.0.0.0/8" ] } ] ]"#),
        "{role}"
    );
    codes(
        &mut client,
        "admin",
        &[
            ("{updateUser: 'ada', authenticationRestrictions: []}", 0),
            ("{updateRole: 'far', authenticationRestrictions: []}", 0),
        ],
    );
    for user in ["ada", "bob"] {
        let mut other = server.client();
        assert!(log_in(&mut other, Mechanism::ScramSha256, user, "x").is_ok());
    }
}
