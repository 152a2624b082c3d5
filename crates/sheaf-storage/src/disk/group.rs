//! Many callers, one of whom works for all that are waiting.
//!
//! ```text
//!   A ─ leads ──[ A ]──────┐
//!   B ─ waits ─────────────┤ B leads ──[ B C D ]──┐
//!   C ─ waits ─────────────┘ C, D wait            ├ C, D answered; E leads ...
//! ```
//!
//! Whoever comes while nobody leads, leads: it takes all requests that are waiting, its own among them,
//! and serves them in the order of arrival. Then it makes the first of those that came meanwhile the
//! next leader, and hands out the answers. So nobody leads for longer than its own group, a lone
//! caller waits for nobody, and the groups grow with the time that one takes.
//!
//! Invariant: there is a leader whenever a request is waiting.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

pub(super) struct Group<Q, A> {
    line: Mutex<Line<Q, A>>,
}

struct Line<Q, A> {
    waiting: Vec<(Q, Arc<Place<A>>)>,
    led: bool,
}

struct Place<A> {
    turn: Mutex<Turn<A>>,
    changed: Condvar,
}

enum Turn<A> {
    Waiting,
    Lead,
    Answered(A),
}

impl<Q, A> Group<Q, A> {
    pub(super) fn new() -> Group<Q, A> {
        Group {
            line: Mutex::new(Line {
                waiting: Vec::new(),
                led: false,
            }),
        }
    }

    /// Has the request served, by this thread or another. `serve` gives one answer for each request,
    /// in their order, and does not panic: the others would wait for ever.
    pub(super) fn submit(&self, request: Q, serve: impl FnOnce(Vec<Q>) -> Vec<A>) -> A {
        let place = Arc::new(Place {
            turn: Mutex::new(Turn::Waiting),
            changed: Condvar::new(),
        });
        let lead = {
            let mut line = self.line.lock();
            line.waiting.push((request, place.clone()));
            !std::mem::replace(&mut line.led, true)
        };
        if !lead {
            let mut turn = place.turn.lock();
            loop {
                match std::mem::replace(&mut *turn, Turn::Waiting) {
                    Turn::Waiting => place.changed.wait(&mut turn),
                    Turn::Lead => break,
                    Turn::Answered(answer) => return answer,
                }
            }
        }
        let (requests, places): (Vec<Q>, Vec<_>) = std::mem::take(&mut self.line.lock().waiting)
            .into_iter()
            .unzip();
        let answers = serve(requests);
        debug_assert_eq!(answers.len(), places.len());
        {
            let mut line = self.line.lock();
            match line.waiting.first() {
                Some((_, next)) => next.turn(Turn::Lead),
                None => line.led = false,
            }
        }
        let mut own = None;
        for (other, answer) in places.iter().zip(answers) {
            if Arc::ptr_eq(other, &place) {
                own = Some(answer);
            } else {
                other.turn(Turn::Answered(answer));
            }
        }
        // The leader is always among those that it serves.
        own.expect("an answer for every request")
    }
}

impl<A> Place<A> {
    fn turn(&self, turn: Turn<A>) {
        *self.turn.lock() = turn;
        self.changed.notify_one();
    }
}
