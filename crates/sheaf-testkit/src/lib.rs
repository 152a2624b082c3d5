//! What tests share: generators, naive model, fuzz bodies.

#![forbid(unsafe_code)]

pub mod differential;
pub mod fuzz;
pub mod generate;
pub mod generate_beyond;
pub mod generate_query;
pub mod generate_served;
pub mod model;
