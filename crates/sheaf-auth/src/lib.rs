//! Who a client is, and what it may do.
//!
//! ```text
//!   password ── SASLprep, PBKDF2 ──> stored keys (a user's document)
//!   client's messages ── scram::server ──> the user's name, or nothing
//!
//!   roles ── built in, or stored; inheritance ──> privileges ──> PrivilegeSet::allows(action, on)
//! ```
//!
//! Pure: no sockets and no storage. Randomness comes from the operating system.

#![forbid(unsafe_code)]

pub mod action;
pub mod builtin;
pub mod mechanism;
pub mod name;
pub mod privilege;
pub mod random;
pub mod resource;
pub mod restriction;
pub mod scram;

pub use action::{Action, ActionSet};
pub use mechanism::Mechanism;
pub use name::{RoleName, UserName};
pub use privilege::{Privilege, PrivilegeSet};
pub use resource::{On, Pattern};
