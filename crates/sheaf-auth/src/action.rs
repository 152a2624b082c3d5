//! What a user may be allowed to do: the actions of the manual, "Privilege Actions".

macro_rules! actions {
    ($($action:ident = $name:literal;)*) => {
        /// An action that a user may be allowed; see "Privilege Actions" in the manual.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Action {
            $(#[doc = concat!("`", $name, "`.")] $action,)*
        }

        impl Action {
            /// Every action.
            pub const ALL: &'static [Action] = &[$(Action::$action,)*];

            /// As the manual spells it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Action::$action => $name,)*
                }
            }

            /// The action with this name.
            pub fn named(name: &str) -> Option<Action> {
                match name {
                    $($name => Some(Action::$action),)*
                    _ => None,
                }
            }
        }
    };
}

actions! {
    AddShard = "addShard";
    AnalyzeShardKey = "analyzeShardKey";
    AnyAction = "anyAction";
    AppendOplogNote = "appendOplogNote";
    ApplicationMessage = "applicationMessage";
    ApplyOps = "applyOps";
    AuthSchemaUpgrade = "authSchemaUpgrade";
    BypassDefaultMaxTimeMs = "bypassDefaultMaxTimeMS";
    BypassDocumentValidation = "bypassDocumentValidation";
    BypassWriteBlockingMode = "bypassWriteBlockingMode";
    ChangeCustomData = "changeCustomData";
    ChangeOwnCustomData = "changeOwnCustomData";
    ChangeOwnPassword = "changeOwnPassword";
    ChangePassword = "changePassword";
    ChangeStream = "changeStream";
    CheckMetadataConsistency = "checkMetadataConsistency";
    CleanupOrphaned = "cleanupOrphaned";
    CleanupStructuredEncryptionData = "cleanupStructuredEncryptionData";
    ClearJumboFlag = "clearJumboFlag";
    CloseAllDatabases = "closeAllDatabases";
    CollMod = "collMod";
    CollStats = "collStats";
    Compact = "compact";
    CompactStructuredEncryptionData = "compactStructuredEncryptionData";
    ConfigureQueryAnalyzer = "configureQueryAnalyzer";
    ConnPoolStats = "connPoolStats";
    ConnPoolSync = "connPoolSync";
    ConvertToCapped = "convertToCapped";
    CreateCollection = "createCollection";
    CreateIndex = "createIndex";
    CreateRole = "createRole";
    CreateSearchIndexes = "createSearchIndexes";
    CreateUser = "createUser";
    DbHash = "dbHash";
    DbStats = "dbStats";
    DropCollection = "dropCollection";
    DropConnections = "dropConnections";
    DropDatabase = "dropDatabase";
    DropIndex = "dropIndex";
    DropRole = "dropRole";
    DropSearchIndex = "dropSearchIndex";
    DropUser = "dropUser";
    EnableProfiler = "enableProfiler";
    EnableSharding = "enableSharding";
    Find = "find";
    FlushRouterConfig = "flushRouterConfig";
    ForceUuid = "forceUUID";
    Fsync = "fsync";
    GetClusterParameter = "getClusterParameter";
    GetCmdLineOpts = "getCmdLineOpts";
    GetDefaultRwConcern = "getDefaultRWConcern";
    GetLog = "getLog";
    GetParameter = "getParameter";
    GetShardMap = "getShardMap";
    GetShardVersion = "getShardVersion";
    GrantRole = "grantRole";
    HostInfo = "hostInfo";
    Impersonate = "impersonate";
    IndexStats = "indexStats";
    Inprog = "inprog";
    Insert = "insert";
    Internal = "internal";
    InvalidateUserCache = "invalidateUserCache";
    IssueDirectShardOperations = "issueDirectShardOperations";
    KillAnyCursor = "killAnyCursor";
    KillAnySession = "killAnySession";
    KillCursors = "killCursors";
    KillOp = "killop";
    ListClusterCatalog = "listClusterCatalog";
    ListCollections = "listCollections";
    ListDatabases = "listDatabases";
    ListIndexes = "listIndexes";
    ListSearchIndexes = "listSearchIndexes";
    ListSessions = "listSessions";
    ListShards = "listShards";
    LogRotate = "logRotate";
    MoveChunk = "moveChunk";
    MoveCollection = "moveCollection";
    Netstat = "netstat";
    OidReset = "oidReset";
    PerformRawDataOperations = "performRawDataOperations";
    PlanCacheIndexFilter = "planCacheIndexFilter";
    PlanCacheRead = "planCacheRead";
    PlanCacheWrite = "planCacheWrite";
    QuerySettings = "querySettings";
    QueryStatsRead = "queryStatsRead";
    QueryStatsReadTransformed = "queryStatsReadTransformed";
    RefineCollectionShardKey = "refineCollectionShardKey";
    ReIndex = "reIndex";
    Remove = "remove";
    RemoveShard = "removeShard";
    RenameCollectionSameDb = "renameCollectionSameDB";
    ReplSetConfigure = "replSetConfigure";
    ReplSetGetConfig = "replSetGetConfig";
    ReplSetGetStatus = "replSetGetStatus";
    ReplSetHeartbeat = "replSetHeartbeat";
    ReplSetResizeOplog = "replSetResizeOplog";
    ReplSetStateChange = "replSetStateChange";
    ReshardCollection = "reshardCollection";
    Resync = "resync";
    RevokeRole = "revokeRole";
    RotateCertificates = "rotateCertificates";
    ServerStatus = "serverStatus";
    SetAuthenticationRestriction = "setAuthenticationRestriction";
    SetClusterParameter = "setClusterParameter";
    SetDefaultRwConcern = "setDefaultRWConcern";
    SetFeatureCompatibilityVersion = "setFeatureCompatibilityVersion";
    SetParameter = "setParameter";
    SetUserWriteBlockMode = "setUserWriteBlockMode";
    ShardedDataDistribution = "shardedDataDistribution";
    ShardingState = "shardingState";
    Shutdown = "shutdown";
    SplitChunk = "splitChunk";
    SplitVector = "splitVector";
    StorageDetails = "storageDetails";
    Top = "top";
    Touch = "touch";
    TransitionFromDedicatedConfigServer = "transitionFromDedicatedConfigServer";
    TransitionToDedicatedConfigServer = "transitionToDedicatedConfigServer";
    Unlock = "unlock";
    UnshardCollection = "unshardCollection";
    Update = "update";
    UpdateSearchIndex = "updateSearchIndex";
    UseUuid = "useUUID";
    Validate = "validate";
    ViewRole = "viewRole";
    ViewUser = "viewUser";
    // Not MongoDB's.
    CreateBackup = "createBackup";
}

const WORDS: usize = Action::ALL.len().div_ceil(64);

/// A set of actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ActionSet([u64; WORDS]);

impl ActionSet {
    /// No action.
    pub const EMPTY: ActionSet = ActionSet([0; WORDS]);

    /// These actions.
    pub const fn of(actions: &[Action]) -> ActionSet {
        let mut set = ActionSet::EMPTY;
        let mut at = 0;
        while at < actions.len() {
            set = set.with(actions[at]);
            at += 1;
        }
        set
    }

    /// The set with this action.
    #[must_use]
    pub const fn with(mut self, action: Action) -> ActionSet {
        self.0[action as usize / 64] |= 1 << (action as usize % 64);
        self
    }

    /// The actions of both sets.
    #[must_use]
    pub const fn union(mut self, other: ActionSet) -> ActionSet {
        let mut at = 0;
        while at < WORDS {
            self.0[at] |= other.0[at];
            at += 1;
        }
        self
    }

    /// The actions that are not in `other`.
    #[must_use]
    pub fn without(mut self, other: ActionSet) -> ActionSet {
        for (word, other) in self.0.iter_mut().zip(other.0) {
            *word &= !other;
        }
        self
    }

    /// Whether the set allows the action: it contains it or `anyAction`.
    pub fn allows(&self, action: Action) -> bool {
        self.contains(action) || self.contains(Action::AnyAction)
    }

    /// Whether the set contains the action itself.
    pub fn contains(&self, action: Action) -> bool {
        self.0[action as usize / 64] & 1 << (action as usize % 64) != 0
    }

    /// Whether the set has no action.
    pub fn is_empty(&self) -> bool {
        *self == ActionSet::EMPTY
    }

    /// The actions, by name.
    pub fn iter(&self) -> impl Iterator<Item = Action> + '_ {
        let all = Action::ALL.iter().copied();
        all.filter(|action| self.contains(*action))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets() {
        let set = ActionSet::of(&[Action::Find, Action::ViewUser]);
        assert!(set.allows(Action::Find) && !set.allows(Action::Insert));
        assert_eq!(
            set.iter().collect::<Vec<_>>(),
            [Action::Find, Action::ViewUser]
        );
        assert!(ActionSet::of(&[Action::AnyAction]).allows(Action::Insert));
        assert_eq!(
            set.without(ActionSet::of(&[Action::Find])).iter().count(),
            1
        );
        for action in Action::ALL {
            assert_eq!(Action::named(action.name()), Some(*action));
        }
    }
}
