//! Which folder of the crate may import which.

use std::path::Path;

use sheaf_testkit::borders::{Rules, Upward, check};

/// From folders that every file may import to folders that no other file imports.
const ORDER: &[&str] = &[
    "lib.rs system_names.rs storage_error.rs op_context.rs record_key.rs clock.rs transaction_memory.rs",
    // Over documents: definitions of indexes, keys, vectors.
    "index/",
    // Per-collection state that planners use.
    "planning/index_filters.rs planning/plan_cache/ planning/sample.rs usage.rs",
    // Definitions: names, options, rows.
    "catalog/namespace.rs catalog/uuid.rs catalog/options/ catalog/clustered.rs catalog/duplicate_key.rs \
     catalog/views.rs",
    "events.rs damage.rs counters.rs",
    // Runtime state of collections.
    "collection/",
    "catalog/ records.rs",
    "change.rs oplog/entry.rs oplog/op_time.rs session_row.rs timeseries/catalogue.rs",
    "database.rs",
    "cluster_time.rs collection/stats.rs oplog/ snapshot_history.rs timeseries/mod.rs timeseries/stats.rs timeseries/indexes.rs",
    // Units of work, transactions, statements.
    "txn.rs statement.rs write/",
    "exec/",
    "explain/mod.rs planning/",
    "find.rs explain/ count.rs distinct.rs result_source.rs",
    "modify/ timeseries/",
    "aggregate/ retryable.rs tailable.rs",
    "reads.rs change_stream/",
    // DDL: collections, views, indexes.
    "ddl/ ttl.rs validate.rs",
    "oplog/apply/",
];

const UPWARD: &[Upward<'_>] = &[
    Upward {
        from: "database.rs",
        to: "oplog/mod.rs",
        reason: "a database owns the state of its oplog, which is next to the functions that use both",
    },
    Upward {
        from: "database.rs",
        to: "snapshot_history.rs",
        reason: "a database owns the snapshots that it keeps, next to the reads that use them",
    },
];

#[test]
fn imports_run_one_way() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let rules = Rules {
        order: ORDER,
        circle_files_max: 8,
        upward: UPWARD,
    };
    match check(&src, &rules) {
        Ok(report) => println!("{report}"),
        Err(report) => panic!("{report}"),
    }
}
