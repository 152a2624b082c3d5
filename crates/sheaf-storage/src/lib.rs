//! Ordered byte keys with snapshots and atomic batches, and the engines behind that trait.
