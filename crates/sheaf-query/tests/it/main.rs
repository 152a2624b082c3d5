//! What holds for every query: properties over random documents and queries.

mod collation;
mod fuzz;
mod matcher;
mod projection;
mod sort;

/// So many cases of a property, or as many as `PROPTEST_CASES` says; a failure
/// leaves no file behind.
fn cases(usual: u32) -> proptest::test_runner::Config {
    let wanted = std::env::var("PROPTEST_CASES").ok();
    proptest::test_runner::Config {
        cases: wanted.and_then(|n| n.parse().ok()).unwrap_or(usual),
        failure_persistence: None,
        ..Default::default()
    }
}
