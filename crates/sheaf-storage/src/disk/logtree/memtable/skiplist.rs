//! A skip list of versions: many threads insert while others read, in both directions.
//!
//! ```text
//!   level 1   root ───────────────> b@7 ─────────────────────> end
//!   level 0   root ──> a@4 ──> b@7 ──> b@3 ──> c@9 ──────────> end
//!                  <── prev <── prev <── prev
//! ```
//!
//! Ordered by key, and within a key newest first: the version that a snapshot sees is the first at
//! or after (key, its sequence). Nothing is ever removed.
//!
//! A node becomes part of the list by one compare-and-swap of the preceding link on the lowest
//! level. The links of higher levels are shortcuts, which are set one by one afterwards. `prev` may
//! lag when two nodes are inserted concurrently, and is never ahead: it leads to some earlier node,
//! from which a few steps forward end at the node directly before.
//!
//! Invariants: on each level the links visit a subset of the level below, in order; from any node's
//! `prev` the lowest level leads back to the node.

use std::ptr::null_mut;

use super::arena::Room;
use super::node::{HEIGHT_MAX, Header, NodeRef, head_of};
use crate::disk::logtree::sync::{AtomicUsize, Ordering};

/// See the module's head.
pub(in crate::disk::logtree) struct SkipList {
    /// A sentinel before all nodes; only its links are used.
    root: *mut Header,
    /// The highest level that a node may have reached.
    height: AtomicUsize,
    /// The list's number, which is stored in every node.
    number: u32,
}

// SAFETY: the root is a node, and nodes can be shared between threads; all other fields are atomic
// or never change.
unsafe impl Send for SkipList {}
// SAFETY: as above.
unsafe impl Sync for SkipList {}

/// The position of the last insertion, where the next one, of a greater key, begins its search.
pub(super) struct Splice<'g> {
    before: [NodeRef<'g>; HEIGHT_MAX],
    after: [*mut Header; HEIGHT_MAX],
    used: bool,
}

/// An inserted version, and what it found.
pub(super) struct Inserted<'g> {
    pub(super) node: NodeRef<'g>,
    /// Whether the list has a newer version of the key.
    pub(super) has_newer: bool,
    /// The next older version of the key in this list.
    pub(super) older: Option<NodeRef<'g>>,
}

impl SkipList {
    /// An empty list with a number.
    ///
    /// # Safety
    /// The list must not outlive `room`'s arena. Insert only with rooms of that arena and splices
    /// of this list.
    pub(super) unsafe fn new(room: &mut Room<'_>, number: u32) -> SkipList {
        SkipList {
            root: NodeRef::write(room, number, HEIGHT_MAX, &[], 0, None).as_link(),
            height: AtomicUsize::new(1),
            number,
        }
    }

    #[inline]
    fn root(&self) -> NodeRef<'_> {
        // SAFETY: `new` wrote it, in an arena that outlives the list.
        match unsafe { NodeRef::from_link(self.root) } {
            Some(root) => root,
            None => unreachable!("a list without a root"),
        }
    }

    /// `None` for the root.
    fn not_root<'a>(&'a self, node: NodeRef<'a>) -> Option<NodeRef<'a>> {
        (node.as_link() != self.root).then_some(node)
    }

    /// The last node before (`key`, `seq`), and the first at or after it.
    fn find(&self, key: &[u8], seq: u64) -> (NodeRef<'_>, Option<NodeRef<'_>>) {
        let head = head_of(key);
        let mut level = self.height.load(Ordering::Relaxed) - 1;
        let mut before = self.root();
        let mut beyond = null_mut();
        loop {
            // SAFETY: `before` is the root, or was reached on this level or a higher one.
            let link = unsafe { before.link(level) }.load(Ordering::Acquire);
            #[cfg(not(explore))]
            if level > 0 {
                // Read next if this one is beyond the target.
                // SAFETY: as above.
                let below = unsafe { before.link(level - 1) };
                NodeRef::prefetch(below.load(Ordering::Relaxed));
            }
            // SAFETY: links lead to nodes of this list.
            let next = unsafe { NodeRef::from_link(link) };
            match next {
                Some(next) if link != beyond && next.is_before(head, key, seq) => before = next,
                _ if level == 0 => return (before, next),
                _ => {
                    beyond = link;
                    level -= 1;
                }
            }
        }
    }

    /// The first version at or after (`key`, `seq`): the newest version of the key that is not
    /// newer than `seq`, else the newest version of the next key.
    pub(in crate::disk::logtree) fn at_or_after(
        &self,
        key: &[u8],
        seq: u64,
    ) -> Option<NodeRef<'_>> {
        self.find(key, seq).1
    }

    /// The last version before (`key`, `seq`).
    pub(in crate::disk::logtree) fn before(&self, key: &[u8], seq: u64) -> Option<NodeRef<'_>> {
        self.not_root(self.find(key, seq).0)
    }

    /// The version of `key` that a snapshot at `seq` sees.
    pub(in crate::disk::logtree) fn get(&self, key: &[u8], seq: u64) -> Option<NodeRef<'_>> {
        self.at_or_after(key, seq).filter(|node| node.key() == key)
    }

    /// The first version of the first key.
    pub(in crate::disk::logtree) fn first(&self) -> Option<NodeRef<'_>> {
        self.root().next()
    }

    /// The last version of the last key.
    pub(in crate::disk::logtree) fn last(&self) -> Option<NodeRef<'_>> {
        let mut level = self.height.load(Ordering::Relaxed) - 1;
        let mut last = self.root();
        loop {
            // SAFETY: `last` is the root, or was reached on this level or a higher one; links lead
            // to nodes.
            let next = unsafe { NodeRef::from_link(last.link(level).load(Ordering::Acquire)) };
            match next {
                Some(next) => last = next,
                None if level == 0 => return self.not_root(last),
                None => level -= 1,
            }
        }
    }

    /// The version before `node`, which is in this list.
    #[inline]
    pub(in crate::disk::logtree) fn prev<'a>(&'a self, node: NodeRef<'a>) -> Option<NodeRef<'a>> {
        let hint = node.prev_link().load(Ordering::Acquire);
        // SAFETY: set before the node could be reached, to a node of this list or the root.
        let mut before = unsafe { NodeRef::from_link(hint) }?;
        loop {
            let next = before.next()?;
            if next == node {
                return self.not_root(before);
            }
            before = next;
        }
    }

    /// Begins a sequence of insertions in ascending order of keys.
    pub(super) fn splice(&self) -> Splice<'_> {
        Splice {
            before: [self.root(); HEIGHT_MAX],
            after: [null_mut(); HEIGHT_MAX],
            used: false,
        }
    }

    /// Inserts a version. Its key must be greater than the last one inserted through the splice,
    /// and no two versions of one key may have the same sequence. `levels` is a random number that
    /// decides the node's height.
    pub(super) fn insert<'g>(
        &'g self,
        room: &mut Room<'g>,
        splice: &mut Splice<'g>,
        key: &[u8],
        seq: u64,
        value: Option<&bytes::Bytes>,
        levels: u64,
    ) -> Inserted<'g> {
        // One node in four reaches the next level.
        let height = (1 + levels.trailing_zeros() as usize / 2).min(HEIGHT_MAX);
        let node = NodeRef::write(room, self.number, height, key, seq, value);
        let head = node.head();
        self.locate(splice, head, key, seq);
        self.height.fetch_max(height, Ordering::Relaxed);
        for level in 0..height {
            loop {
                let (before, after) = (splice.before[level], splice.after[level]);
                // SAFETY: `level` is below the node's height; `before` is the root, or was reached
                // on this level or a higher one, or was inserted through the splice before and is
                // that high.
                let (own, link) = unsafe { (node.link(level), before.link(level)) };
                own.store(after, Ordering::Relaxed);
                if level == 0 {
                    // The node is not reachable yet.
                    node.prev_link().store(before.as_link(), Ordering::Relaxed);
                }
                // Release: a reader that follows the link sees the whole node.
                let linked = link.compare_exchange(
                    after,
                    node.as_link(),
                    Ordering::Release,
                    Ordering::Relaxed,
                );
                if linked.is_ok() {
                    break;
                }
                self.walk(splice, level, before, head, key, seq);
            }
            if level == 0 {
                self.correct_prev(node, splice.before[0], splice.after[0]);
            }
        }
        // SAFETY: links lead to nodes of this list.
        let after = unsafe { NodeRef::from_link(splice.after[0]) };
        let before = self.not_root(splice.before[0]);
        splice.before[..height].fill(node);
        debug_assert!(
            after.is_none_or(|after| node.is_before(after.head(), after.key(), after.seq())),
            "a list is in order, and a version is inserted once"
        );
        Inserted {
            node,
            has_newer: before.is_some_and(|before| before.same_key(node)),
            older: after.filter(|after| after.same_key(node)),
        }
    }

    /// Moves the splice to (`key`, `seq`).
    fn locate(&self, splice: &mut Splice<'_>, head: u64, key: &[u8], seq: u64) {
        let mut level = 0;
        if splice.used {
            // Go up to the first level on which the last position still encloses this one.
            while level < HEIGHT_MAX {
                // SAFETY: the pointers in a splice were read from this list's links.
                let after = unsafe { NodeRef::from_link(splice.after[level]) };
                if !after.is_some_and(|after| after.is_before(head, key, seq)) {
                    break;
                }
                level += 1;
            }
        } else {
            splice.used = true;
            level = HEIGHT_MAX;
        }
        let mut moved = level == HEIGHT_MAX;
        while level > 0 {
            level -= 1;
            let from = match splice.before.get(level + 1) {
                Some(above) if moved => *above,
                // No node was passed on the level above, so the last position on this level is
                // close.
                _ => splice.before[level],
            };
            let start = from.as_link();
            self.walk(splice, level, from, head, key, seq);
            moved |= splice.before[level].as_link() != start;
        }
    }

    /// Moves one level of the splice to (`key`, `seq`), starting from a node before it.
    fn walk<'g>(
        &self,
        splice: &mut Splice<'g>,
        level: usize,
        from: NodeRef<'g>,
        head: u64,
        key: &[u8],
        seq: u64,
    ) {
        let mut before = from;
        loop {
            // SAFETY: `before` is the root, or was reached on this level or a higher one, or comes
            // from the splice, of which the same holds; links lead to nodes.
            let after = unsafe { before.link(level) }.load(Ordering::Acquire);
            // SAFETY: as above.
            match unsafe { NodeRef::from_link(after) } {
                Some(next) if next.is_before(head, key, seq) => before = next,
                _ => {
                    splice.before[level] = before;
                    splice.after[level] = after;
                    return;
                }
            }
        }
    }

    /// Points the following node's `prev` at a new node, unless it points at a nearer one.
    fn correct_prev(&self, node: NodeRef<'_>, before: NodeRef<'_>, after: *mut Header) {
        // SAFETY: links lead to nodes of this list.
        let Some(after) = (unsafe { NodeRef::from_link(after) }) else {
            return;
        };
        let mut hint = before.as_link();
        loop {
            let corrected = after.prev_link().compare_exchange(
                hint,
                node.as_link(),
                Ordering::Release,
                Ordering::Acquire,
            );
            let Err(found) = corrected else {
                return;
            };
            hint = found;
            // SAFETY: `prev` holds nodes of this list, or the root.
            let nearer = match unsafe { NodeRef::from_link(found) } {
                Some(found) if found.as_link() != self.root => {
                    !found.is_before(node.head(), node.key(), node.seq())
                }
                _ => false,
            };
            if nearer {
                return;
            }
        }
    }
}
