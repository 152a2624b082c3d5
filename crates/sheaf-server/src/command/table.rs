//! The command table.

use super::Compat::{Differs, Same};
use super::Kind::{Admin, Diagnostic, Handshake, Read, Session, Write};
use super::{Command, Compat, Kind};
use super::{
    aggregate, apply_ops, build_info, bulk_write, clone_collection_as_capped, coll_mod, coll_stats,
    compact, conn_pool_stats, connection_status, convert_to_capped, count, create, create_backup,
    create_indexes, current_op, db_hash, db_stats, delete, distinct, drop, drop_database,
    drop_indexes, explain, find, find_and_modify, fsync, get_cmd_line_opts, get_log, get_more,
    get_parameter, hello, host_info, insert, kill_cursors, kill_op, list_collections,
    list_commands, list_databases, list_indexes, log_rotate, logout, ping, plan_cache_clear,
    plan_cache_filters, profile, rename_collection, repl_set, rw_concern, search_indexes,
    server_status, sessions, set_parameter, shutdown, top, transaction, update, validate,
    whatsmyuri,
};
use sheaf_bson::{DocBuilder, Error};

type Run = fn(&mut super::context::CommandContext<'_>, &mut DocBuilder) -> Result<(), Error>;

const fn on_any(
    name: &'static str,
    kind: Kind,
    run: Run,
    compat: Compat,
    help: &'static str,
) -> Command {
    Command {
        name,
        aliases: &[],
        kind,
        admin_only: false,
        help,
        compat,
        run,
    }
}

const fn on_admin(
    name: &'static str,
    kind: Kind,
    run: Run,
    compat: Compat,
    help: &'static str,
) -> Command {
    Command {
        admin_only: true,
        ..on_any(name, kind, run, compat, help)
    }
}

const fn also(aliases: &'static [&'static str], command: Command) -> Command {
    Command { aliases, ..command }
}

/// Every command, grouped as COMPAT.md shows them.
pub static COMMANDS: &[Command] = &[
    // Documents.
    on_any("find", Read, find::run, Same, "reads documents"),
    on_any(
        "getMore",
        Read,
        get_more::run,
        Same,
        "the next batch of a cursor",
    ),
    on_any(
        "killCursors",
        Read,
        kill_cursors::run,
        Same,
        "closes cursors",
    ),
    on_any("count", Read, count::run, Same, "how many documents match"),
    on_any(
        "distinct",
        Read,
        distinct::run,
        Same,
        "the distinct values of a path",
    ),
    on_any(
        "aggregate",
        Read,
        aggregate::run,
        Differs("only the stages and expressions listed below"),
        "runs a pipeline",
    ),
    on_any(
        "explain",
        Read,
        explain::run,
        Same,
        "the plan of another command",
    ),
    on_any("insert", Write, insert::run, Same, "stores documents"),
    on_any("update", Write, update::run, Same, "changes documents"),
    on_any("delete", Write, delete::run, Same, "removes documents"),
    also(
        &["findandmodify"],
        on_any(
            "findAndModify",
            Write,
            find_and_modify::run,
            Same,
            "changes or removes one document and returns it",
        ),
    ),
    on_admin(
        "bulkWrite",
        Write,
        bulk_write::run,
        Same,
        "inserts, updates and deletes over several collections",
    ),
    // Collections and indexes.
    on_any(
        "create",
        Admin,
        create::run,
        Differs("options of storage engines are refused"),
        "makes a collection",
    ),
    on_any(
        "convertToCapped",
        Admin,
        convert_to_capped::run,
        Same,
        "makes a collection a capped one",
    ),
    on_any(
        "cloneCollectionAsCapped",
        Admin,
        clone_collection_as_capped::run,
        Same,
        "copies the newest documents into a new capped collection",
    ),
    on_any("drop", Admin, drop::run, Same, "removes a collection"),
    on_any(
        "dropDatabase",
        Admin,
        drop_database::run,
        Same,
        "removes a database",
    ),
    on_any(
        "listCollections",
        Admin,
        list_collections::run,
        Same,
        "the collections of a database",
    ),
    on_admin(
        "listDatabases",
        Admin,
        list_databases::run,
        Same,
        "the databases and their sizes",
    ),
    on_admin(
        "renameCollection",
        Admin,
        rename_collection::run,
        Differs("between databases it is a change of name, not a copy"),
        "gives a collection another name",
    ),
    on_any(
        "applyOps",
        Admin,
        apply_ops::run,
        Differs("operations are always applied one by one"),
        "applies entries of an oplog",
    ),
    on_any(
        "collMod",
        Admin,
        coll_mod::run,
        Same,
        "changes options of a collection or index",
    ),
    on_any(
        "createIndexes",
        Admin,
        create_indexes::run,
        Differs("ordered, wildcard and hashed indexes"),
        "builds indexes",
    ),
    also(
        &["deleteIndexes"],
        on_any(
            "dropIndexes",
            Admin,
            drop_indexes::run,
            Same,
            "removes indexes",
        ),
    ),
    on_any(
        "listIndexes",
        Admin,
        list_indexes::run,
        Same,
        "the indexes of a collection",
    ),
    on_any(
        "createSearchIndexes",
        Admin,
        search_indexes::create,
        Differs(
            "of type vectorSearch only, ready when it answers; vectors are kept whole, whatever the quantization",
        ),
        "builds vector indexes",
    ),
    on_any(
        "updateSearchIndex",
        Admin,
        search_indexes::update,
        Differs("answers when the new definition serves; until then the old one does"),
        "gives a search index another definition",
    ),
    on_any(
        "dropSearchIndex",
        Admin,
        search_indexes::drop,
        Same,
        "removes a search index",
    ),
    on_any(
        "validate",
        Admin,
        validate::run,
        Differs("a check of the data is always full; repair is refused"),
        "compares indexes with the documents",
    ),
    on_any(
        "compact",
        Admin,
        compact::run,
        Differs("gives back what all collections have left free, for they share a file"),
        "gives free disk space back",
    ),
    on_admin(
        "createBackup",
        Admin,
        create_backup::run,
        Differs("ours: Percona Server for MongoDB has it, with more places to put the copy"),
        "copies everything into a folder",
    ),
    on_any(
        "planCacheClear",
        Admin,
        plan_cache_clear::run,
        Same,
        "forgets cached plans",
    ),
    on_any(
        "planCacheSetFilter",
        Admin,
        plan_cache_filters::set,
        Same,
        "which indexes queries of a shape may use",
    ),
    on_any(
        "planCacheListFilters",
        Admin,
        plan_cache_filters::list,
        Same,
        "the index filters of a collection",
    ),
    on_any(
        "planCacheClearFilters",
        Admin,
        plan_cache_filters::clear,
        Same,
        "takes index filters away",
    ),
    // The server.
    on_any("ping", Diagnostic, ping::run, Same, "answers"),
    also(
        &["buildinfo"],
        on_any(
            "buildInfo",
            Diagnostic,
            build_info::run,
            Same,
            "version and build facts",
        ),
    ),
    on_any(
        "connPoolStats",
        Diagnostic,
        conn_pool_stats::run,
        Same,
        "connections to other servers",
    ),
    on_any("hostInfo", Diagnostic, host_info::run, Same, "the machine"),
    on_any(
        "serverStatus",
        Diagnostic,
        server_status::run,
        Differs("the sections that exist"),
        "counters for monitoring",
    ),
    also(
        &["collstats"],
        on_any(
            "collStats",
            Diagnostic,
            coll_stats::run,
            Differs(
                "what is free is the common file's (sheaf.fileFreeBytes of serverStatus) and no collection's: freeStorageSize is 0",
            ),
            "sizes of a collection",
        ),
    ),
    also(
        &["dbstats"],
        on_any(
            "dbStats",
            Diagnostic,
            db_stats::run,
            Differs(
                "what is free is the common file's (sheaf.fileFreeBytes of serverStatus) and no collection's: freeStorageSize is 0",
            ),
            "sizes of a database",
        ),
    ),
    also(
        &["dbhash"],
        on_any(
            "dbHash",
            Diagnostic,
            db_hash::run,
            Same,
            "sums over the documents of each collection",
        ),
    ),
    on_admin(
        "top",
        Diagnostic,
        top::run,
        Same,
        "how often and how long each collection was used",
    ),
    on_any(
        "connectionStatus",
        Diagnostic,
        connection_status::run,
        Differs("there are no users yet"),
        "who is authenticated",
    ),
    on_any(
        "whatsmyuri",
        Diagnostic,
        whatsmyuri::run,
        Same,
        "the client's address",
    ),
    on_any(
        "listCommands",
        Diagnostic,
        list_commands::run,
        Same,
        "the commands there are",
    ),
    on_any(
        "profile",
        Diagnostic,
        profile::run,
        Same,
        "the profiler's level",
    ),
    on_admin(
        "getLog",
        Diagnostic,
        get_log::run,
        Same,
        "the newest log lines",
    ),
    on_admin(
        "getCmdLineOpts",
        Diagnostic,
        get_cmd_line_opts::run,
        Same,
        "what the server was started with",
    ),
    on_admin(
        "getParameter",
        Diagnostic,
        get_parameter::run,
        Differs("the parameters that exist; no showDetails"),
        "server parameters",
    ),
    on_admin(
        "setParameter",
        Admin,
        set_parameter::run,
        Differs("the parameters that exist"),
        "changes server parameters",
    ),
    on_admin(
        "currentOp",
        Diagnostic,
        current_op::run,
        Same,
        "operations in progress",
    ),
    on_admin("killOp", Admin, kill_op::run, Same, "stops an operation"),
    on_admin(
        "fsync",
        Admin,
        fsync::run,
        Differs("lock is refused"),
        "puts everything on disk",
    ),
    on_admin(
        "logRotate",
        Admin,
        log_rotate::run,
        Same,
        "begins a new log file",
    ),
    on_admin("shutdown", Admin, shutdown::run, Same, "stops the server"),
    // Connections and sessions.
    also(
        &["ismaster", "isMaster"],
        on_any(
            "hello",
            Handshake,
            hello::run,
            Same,
            "what the server is and can do",
        ),
    ),
    on_any(
        "logout",
        Handshake,
        logout::run,
        Same,
        "ends the authentication there is not",
    ),
    on_admin(
        "replSetInitiate",
        Admin,
        repl_set::initiate,
        Differs("a set has one member"),
        "makes this server the member of a replica set",
    ),
    on_admin(
        "replSetReconfig",
        Admin,
        repl_set::reconfigure,
        Differs("a set has one member"),
        "changes the configuration of the replica set",
    ),
    on_admin(
        "replSetGetConfig",
        Diagnostic,
        repl_set::config,
        Same,
        "the configuration of the replica set",
    ),
    on_admin(
        "replSetGetStatus",
        Diagnostic,
        repl_set::status,
        Same,
        "the state of the replica set",
    ),
    on_admin(
        "getDefaultRWConcern",
        Diagnostic,
        rw_concern::get,
        Same,
        "concerns of reads and writes that give none",
    ),
    on_admin(
        "setDefaultRWConcern",
        Admin,
        rw_concern::set,
        Differs("on a server without a replica set too"),
        "sets the concerns of reads and writes that give none",
    ),
    on_admin(
        "commitTransaction",
        Session,
        transaction::commit,
        Same,
        "makes a transaction's writes visible together",
    ),
    on_admin(
        "abortTransaction",
        Session,
        transaction::abort,
        Same,
        "ends a transaction without a trace",
    ),
    on_any(
        "startSession",
        Session,
        sessions::start,
        Same,
        "a new logical session",
    ),
    on_any(
        "refreshSessions",
        Session,
        sessions::refresh,
        Same,
        "keeps sessions alive",
    ),
    on_any(
        "endSessions",
        Session,
        sessions::end,
        Same,
        "ends sessions and closes their cursors",
    ),
    on_any(
        "killSessions",
        Session,
        sessions::end,
        Same,
        "ends sessions by force",
    ),
    on_any(
        "killAllSessions",
        Session,
        sessions::kill_all,
        Differs("there are no users to choose by"),
        "ends all sessions by force",
    ),
    on_any(
        "killAllSessionsByPattern",
        Session,
        sessions::kill_by_pattern,
        Differs("there are no users to choose by"),
        "ends the sessions that are named by force",
    ),
];
