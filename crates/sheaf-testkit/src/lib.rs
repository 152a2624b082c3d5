//! What tests share: script runner, naive model, generators.

pub mod fuzz;
pub mod generate;
pub mod generate_query;
