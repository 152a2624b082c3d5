//! SCRAM: a client proves that it knows a password, without sending it.
//!
//! ```text
//!   SaltedPassword = PBKDF2(password, salt, iterations)          the client computes it, at login
//!   ClientKey      = HMAC(SaltedPassword, "Client Key")
//!   StoredKey      = H(ClientKey)                                stored
//!   ServerKey      = HMAC(SaltedPassword, "Server Key")          stored
//!
//!   client                                        server
//!     n,,n=user,r=nonce ─────────────────────────> [`server::Conversation::start`]
//!     <──────────────── r=nonce+more,s=salt,i=iterations
//!     c=biws,r=nonce+more,p=proof ───────────────> [`server::Conversation::finish`]
//!     <──────────────── v=signature
//! ```
//!
//! RFC 5802 and RFC 7677. With SCRAM-SHA-1 the password is MongoDB's digest of name and password.
//!
//! Invariant: the server computes a few hashes per login. The iterations are the client's work.

pub mod client;
pub mod keys;
mod message;
mod primitives;
pub mod server;

pub use keys::{Credentials, digest_of_password};
