//! Who is logged in, and where users are stored.
//!
//! ```text
//!   saslStart ──> Users::credentials ──> scram::Conversation (of the connection)
//!   saslContinue ── proof ──> LoggedIn (of the connection)
//! ```

mod login;
mod users;

pub use login::{Authentication, LoggedIn, Login, Step};
pub use users::{USERS_NAMESPACE, Users, credentials_of};
