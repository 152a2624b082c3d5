//! Properties of queries, tested on random documents and queries.

mod borders;
mod collation;
mod fuzz;
mod fuzz_pipeline;
mod matcher;
mod projection;
mod sort;

/// The configuration of a property: `PROPTEST_CASES` cases, by default `usual`; failures are not
/// written to files.
fn cases(usual: u32) -> proptest::test_runner::Config {
    let wanted = std::env::var("PROPTEST_CASES").ok();
    proptest::test_runner::Config {
        cases: wanted.and_then(|n| n.parse().ok()).unwrap_or(usual),
        failure_persistence: None,
        ..Default::default()
    }
}
