//! Golden scripts over the planner, and every plan against the filter itself.

mod branches;
mod intervals;
mod limits;
mod naive;
pub(crate) mod script;
mod soundness;
