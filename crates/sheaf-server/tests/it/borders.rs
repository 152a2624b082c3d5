//! Which folder of the crate may import which.

use std::path::Path;

use sheaf_testkit::borders::{Rules, Upward, check};

/// From folders that every file may import to folders that no other file imports.
const ORDER: &[&str] = &[
    "lib.rs guard.rs host/ client.rs api_parameters.rs command_facts.rs command/fields.rs command/optional.rs",
    "command/stage_facts.rs command/read_concern.rs",
    // What a server is configured with: options, the host program, the log.
    "settings.rs control.rs traffic.rs parameters.rs log/",
    "engine.rs open.rs",
    "query_stats/",
    "write_concern.rs op_report.rs repl/ observe/shown.rs stored.rs write_gate.rs auto_compact.rs fail_points.rs",
    "rw_concern_defaults.rs cluster_parameters.rs query_settings/ feature_compatibility.rs user_write_block.rs",
    // State that outlives a command.
    "access/",
    "session/",
    "observe/",
    "jobs/schedule.rs",
    // State shared by all connections, and of one connection.
    "server.rs",
    "javascript.rs",
    "connection.rs",
    // Work without a client.
    "jobs/",
    // One command: its arguments and its context.
    "command/request.rs command/cluster_time.rs",
    "command/generic_arguments.rs",
    "command/context.rs",
    // The handlers and the command table.
    "command/",
    "command/mod.rs command/dispatch.rs",
    "assemble.rs client_session.rs",
];

const UPWARD: &[Upward<'_>] = &[];

#[test]
fn imports_run_one_way() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let rules = Rules {
        order: ORDER,
        circle_files_max: 10,
        upward: UPWARD,
    };
    match check(&src, &rules) {
        Ok(report) => println!("{report}"),
        Err(report) => panic!("{report}"),
    }
}
