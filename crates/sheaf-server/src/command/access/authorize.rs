//! Whether the user of a connection may run a command.
//!
//! ```text
//!   Open ──> yes          no user ──> the localhost exception, or no
//!   otherwise: every action that the table requires, on its resource
//! ```
//!
//! Invariant: the user's privileges are those of this moment. A change of users or roles moves
//! [`Users::generation`](crate::access::Users::generation), and the next command of every
//! connection reads its user again.

use std::sync::{Arc, LazyLock};

use sheaf_auth::{ActionSet, Pattern, Privilege, PrivilegeSet};
use sheaf_bson::{Error, ErrorCode};

use crate::access::caller;
use crate::command::Request;
use crate::command::context::unauthorized;
use crate::command::privileges::has_duplicates;
use crate::command_facts::{Action, Asked, Command, On, Privileges};
use crate::connection::ConnectionState;
use crate::parameters::Parameter;
use crate::server::Server;

/// What a client on this machine may do until there is a user or a role.
static LOCALHOST: LazyLock<PrivilegeSet> = LazyLock::new(|| {
    let users = [
        Action::CreateUser,
        Action::CreateRole,
        Action::GrantRole,
        Action::SetAuthenticationRestriction,
    ];
    let server = [Action::ReplSetConfigure, Action::ReplSetGetStatus];
    PrivilegeSet::new(&[
        Privilege::new(Pattern::database("admin"), ActionSet::of(&users)),
        Privilege::new(Pattern::database("$external"), ActionSet::of(&users)),
        Privilege::new(Pattern::Cluster, ActionSet::of(&server)),
    ])
});

/// Checks that the connection may run the command.
/// Errors: `Unauthorized`; 40413 for a field that occurs twice, whose meaning is ambiguous.
pub fn check(
    server: &Server,
    connection: &mut ConnectionState,
    command: &'static Command,
    request: &Request<'_>,
    db: &str,
) -> Result<(), Error> {
    refresh(server, connection)?;
    if matches!(command.privileges, Privileges::Open) {
        return Ok(());
    }
    if has_duplicates(request.body) || repeats_a_sequence(request) {
        return Err(Error::new(
            ErrorCode(40413),
            format!("a field of '{}' is a duplicate field", command.name),
        ));
    }
    let user = connection.authentication.user.as_deref();
    let asked = Asked {
        db,
        body: request.body,
        sequences: request.sequences,
        caller: user.map(caller),
    };
    let allowed = match user {
        Some(user) => &user.allowed,
        None if is_exception(server, connection)? => &*LOCALHOST,
        None => return Err(requires_authentication(command)),
    };
    let allows = |(action, on): &(Action, On<'_>)| allowed.allows(*action, *on);
    let required = command.privileges.required(&asked);
    let is_allowed = required.iter().all(allows);
    match user {
        Some(_) if is_allowed => Ok(()),
        Some(_) => Err(unauthorized(command, request.body, db)),
        // What requires no privilege requires a user.
        None if is_allowed && !required.is_empty() => Ok(()),
        None => Err(requires_authentication(command)),
    }
}

/// Whether a field came twice: as a document sequence and in the body, or as two sequences.
fn repeats_a_sequence(request: &Request<'_>) -> bool {
    let names = || (request.sequences.iter()).map(|sequence| sequence.identifier());
    names().enumerate().any(|(at, name)| {
        request.body.get(name).is_some() || names().take(at).any(|other| other == name)
    })
}

/// Reads the connection's user again if users or roles have changed. A user that was dropped, even
/// if another one of its name was created, is logged out.
fn refresh(server: &Server, connection: &mut ConnectionState) -> Result<(), Error> {
    let Some(user) = &connection.authentication.user else {
        return Ok(());
    };
    if user.generation == server.users.generation() {
        return Ok(());
    }
    let now = server.users.log_in(&user.name)?;
    let same = now.filter(|now| now.user_id == user.user_id);
    connection.authentication.user = same.map(Arc::new);
    let name = connection.authentication.user.as_ref();
    connection
        .operations
        .set_user(name.map(|user| user.name.clone()));
    Ok(())
}

/// The localhost exception: the client is on this machine, and there is no user and no role.
fn is_exception(server: &Server, connection: &ConnectionState) -> Result<bool, Error> {
    let is_possible = server.parameters.bool(Parameter::EnableLocalhostAuthBypass)
        && connection.client.is_local();
    Ok(is_possible && !server.users.exist()?)
}

fn requires_authentication(command: &Command) -> Error {
    Error::new(
        ErrorCode::UNAUTHORIZED,
        format!("Command {} requires authentication", command.name),
    )
}
