//! Commands that log in and out, and manage users and roles.

use super::{Row, Run};
use crate::command::access::{logout, sasl};
use crate::command_facts::Compat::{Differs, Same};
use crate::command_facts::Kind::Handshake;
use crate::command_facts::{
    ApiV1, Command, Compat, CountsAs, Database, InTransaction, Kind, MaxTime, Names, Privileges,
    ReadConcern, Target, UnknownArguments, Waits,
};

/// What distinguishes the commands of this file.
struct Facts {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    compat: Compat,
    privileges: Privileges,
    sensitive: &'static [&'static str],
    write_concern: Waits,
    unknown_arguments: UnknownArguments,
    compressible: bool,
    only_replies: bool,
}

/// None of them names a collection, reads at a read concern, or runs in a transaction.
const fn row(run: Run, facts: Facts) -> Row {
    Row {
        run,
        command: Command {
            name: facts.name,
            aliases: &[],
            kind: facts.kind,
            database: Database::Any,
            help: facts.help,
            compat: facts.compat,
            privileges: facts.privileges,
            sensitive: facts.sensitive,
            collection: Names::Nothing,
            target: Target::Collection,
            transaction: InTransaction::Refused,
            retryable: false,
            read_concern: ReadConcern::LOCAL,
            write_concern: facts.write_concern,
            unknown_arguments: facts.unknown_arguments,
            api_v1: ApiV1::Outside,
            bypasses_validation: false,
            max_time: MaxTime::Limit,
            sequences: &[],
            changes_catalog: false,
            counts_as: CountsAs::Command,
            explained: None,
            compressible: facts.compressible,
            only_replies: facts.only_replies,
        },
    }
}

/// Part of connecting.
const fn handshake(
    run: Run,
    name: &'static str,
    help: &'static str,
    compat: Compat,
    sensitive: &'static [&'static str],
) -> Row {
    row(
        run,
        Facts {
            name,
            kind: Handshake,
            help,
            compat,
            privileges: Privileges::Open,
            sensitive,
            write_concern: Waits::Not,
            unknown_arguments: UnknownArguments::Refused,
            compressible: false,
            only_replies: false,
        },
    )
}

pub(super) static ACCESS: &[Row] = &[
    handshake(
        sasl::start,
        "saslStart",
        "Begins a login",
        Differs(
            "SCRAM-SHA-256 and SCRAM-SHA-1 only; a login that fails has the same error and salt whether or not its user exists",
        ),
        &["payload"],
    ),
    handshake(
        sasl::proceed,
        "saslContinue",
        "Continues a login",
        Same,
        &["payload"],
    ),
    handshake(
        sasl::authenticate,
        "authenticate",
        "Logs in by a certificate",
        Differs("refused: there are no logins by certificate"),
        &["key", "nonce"],
    ),
    handshake(
        logout::run,
        "logout",
        "Ends the authentication of the connection",
        Same,
        &[],
    ),
];
