//! Everything that tests sheaf-bson from outside: one binary.

mod build;
mod corpus;
mod generate;
mod keystring;
mod oracle;
mod path;
mod text;
mod validate;
