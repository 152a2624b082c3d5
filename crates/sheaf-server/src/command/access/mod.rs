//! Commands that log in and out.

pub mod connection_status;
pub mod logout;
pub mod sasl;
