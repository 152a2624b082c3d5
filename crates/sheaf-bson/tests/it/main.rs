//! Everything that tests sheaf-bson from outside: one binary.

mod build;
mod path;
mod validate;
