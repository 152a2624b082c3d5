//! When background jobs run, and on which thread.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use sheaf_bson::{Error, ErrorCode};
use sheaf_db::OpContext;

use crate::guard::caught;
use crate::log::{Component, Log, events};

/// Due times are rounded up to multiples of this, so that jobs share wake-ups.
const GRID: Duration = Duration::from_millis(100);
/// Address space for the timer's stack; short jobs touch no documents.
const TIMER_STACK_BYTES: usize = 256 << 10;
/// Address space for a worker's stack: documents may be nested to their limit.
const WORKER_STACK_BYTES: usize = 4 << 20;
/// How long a worker waits for a job before it ends, unless it is the last one.
const WORKER_IDLE_MAX: Duration = Duration::from_secs(10);
/// How long [`Jobs::stop`] waits for running jobs, which have been interrupted.
const STOP_WAIT_MAX: Duration = Duration::from_secs(10);

/// When a job runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Run again after the period.
    Period,
    /// Run again no sooner than this.
    After(Duration),
    /// Do not run again.
    Never,
}

/// One background job of the owner `S`.
pub(super) struct Job<S> {
    /// The context of its log lines.
    pub name: &'static str,
    /// It may take longer than a few milliseconds.
    pub is_long: bool,
    /// Time from the end of a run to the next; `None` suspends it until parameters change.
    pub period: fn(&S) -> Option<Duration>,
    /// One run.
    pub run: Box<dyn FnMut(&S) -> Next + Send>,
}

/// The background jobs of the owner `S`. Empty until [`super::start`].
pub struct Jobs<S>(Arc<Shared<S>>);

struct Shared<S> {
    queue: Mutex<Queue<S>>,
    /// Wakes the timer.
    timer: Condvar,
    /// Wakes workers.
    worker: Condvar,
    /// Signals the end of a job.
    done: Condvar,
    /// Operations that stopping interrupts.
    passes: Mutex<Vec<Arc<OpContext>>>,
}

struct Queue<S> {
    scheduled: Vec<Scheduled<S>>,
    /// Long jobs that are due, and since when.
    handed_over: VecDeque<(Instant, Job<S>)>,
    workers: usize,
    workers_idle: usize,
    /// Long jobs that run now.
    running: usize,
    periods_changed: bool,
    stopped: bool,
}

struct Scheduled<S> {
    job: Job<S>,
    last_end: Instant,
    /// `None` while suspended.
    due: Option<Instant>,
}

/// What every thread of the jobs holds.
struct Owner<S> {
    /// Jobs do not keep their owner alive.
    owner: Weak<S>,
    log: Arc<Log>,
    /// When the jobs were started: the origin of the grid.
    begun: Instant,
}

impl<S> Clone for Owner<S> {
    fn clone(&self) -> Self {
        Owner {
            owner: self.owner.clone(),
            log: self.log.clone(),
            begun: self.begun,
        }
    }
}

impl<S> Default for Jobs<S> {
    fn default() -> Self {
        Jobs(Arc::new(Shared {
            queue: Mutex::new(Queue {
                scheduled: Vec::new(),
                handed_over: VecDeque::new(),
                workers: 0,
                workers_idle: 0,
                running: 0,
                periods_changed: false,
                stopped: false,
            }),
            timer: Condvar::new(),
            worker: Condvar::new(),
            done: Condvar::new(),
            passes: Mutex::new(Vec::new()),
        }))
    }
}

impl<S: Send + Sync + 'static> Jobs<S> {
    /// Starts the timer with these jobs; each waits its period first.
    ///
    /// Errors: no thread could be started.
    pub(super) fn start(
        &self,
        owner: &Arc<S>,
        log: &Arc<Log>,
        jobs: Vec<Job<S>>,
    ) -> Result<(), Error> {
        let now = Instant::now();
        let scheduled = jobs.into_iter().map(|job| Scheduled {
            due: (job.period)(owner).map(|period| on_grid(now, now + period)),
            job,
            last_end: now,
        });
        self.0.queue.lock().scheduled.extend(scheduled);
        let shared = self.0.clone();
        let owner = Owner {
            owner: Arc::downgrade(owner),
            log: log.clone(),
            begun: now,
        };
        spawn("jobs", TIMER_STACK_BYTES, move || {
            shared.run_timer(&owner);
        })
    }
}

impl<S> Jobs<S> {
    /// Recomputes all due times: a parameter may have changed a period.
    pub fn periods_changed(&self) {
        self.0.queue.lock().periods_changed = true;
        self.0.timer.notify_all();
    }

    /// Runs a pass as an operation that [`stop`](Self::stop) interrupts. An interrupted pass is not
    /// a failure.
    ///
    /// Errors: the pass's.
    pub fn pass(
        &self,
        pass: impl FnOnce(&Arc<OpContext>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let op = Arc::new(OpContext::new());
        self.0.passes.lock().push(op.clone());
        // Stopped before the operation was in the list.
        let done = match self.0.queue.lock().stopped {
            true => Ok(()),
            false => pass(&op),
        };
        self.0
            .passes
            .lock()
            .retain(|other| !Arc::ptr_eq(other, &op));
        if op.is_killed() { Ok(()) } else { done }
    }

    /// Interrupts running passes and lets no job begin. Does not wait for them.
    pub fn stop(&self) {
        self.0.queue.lock().stopped = true;
        self.0.timer.notify_all();
        self.0.worker.notify_all();
        for op in &*self.0.passes.lock() {
            op.kill(ErrorCode::INTERRUPTED_AT_SHUTDOWN);
        }
    }

    /// Stops, and waits until no long job runs, at most for ten seconds.
    pub fn stop_and_wait(&self) {
        self.stop();
        let end = Instant::now() + STOP_WAIT_MAX;
        let mut queue = self.0.queue.lock();
        while queue.running > 0 && !self.0.done.wait_until(&mut queue, end).timed_out() {}
    }
}

impl<S> Drop for Jobs<S> {
    fn drop(&mut self) {
        self.stop();
    }
}

impl<S: Send + Sync + 'static> Shared<S> {
    fn run_timer(self: Arc<Self>, owner: &Owner<S>) {
        let mut queue = self.queue.lock();
        while !queue.stopped {
            if std::mem::take(&mut queue.periods_changed) {
                let Some(of) = owner.owner.upgrade() else {
                    return;
                };
                queue.reschedule(&of, owner.begun);
            }
            let now = Instant::now();
            if let Some((at, due)) = queue.first_due()
                && due <= now
            {
                let job = queue.scheduled.swap_remove(at).job;
                if job.is_long {
                    queue.handed_over.push_back((now, job));
                    self.worker.notify_one();
                } else {
                    self.run_job(&mut queue, job, owner);
                }
                continue;
            }
            if queue.wants_worker(now) {
                self.start_worker(&mut queue, owner);
            }
            match queue.next_wake_up(now) {
                None => self.timer.wait(&mut queue),
                Some(at) => {
                    self.timer.wait_until(&mut queue, at);
                }
            }
        }
    }

    fn start_worker(self: &Arc<Self>, queue: &mut Queue<S>, owner: &Owner<S>) {
        let (shared, owner) = (self.clone(), owner.clone());
        let started = spawn("worker", WORKER_STACK_BYTES, move || {
            shared.run_worker(&owner);
        });
        // If no thread starts, the job waits for a busy worker or for the next attempt.
        queue.workers += usize::from(started.is_ok());
    }

    fn run_worker(self: Arc<Self>, owner: &Owner<S>) {
        let mut queue = self.queue.lock();
        while !queue.stopped {
            if let Some((_, job)) = queue.handed_over.pop_front() {
                queue.running += 1;
                self.run_job(&mut queue, job, owner);
                queue.running -= 1;
                self.done.notify_all();
                continue;
            }
            queue.workers_idle += 1;
            let wait = self.worker.wait_for(&mut queue, WORKER_IDLE_MAX);
            queue.workers_idle -= 1;
            if wait.timed_out() && queue.workers > 1 && queue.handed_over.is_empty() {
                break;
            }
        }
        queue.workers -= 1;
    }

    /// Runs a job outside the lock and schedules its next run.
    fn run_job(&self, queue: &mut MutexGuard<'_, Queue<S>>, mut job: Job<S>, owner: &Owner<S>) {
        let next = MutexGuard::unlocked(queue, || {
            let of = owner.owner.upgrade()?;
            crate::log::set_context(job.name);
            let next = match caught(|| (job.run)(&of)) {
                Ok(next) => next,
                Err(panic) => {
                    log_panic(&owner.log, job.name, &panic);
                    Next::Never
                }
            };
            Some((next, (job.period)(&of)))
        });
        let Some((next, period)) = next else {
            queue.stopped = true;
            return;
        };
        let now = Instant::now();
        let wait = match next {
            Next::Never => return,
            Next::After(wait) => Some(wait),
            Next::Period => period,
        };
        queue.scheduled.push(Scheduled {
            job,
            last_end: now,
            due: wait.map(|wait| on_grid(owner.begun, now + wait)),
        });
        self.timer.notify_all();
    }
}

impl<S> Queue<S> {
    fn first_due(&self) -> Option<(usize, Instant)> {
        let due = |(at, scheduled): (usize, &Scheduled<S>)| Some((at, scheduled.due?));
        let all = self.scheduled.iter().enumerate().filter_map(due);
        all.min_by_key(|(_, due)| *due)
    }

    /// Whether a waiting long job needs another worker: immediately if there are no workers, else
    /// after it has waited with no idle worker, since jobs that are due together are mostly short.
    fn wants_worker(&self, now: Instant) -> bool {
        let waits = self.handed_over.front().map(|(since, _)| *since);
        waits
            .is_some_and(|since| self.workers == 0 || self.workers_idle == 0 && now >= since + GRID)
    }

    fn next_wake_up(&self, now: Instant) -> Option<Instant> {
        let due = self.first_due().map(|(_, due)| due);
        let waits = self.handed_over.front();
        // Starting a worker is retried after a failure.
        let worker = waits.map(|(since, _)| (*since + GRID).max(now + GRID));
        due.into_iter().chain(worker).min()
    }

    fn reschedule(&mut self, owner: &S, begun: Instant) {
        for scheduled in &mut self.scheduled {
            let period = (scheduled.job.period)(owner);
            scheduled.due = period.map(|period| on_grid(begun, scheduled.last_end + period));
        }
    }
}

/// The first time on the grid that is not before `due`.
fn on_grid(begun: Instant, due: Instant) -> Instant {
    let cells = due
        .saturating_duration_since(begun)
        .as_nanos()
        .div_ceil(GRID.as_nanos());
    begun + GRID * u32::try_from(cells).unwrap_or(u32::MAX)
}

fn log_panic(log: &Log, job: &str, panic: &str) {
    log.error(
        Component::Control,
        events::JOB_PANICKED,
        "A background job failed on a broken invariant and does not run again",
        |attr| {
            attr.append("job", job);
            attr.append("error", log.client_text(panic));
        },
    );
}

fn spawn(name: &str, bytes: usize, run: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    std::thread::Builder::new()
        .name(name.into())
        .stack_size(bytes)
        .spawn(run)
        .map(drop)
        .map_err(|e| {
            Error::new(
                ErrorCode::INTERNAL_ERROR,
                format!("cannot start a thread: {e}"),
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_times_are_on_the_grid() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        for (due, expected) in [(0, 0), (1, 100), (100, 100), (101, 200), (4_010, 4_100)] {
            assert_eq!(on_grid(begun, at(due)), at(expected), "{due}");
        }
        // A due time that has passed before the first run is the first cell.
        assert_eq!(on_grid(at(500), at(0)), at(500));
    }
}
