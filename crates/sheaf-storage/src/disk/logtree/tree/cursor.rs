//! A cursor over one table of one commit's roots.
//!
//! ```text
//!   path   [ root, 3 ] [ inner, 17 ]       each with the index of the child that was taken
//!   leaf   [ .  .  .  ▲  .  . ]            a step moves here; the path moves only at the leaf's ends
//! ```
//!
//! A step inside a leaf reads an offset and copies the key after the prefix; it takes no reference.
//! A seek looks first in the current leaf, then in the pages of the path from the lowest up, and
//! descends from the first that covers the key.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use bytes::Bytes;

use super::Roots;
use super::pointer::{ExtentPtr, PagePtr};
use super::store::{PageRef, value_bytes};
use crate::engine::Cursor;
use crate::error::Result;

struct Step {
    page: PageRef,
    index: usize,
}

/// The direction of a descent without a key.
#[derive(Clone, Copy)]
enum Side {
    First,
    Last,
}

/// How a cursor keeps the roots that it reads.
pub(super) enum Keep {
    Counted(Arc<Roots>),
    /// Borrowed: the owner keeps them in place as long as the cursor lives.
    Lent(NonNull<Arc<Roots>>),
}

// SAFETY: a shared reference to an `Arc<Roots>`, or an `Arc<Roots>`, both of which may be sent to
// another thread, as the compiler checks below.
unsafe impl Send for Keep {}
// SAFETY: as above.
unsafe impl Sync for Keep {}

const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Arc<Roots>>();
};

impl Deref for Keep {
    type Target = Arc<Roots>;

    #[inline]
    fn deref(&self) -> &Arc<Roots> {
        match self {
            Keep::Counted(roots) => roots,
            // SAFETY: `Roots::lent_cursor` made it from a reference, and its caller keeps the
            // referent in place, unchanged, as long as the cursor lives.
            Keep::Lent(roots) => unsafe { roots.as_ref() },
        }
    }
}

/// See the module's head. The moves are those of the trait [`Cursor`].
pub struct TreeCursor {
    roots: Keep,
    root: Option<(PagePtr, u8)>,
    path: Vec<Step>,
    leaf: Option<PageRef>,
    index: usize,
    valid: bool,
    key: Vec<u8>,
    /// Length of the leaf's prefix within `key`.
    prefix: usize,
    /// The value's range in the leaf.
    value: (usize, usize),
    /// The value, if it is not in the leaf.
    large: Option<PageRef>,
}

impl TreeCursor {
    pub(super) fn new(roots: Keep, root: Option<(PagePtr, u8)>) -> TreeCursor {
        TreeCursor {
            roots,
            root,
            path: Vec::new(),
            leaf: None,
            index: 0,
            valid: false,
            key: Vec::new(),
            prefix: 0,
            value: (0, 0),
            large: None,
        }
    }

    /// Moves to the first entry whose key is >= `key`.
    pub fn seek(&mut self, key: &[u8]) -> Result<bool> {
        if let Some(leaf) = &self.leaf {
            let (at, equal) = leaf.shape.lower_bound(leaf.bytes(), key);
            if equal || (at > 0 && at < leaf.shape.count) {
                return self.move_to(at);
            }
        }
        let Some((at, _)) = self.descend_to(key)? else {
            return Ok(false);
        };
        match &self.leaf {
            Some(leaf) if at < leaf.shape.count => self.move_to(at),
            _ => self.next_leaf(),
        }
    }

    /// Moves to the last entry whose key is <= `key`.
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<bool> {
        if let Some(leaf) = &self.leaf {
            let (at, equal) = leaf.shape.lower_bound(leaf.bytes(), key);
            if equal || (at > 0 && at < leaf.shape.count) {
                return self.move_to(if equal { at } else { at - 1 });
            }
        }
        match self.descend_to(key)? {
            None => Ok(false),
            Some((at, true)) => self.move_to(at),
            Some((0, false)) => self.prev_leaf(),
            Some((at, false)) => self.move_to(at - 1),
        }
    }

    /// Moves to the table's first entry.
    pub fn seek_first(&mut self) -> Result<bool> {
        self.seek_end(Side::First)
    }

    /// Moves to the table's last entry.
    pub fn seek_last(&mut self) -> Result<bool> {
        self.seek_end(Side::Last)
    }

    /// Moves to the entry with the next greater key.
    #[inline]
    #[expect(
        clippy::should_implement_trait,
        reason = "the name that all cursors have"
    )]
    pub fn next(&mut self) -> Result<bool> {
        match &self.leaf {
            Some(leaf) if self.valid && self.index + 1 < leaf.shape.count => {
                self.move_to(self.index + 1)
            }
            Some(_) if self.valid => self.next_leaf(),
            _ => Ok(false),
        }
    }

    /// Moves to the entry with the next smaller key.
    #[inline]
    pub fn prev(&mut self) -> Result<bool> {
        match self.index.checked_sub(1) {
            Some(index) if self.valid => self.move_to(index),
            None if self.valid => self.prev_leaf(),
            _ => Ok(false),
        }
    }

    /// The entry's key; empty when not `valid`.
    #[inline]
    pub fn key(&self) -> &[u8] {
        if self.valid { &self.key } else { &[] }
    }

    /// The entry's value, borrowed from its page; empty when not `valid`.
    #[inline]
    pub fn value(&self) -> &[u8] {
        if !self.valid {
            return &[];
        }
        match (&self.large, &self.leaf) {
            (Some(large), _) => large.bytes(),
            (None, Some(leaf)) => &leaf.bytes()[self.value.0..self.value.1],
            (None, None) => &[],
        }
    }

    /// The entry's value as owned bytes: a small one is copied, a large one pinned.
    pub fn value_bytes(&self) -> Bytes {
        match &self.large {
            Some(large) if self.valid => value_bytes(large.clone(), || Arc::clone(&self.roots)),
            _ => Bytes::copy_from_slice(self.value()),
        }
    }

    /// Whether the cursor is on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.valid
    }

    /// The roots that the cursor reads, which it keeps pinned.
    pub fn roots(&self) -> &Arc<Roots> {
        &self.roots
    }

    /// Moves to an entry of the leaf.
    #[inline]
    fn move_to(&mut self, index: usize) -> Result<bool> {
        let Some(leaf) = &self.leaf else {
            return Ok(false);
        };
        let entry = leaf.shape.entry(leaf.bytes(), index);
        self.key.truncate(self.prefix);
        self.key.extend_from_slice(entry.rest);
        self.value = (entry.value_at, entry.value_at + entry.value.len());
        self.index = index;
        self.valid = true;
        if entry.extent || self.large.is_some() {
            let pointer = entry.extent.then(|| ExtentPtr::decode(entry.value));
            return self.load_large(pointer.flatten());
        }
        Ok(true)
    }

    #[cold]
    #[inline(never)]
    fn load_large(&mut self, ptr: Option<ExtentPtr>) -> Result<bool> {
        // Drop the previous value first: two large values at once would take twice the memory.
        self.large = None;
        let Some(ptr) = ptr else {
            return Ok(true);
        };
        match self.roots.store.extent(ptr, &self.roots.within, true) {
            Ok(large) => self.large = Some(large),
            Err(error) => {
                self.leave();
                return Err(error);
            }
        }
        Ok(true)
    }

    /// Clears the position and drops all pages.
    fn leave(&mut self) {
        self.valid = false;
        self.leaf = None;
        self.large = None;
        self.path.clear();
    }

    fn enter_leaf(&mut self, page: PageRef) {
        self.key.clear();
        self.key.extend_from_slice(page.shape.prefix(page.bytes()));
        self.prefix = self.key.len();
        self.leaf = Some(page);
    }

    /// Descends to the leaf that `key` belongs to, from the lowest page of the path that is certain
    /// to cover it, and searches it. `None` for an empty table.
    fn descend_to(&mut self, key: &[u8]) -> Result<Option<(usize, bool)>> {
        self.valid = false;
        let Some((root, root_level)) = self.root else {
            return Ok(None);
        };
        let mut next = (root, root_level);
        while self.leaf.is_some()
            && let Some(step) = self.path.last_mut()
        {
            let (image, shape) = (step.page.bytes(), step.page.shape);
            let child = shape.child_for(image, key);
            let sure = child > 0 && child + 1 < shape.count;
            if sure || shape.level == root_level {
                step.index = child;
                next = (shape.child(image, child), shape.level - 1);
                break;
            }
            self.path.pop();
        }
        if next.1 == root_level {
            self.path.clear();
        }
        loop {
            let page = match self.roots.store.page(next.0, next.1, &self.roots.within) {
                Ok(page) => page,
                Err(error) => {
                    self.leave();
                    return Err(error);
                }
            };
            let (image, shape) = (page.bytes(), page.shape);
            if next.1 == 0 {
                let found = shape.lower_bound(image, key);
                self.enter_leaf(page);
                return Ok(Some(found));
            }
            let index = shape.child_for(image, key);
            next = (shape.child(image, index), next.1 - 1);
            self.path.push(Step { page, index });
        }
    }

    fn seek_end(&mut self, side: Side) -> Result<bool> {
        self.valid = false;
        self.path.clear();
        self.leaf = None;
        match self.root {
            Some((root, level)) => self.descend_side(root, level, side),
            None => Ok(false),
        }
    }

    /// Descends along one side and moves to the entry there.
    fn descend_side(&mut self, mut ptr: PagePtr, mut level: u8, side: Side) -> Result<bool> {
        loop {
            let page = match self.roots.store.page(ptr, level, &self.roots.within) {
                Ok(page) => page,
                Err(error) => {
                    self.leave();
                    return Err(error);
                }
            };
            let index = match side {
                Side::First => 0,
                Side::Last => page.shape.count - 1,
            };
            if level == 0 {
                self.enter_leaf(page);
                return self.move_to(index);
            }
            ptr = page.shape.child(page.bytes(), index);
            level -= 1;
            self.path.push(Step { page, index });
        }
    }

    #[inline(never)]
    fn next_leaf(&mut self) -> Result<bool> {
        self.valid = false;
        while let Some(step) = self.path.last_mut() {
            if step.index + 1 < step.page.shape.count {
                step.index += 1;
                let ptr = step.page.shape.child(step.page.bytes(), step.index);
                let level = step.page.shape.level - 1;
                return self.descend_side(ptr, level, Side::First);
            }
            self.path.pop();
        }
        self.leave();
        Ok(false)
    }

    #[inline(never)]
    fn prev_leaf(&mut self) -> Result<bool> {
        self.valid = false;
        while let Some(step) = self.path.last_mut() {
            if let Some(index) = step.index.checked_sub(1) {
                step.index = index;
                let ptr = step.page.shape.child(step.page.bytes(), index);
                let level = step.page.shape.level - 1;
                return self.descend_side(ptr, level, Side::Last);
            }
            self.path.pop();
        }
        self.leave();
        Ok(false)
    }
}

impl Cursor for TreeCursor {
    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        TreeCursor::seek(self, key)
    }
    fn seek_for_prev(&mut self, key: &[u8]) -> Result<bool> {
        TreeCursor::seek_for_prev(self, key)
    }
    fn seek_first(&mut self) -> Result<bool> {
        TreeCursor::seek_first(self)
    }
    fn seek_last(&mut self) -> Result<bool> {
        TreeCursor::seek_last(self)
    }
    fn next(&mut self) -> Result<bool> {
        TreeCursor::next(self)
    }
    fn prev(&mut self) -> Result<bool> {
        TreeCursor::prev(self)
    }
    fn key(&self) -> &[u8] {
        TreeCursor::key(self)
    }
    fn value(&self) -> &[u8] {
        TreeCursor::value(self)
    }
    fn value_bytes(&self) -> Bytes {
        TreeCursor::value_bytes(self)
    }
    fn valid(&self) -> bool {
        TreeCursor::valid(self)
    }
}
