//! Who a client is, and what it may do.
//!
//! ```text
//!   password ── SASLprep, PBKDF2 ──> stored keys (a user's document)
//!   client's messages ── scram::server ──> the user's name, or nothing
//! ```
//!
//! Pure: no sockets and no storage. Randomness comes from the operating system.

#![forbid(unsafe_code)]

pub mod mechanism;
pub mod name;
pub mod random;
pub mod scram;

pub use mechanism::Mechanism;
pub use name::UserName;
