//! The last lines of the log, in memory.

use std::collections::VecDeque;
use std::sync::Arc;

pub(super) struct Ring {
    max: usize,
    lines: VecDeque<Arc<str>>,
    total: u64,
}

impl Ring {
    pub(super) fn new(max: usize) -> Self {
        Ring {
            max,
            lines: VecDeque::new(),
            total: 0,
        }
    }

    pub(super) fn push(&mut self, line: Arc<str>) {
        if self.lines.len() == self.max {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
        self.total += 1;
    }

    /// Total number of lines pushed, and the lines still held, oldest first.
    pub(super) fn lines(&self) -> (u64, Vec<Arc<str>>) {
        (self.total, self.lines.iter().cloned().collect())
    }

    pub(super) fn clear(&mut self) {
        self.lines.clear();
    }
}
