//! `writeConcern`: how durable a write must be before it is acknowledged.

use sheaf_bson::{Error, ErrorCode, RawDoc, RawValue};

use crate::command::fields::{self, unknown_field};
use crate::command::read_concern::provenance;

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
    /// `w` is a document of tags, which no configuration of one member can satisfy.
    pub tags: bool,
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
    pub fn never_satisfied(self, in_set: bool) -> Option<Error> {
        if self.unknown_mode {
            return Some(Error::new(
                ErrorCode::UNKNOWN_REPL_WRITE_CONCERN,
                "No write concern mode of this name found in replica set configuration",
            ));
        }
        (self.nodes > 1 || (self.tags && in_set)).then(|| {
            Error::new(
                ErrorCode::UNSATISFIABLE_WRITE_CONCERN,
                "Not enough data-bearing nodes",
            )
        })
    }

    /// Parses `{w, j, wtimeout, fsync, provenance}`.
    pub fn parse(doc: RawDoc<'_>) -> Result<Self, Error> {
        let mut concern = WriteConcern::default();
        for element in doc.iter() {
            match element.key() {
                "w" => concern.take_w(element.value())?,
                "j" | "fsync" => concern.journaled |= fields::boolean(NAME, &element)?,
                "wtimeout" => check_timeout(element.value())?,
                "provenance" => provenance(NAME, &element)?,
                other => return Err(unknown_field(NAME, other)),
            }
        }
        Ok(concern)
    }

    fn take_w(&mut self, w: RawValue<'_>) -> Result<(), Error> {
        match w {
            RawValue::String("majority") => self.journaled = true,
            // Null is the mode of no name.
            RawValue::String(_) | RawValue::Null | RawValue::Undefined => self.unknown_mode = true,
            RawValue::Document(tags) if is_tags(tags) => self.tags = true,
            _ => match nodes(w) {
                Some(0) => self.unacknowledged = true,
                Some(1) => {}
                Some(n) => self.nodes = n,
                None => {
                    return Err(Error::new(
                        ErrorCode::FAILED_TO_PARSE,
                        format!(
                            "w has to be a number from 0 to {NODES_MAX}, 'majority', the name of a \
                             mode, or an object whose values are numbers"
                        ),
                    ));
                }
            },
        }
        Ok(())
    }
}

const NAME: &str = "writeConcern";

/// As many members as a replica set can have.
const NODES_MAX: u8 = 50;

/// The number of members that `w` requires, truncated; `None` if it is not one.
fn nodes(w: RawValue<'_>) -> Option<u8> {
    if w.as_f64()?.is_nan() {
        return None;
    }
    let nodes = u8::try_from(w.as_i64_saturating()?).ok()?;
    (nodes <= NODES_MAX).then_some(nodes)
}

fn is_tags(tags: RawDoc<'_>) -> bool {
    !tags.is_empty() && tags.iter().all(|tag| tag.value().is_number())
}

/// `wtimeout`: anything that is not a number counts as 0, which waits indefinitely.
/// Errors: `FailedToParse` beyond an int.
fn check_timeout(timeout: RawValue<'_>) -> Result<(), Error> {
    match timeout.as_i64_saturating() {
        Some(ms) if ms > i64::from(i32::MAX) => Err(Error::new(
            ErrorCode::FAILED_TO_PARSE,
            format!("wtimeout must be at most {} milliseconds", i32::MAX),
        )),
        _ => Ok(()),
    }
}
