//! Ids of log messages that MongoDB does not have.
//!
//! Tools select lines by id, so an id belongs to one message and never changes its meaning.
//! MongoDB's own ids stay literals where they are logged.

macro_rules! events {
    ($($(#[$doc:meta])* $name:ident = $id:literal;)*) => {
        $($(#[$doc])* pub const $name: u32 = $id;)*

        /// Every id, with the name of its constant.
        pub const ALL: &[(u32, &str)] = &[$(($id, stringify!($name)),)*];
    };
}

events! {
    /// The log's destination was too slow; the line reports how many lines are missing.
    LINES_LOST = 9_000_001;
    /// A message from the network could not be read.
    MESSAGE_REFUSED = 9_000_010;
    /// A command panicked; its connection is closed.
    COMMAND_PANICKED = 9_000_011;
    /// Connections did not end in time at shutdown.
    CONNECTIONS_BUSY = 9_000_012;
    /// Fewer connections are possible than configured, since threads are limited.
    CONNECTIONS_LIMITED_BY_THREADS = 9_000_013;
    /// `--fork`: the waiting caller could not be notified that the server is ready.
    READINESS_NOT_REPORTED = 9_000_020;
    /// The server listens beyond the loopback address without access control.
    LISTENS_WITHOUT_ACCESS_CONTROL = 9_000_021;
    /// A panic, with its place in the source.
    PANIC = 9_000_022;
    /// A background job panicked and does not run again.
    JOB_PANICKED = 9_000_023;
    /// An option was accepted that has no effect in this server.
    OPTION_WITHOUT_EFFECT = 9_000_024;
    /// The database did not close cleanly.
    NOT_CLOSED_CLEANLY = 9_000_030;
    /// The memory engine stores nothing on disk.
    MEMORY_ENGINE = 9_000_031;
    /// The engine checks its data file after an unclean end.
    DATA_FILE_CHECKED = 9_000_032;
    /// The engine replayed its log after an unclean end.
    LOG_REPLAYED = 9_000_033;
    /// Progress of verifying the data files.
    VERIFY_PROGRESS = 9_000_034;
    /// The data files have no damage.
    FILES_WHOLE = 9_000_035;
    /// The data files were repaired.
    FILES_REPAIRED = 9_000_036;
    /// What a repair saved.
    REPAIR_SAVED = 9_000_037;
    /// Damage found in a data file.
    FILE_DAMAGED = 9_000_038;
    /// Tables that a repair could not recover were recreated empty.
    TABLES_RECREATED = 9_000_039;
    /// A repair rebuilt a collection's indexes.
    INDEXES_REBUILT = 9_000_040;
    /// A repair dropped an index that it could not rebuild.
    INDEX_DROPPED = 9_000_041;
    /// Expired session records could not be deleted.
    SESSION_RECORDS_KEPT = 9_000_042;
    /// The engine no longer accepts writes.
    ENGINE_READ_ONLY = 9_000_043;
    /// A checkpoint failed.
    CHECKPOINT_FAILED = 9_000_044;
    /// The oplog could not be trimmed.
    OPLOG_NOT_TRIMMED = 9_000_045;
    /// An operation met stored data that is damaged.
    STORED_DATA_DAMAGED = 9_000_046;
    /// A compaction in the background failed.
    AUTO_COMPACT_FAILED = 9_000_047;
    /// Stored query settings are malformed and were ignored.
    QUERY_SETTINGS_MALFORMED = 9_000_048;
    /// The server's certificate expires soon, or has expired.
    CERTIFICATE_EXPIRES = 9_000_060;
    /// `rotateCertificates` replaced the certificates of new connections.
    CERTIFICATES_ROTATED = 9_000_061;
    /// A client's certificate is invalid, and invalid ones are accepted.
    INVALID_CERTIFICATE_ACCEPTED = 9_000_062;
    /// A connection with a version of TLS that `--tlsLogVersions` names.
    TLS_VERSION_ACCEPTED = 9_000_063;
    /// A client's certificate expires soon.
    CLIENT_CERTIFICATE_EXPIRES = 9_000_064;
    /// A vector index could not be rebuilt.
    VECTOR_INDEX_NOT_REBUILT = 9_300_001;
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::ALL;

    #[test]
    fn ids_are_unique() {
        for (n, (id, name)) in ALL.iter().enumerate() {
            let same = ALL[..n].iter().find(|(other, _)| other == id);
            assert_eq!(same, None, "{name} has the id of another message");
            assert!(*id >= 9_000_001, "{name} has an id of MongoDB's range");
        }
    }

    /// Collects `9_000_000` to `9_999_999` as written in the sources, other than here.
    fn literals(folder: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                literals(&path, found);
            } else if !path.ends_with("log/events.rs") && !path.ends_with("config/options.rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let ids = text.lines().filter(|line| {
                    line.split(|c: char| !c.is_ascii_digit() && c != '_')
                        .any(|word| word.len() == 9 && word.starts_with("9_"))
                        && !line.trim_start().starts_with("//")
                });
                found.extend(ids.map(|line| format!("{}: {line}", path.display())));
            }
        }
    }

    #[test]
    fn own_ids_are_not_literals() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut found = Vec::new();
        literals(&crates.join("sheaf-server/src"), &mut found);
        literals(&crates.join("sheafd/src"), &mut found);
        assert!(
            found.is_empty(),
            "ids belong into log/events.rs:\n{found:#?}"
        );
    }
}
