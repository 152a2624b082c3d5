//! Builds the pages of one tree from left to right, from entries and from existing subtrees.
//!
//! ```text
//!   level 2   [ .  .  . ]                     pending: separators and pointers
//!   level 1   [ .  .  .  .  . ]               pending
//!   level 0   [ k=v  k=v  k=v ]               pending: entries
//!                  ▲                 ▲
//!              entry(k, v)     subtree(level, separator, pointer)
//! ```
//!
//! Each level collects entries until they fill a page, writes it, and passes its pointer to the
//! level above. An existing subtree is added at the level above its own, after the pending entries
//! below have been written. Where an old page ended, [`Builder::boundary`] writes the pending
//! entries in pages of even size, unless they are so few that they should be merged with the
//! following ones.

use super::output::Output;
use super::page::{self, NewEntry, common_prefix, entry_len};
use super::pointer::PagePtr;
use super::store::{KEY_MAX, VALUE_MAX, is_large};
use crate::error::{Result, StorageError};

/// Page sizes, in bytes before compression.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Pages are filled up to here when entries come in order.
    pub full: usize,
    /// A larger page is split.
    pub max: usize,
}

impl Sizes {
    /// The sizes of leaves for entries of this mean length. Short entries (an index) get small
    /// leaves, so that a change rewrites little; documents get larger ones, so that little space is
    /// lost at their ends.
    pub(super) fn of_leaves(mean: u64, lz4: bool) -> Sizes {
        let (full, max) = match (lz4, mean) {
            (true, _) => (16 << 10, 24 << 10),
            (false, 0..160) => (4 << 10, 4 << 10),
            (false, _) => (8 << 10, 12 << 10),
        };
        Sizes { full, max }
    }

    const INNER: Sizes = Sizes {
        full: 8 << 10,
        max: 12 << 10,
    };
}

#[derive(Clone, Copy)]
struct Slot {
    key: usize,
    key_len: usize,
    value_len: usize,
    extent: bool,
    /// Whether there are large values in this page or below it.
    extents: bool,
}

/// The pending entries of one level.
#[derive(Default)]
struct Level {
    arena: Vec<u8>,
    slots: Vec<Slot>,
    /// Sum of [`entry_len`].
    bytes: usize,
    /// Length of the common prefix of all keys (in an inner page, of all but the first).
    prefix: usize,
    /// The separator of the next page.
    separator: Vec<u8>,
    /// Whether the pages should be cached.
    warm: bool,
}

impl Level {
    fn key(&self, slot: &Slot) -> &[u8] {
        &self.arena[slot.key..slot.key + slot.key_len]
    }

    fn entry(&self, slot: &Slot) -> NewEntry<'_> {
        NewEntry {
            key: self.key(slot),
            value: &self.arena[slot.key + slot.key_len..][..slot.value_len],
            extent: slot.extent,
        }
    }

    /// An upper bound of the size of one page with everything that is pending.
    fn size(&self) -> usize {
        let saved = self.prefix * self.slots.len().saturating_sub(2);
        (page::HEADER + self.bytes).saturating_sub(saved)
    }

    fn push(&mut self, key: &[u8], value: &[u8], extent: bool, extents: bool, inner: bool) {
        let first = usize::from(inner);
        match self.slots.len() {
            len if len < first => {}
            len if len == first => self.prefix = key.len(),
            _ => {
                let other = self.slots[first];
                let other = &self.arena[other.key..other.key + self.prefix.min(other.key_len)];
                if !key.starts_with(other) {
                    self.prefix = common_prefix(other, key);
                }
            }
        }
        self.slots.push(Slot {
            key: self.arena.len(),
            key_len: key.len(),
            value_len: value.len(),
            extent,
            extents,
        });
        self.arena.extend_from_slice(key);
        self.arena.extend_from_slice(value);
        self.bytes += entry_len(key.len(), value.len());
    }

    /// Removes the first `count` entries.
    fn drop_front(&mut self, count: usize, inner: bool) {
        let cut = self
            .slots
            .get(count)
            .map_or(self.arena.len(), |slot| slot.key);
        self.arena.drain(..cut);
        self.slots.drain(..count);
        self.bytes = 0;
        for slot in &mut self.slots {
            slot.key -= cut;
            self.bytes += entry_len(slot.key_len, slot.value_len);
        }
        let first = self.slots.get(usize::from(inner));
        self.prefix = match (first, self.slots.last()) {
            (Some(first), Some(last)) => common_prefix(self.key(first), self.key(last)),
            _ => 0,
        };
    }
}

/// See the module's head.
pub(super) struct Builder {
    table: u64,
    lz4: bool,
    leaves: Sizes,
    levels: Vec<Level>,
    image: Vec<u8>,
    /// Granules of the pages and values written.
    pub granules: u64,
}

impl Builder {
    pub(super) fn new(table: u64, lz4: bool, leaves: Sizes) -> Builder {
        Builder {
            table,
            lz4,
            leaves,
            levels: Vec::new(),
            image: Vec::new(),
            granules: 0,
        }
    }

    fn sizes(&self, level: usize) -> Sizes {
        if level == 0 {
            self.leaves
        } else {
            Sizes::INNER
        }
    }

    fn level(&mut self, level: usize) -> &mut Level {
        while self.levels.len() <= level {
            self.levels.push(Level::default());
        }
        &mut self.levels[level]
    }

    /// Bytes pending at a level.
    pub(super) fn pending(&self, level: usize) -> usize {
        match self.levels.get(level) {
            Some(level) if !level.slots.is_empty() => level.size(),
            _ => 0,
        }
    }

    /// Whether the pending entries of a level should be merged with the following ones instead of
    /// being written.
    pub(super) fn is_small(&self, level: usize) -> bool {
        self.pending(level) < self.sizes(level).full / 3
    }

    /// Sets where the next entry or subtree begins: a key that is not above anything after it, and
    /// above everything before it. Relevant at the levels where nothing is pending.
    pub(super) fn begin(&mut self, level: usize, separator: &[u8]) {
        for level in 0..=level {
            let level = self.level(level);
            if level.slots.is_empty() {
                level.separator.clear();
                level.separator.extend_from_slice(separator);
            }
        }
    }

    /// Marks the pages written from what is pending at the level as likely to be read soon.
    pub(super) fn warm(&mut self, level: usize) {
        self.level(level).warm = true;
    }

    /// Adds an entry; a large value gets its own granules.
    pub(super) fn entry(&mut self, out: &mut Output, key: &[u8], value: &[u8]) -> Result<()> {
        check_lengths(key, value)?;
        if is_large(value.len(), self.leaves.full) {
            let ptr = out.extent(value, self.lz4)?;
            self.granules += ptr.run().len;
            return self.stored(out, key, &ptr.encode(), true);
        }
        self.stored(out, key, value, false)
    }

    /// Adds an entry in its stored form: with a value, or with a pointer to one.
    pub(super) fn stored(
        &mut self,
        out: &mut Output,
        key: &[u8],
        value: &[u8],
        extent: bool,
    ) -> Result<()> {
        let pending = self.level(0);
        let in_order = match pending.slots.last() {
            Some(last) => pending.key(last) < key,
            None => *pending.separator <= *key,
        };
        if !in_order {
            return Err(StorageError::Corrupt {
                file: out.store.name.clone(),
                detail: format!("the keys of table {} are not in order", self.table),
            });
        }
        pending.push(key, value, extent, extent, false);
        self.overflow(out, 0)
    }

    /// Adds the pointer of a subtree whose root is at `level`.
    pub(super) fn subtree(
        &mut self,
        out: &mut Output,
        level: usize,
        separator: &[u8],
        ptr: PagePtr,
    ) -> Result<()> {
        for below in 0..=level {
            self.write_pending(out, below, false)?;
        }
        self.begin(level + 1, separator);
        self.child(out, level + 1, separator, ptr)
    }

    fn child(&mut self, out: &mut Output, level: usize, key: &[u8], ptr: PagePtr) -> Result<()> {
        self.level(level)
            .push(key, &ptr.encode(), false, ptr.extents, true);
        self.overflow(out, level)
    }

    /// Writes full pages when much more is pending than one page holds.
    fn overflow(&mut self, out: &mut Output, level: usize) -> Result<()> {
        let sizes = self.sizes(level);
        while self.levels[level].size() >= sizes.max * 3 {
            let count = self.fitting(level, sizes.full);
            if count == self.levels[level].slots.len() {
                break;
            }
            self.write_front(out, level, count)?;
        }
        Ok(())
    }

    /// Number of pending entries that fit a page of at most `limit` bytes: at least one, and at
    /// least two in an inner page, so that each level has fewer pages than the one below.
    fn fitting(&self, level: usize, limit: usize) -> usize {
        let pending = &self.levels[level];
        let first = usize::from(level > 0);
        let (mut bytes, mut prefix) = (page::HEADER, 0);
        for (index, slot) in pending.slots.iter().enumerate() {
            bytes += entry_len(slot.key_len, slot.value_len);
            if index == first {
                prefix = slot.key_len;
            } else if index > first {
                let other = pending.key(&pending.slots[first]);
                let other = &other[..prefix.min(other.len())];
                let key = pending.key(slot);
                if !key.starts_with(other) {
                    prefix = common_prefix(other, key);
                }
            }
            let saved = prefix * index.saturating_sub(1);
            if bytes - saved.min(bytes) > limit && index > first {
                return index;
            }
        }
        pending.slots.len()
    }

    /// Writes the first `count` pending entries of a level as a page.
    fn write_front(&mut self, out: &mut Output, level: usize, count: usize) -> Result<()> {
        let lz4 = self.lz4;
        let pending = &mut self.levels[level];
        let slots = &pending.slots[..count];
        let extents = slots.iter().any(|slot| slot.extents);
        let next = match pending.slots.get(count) {
            None => Vec::new(),
            // The shortest key that separates the two sides.
            Some(next) if level == 0 => {
                let (last, next) = (pending.key(&slots[count - 1]), pending.key(next));
                let common = common_prefix(last, next);
                next[..(common + 1).min(next.len())].to_vec()
            }
            Some(next) => pending.key(next).to_vec(),
        };
        let entries = slots.iter().map(|slot| pending.entry(slot));
        page::encode(&mut self.image, self.table, level as u8, extents, &entries);
        let separator = std::mem::replace(&mut pending.separator, next);
        pending.drop_front(count, level > 0);
        let warm = pending.warm || level > 0;
        let ptr = out.page(&mut self.image, lz4, warm, None)?;
        let ptr = ptr.expect("without a limit a place is always found");
        self.granules += u64::from(ptr.granules);
        if level >= usize::from(page::LEVEL_MAX) {
            return Err(StorageError::Corrupt {
                file: out.store.name.clone(),
                detail: "a tree has too many levels".into(),
            });
        }
        let above = self.level(level + 1);
        if above.slots.is_empty() {
            // The page is the first below its parent, so the parent begins with the same separator.
            above.separator.clone_from(&separator);
        }
        self.child(out, level + 1, &separator, ptr)
    }

    /// Writes everything pending at a level. With `fill` in full pages (nothing follows, and more
    /// will be added at this end later), else in pages of even size.
    fn write_pending(&mut self, out: &mut Output, level: usize, fill: bool) -> Result<()> {
        let sizes = self.sizes(level);
        loop {
            let size = self.pending(level);
            if size == 0 {
                break;
            }
            let count = if size <= sizes.max {
                self.levels[level].slots.len()
            } else if fill {
                self.fitting(level, sizes.full)
            } else {
                // At least two pages, none above the maximum.
                let pages = size.div_ceil(sizes.max).max(2);
                self.fitting(level, (size / pages + page::HEADER).min(sizes.max))
            };
            self.write_front(out, level, count)?;
        }
        if let Some(level) = self.levels.get_mut(level) {
            level.warm = false;
        }
        Ok(())
    }

    /// An old page of this level ends here; `last` if it was the last one of the tree.
    pub(super) fn boundary(&mut self, out: &mut Output, level: usize, last: bool) -> Result<()> {
        if last || self.is_small(level) {
            return Ok(());
        }
        self.write_pending(out, level, false)
    }

    /// Writes what is pending and returns the root and its level; `None` for a tree without
    /// entries.
    pub(super) fn finish(mut self, out: &mut Output) -> Result<(Option<(PagePtr, u8)>, u64)> {
        let mut level = 0;
        while level < self.levels.len() {
            let above_empty = self.levels[level + 1..]
                .iter()
                .all(|above| above.slots.is_empty());
            let pending = &self.levels[level];
            if above_empty && level > 0 && pending.slots.len() == 1 {
                // A single page on the top level is the root.
                let root = PagePtr::decode(pending.entry(&pending.slots[0]).value);
                let root = root.expect("inner entries are pointers");
                return Ok((Some((root, level as u8 - 1)), self.granules));
            }
            self.write_pending(out, level, true)?;
            level += 1;
        }
        Ok((None, self.granules))
    }
}

/// Rejects lengths that the format cannot represent.
pub(super) fn check_lengths(key: &[u8], value: &[u8]) -> Result<()> {
    for (len, limit) in [(key.len(), KEY_MAX), (value.len(), VALUE_MAX)] {
        if len > limit {
            return Err(StorageError::TooLarge {
                bytes: len as u64,
                limit: limit as u64,
            });
        }
    }
    Ok(())
}
