//! Projections: parsed once, analysed for the planner, applied to raw bytes.
