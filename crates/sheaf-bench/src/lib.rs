//! Workloads and comparisons; the only place that knows another engine.
