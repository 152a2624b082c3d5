//! Whether free space is released in the background (`autoCompact`).

use parking_lot::Mutex;

/// Megabytes of free space from which a compaction begins, unless the command says otherwise.
pub const TARGET_MB: u64 = 20;

/// The options of `autoCompact`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AutoCompaction {
    /// Free space from which a compaction begins.
    pub target_mb: u64,
    /// It ends after one pass.
    pub run_once: bool,
}

/// Why the state does not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It is enabled with other options.
    OtherOptions,
    /// It was disabled and a pass still runs.
    Busy,
}

/// The state of background compaction.
#[derive(Debug, Default)]
pub struct AutoCompact(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    enabled: Option<AutoCompaction>,
    is_running: bool,
}

impl AutoCompact {
    /// Enables it with these options, or disables it.
    pub fn set(&self, wanted: Option<AutoCompaction>) -> Result<(), Refusal> {
        let mut state = self.0.lock();
        match (wanted, state.enabled) {
            (Some(wanted), Some(current)) if wanted != current => {
                return Err(Refusal::OtherOptions);
            }
            (Some(_), None) if state.is_running => return Err(Refusal::Busy),
            _ => state.enabled = wanted,
        }
        Ok(())
    }

    /// The options, if it is enabled.
    pub fn enabled(&self) -> Option<AutoCompaction> {
        self.0.lock().enabled
    }

    /// Begins a pass; `None` if it is not enabled.
    pub fn begin_pass(&self) -> Option<AutoCompaction> {
        let mut state = self.0.lock();
        state.is_running = state.enabled.is_some();
        state.enabled
    }

    /// Ends a pass.
    pub fn end_pass(&self, done: AutoCompaction) {
        let mut state = self.0.lock();
        state.is_running = false;
        if done.run_once && state.enabled == Some(done) {
            state.enabled = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_change_only_when_it_is_off_and_idle() {
        let state = AutoCompact::default();
        let options = |target_mb, run_once| {
            Some(AutoCompaction {
                target_mb,
                run_once,
            })
        };
        state.set(options(20, true)).unwrap();
        state.set(options(20, true)).unwrap();
        assert_eq!(state.set(options(1, true)), Err(Refusal::OtherOptions));
        let pass = state.begin_pass().unwrap();
        state.set(None).unwrap();
        assert_eq!(state.set(options(1, false)), Err(Refusal::Busy));
        state.end_pass(pass);
        state.set(options(1, false)).unwrap();
        assert!(state.begin_pass().is_some());
        state.set(None).unwrap();
        assert!(state.begin_pass().is_none());
    }
}
