//! `writeConcern`: how durable a write must be before it is acknowledged.

use sheaf_bson::{Error, ErrorCode, RawDoc, RawValue};

use crate::command::fields::{self, unknown_field};

/// How durable a write must be before it is acknowledged.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct WriteConcern {
    /// `j: true`, or what implies it (`w: "majority"`, `fsync: true`).
    pub journaled: bool,
    /// `w: 0`: the client expects no acknowledgement.
    pub unacknowledged: bool,
    /// `w` greater than one: more members than a set of this version has.
    pub nodes: u8,
    /// `w` is a name that no configuration defines.
    pub unknown_mode: bool,
}

impl WriteConcern {
    /// Returns an error for what a server without a replica set refuses before it writes anything.
    pub fn check_standalone(self) -> Result<(), Error> {
        if self.nodes > 1 {
            return Err(Error::bad_value(
                "cannot use 'w' > 1 when a host is not replicated",
            ));
        }
        if self.unknown_mode {
            return Err(Error::bad_value(
                "cannot use a non-majority 'w' mode when a host is not a member of a replica set",
            ));
        }
        Ok(())
    }

    /// Returns a write concern error if `w` can never be satisfied. The write itself is kept.
    pub fn never_satisfied(self) -> Option<Error> {
        if self.unknown_mode {
            return Some(Error::new(
                ErrorCode::UNKNOWN_REPL_WRITE_CONCERN,
                "No write concern mode of this name found in replica set configuration",
            ));
        }
        (self.nodes > 1).then(|| {
            Error::new(
                ErrorCode::UNSATISFIABLE_WRITE_CONCERN,
                "Not enough data-bearing nodes",
            )
        })
    }

    /// Parses `{w, j, wtimeout, fsync}`.
    pub fn parse(doc: RawDoc<'_>) -> Result<Self, Error> {
        let mut concern = WriteConcern::default();
        for element in doc.iter() {
            match element.key() {
                "w" => match element.value() {
                    RawValue::String("majority") => concern.journaled = true,
                    RawValue::String(_) => concern.unknown_mode = true,
                    value => match value.as_i64_exact() {
                        Some(0) => concern.unacknowledged = true,
                        Some(1) => {}
                        Some(n) if (2..=50).contains(&n) => concern.nodes = n as u8,
                        _ => {
                            return Err(Error::new(
                                ErrorCode::FAILED_TO_PARSE,
                                "w has to be a number between 0 and 50, or 'majority'",
                            ));
                        }
                    },
                },
                "j" | "fsync" => concern.journaled |= fields::boolean("writeConcern", &element)?,
                "wtimeout" => {
                    fields::integer("writeConcern", &element)?;
                }
                "provenance" => {}
                other => return Err(unknown_field("writeConcern", other)),
            }
        }
        Ok(concern)
    }
}
