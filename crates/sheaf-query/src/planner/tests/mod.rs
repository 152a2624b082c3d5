//! Golden scripts for the planner, and tests that compare every plan with the filter itself.

mod branches;
mod intervals;
mod limits;
mod naive;
pub(crate) mod script;
mod soundness;
