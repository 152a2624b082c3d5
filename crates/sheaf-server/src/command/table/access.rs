//! Commands that log in and out, and manage users and roles.

use super::{Row, Run};
use crate::command::access::{logout, privileges, roles, roles_info, sasl, users, users_info};
use crate::command_facts::Compat::{Differs, Same};
use crate::command_facts::Kind::{Admin, Diagnostic, Handshake};
use crate::command_facts::Privileges::{All, ByArguments};
use crate::command_facts::{
    Action, ApiV1, Command, Compat, CountsAs, Database, InTransaction, Kind, MaxTime, Names,
    Privileges, ReadConcern, Resource, Target, UnknownArguments, Waits,
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

/// Changes users or roles.
const fn change(
    run: Run,
    name: &'static str,
    help: &'static str,
    privileges: Privileges,
    sensitive: &'static [&'static str],
) -> Row {
    row(
        run,
        Facts {
            name,
            kind: Admin,
            help,
            compat: Same,
            privileges,
            sensitive,
            write_concern: Waits::AsGiven,
            unknown_arguments: UnknownArguments::Refused,
            // A password is compressed with nothing that an attacker may choose.
            compressible: sensitive.is_empty(),
            only_replies: false,
        },
    )
}

/// Shows users or roles.
const fn info(run: Run, name: &'static str, help: &'static str, privileges: Privileges) -> Row {
    row(
        run,
        Facts {
            name,
            kind: Diagnostic,
            help,
            compat: Same,
            privileges,
            sensitive: &[],
            write_concern: Waits::Not,
            unknown_arguments: UnknownArguments::Refused,
            compressible: true,
            only_replies: true,
        },
    )
}

const GRANTED: &str = "grantRole on the databases of the roles or privileges";
const REVOKED: &str = "revokeRole on the databases of the roles or privileges";

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
    change(
        users::create,
        "createUser",
        "Creates a user",
        ByArguments(
            privileges::create_user,
            "createUser on the database, grantRole on the databases of the roles, \
             setAuthenticationRestriction with restrictions",
        ),
        &["pwd"],
    ),
    change(
        users::update,
        "updateUser",
        "Changes a user",
        ByArguments(
            privileges::update_user,
            "changePassword, changeCustomData (changeOwnPassword, changeOwnCustomData for oneself), \
             setAuthenticationRestriction on the database; for roles revokeRole on all databases \
             and grantRole on those of the roles",
        ),
        &["pwd"],
    ),
    change(
        users::drop_one,
        "dropUser",
        "Drops a user",
        All(&[(Action::DropUser, Resource::Database)]),
        &[],
    ),
    change(
        users::drop_all,
        "dropAllUsersFromDatabase",
        "Drops the users of a database",
        All(&[(Action::DropUser, Resource::Database)]),
        &[],
    ),
    change(
        users::grant,
        "grantRolesToUser",
        "Grants roles to a user",
        ByArguments(privileges::grant_roles, GRANTED),
        &[],
    ),
    change(
        users::revoke,
        "revokeRolesFromUser",
        "Takes roles from a user",
        ByArguments(privileges::revoke_roles, REVOKED),
        &[],
    ),
    info(
        users_info::run,
        "usersInfo",
        "Returns users",
        ByArguments(
            privileges::users_info,
            "viewUser on the databases of other users",
        ),
    ),
    change(
        roles::create,
        "createRole",
        "Creates a role",
        ByArguments(
            privileges::create_role,
            "createRole on the database, grantRole on the databases of the roles and privileges, \
             setAuthenticationRestriction with restrictions",
        ),
        &[],
    ),
    change(
        roles::update,
        "updateRole",
        "Changes a role",
        ByArguments(
            privileges::update_role,
            "revokeRole on all databases, grantRole on the databases of the roles and privileges, \
             setAuthenticationRestriction with restrictions",
        ),
        &[],
    ),
    change(
        roles::drop_one,
        "dropRole",
        "Drops a role",
        All(&[(Action::DropRole, Resource::Database)]),
        &[],
    ),
    change(
        roles::drop_all,
        "dropAllRolesFromDatabase",
        "Drops the roles of a database",
        All(&[(Action::DropRole, Resource::Database)]),
        &[],
    ),
    change(
        roles::grant_privileges,
        "grantPrivilegesToRole",
        "Grants privileges to a role",
        ByArguments(privileges::grant_privileges, GRANTED),
        &[],
    ),
    change(
        roles::revoke_privileges,
        "revokePrivilegesFromRole",
        "Takes privileges from a role",
        ByArguments(privileges::revoke_privileges, REVOKED),
        &[],
    ),
    change(
        roles::grant_roles,
        "grantRolesToRole",
        "Makes a role inherit from roles",
        ByArguments(privileges::grant_roles, GRANTED),
        &[],
    ),
    change(
        roles::revoke_roles,
        "revokeRolesFromRole",
        "Ends the inheritance from roles",
        ByArguments(privileges::revoke_roles, REVOKED),
        &[],
    ),
    info(
        roles_info::run,
        "rolesInfo",
        "Returns roles",
        ByArguments(
            privileges::roles_info,
            "viewRole on the databases of roles that the user does not have",
        ),
    ),
    row(
        users::invalidate,
        Facts {
            name: "invalidateUserCache",
            kind: Admin,
            help: "Makes connections read their users again",
            compat: Same,
            privileges: All(&[(Action::InvalidateUserCache, Resource::Cluster)]),
            sensitive: &[],
            write_concern: Waits::Not,
            unknown_arguments: UnknownArguments::Refused,
            compressible: true,
            only_replies: false,
        },
    ),
];
