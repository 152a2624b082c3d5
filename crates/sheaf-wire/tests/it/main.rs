//! Tests of the wire protocol, all in one binary.

mod compression;
mod frames;
mod fuzz;
mod messages;
mod replies;
