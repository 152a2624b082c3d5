//! The database without a network: catalog, indexes, plan execution, writes.
