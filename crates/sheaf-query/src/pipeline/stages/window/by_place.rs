//! Functions of a document's position in its partition.

use std::collections::VecDeque;

use sheaf_bson::error_code::Result;
use sheaf_bson::{RawDoc, Value};

use crate::expression::Expression;
use crate::pipeline::accumulator::size;
use crate::sort::{SortKeyGenerator, SortPattern};

use super::functions::WindowFunction;

/// `$rank` and `$denseRank`.
pub(super) struct Rank {
    keys: SortKeyGenerator,
    key: Option<Vec<u8>>,
    dense: bool,
    seen: i64,
    rank: i64,
    ready: VecDeque<i64>,
}

/// A count: an int if it fits, otherwise a long.
fn count(n: i64) -> Value {
    match i32::try_from(n) {
        Ok(n) => Value::Int32(n),
        Err(_) => Value::Int64(n),
    }
}

impl Rank {
    pub(super) fn new(pattern: &SortPattern, dense: bool) -> Rank {
        Rank {
            keys: SortKeyGenerator::new(pattern),
            key: None,
            dense,
            seen: 0,
            rank: 0,
            ready: VecDeque::new(),
        }
    }
}

impl WindowFunction for Rank {
    fn push(&mut self, doc: RawDoc<'_>) -> Result<()> {
        let mut key = Vec::new();
        self.keys.key_of_document(doc, &mut key)?;
        self.seen += 1;
        if self.key.as_ref() != Some(&key) {
            self.rank = if self.dense { self.rank + 1 } else { self.seen };
            self.key = Some(key);
        }
        self.ready.push_back(self.rank);
        Ok(())
    }

    fn end(&mut self) {}

    fn next(&mut self) -> Result<Option<Value>> {
        Ok(self.ready.pop_front().map(count))
    }

    fn bytes(&self) -> usize {
        self.ready.len() * 8
    }
}

/// `$documentNumber`.
#[derive(Default)]
pub(super) struct DocumentNumber {
    seen: i64,
    given: i64,
}

impl WindowFunction for DocumentNumber {
    fn push(&mut self, _: RawDoc<'_>) -> Result<()> {
        self.seen += 1;
        Ok(())
    }

    fn end(&mut self) {}

    fn next(&mut self) -> Result<Option<Value>> {
        if self.given == self.seen {
            return Ok(None);
        }
        self.given += 1;
        Ok(Some(count(self.given)))
    }

    fn bytes(&self) -> usize {
        0
    }
}

/// `$shift`.
pub(super) struct Shift {
    output: Expression,
    by: i64,
    default: Value,
    values: VecDeque<Value>,
    bytes: usize,
    first: u64,
    pushed: u64,
    current: u64,
    ended: bool,
}

impl Shift {
    pub(super) fn new(output: &Expression, by: i64, default: &Value) -> Shift {
        Shift {
            output: output.clone(),
            by,
            default: default.clone(),
            values: VecDeque::new(),
            bytes: 0,
            first: 0,
            pushed: 0,
            current: 0,
            ended: false,
        }
    }
}

impl WindowFunction for Shift {
    fn push(&mut self, doc: RawDoc<'_>) -> Result<()> {
        let value = self
            .output
            .evaluate_on(doc)?
            .into_value()
            .unwrap_or_else(|| self.default.clone());
        self.bytes += size(value.as_raw()) + size_of::<Value>();
        self.values.push_back(value);
        self.pushed += 1;
        Ok(())
    }

    fn end(&mut self) {
        self.ended = true;
    }

    fn next(&mut self) -> Result<Option<Value>> {
        if self.current == self.pushed {
            return Ok(None);
        }
        let value = match self.current.checked_add_signed(self.by) {
            Some(at) if at >= self.pushed && !self.ended => return Ok(None),
            Some(at) if at < self.pushed => {
                let at = at.checked_sub(self.first).map(|at| at as usize);
                at.and_then(|at| self.values.get(at))
                    .unwrap_or(&self.default)
            }
            _ => &self.default,
        };
        let value = value.clone();
        self.current += 1;
        let oldest = self.current.saturating_add_signed(self.by);
        while self.first < oldest
            && let Some(gone) = self.values.pop_front()
        {
            self.bytes -= size(gone.as_raw()) + size_of::<Value>();
            self.first += 1;
        }
        Ok(Some(value))
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}
