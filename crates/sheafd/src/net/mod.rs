//! Sockets and threads: from a listening address to a called handler.
//!
//! ```text
//!  listener thread ── accept ──> one thread per connection
//!                                 │  FrameBuffer → Decoder → Message
//!                                 │  ConnectionHandler::handle(message, reply)
//!                                 └─ ReplyWriter → socket
//!
//!  Connections  every open Link: counts, limits, "is my client still there?"
//! ```
//!
//! One blocking thread per connection, measured against an async runtime
//! (docs/decisions/threading.md). An idle connection holds no buffer and
//! hands back the stack pages that its last command touched.
//!
//! Invariant: nothing a client sends, and nothing a handler does short of
//! aborting, ends the process or another client's connection.

mod compression;
mod connection;
mod connections;
mod link;
mod listener;
mod server;
mod service;
mod stack;

pub use connections::Connections;
pub use link::{Link, Peer};
pub use listener::{BindError, Endpoint, Listener, all_addresses, resolve, unix_socket_path};
pub use server::{NetOptions, Server};
pub use service::{ConnectionHandler, Next, Service};
