//! Positions in the oplog.

use std::fmt;

use sheaf_bson::{DocBuilder, RawDoc, RawValue, Timestamp};

/// The term of an election. Entries of a later term replace those of an earlier one that were not
/// majority-committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub i64);

impl Term {
    /// The term of the only election that a single-member set has had.
    pub const FIRST: Term = Term(1);
    /// The value MongoDB writes if there is no term, as in the `prevOpTime` of a transaction's
    /// first entry.
    pub const UNINITIALIZED: Term = Term(-1);
}

/// The position of an entry: its time, and the term of the primary that wrote it.
///
/// Ordered by term first: an entry of a later term is newer, whatever the clocks were.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct OpTime {
    /// `ts`, unique within the oplog.
    pub ts: Timestamp,
    /// `t`.
    pub term: Term,
}

impl OpTime {
    /// The position before all entries: `{ts: Timestamp(0, 0), t: -1}`.
    pub const NULL: OpTime = OpTime {
        ts: Timestamp {
            time: 0,
            increment: 0,
        },
        term: Term::UNINITIALIZED,
    };

    /// Reads `ts` and `t` of an entry, or of a document that holds nothing else. A missing `t` is
    /// [`Term::UNINITIALIZED`]. `None` without a timestamp in `ts`.
    pub fn of(doc: RawDoc<'_>) -> Option<OpTime> {
        let Some(RawValue::Timestamp(ts)) = doc.get("ts") else {
            return None;
        };
        let term = doc.get("t").and_then(|t| t.as_i64_exact());
        let term = term.map_or(Term::UNINITIALIZED, Term);
        Some(OpTime { ts, term })
    }

    /// The position `n` timestamps later in the same term.
    pub fn plus(self, n: u64) -> OpTime {
        OpTime {
            ts: Timestamp::from_u64(self.ts.as_u64() + n),
            term: self.term,
        }
    }

    /// Appends `ts` and `t`.
    pub fn append_to(self, out: &mut DocBuilder) {
        out.append("ts", self.ts);
        out.append("t", self.term.0);
    }
}

impl PartialOrd for OpTime {
    fn partial_cmp(&self, other: &OpTime) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OpTime {
    fn cmp(&self, other: &OpTime) -> std::cmp::Ordering {
        (self.term, self.ts.as_u64()).cmp(&(other.term, other.ts.as_u64()))
    }
}

impl fmt::Debug for OpTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{ts: {:?}, t: {}}}", self.ts, self.term.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_bson::doc;

    #[test]
    fn read_as_written_and_ordered_by_term_first() {
        let early = OpTime {
            ts: Timestamp::from_u64(9),
            term: Term(1),
        };
        let mut out = DocBuilder::new();
        early.append_to(&mut out);
        assert_eq!(OpTime::of(out.finish().as_raw()), Some(early));
        let later_term = OpTime {
            ts: Timestamp::from_u64(5),
            term: Term(2),
        };
        assert!(OpTime::NULL < early && early < later_term && early < early.plus(1));
        assert_eq!(OpTime::of(doc! {"t": 1}.as_raw()), None);
        let without_term = doc! {"ts": Timestamp::from_u64(3)};
        let read = OpTime::of(without_term.as_raw()).unwrap();
        assert_eq!(read.term, Term::UNINITIALIZED);
    }
}
