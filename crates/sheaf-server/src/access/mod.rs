//! Who is logged in, and where users and roles are stored.
//!
//! ```text
//!   saslStart ──> Users::credentials ──> scram::Conversation (of the connection)
//!   saslContinue ── proof ──> Users::log_in ──> LoggedIn (of the connection)
//!                                 └── Users::resolve: roles ──> privileges
//! ```

mod login;
mod roles;
mod users;

pub use login::{Authentication, LoggedIn, Login, Step, caller, digest};
pub use roles::{Resolved, StoredRole, append_roles, roles_of};
pub use users::{Users, credentials_of};

/// Where users are stored.
pub const USERS_NAMESPACE: &str = "admin.system.users";
/// Where roles are stored.
pub const ROLES_NAMESPACE: &str = "admin.system.roles";
/// The version of the shape of users and roles, which MongoDB calls the schema.
pub const AUTH_SCHEMA_VERSION: i32 = 5;
