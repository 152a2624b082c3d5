//! Facts about a command, without its handler: the columns of the command table.
//!
//! No column has a default: a command that lacks a fact does not compile. All users of a fact read
//! the table; there is no other list of command names.

pub use sheaf_auth::{Action, On};
use sheaf_auth::{PrivilegeSet, RoleName, UserName};
use sheaf_bson::{RawDoc, RawValue};
use sheaf_wire::DocumentSequence;

/// What a command is for; groups `listCommands`, COMPAT.md and the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Reads documents.
    Read,
    /// Changes documents.
    Write,
    /// Changes collections, indexes, databases or the server.
    Admin,
    /// Reports on the server.
    Diagnostic,
    /// Part of connecting.
    Handshake,
    /// Logical sessions.
    Session,
}

/// How close to MongoDB a command is, for COMPAT.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compat {
    /// As in the manual.
    Same,
    /// What differs, in one sentence.
    Differs(&'static str),
}

/// The database that a command may be run against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Database {
    /// Any.
    Any,
    /// Only `admin`.
    Admin,
}

/// Where a command names its collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// Nowhere.
    Nothing,
    /// In its first field.
    First,
    /// In this field.
    Field(&'static str),
    /// As `db.collection`, in its first field.
    FullName,
    /// As `db.collection`, in the elements of `nsInfo`.
    NsInfo,
}

/// What the name of a collection may refer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A collection that stores records.
    Collection,
    /// Also a time-series collection, which is a view on its buckets.
    TimeSeries,
    /// Also any view.
    View,
}

/// Whether and where a command may run in a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InTransaction {
    /// Refused in a transaction.
    Refused,
    /// A statement, including the first.
    Statement,
    /// A statement, if the stages of its pipeline allow it.
    Pipeline,
    /// A statement, but not the first.
    LaterStatement,
    /// Ends the transaction; runs only in one.
    End,
}

/// The levels of `readConcern` beyond `local`, which all commands take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadConcern {
    /// `majority` and `available`.
    pub majority: bool,
    /// `snapshot`, outside transactions.
    pub snapshot: bool,
    /// `linearizable`.
    pub linearizable: bool,
}

impl ReadConcern {
    /// No further level.
    pub const LOCAL: ReadConcern = ReadConcern {
        majority: false,
        snapshot: false,
        linearizable: false,
    };
    /// All but `linearizable`.
    pub const SNAPSHOT: ReadConcern = ReadConcern {
        majority: true,
        snapshot: true,
        linearizable: false,
    };
    /// All but `snapshot`.
    pub const LINEARIZABLE: ReadConcern = ReadConcern {
        majority: true,
        snapshot: false,
        linearizable: true,
    };
    /// All levels.
    pub const ALL: ReadConcern = ReadConcern {
        majority: true,
        snapshot: true,
        linearizable: true,
    };
}

/// What happens to a top-level field that a command does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownArguments {
    /// It is refused by name.
    Refused,
    /// It is ignored, as in MongoDB, whose newer clients may send it.
    Ignored,
}

/// Whether a command belongs to version 1 of the Stable API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiV1 {
    /// It does not.
    Outside,
    /// It does, without these options.
    Inside {
        /// Options that strict clients cannot give.
        except: &'static [&'static str],
    },
}

impl ApiV1 {
    /// The command with all of its options.
    pub const WHOLE: ApiV1 = ApiV1::Inside { except: &[] };
}

/// Which write concern a command waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// None: a write concern is refused.
    Not,
    /// The one that is given.
    AsGiven,
    /// The one that is given, or the server's default.
    OrDefault,
}

/// How an operation is counted (`opcounters`, `top`) and shown (`currentOp`, the profiler).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountsAs {
    /// A query.
    Query,
    /// A batch of a cursor.
    GetMore,
    /// One insert per document.
    Insert,
    /// One update per statement.
    Update,
    /// One delete per statement.
    Delete,
    /// Each of its parts, as if it were a separate command.
    Parts,
    /// A command.
    Command,
}

impl CountsAs {
    /// `op` of `currentOp`.
    pub fn current_op(self) -> &'static str {
        match self {
            CountsAs::Query => "query",
            CountsAs::GetMore => "getmore",
            CountsAs::Insert => "insert",
            CountsAs::Update => "update",
            CountsAs::Delete => "remove",
            CountsAs::Parts => "bulkWrite",
            CountsAs::Command => "command",
        }
    }

    /// `op` of a `system.profile` entry about the whole command.
    pub fn profiled(self) -> &'static str {
        match self {
            CountsAs::Query => "query",
            CountsAs::GetMore => "getmore",
            CountsAs::Insert => "insert",
            _ => "command",
        }
    }

    /// Whether its writes are profiled as statements, in place of the command.
    pub fn has_statements(self) -> bool {
        matches!(
            self,
            CountsAs::Insert | CountsAs::Update | CountsAs::Delete | CountsAs::Parts
        )
    }
}

/// What `maxTimeMS` means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxTime {
    /// The command's time limit.
    Limit,
    /// Interpreted by the handler: on a tailable cursor, how long to await data.
    OfCursor,
}

/// How `explain` explains a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExplainedAs {
    /// As a find.
    Find,
    /// As a count.
    Count,
    /// As a distinct.
    Distinct,
    /// As a pipeline.
    Pipeline,
    /// As the pipeline of a mapReduce.
    MapReduce,
    /// As the one statement of an update.
    Update,
    /// As the one statement of a delete.
    Delete,
    /// As a findAndModify.
    FindAndModify,
}

/// A command: one row of the table, without its handler.
pub struct Command {
    /// As MongoDB spells it.
    pub name: &'static str,
    /// Other spellings that are accepted.
    pub aliases: &'static [&'static str],
    /// What it is for.
    pub kind: Kind,
    /// The database it may run against.
    pub database: Database,
    /// One sentence for `listCommands` and the manual.
    pub help: &'static str,
    /// How close to MongoDB it is.
    pub compat: Compat,
    /// The privileges that a user needs. From MongoDB's manual; enforced with `--auth`.
    pub privileges: Privileges,
    /// Fields whose values appear in no log line, profile or `currentOp`.
    pub sensitive: &'static [&'static str],
    /// Where it names its collection.
    pub collection: Names,
    /// What that name may refer to.
    pub target: Target,
    /// Whether it may be part of a transaction.
    pub transaction: InTransaction,
    /// Whether it may be a retryable write.
    pub retryable: bool,
    /// The levels of `readConcern`.
    pub read_concern: ReadConcern,
    /// The `writeConcern` that it waits for.
    pub write_concern: Waits,
    /// What happens to top-level fields that it does not know.
    pub unknown_arguments: UnknownArguments,
    /// Whether it belongs to version 1 of the Stable API.
    pub api_v1: ApiV1,
    /// Whether it takes `bypassDocumentValidation`.
    pub bypasses_validation: bool,
    /// What `maxTimeMS` means.
    pub max_time: MaxTime,
    /// Fields that may come as document sequences.
    pub sequences: &'static [&'static str],
    /// Whether it changes the catalog, and then waits for the write concern.
    pub changes_catalog: bool,
    /// How it is counted.
    pub counts_as: CountsAs,
    /// How `explain` explains it; `None` if it does not.
    pub explained: Option<ExplainedAs>,
    /// Whether request and reply may be compressed; see the compression specification: a length
    /// must reveal nothing about a secret.
    pub compressible: bool,
    /// Whether its only effect is the reply, so that it ends when its client disconnects.
    pub only_replies: bool,
}

/// The resource of a command's privilege, before its arguments are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// Everything (`anyResource`).
    Anything,
    /// The whole server.
    Cluster,
    /// The command's database.
    Database,
    /// The collection in the command's first field.
    Collection,
    /// The namespace in the command's first field.
    FullName,
}

/// One action that a user must be allowed.
pub type Required<'a> = (Action, On<'a>);

/// The user who runs a command, and what it may do.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    /// Its name.
    pub name: &'a UserName,
    /// Its roles, with those that they inherit from.
    pub roles: &'a [RoleName],
    /// What it may do.
    pub allowed: &'a PrivilegeSet,
}

/// A command as the required privileges depend on it.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// `$db`.
    pub db: &'a str,
    /// The command document.
    pub body: RawDoc<'a>,
    /// The document sequences of the message.
    pub sequences: &'a [DocumentSequence<'a>],
    /// The user; `None` before a login.
    pub caller: Option<Caller<'a>>,
}

/// Derives privileges from arguments.
pub type ByArguments = for<'a> fn(&Asked<'a>) -> Vec<Required<'a>>;

/// The privileges that a user needs to run a command.
#[derive(Clone, Copy)]
pub enum Privileges {
    /// Nothing: part of connecting, or harmless.
    Open,
    /// Authentication, with any roles.
    Authenticated,
    /// All of these.
    All(&'static [(Action, Resource)]),
    /// What the function derives from the arguments; the text is for the manual.
    ByArguments(ByArguments, &'static str),
}

impl Privileges {
    /// The actions that the command requires.
    pub fn required<'a>(&self, asked: &Asked<'a>) -> Vec<Required<'a>> {
        match self {
            Privileges::Open | Privileges::Authenticated => Vec::new(),
            Privileges::All(all) => all
                .iter()
                .map(|(action, resource)| (*action, resource.on(asked.db, asked.body)))
                .collect(),
            Privileges::ByArguments(required, _) => required(asked),
        }
    }
}

impl Resource {
    fn on<'a>(self, db: &'a str, body: RawDoc<'a>) -> On<'a> {
        let first = body.first().map(|first| first.value());
        match (self, first) {
            (Resource::Anything, _) => On::Anything,
            (Resource::Cluster, _) => On::Cluster,
            (Resource::Collection, Some(RawValue::String(name))) => On::Collection(db, name),
            (Resource::FullName, Some(RawValue::String(name))) => match name.split_once('.') {
                Some((db, name)) => On::Collection(db, name),
                None => On::Database(name),
            },
            // A name of another type is refused later, for every user.
            (Resource::Collection | Resource::FullName | Resource::Database, _) => On::Database(db),
        }
    }
}
