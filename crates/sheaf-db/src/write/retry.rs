//! Retries of a unit of work after a conflict with another writer.

use std::time::Duration;

use sheaf_bson::Result;

use crate::op_context::OpContext;

/// The wait before the next attempt: none for the first few, then exponential up to a limit.
///
/// Two units that take the same locks in different order make each other fail; growing waits let
/// one of them finish.
#[derive(Debug, Default)]
pub struct Backoff {
    attempts: u32,
}

/// Number of attempts without a wait.
const EAGER_ATTEMPTS: u32 = 4;
const WAIT_MIN: Duration = Duration::from_micros(200);
const WAIT_MAX: Duration = Duration::from_millis(20);

impl Backoff {
    /// Counts the conflict and waits.
    /// Errors: `Interrupted`, `MaxTimeMSExpired`, so that retries end when the operation does.
    pub fn wait(&mut self, op: &OpContext) -> Result<()> {
        op.counters().write_conflicts.add(1);
        op.check_interrupt_now()?;
        match self.duration() {
            Some(wait) => std::thread::sleep(op.remaining().map_or(wait, |left| wait.min(left))),
            None => std::thread::yield_now(),
        }
        self.attempts += 1;
        Ok(())
    }

    fn duration(&self) -> Option<Duration> {
        let doublings = self.attempts.checked_sub(EAGER_ATTEMPTS)?.min(16);
        Some((WAIT_MIN * 2u32.pow(doublings)).min(WAIT_MAX))
    }

    /// Resets the wait after an attempt that made progress.
    pub fn reset(&mut self) {
        self.attempts = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_bson::ErrorCode;

    #[test]
    fn waits_grow_to_a_limit() {
        let waits: Vec<_> = [0, 3, 4, 5, 10, 30, 1000]
            .map(|attempts| Backoff { attempts }.duration())
            .into();
        let us = |n| Some(Duration::from_micros(n));
        let max = Some(WAIT_MAX);
        assert_eq!(waits, [None, None, us(200), us(400), us(12_800), max, max]);
    }

    #[test]
    fn ends_with_the_operation() {
        let op = OpContext::new();
        let mut backoff = Backoff::default();
        backoff.wait(&op).unwrap();
        assert_eq!(op.counters().counts().write_conflicts, 1);
        op.kill(ErrorCode::INTERRUPTED);
        assert_eq!(
            backoff.wait(&op).unwrap_err().code(),
            ErrorCode::INTERRUPTED
        );
    }
}
