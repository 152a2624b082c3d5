//! Tests which folder of the crate may import which.

use std::path::Path;

use sheaf_testkit::borders::{Rules, check};

/// Lowest first: filters, sorts and expressions do not depend on pipelines and plans.
const RULES: Rules<'_> = Rules {
    order: &[
        "location.rs interrupt.rs key_table.rs metadata.rs dependencies.rs regex.rs script.rs random.rs",
        "javascript.rs arithmetic.rs arithmetic/",
        "sort/",
        "vector/",
        "expression/",
        "matcher/ schema/",
        "projection/",
        "canonical.rs",
        "timeseries/",
        "planner/ shape.rs query_shape/",
        "pipeline/",
        "update/ validation.rs",
        "growth.rs lib.rs",
    ],
    circle_files_max: 11,
    upward: &[],
};

#[test]
fn imports_follow_the_order_of_folders() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    if let Err(report) = check(&src, &RULES) {
        panic!("{report}");
    }
}
