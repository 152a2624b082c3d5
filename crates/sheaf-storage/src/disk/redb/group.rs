//! Group commit: many callers, one of which does the work for all that are waiting.
//!
//! ```text
//!   A ─ leads ──[ A ]──────┐
//!   B ─ waits ─────────────┤ B leads ──[ B C D ]──┐
//!   C ─ waits ─────────────┘ C, D wait            ├ C, D answered; E leads ...
//! ```
//!
//! A caller that arrives while there is no leader becomes the leader: it takes the waiting
//! requests, its own among them, and answers them. When it is done, the first of those that arrived
//! meanwhile leads next. So no caller leads for longer than its own group, a lone caller waits for
//! no other, and groups grow with the time that one takes.
//!
//! Invariant: there is a leader whenever a request is waiting, and every request that was taken is
//! answered or, if its leader failed, abandoned; no caller waits indefinitely.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

pub(super) struct Group<Q, A> {
    queue: Mutex<Queue<Q, A>>,
    arrived: Condvar,
}

struct Queue<Q, A> {
    waiting: Vec<Ticket<Q, A>>,
    led: bool,
    /// Whether the leader waits for more requests.
    expectant: bool,
}

struct Place<A> {
    turn: Mutex<Turn<A>>,
    changed: Condvar,
}

enum Turn<A> {
    Waiting,
    Lead,
    Answered(A),
    Abandoned,
}

impl<A> Place<A> {
    fn turn(&self, turn: Turn<A>) {
        *self.turn.lock() = turn;
        self.changed.notify_one();
    }
}

/// A request that waits for its answer.
pub(super) struct Ticket<Q, A> {
    pub(super) request: Q,
    /// Taken when the request is answered.
    place: Option<Arc<Place<A>>>,
}

impl<Q, A> Ticket<Q, A> {
    pub(super) fn answer(mut self, answer: A) {
        if let Some(place) = self.place.take() {
            place.turn(Turn::Answered(answer));
        }
    }
}

impl<Q, A> Drop for Ticket<Q, A> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            place.turn(Turn::Abandoned);
        }
    }
}

/// The leader's access to the requests.
pub(super) struct Leader<'a, Q, A>(&'a Group<Q, A>);

impl<Q, A> Leader<'_, Q, A> {
    /// Takes the waiting requests, in the order of their arrival.
    pub(super) fn take(&self) -> Vec<Ticket<Q, A>> {
        std::mem::take(&mut self.0.queue.lock().waiting)
    }

    /// The number of waiting requests.
    pub(super) fn waiting(&self) -> usize {
        self.0.queue.lock().waiting.len()
    }

    /// Waits until this many requests are waiting, but not for longer than `limit`.
    pub(super) fn wait_for(&self, requests: usize, limit: Duration) {
        let until = Instant::now() + limit;
        let mut queue = self.0.queue.lock();
        queue.expectant = true;
        while queue.waiting.len() < requests {
            if self.0.arrived.wait_until(&mut queue, until).timed_out() {
                break;
            }
        }
        queue.expectant = false;
    }
}

impl<Q, A> Drop for Leader<'_, Q, A> {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        match queue.waiting.first().and_then(|next| next.place.as_ref()) {
            Some(next) => next.turn(Turn::Lead),
            None => queue.led = false,
        }
    }
}

impl<Q, A> Group<Q, A> {
    pub(super) fn new() -> Group<Q, A> {
        Group {
            queue: Mutex::new(Queue {
                waiting: Vec::new(),
                led: false,
                expectant: false,
            }),
            arrived: Condvar::new(),
        }
    }

    /// Submits a request and returns its answer, computed by this thread or another; `None` if its
    /// leader failed. `lead` must call [`Leader::take`] at least once, which returns its own
    /// caller's request.
    pub(super) fn submit(&self, request: Q, lead: impl FnOnce(&Leader<'_, Q, A>)) -> Option<A> {
        let place = Arc::new(Place {
            turn: Mutex::new(Turn::Waiting),
            changed: Condvar::new(),
        });
        let mut leads = {
            let mut queue = self.queue.lock();
            queue.waiting.push(Ticket {
                request,
                place: Some(place.clone()),
            });
            if queue.expectant {
                self.arrived.notify_one();
            }
            !std::mem::replace(&mut queue.led, true)
        };
        let mut lead = Some(lead);
        loop {
            if leads && let Some(lead) = lead.take() {
                lead(&Leader(self));
            }
            let mut turn = place.turn.lock();
            match std::mem::replace(&mut *turn, Turn::Waiting) {
                Turn::Waiting => place.changed.wait(&mut turn),
                Turn::Lead => leads = true,
                Turn::Answered(answer) => return Some(answer),
                Turn::Abandoned => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn every_request_is_answered_once() {
        let group: Group<u64, u64> = Group::new();
        let groups = AtomicU64::new(0);
        thread::scope(|scope| {
            for thread in 0..8 {
                let (group, groups) = (&group, &groups);
                scope.spawn(move || {
                    for n in 0..500 {
                        let request = thread * 1000 + n;
                        let answer = group.submit(request, |leader| {
                            groups.fetch_add(1, Ordering::Relaxed);
                            if n % 50 == 0 {
                                leader.wait_for(3, Duration::from_millis(1));
                            }
                            for ticket in leader.take() {
                                let answer = ticket.request + 1;
                                ticket.answer(answer);
                            }
                        });
                        assert_eq!(answer, Some(request + 1));
                    }
                });
            }
        });
        assert!(groups.into_inner() <= 4000);
    }

    #[test]
    fn a_panicking_leader_leaves_no_waiter() {
        let group: Group<u64, u64> = Group::new();
        let answered = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in 0..50 {
                        let lead = |leader: &Leader<'_, u64, u64>| {
                            let mut tickets = leader.take();
                            let own = tickets.pop();
                            if n % 10 == 0 {
                                panic!("on purpose");
                            }
                            tickets.extend(own);
                            for ticket in tickets {
                                ticket.answer(n);
                            }
                        };
                        let submit = std::panic::AssertUnwindSafe(|| group.submit(n, lead));
                        if let Ok(Some(_)) = std::panic::catch_unwind(submit) {
                            answered.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert!(answered.into_inner() > 0);
        assert_eq!(
            group.submit(7, |leader| leader
                .take()
                .into_iter()
                .for_each(|t| t.answer(8))),
            Some(8)
        );
    }
}
