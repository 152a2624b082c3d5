//! Everything that tests sheaf-bson from outside: one binary.

mod build;
mod generate;
mod keystring;
mod path;
mod validate;
