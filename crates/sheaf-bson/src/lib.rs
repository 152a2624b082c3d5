//! Raw BSON values, their total order, dotted paths, KeyString, and MongoDB's error codes.
//!
//! ```text
//!   bytes ──validate──> RawDoc ──iter/get──> RawValue ──compare──> Ordering
//!                          │                    │
//!                    path (dotted)          keystring (memcmp == compare)
//!                          │
//!   DocBuilder, doc! ──> DocBuf, Value ──json──> text
//! ```
//!
//! Pure: no I/O and no unsafe code. Two constructors read the system clock: [`ObjectId::new`]
//! (which also draws randomness once per process) and [`DateTime::now`]. Reading never fails and
//! never panics; see [`raw`] for the reason.

#![forbid(unsafe_code)]

pub mod base64;
pub mod builder;
pub mod collation;
pub mod compare;
pub mod decimal128;
pub mod element_type;
pub mod error;
pub mod error_code;
pub mod fields;
pub mod hash64;
pub mod instant;
pub mod json;
pub mod keystring;
mod macros;
mod number;
pub mod object_id;
pub mod path;
pub mod raw;
pub mod raw_value;
pub mod record_id;
pub mod validate;
pub mod value;

pub use builder::{AppendBson, ArrayBuilder, DocBuilder};
pub use collation::{Collation, CollationChoice, Collator};
pub use compare::{
    FieldNames, compare_arrays, compare_docs, compare_docs_with, compare_elements, compare_values,
    compare_values_with, hash_value, values_equal, values_equal_with,
};
pub use decimal128::Decimal128;
pub use element_type::ElementType;
pub use error::BsonError;
pub use error_code::{Error, ErrorCode, Result};
pub use instant::{DateTime, Timestamp};
pub use object_id::ObjectId;
pub use path::FieldPath;
pub use raw::{RawArray, RawArrayIter, RawDoc, RawElement, RawIter};
pub use raw_value::RawValue;
pub use record_id::RecordId;
pub use validate::{DOCUMENT_DEPTH_MAX, ValidateOptions, validate};
pub use value::{ArrayBuf, DocBuf, Value};
