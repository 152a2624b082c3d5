//! What each built-in role may run, from the manual's lists of actions of each role and of actions
//! of each command.

use sheaf_auth::{PrivilegeSet, RoleName, UserName, builtin};
use sheaf_bson::json::parse_doc;
use sheaf_server::command::find;
use sheaf_server::command_facts::{Asked, Caller};

/// A letter of the table below, the role, its database.
const ROLES: &[(char, &str, &str)] = &[
    ('r', "read", "d"),
    ('w', "readWrite", "d"),
    ('a', "dbAdmin", "d"),
    ('u', "userAdmin", "d"),
    ('o', "dbOwner", "d"),
    ('R', "readAnyDatabase", "admin"),
    ('W', "readWriteAnyDatabase", "admin"),
    ('A', "dbAdminAnyDatabase", "admin"),
    ('U', "userAdminAnyDatabase", "admin"),
    ('m', "clusterManager", "admin"),
    ('c', "clusterMonitor", "admin"),
    ('h', "hostManager", "admin"),
    ('C', "clusterAdmin", "admin"),
    ('b', "backup", "admin"),
    ('s', "restore", "admin"),
    ('*', "root", "admin"),
    ('_', "__system", "admin"),
];

/// Commands on the database `d`, and the roles that may run them.
const COMMANDS: &[(&str, &str)] = &[
    ("{find: 'c'}", "rwoRWb*_"),
    ("{count: 'c'}", "rwoRWb*_"),
    ("{distinct: 'c', key: 'a'}", "rwoRWb*_"),
    ("{find: 'system.js'}", "rwoRWb*_"),
    ("{find: 'system.profile'}", "aoAcCb*_"),
    ("{insert: 'c', documents: []}", "woWs*_"),
    ("{update: 'c', updates: []}", "woW*_"),
    ("{delete: 'c', deletes: []}", "woW*_"),
    ("{findAndModify: 'c', remove: true}", "woW*_"),
    (
        "{insert: 'c', documents: [], bypassDocumentValidation: true}",
        "os*_",
    ),
    ("{create: 'c'}", "waoWAs*_"),
    ("{drop: 'c'}", "waoWAs*_"),
    ("{dropDatabase: 1}", "aoAC*_"),
    ("{collMod: 'c'}", "aoAs*_"),
    ("{createIndexes: 'c', indexes: []}", "waoWAs*_"),
    ("{dropIndexes: 'c', index: '*'}", "waoWA*_"),
    ("{listIndexes: 'c'}", "rwaoRWAb*_"),
    ("{listCollections: 1}", "rwaoRWAbs*_"),
    ("{convertToCapped: 'c', size: 1}", "waoWAs*_"),
    ("{renameCollection: 'd.a', to: 'd.b'}", "waoWA*_"),
    ("{validate: 'c'}", "aoA*_"),
    ("{compact: 'c'}", "aoA*_"),
    ("{reIndex: 'c'}", "aoA*_"),
    ("{collStats: 'c'}", "rwaoRWAcC*_"),
    ("{dbStats: 1}", "rwaoRWAcC*_"),
    ("{dbHash: 1}", "rwoRW*_"),
    ("{profile: 1}", "aoA*_"),
    ("{planCacheClear: 'c'}", "aoA*_"),
    ("{explain: {delete: 'c', deletes: []}}", "woW*_"),
    ("{createUser: 'x', pwd: 'x', roles: ['read']}", "uoUs*_"),
    ("{updateUser: 'x', pwd: 'x'}", "uoUs*_"),
    ("{dropUser: 'x'}", "uoUs*_"),
    ("{dropAllUsersFromDatabase: 1}", "uoUs*_"),
    ("{grantRolesToUser: 'x', roles: ['read']}", "uoUs*_"),
    ("{revokeRolesFromUser: 'x', roles: ['read']}", "uoUs*_"),
    ("{usersInfo: 1}", "uoUs*_"),
    ("{usersInfo: {forAllDBs: true}}", "Us*_"),
    ("{createRole: 'x', privileges: [], roles: []}", "uoUs*_"),
    ("{updateRole: 'x', roles: []}", "Us*_"),
    ("{dropRole: 'x'}", "uoUs*_"),
    ("{dropAllRolesFromDatabase: 1}", "uoUs*_"),
    ("{rolesInfo: 1}", "uoUs*_"),
    ("{invalidateUserCache: 1}", "UhC*_"),
    (
        "{listDatabases: 1, authorizedDatabases: false}",
        "RWAUcCb*_",
    ),
    ("{serverStatus: 1}", "cCb*_"),
    ("{currentOp: 1}", "cC*_"),
    ("{getParameter: 1}", "cCbs*_"),
    ("{setParameter: 1}", "hC*_"),
    ("{shutdown: 1}", "hC*_"),
    ("{fsync: 1}", "hC*_"),
    ("{fsyncUnlock: 1}", "hC*_"),
    ("{logRotate: 1}", "hC*_"),
    ("{top: 1}", "cC*_"),
    ("{hostInfo: 1}", "cC*_"),
    ("{getLog: '*'}", "cC*_"),
    ("{getCmdLineOpts: 1}", "cC*_"),
    ("{connPoolStats: 1}", "cC*_"),
    ("{replSetGetStatus: 1}", "mcC*_"),
    ("{replSetGetConfig: 1}", "mcC*_"),
    ("{replSetInitiate: 1}", "mC*_"),
    ("{getDefaultRWConcern: 1}", "mcC*_"),
    ("{setDefaultRWConcern: 1}", "mC*_"),
    ("{getClusterParameter: '*'}", "mC*_"),
    ("{setClusterParameter: {}}", "mC*_"),
    ("{setFeatureCompatibilityVersion: '8.2'}", "mC*_"),
    ("{setUserWriteBlockMode: 1}", "bs*_"),
    ("{killAllSessions: []}", "hC*_"),
    ("{applyOps: []}", "_"),
];

/// Stages of a pipeline on `d.c`.
const STAGES: &[(&str, &str)] = &[
    ("{$match: {}}", "rwoRWb*_"),
    ("{$lookup: {from: 'x', as: 'y'}}", "rwoRWb*_"),
    ("{$graphLookup: {from: 'x'}}", "rwoRWb*_"),
    ("{$unionWith: 'x'}", "rwoRWb*_"),
    (
        "{$unionWith: {coll: 'x', pipeline: [{$indexStats: {}}]}}",
        "*_",
    ),
    ("{$out: 'x'}", "woW*_"),
    ("{$merge: 'x'}", "woW*_"),
    ("{$changeStream: {}}", "rwoRW*_"),
    ("{$collStats: {}}", "rwaoRWAcC*_"),
    ("{$indexStats: {}}", "cC*_"),
    ("{$planCacheStats: {}}", "rwaoRWA*_"),
    ("{$listSearchIndexes: {}}", "rwaoRWAb*_"),
    ("{$currentOp: {allUsers: true}}", "cC*_"),
    ("{$listSessions: {allUsers: true}}", "mcC*_"),
    ("{$querySettings: {}}", "mC*_"),
];

/// The letters of the roles that may run the command.
fn allowed(command: &str) -> String {
    let body = parse_doc(command).unwrap();
    let name = body.as_raw().first().unwrap().key().to_owned();
    let row = find(&name).unwrap_or_else(|| panic!("no command {name}"));
    let user = UserName::new("someone", "admin");
    let mut letters = String::new();
    for (letter, role, db) in ROLES {
        let role = RoleName::new(*role, *db);
        let set = PrivilegeSet::new(&builtin::privileges(&role).unwrap());
        let asked = Asked {
            db: "d",
            body: body.as_raw(),
            sequences: &[],
            caller: Some(Caller {
                name: &user,
                roles: std::slice::from_ref(&role),
                allowed: &set,
            }),
        };
        let required = row.command.privileges.required(&asked);
        assert!(!required.is_empty(), "{command} requires nothing");
        if required.iter().all(|(action, on)| set.allows(*action, *on)) {
            letters.push(*letter);
        }
    }
    letters
}

#[test]
fn commands_by_role() {
    let wrong: Vec<String> = COMMANDS
        .iter()
        .map(|(command, expected)| (command, expected, allowed(command)))
        .filter(|(_, expected, found)| *expected != found)
        .map(|(command, expected, found)| format!("{command}: {found}, not {expected}"))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn stages_by_role() {
    let wrong: Vec<String> = STAGES
        .iter()
        .map(|(stage, expected)| {
            let command = format!("{{aggregate: 'c', pipeline: [{stage}]}}");
            (stage, expected, allowed(&command))
        })
        .filter(|(_, expected, found)| *expected != found)
        .map(|(stage, expected, found)| format!("{stage}: {found}, not {expected}"))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
