//! All integration tests of sheaf-bson, in one binary.

mod build;
mod collation;
mod corpus;
mod fuzz;
mod keystring;
mod oracle;
mod order;
mod path;
mod text;
mod types;
mod validate;

/// A property runs `n` cases, unless the environment sets another number.
fn cases(n: u32) -> proptest::prelude::ProptestConfig {
    let mut config = proptest::prelude::ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = n;
    }
    config
}
