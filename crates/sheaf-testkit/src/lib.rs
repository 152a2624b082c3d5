//! What tests share: generators, naive model, fuzz bodies, the import order of a crate.

#![forbid(unsafe_code)]

pub mod borders;
pub mod differential;
pub mod fuzz;
pub mod generate;
pub mod generate_beyond;
pub mod generate_query;
pub mod generate_served;
pub mod model;
