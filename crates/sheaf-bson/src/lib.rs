//! Raw BSON values, their one comparison order, dotted paths, KeyString.

pub mod error_code;

pub use error_code::{Error, ErrorCode};
