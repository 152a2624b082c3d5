//! The database from its outside: every test runs on the memory engine and on redb.

mod builds;
mod catalog;
mod choosing;
mod clock;
mod clustered;
mod collation;
mod concurrency;
mod crash;
mod differential;
mod distinct;
mod documents;
mod extensions;
mod find_by_index;
mod indexes;
mod intersection;
mod oplog;
mod pipelines;
mod random;
mod sort_spill;
mod support;
mod timeseries;
mod transactions;
mod ttl;
mod update_operators;
