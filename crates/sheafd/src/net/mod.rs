//! Sockets and threads: from a listening address to a called handler.
//!
//! ```text
//!  listener thread ── accept ──> one thread per connection
//!                                 │  FrameBuffer → Decoder → Message
//!                                 │  ConnectionHandler::handle(message, reply)
//!                                 └─ ReplyWriter → socket
//!
//!  Connections  every open Link: counts, limits, client liveness
//! ```
//!
//! One blocking thread per connection, measured against an async runtime
//! (docs/decisions/threading.md). An idle connection holds no buffer and
//! releases the stack pages that its last command touched.
//!
//! Invariant: no client input, and no failure of a handler short of an abort,
//! ends the process or another client's connection.

mod compression;
mod connection;
mod connections;
mod link;
mod listener;
mod message_memory;
mod server;
mod service;
mod stack;
mod stream;

pub use connections::Connections;
pub use link::{Link, Peer};
pub use listener::{BindError, Endpoint, Listener, all_addresses, resolve, unix_socket_path};
pub use message_memory::MessageMemory;
pub use server::{NetOptions, Server};
pub use service::{ConnectionHandler, Next, Service};
