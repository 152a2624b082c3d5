//! The built-in roles, from the manual's page "Built-In Roles".
//!
//! The first group exists in every database, the second in `admin` only. A role is a list of
//! privileges; where the manual says that a role combines others, it has their privileges, and
//! inherits nothing.

use crate::action::{Action, ActionSet};
use crate::name::RoleName;
use crate::privilege::{Privilege, merge};
use crate::resource::Pattern;

use Action::*;

/// Roles of every database.
const OF_ANY_DATABASE: &[&str] = &[
    "read",
    "readWrite",
    "dbAdmin",
    "userAdmin",
    "dbOwner",
    "enableSharding",
];

/// Roles of `admin` only.
const OF_ADMIN: &[&str] = &[
    "readAnyDatabase",
    "readWriteAnyDatabase",
    "dbAdminAnyDatabase",
    "userAdminAnyDatabase",
    "clusterManager",
    "clusterMonitor",
    "hostManager",
    "clusterAdmin",
    "backup",
    "restore",
    "directShardOperations",
    "searchCoordinator",
    "root",
    "__system",
];

const READ: ActionSet = ActionSet::of(&[
    ChangeStream,
    CollStats,
    DbHash,
    DbStats,
    Find,
    KillCursors,
    ListCollections,
    ListIndexes,
    ListSearchIndexes,
    PerformRawDataOperations,
    PlanCacheRead,
]);

const READ_WRITE: ActionSet = READ.union(ActionSet::of(&[
    CleanupStructuredEncryptionData,
    CompactStructuredEncryptionData,
    ConvertToCapped,
    CreateCollection,
    CreateIndex,
    CreateSearchIndexes,
    DropCollection,
    DropIndex,
    DropSearchIndex,
    Insert,
    Remove,
    RenameCollectionSameDb,
    Update,
    UpdateSearchIndex,
]));

const DB_ADMIN: ActionSet = ActionSet::of(&[
    BypassDocumentValidation,
    CollMod,
    CollStats,
    Compact,
    ConvertToCapped,
    CreateCollection,
    CreateIndex,
    CreateSearchIndexes,
    DbStats,
    DropCollection,
    DropDatabase,
    DropIndex,
    DropSearchIndex,
    EnableProfiler,
    ListCollections,
    ListIndexes,
    ListSearchIndexes,
    PlanCacheIndexFilter,
    PlanCacheRead,
    PlanCacheWrite,
    ReIndex,
    RenameCollectionSameDb,
    UpdateSearchIndex,
    Validate,
]);

/// `dbAdmin` on `system.profile`.
const PROFILE: ActionSet = ActionSet::of(&[
    ChangeStream,
    CollStats,
    ConvertToCapped,
    CreateCollection,
    DbHash,
    DbStats,
    DropCollection,
    Find,
    KillCursors,
    ListCollections,
    ListIndexes,
    ListSearchIndexes,
    PlanCacheRead,
]);

const USER_ADMIN: ActionSet = ActionSet::of(&[
    ChangeCustomData,
    ChangePassword,
    CreateRole,
    CreateUser,
    DropRole,
    DropUser,
    GrantRole,
    RevokeRole,
    SetAuthenticationRestriction,
    ViewRole,
    ViewUser,
]);

const ENABLE_SHARDING: ActionSet = ActionSet::of(&[
    AnalyzeShardKey,
    EnableSharding,
    MoveCollection,
    RefineCollectionShardKey,
    ReshardCollection,
    UnshardCollection,
]);

/// What `clusterManager` and `clusterMonitor` read of the server's own databases.
const READ_OWN: ActionSet = ActionSet::of(&[
    CollStats,
    DbHash,
    DbStats,
    Find,
    KillCursors,
    ListCollections,
    ListIndexes,
    ListSearchIndexes,
    PlanCacheRead,
]);

const MANAGE_CLUSTER: ActionSet = ActionSet::of(&[
    AddShard,
    AppendOplogNote,
    ApplicationMessage,
    CheckMetadataConsistency,
    CleanupOrphaned,
    FlushRouterConfig,
    GetClusterParameter,
    GetDefaultRwConcern,
    ListSessions,
    ListShards,
    MoveCollection,
    QuerySettings,
    RemoveShard,
    ReplSetConfigure,
    ReplSetGetConfig,
    ReplSetGetStatus,
    ReplSetResizeOplog,
    ReplSetStateChange,
    Resync,
    SetClusterParameter,
    SetDefaultRwConcern,
    SetFeatureCompatibilityVersion,
    TransitionFromDedicatedConfigServer,
    TransitionToDedicatedConfigServer,
    UnshardCollection,
]);

const MANAGE_SHARDING: ActionSet = ActionSet::of(&[
    AnalyzeShardKey,
    ClearJumboFlag,
    ConfigureQueryAnalyzer,
    EnableSharding,
    MoveChunk,
    RefineCollectionShardKey,
    ReshardCollection,
]);

const MONITOR_CLUSTER: ActionSet = ActionSet::of(&[
    ConnPoolStats,
    GetCmdLineOpts,
    GetDefaultRwConcern,
    GetLog,
    GetParameter,
    GetShardMap,
    HostInfo,
    Inprog,
    ListClusterCatalog,
    ListDatabases,
    ListSessions,
    ListShards,
    ReplSetGetConfig,
    ReplSetGetStatus,
    ServerStatus,
    ShardingState,
    Top,
    // Listed with the databases, but it applies to the cluster.
    UseUuid,
]);

const MANAGE_HOST: ActionSet = ActionSet::of(&[
    ApplicationMessage,
    CloseAllDatabases,
    Compact,
    ConnPoolSync,
    // Not in the manual, which names no role for it.
    DropConnections,
    FlushRouterConfig,
    Fsync,
    InvalidateUserCache,
    KillAnyCursor,
    KillAnySession,
    KillOp,
    LogRotate,
    OidReset,
    Resync,
    RotateCertificates,
    SetParameter,
    Shutdown,
    Touch,
    Unlock,
    // Not MongoDB's.
    CreateBackup,
]);

/// `restore` on ordinary collections of the server's databases.
const RESTORE_OWN: ActionSet = ActionSet::of(&[
    BypassDocumentValidation,
    CollMod,
    CreateCollection,
    CreateIndex,
    DropCollection,
    Insert,
    UpdateSearchIndex,
]);

const RESTORE: ActionSet = RESTORE_OWN.union(ActionSet::of(&[
    ChangeCustomData,
    ChangePassword,
    ConvertToCapped,
    CreateRole,
    CreateSearchIndexes,
    CreateUser,
    DropRole,
    DropUser,
    GrantRole,
    RevokeRole,
    ViewRole,
    ViewUser,
]));

/// The names of the built-in roles of a database.
pub fn names(db: &str) -> impl Iterator<Item = &'static str> {
    let admin: &[&str] = if db == "admin" { OF_ADMIN } else { &[] };
    OF_ANY_DATABASE.iter().chain(admin).copied()
}

/// Whether the role is built in.
pub fn is_builtin(role: &RoleName) -> bool {
    names(&role.db).any(|name| name == role.role)
}

/// The privileges of a built-in role; `None` if there is no such role.
pub fn privileges(role: &RoleName) -> Option<Vec<Privilege>> {
    if !is_builtin(role) {
        return None;
    }
    let mut list = List(Vec::new());
    list.add_role(&role.role, &role.db);
    Some(list.0)
}

struct List(Vec<Privilege>);

impl List {
    fn add(&mut self, resource: Pattern, actions: ActionSet) {
        merge(&mut self.0, Privilege::new(resource, actions));
    }

    fn on_cluster(&mut self, actions: ActionSet) {
        self.add(Pattern::Cluster, actions);
    }

    fn on_collection(&mut self, db: &str, name: &str, actions: ActionSet) {
        self.add(Pattern::collection(db, name), actions);
    }

    /// `db` is empty for the roles of all databases.
    fn on_database(&mut self, db: &str, actions: ActionSet) {
        self.add(Pattern::database(db), actions);
    }

    fn add_role(&mut self, role: &str, db: &str) {
        const LIST_DATABASES: ActionSet = ActionSet::of(&[ListDatabases]);
        match role {
            "read" => self.read(db, READ),
            "readWrite" => self.read(db, READ_WRITE),
            "dbAdmin" => self.db_admin(db),
            "userAdmin" => self.on_database(db, USER_ADMIN),
            "dbOwner" => {
                for part in ["readWrite", "dbAdmin", "userAdmin"] {
                    self.add_role(part, db);
                }
            }
            "enableSharding" => self.on_database(db, ENABLE_SHARDING),
            "readAnyDatabase" => {
                self.read("", READ);
                self.on_cluster(LIST_DATABASES);
            }
            "readWriteAnyDatabase" => {
                self.read("", READ_WRITE);
                self.on_cluster(LIST_DATABASES);
            }
            "dbAdminAnyDatabase" => {
                self.db_admin("");
                self.on_cluster(LIST_DATABASES.with(ApplyOps));
            }
            "userAdminAnyDatabase" => self.user_admin_any(),
            "clusterManager" => self.cluster_manager(),
            "clusterMonitor" => self.cluster_monitor(),
            "hostManager" => {
                self.on_cluster(MANAGE_HOST);
                self.on_database("", ActionSet::of(&[KillCursors]));
            }
            "clusterAdmin" => {
                for part in ["clusterManager", "clusterMonitor", "hostManager"] {
                    self.add_role(part, db);
                }
                self.on_database("", ActionSet::of(&[DropDatabase]));
            }
            "backup" => self.backup(),
            "restore" => self.restore(),
            "directShardOperations" => {
                self.on_cluster(ActionSet::of(&[IssueDirectShardOperations]));
            }
            "searchCoordinator" => {
                self.add_role("readAnyDatabase", db);
                self.read("__mdb_internal_search", READ_WRITE);
                self.on_cluster(ActionSet::of(&[BypassDefaultMaxTimeMs]));
            }
            "root" => self.root(db),
            "__system" => self.add(Pattern::Anything, ActionSet::of(&[AnyAction])),
            _ => {}
        }
    }

    fn read(&mut self, db: &str, actions: ActionSet) {
        self.on_database(db, actions);
        self.on_collection(db, "system.js", actions);
    }

    fn db_admin(&mut self, db: &str) {
        self.on_database(db, DB_ADMIN);
        self.on_collection(db, "system.profile", PROFILE);
    }

    fn user_admin_any(&mut self) {
        const USERS: ActionSet = ActionSet::of(&[
            CollStats,
            CreateIndex,
            CreateSearchIndexes,
            DbHash,
            DbStats,
            DropIndex,
            DropSearchIndex,
            Find,
            KillCursors,
            PlanCacheRead,
        ]);
        self.on_database("", USER_ADMIN);
        self.on_cluster(ActionSet::of(&[
            AuthSchemaUpgrade,
            InvalidateUserCache,
            ListDatabases,
        ]));
        self.on_collection("admin", "system.users", USERS);
        self.on_collection("admin", "system.roles", USERS);
        self.on_collection("", "system.users", USERS);
    }

    fn cluster_manager(&mut self) {
        const WRITE_OWN: ActionSet =
            ActionSet::of(&[EnableSharding, Insert, MoveChunk, Remove, Update]);
        self.on_cluster(MANAGE_CLUSTER);
        self.on_database("", MANAGE_SHARDING);
        self.on_database("config", READ_OWN.union(WRITE_OWN));
        self.on_collection("config", "system.js", READ_OWN);
        self.on_database("local", WRITE_OWN);
        self.on_collection("local", "system.replset", READ_OWN);
    }

    fn cluster_monitor(&mut self) {
        self.on_cluster(MONITOR_CLUSTER);
        self.on_database("", ActionSet::of(&[CollStats, DbStats, IndexStats]));
        for db in ["config", "local"] {
            self.on_database(db, READ_OWN.with(IndexStats));
            self.on_collection(db, "system.js", READ_OWN);
        }
        let find = ActionSet::of(&[Find]);
        self.on_collection("local", "system.replset", find);
        self.on_collection("", "system.profile", find);
    }

    fn backup(&mut self) {
        let find = ActionSet::of(&[Find]);
        self.add(
            Pattern::Anything,
            ActionSet::of(&[
                ListDatabases,
                ListCollections,
                ListIndexes,
                ListSearchIndexes,
            ]),
        );
        self.on_cluster(ActionSet::of(&[
            AppendOplogNote,
            GetParameter,
            ListDatabases,
            ServerStatus,
            SetUserWriteBlockMode,
            CreateBackup,
        ]));
        for db in ["", "config", "local"] {
            self.on_database(db, find);
        }
        for name in ["system.js", "system.profile", "system.users"] {
            self.on_collection("", name, find);
        }
        for name in ["system.users", "system.roles", "system.version"] {
            self.on_collection("admin", name, find);
        }
        self.add(Pattern::Buckets(String::new(), String::new()), find);
        self.on_collection("config", "settings", ActionSet::of(&[Find, Insert, Update]));
    }

    fn restore(&mut self) {
        const USERS: ActionSet = RESTORE_OWN.union(ActionSet::of(&[Find, Remove, Update]));
        self.on_cluster(ActionSet::of(&[
            BypassWriteBlockingMode,
            GetParameter,
            SetUserWriteBlockMode,
        ]));
        self.add(Pattern::Anything, ActionSet::of(&[ListCollections]));
        self.on_database("", RESTORE);
        for db in ["config", "local"] {
            self.on_database(db, RESTORE_OWN);
        }
        self.on_collection("", "system.js", RESTORE_OWN);
        self.on_collection("admin", "system.version", RESTORE_OWN.with(Find));
        self.on_collection("admin", "system.roles", ActionSet::of(&[CreateIndex]));
        self.on_collection("admin", "system.users", USERS);
        self.on_collection("", "system.users", USERS);
        self.on_collection("", "system.views", ActionSet::of(&[DropCollection]));
        self.add(Pattern::Buckets(String::new(), String::new()), RESTORE_OWN);
    }

    fn root(&mut self, db: &str) {
        for part in [
            "readWriteAnyDatabase",
            "dbAdminAnyDatabase",
            "userAdminAnyDatabase",
            "clusterAdmin",
            "restore",
            "backup",
        ] {
            self.add_role(part, db);
        }
        self.on_cluster(ActionSet::of(&[BypassDefaultMaxTimeMs]));
        self.add(Pattern::Anything, ActionSet::of(&[Validate]));
        let images = ActionSet::of(&[Find, Remove]);
        self.on_collection("config", "system.preimages", images);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::privilege::PrivilegeSet;
    use crate::resource::On;

    fn set(role: &str, db: &str) -> PrivilegeSet {
        PrivilegeSet::new(&privileges(&RoleName::new(role, db)).unwrap())
    }

    #[test]
    fn roles_exist_where_the_manual_has_them() {
        assert!(is_builtin(&RoleName::new("read", "shop")));
        assert!(is_builtin(&RoleName::new("root", "admin")));
        assert!(!is_builtin(&RoleName::new("root", "shop")));
        assert!(privileges(&RoleName::new("reader", "shop")).is_none());
    }

    #[test]
    fn what_roles_allow() {
        let read = set("read", "shop");
        assert!(read.allows(Find, On::Collection("shop", "c")));
        assert!(read.allows(Find, On::Collection("shop", "system.js")));
        assert!(!read.allows(Find, On::Collection("shop", "system.profile")));
        assert!(!read.allows(Find, On::Collection("home", "c")));
        assert!(!read.allows(Insert, On::Collection("shop", "c")));
        let any = set("readWriteAnyDatabase", "admin");
        assert!(any.allows(Insert, On::Collection("shop", "c")));
        for own in ["local", "config"] {
            assert!(!any.allows(Find, On::Collection(own, "c")));
        }
        assert!(!any.allows(Find, On::Collection("admin", "system.users")));
        let root = set("root", "admin");
        for (action, on) in [
            (Find, On::Collection("admin", "system.users")),
            (Validate, On::Collection("shop", "system.profile")),
            (Shutdown, On::Cluster),
            (CreateUser, On::Database("$external")),
            (DropDatabase, On::Database("shop")),
        ] {
            assert!(root.allows(action, on), "{action:?}");
        }
        for (action, on) in [
            (AnyAction, On::Anything),
            (Internal, On::Cluster),
            (Impersonate, On::Cluster),
            (DropCollection, On::Collection("admin", "system.roles")),
        ] {
            assert!(!root.allows(action, on), "{action:?}");
        }
        assert!(set("__system", "admin").allows(Internal, On::Cluster));
        let owner = set("dbOwner", "shop");
        assert!(owner.allows(DropDatabase, On::Database("shop")));
        assert!(owner.allows(CreateUser, On::Database("shop")));
        assert!(!owner.allows(CreateUser, On::Database("admin")));
    }
}
