//! Tests of the wire protocol, all in one binary.

mod compression;
mod frame_fuzz;
mod frames;
mod fuzz;
mod messages;
mod replies;
