//! A page: entries in key order, found by binary search over the keys' heads.
//!
//! ```text
//!   0        40
//!   ┌────────┬────────┬───────────────┬─────────────────┬──────────────────────────┐
//!   │ header │ prefix │ heads  4 each │ offsets  2 each │ entry 0 │ entry 1 │ ...  │
//!   └────────┴────────┴───────────────┴─────────────────┴──────────────────────────┘
//!                        "abcd" of each    count + 1       key length, key, value
//!                        key's rest
//! ```
//!
//! Leaves hold keys and values, inner pages separators and pointers; both have this format. The
//! common prefix of a page's keys is stored once. The heads are the next four bytes of each key as
//! a number, stored together: a search reads a few cache lines of heads and one entry. In an inner
//! page the key of the first entry is not stored: that entry covers everything below the second.
//!
//! Invariant: [`Shape::check`] is called once for every page read from the file; after it no offset
//! or length inside the page leads out of it. It does not guarantee that the keys are in order: a
//! page of a malicious file may cause wrong results, but no invalid access.

use std::cmp::Ordering;

use super::pointer::{ExtentPtr, PagePtr, u16_at, u32_at, u64_at};

pub(super) const HEADER: usize = 40;
const MAGIC: u32 = u32::from_le_bytes(*b"ShPg");
const KIND_LEAF: u8 = 1;
const KIND_INNER: u8 = 2;
const FLAG_LZ4: u8 = 1;
const FLAG_WIDE: u8 = 2;
const FLAG_EXTENTS: u8 = 4;

/// The greatest tree height that is accepted; 2^64 entries need far less.
pub(super) const LEVEL_MAX: u8 = 40;

/// Maximum size of an uncompressed page body.
const BODY_MAX: usize = 128 << 20;

/// The fields of a page's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub crc: u32,
    pub level: u8,
    pub lz4: bool,
    pub wide: bool,
    pub extents: bool,
    pub table: u64,
    pub birth: u32,
    /// Bytes in the file, including the header.
    pub stored: usize,
    /// Bytes of the uncompressed body.
    pub body: usize,
    pub count: usize,
    pub prefix: usize,
}

impl Header {
    /// Parses the header; `None` if the bytes are not a page of this format.
    #[inline]
    pub(super) fn read(page: &[u8]) -> Option<Header> {
        let head: &[u8; HEADER] = page.get(..HEADER)?.try_into().ok()?;
        let (kind, flags, level) = (head[4], head[5], head[6]);
        if u32_at(head, 36) != MAGIC || (kind == KIND_LEAF) != (level == 0) {
            return None;
        }
        if !matches!(kind, KIND_LEAF | KIND_INNER) || flags > 7 || head[7] != 0 {
            return None;
        }
        Some(Header {
            crc: u32_at(head, 0),
            level,
            lz4: flags & FLAG_LZ4 != 0,
            wide: flags & FLAG_WIDE != 0,
            extents: flags & FLAG_EXTENTS != 0,
            table: u64_at(head, 8),
            birth: u32_at(head, 16),
            stored: u32_at(head, 20) as usize,
            body: u32_at(head, 24) as usize,
            count: u32_at(head, 28) as usize,
            prefix: u32_at(head, 32) as usize,
        })
    }

    fn write(&self, page: &mut [u8]) {
        let set = |on: bool, flag: u8| if on { flag } else { 0 };
        let flags =
            set(self.lz4, FLAG_LZ4) | set(self.wide, FLAG_WIDE) | set(self.extents, FLAG_EXTENTS);
        page[..4].copy_from_slice(&self.crc.to_le_bytes());
        page[4] = if self.level == 0 {
            KIND_LEAF
        } else {
            KIND_INNER
        };
        page[5] = flags;
        page[6] = self.level;
        page[7] = 0;
        page[8..16].copy_from_slice(&self.table.to_le_bytes());
        page[16..20].copy_from_slice(&self.birth.to_le_bytes());
        page[20..24].copy_from_slice(&(self.stored as u32).to_le_bytes());
        page[24..28].copy_from_slice(&(self.body as u32).to_le_bytes());
        page[28..32].copy_from_slice(&(self.count as u32).to_le_bytes());
        page[32..36].copy_from_slice(&(self.prefix as u32).to_le_bytes());
        page[36..40].copy_from_slice(&MAGIC.to_le_bytes());
    }
}

/// Checks the bytes of a page as stored in the file (those of its granules, or more).
pub(super) fn check_stored(page: &[u8]) -> Result<Header, &'static str> {
    let header = Header::read(page).ok_or("there is no page")?;
    if header.stored < HEADER || header.stored > page.len() {
        return Err("the page's length is wrong");
    }
    if header.body > BODY_MAX || (!header.lz4 && header.body + HEADER != header.stored) {
        return Err("the page's length is wrong");
    }
    if crc32c::crc32c(&page[4..header.stored]) != header.crc {
        return Err("the page's checksum is wrong");
    }
    Ok(header)
}

/// The length of the searchable image: the header and the uncompressed body.
pub(super) fn unpacked_len(header: &Header) -> usize {
    match header.lz4 {
        true => HEADER + header.body,
        false => header.stored,
    }
}

/// The searchable image. `page` must have passed [`check_stored`].
pub(super) fn unpack(page: &[u8], header: &Header) -> Result<Vec<u8>, &'static str> {
    let mut image = vec![0; unpacked_len(header)];
    unpack_into(page, header, &mut image).map(|()| image)
}

/// Like [`unpack`], into a buffer of [`unpacked_len`] bytes.
pub(super) fn unpack_into(
    page: &[u8],
    header: &Header,
    image: &mut [u8],
) -> Result<(), &'static str> {
    if !header.lz4 {
        image.copy_from_slice(&page[..header.stored]);
        return Ok(());
    }
    image[..HEADER].copy_from_slice(&page[..HEADER]);
    match lz4_flex::block::decompress_into(&page[HEADER..header.stored], &mut image[HEADER..]) {
        Ok(len) if len == header.body => Ok(()),
        _ => Err("the page does not unpack"),
    }
}

/// Sets the birth of an image made by [`encode`], or patched since, and converts it to the form
/// stored in the file: compressed if that saves at least `worth` bytes, and with its checksum.
/// Returns the checksum.
pub(super) fn seal(image: &mut Vec<u8>, birth: u32, lz4: bool, worth: usize) -> u32 {
    let mut header = Header::read(image).expect("made by encode");
    header.birth = birth;
    header.lz4 = false;
    header.stored = image.len();
    header.body = image.len() - HEADER;
    if lz4 {
        let packed = lz4_flex::block::compress(&image[HEADER..]);
        let before = image.len().div_ceil(worth);
        if (HEADER + packed.len()).div_ceil(worth) < before {
            image.truncate(HEADER);
            image.extend_from_slice(&packed);
            header.lz4 = true;
            header.stored = image.len();
        }
    }
    header.write(image);
    let crc = crc32c::crc32c(&image[4..]);
    image[..4].copy_from_slice(&crc.to_le_bytes());
    crc
}

/// The offsets of the parts of a page's image: everything needed to search it, kept in registers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shape {
    pub count: usize,
    pub level: u8,
    wide: bool,
    heads: usize,
    offsets: usize,
}

impl Shape {
    /// The shape according to the header. Cheap; for images that have been checked.
    #[inline]
    pub(super) fn of(header: &Header) -> Shape {
        let heads = HEADER + header.prefix;
        Shape {
            count: header.count,
            level: header.level,
            wide: header.wide,
            heads,
            offsets: heads + 4 * header.count,
        }
    }

    /// Checks that every offset and length inside an image is valid.
    pub(super) fn check(image: &[u8], header: &Header) -> Result<Shape, &'static str> {
        let shape = Shape::of(header);
        let width = if shape.wide { 4 } else { 2 };
        let entries = shape.offsets.saturating_add((header.count + 1) * width);
        if header.count == 0 || header.level > LEVEL_MAX || entries > image.len() {
            return Err("the page's parts do not fit");
        }
        let mut at = shape.offset(image, 0);
        if at != entries {
            return Err("the page's first entry is misplaced");
        }
        for index in 0..header.count {
            let end = shape.offset(image, index + 1);
            if end <= at || end > image.len() {
                return Err("an entry of the page is misplaced");
            }
            let Some((key_len, extent, key_at)) = read_length(image, at, end) else {
                return Err("the length of a key in the page is wrong");
            };
            let value_len = match (end - key_at).checked_sub(key_len) {
                Some(len) => len,
                None => return Err("the length of a key in the page is wrong"),
            };
            let sound = match (header.level, extent) {
                (0, true) => header.extents && value_len == ExtentPtr::LEN,
                (0, false) => true,
                (_, extent) => !extent && value_len == PagePtr::LEN,
            };
            if !sound {
                return Err("a value in the page is not a pointer");
            }
            at = end;
        }
        if at != image.len() {
            return Err("the page's last entry ends elsewhere");
        }
        Ok(shape)
    }

    #[inline]
    fn offset(&self, image: &[u8], index: usize) -> usize {
        if self.wide {
            u32_at(image, self.offsets + 4 * index) as usize
        } else {
            u16_at(image, self.offsets + 2 * index) as usize
        }
    }

    /// The end of the part that a search reads before it has found the entry.
    #[inline]
    pub(super) fn searched(&self) -> usize {
        self.offsets + 2 * self.count
    }

    /// The common prefix of all keys.
    #[inline]
    pub(super) fn prefix<'a>(&self, image: &'a [u8]) -> &'a [u8] {
        &image[HEADER..self.heads]
    }

    #[inline]
    pub(super) fn entry<'a>(&self, image: &'a [u8], index: usize) -> Entry<'a> {
        debug_assert!(index < self.count, "entry {index} of {}", self.count);
        let (at, end) = (self.offset(image, index), self.offset(image, index + 1));
        debug_assert!(
            at < end && end <= image.len(),
            "an entry is inside its page"
        );
        let first = image[at];
        let (key_len, extent, key_at) = if first < 0x80 {
            (usize::from(first >> 1), first & 1 != 0, at + 1)
        } else {
            read_length(image, at, end).expect("checked when the page was read")
        };
        let value_at = key_at + key_len;
        Entry {
            rest: &image[key_at..value_at],
            value: &image[value_at..end],
            value_at,
            extent,
        }
    }

    #[inline]
    fn head(&self, image: &[u8], index: usize) -> u32 {
        u32_at(image, self.heads + 4 * index)
    }

    /// The first entry whose key is >= `key` (the count if there is none), and whether it is equal.
    #[inline]
    pub(super) fn lower_bound(&self, image: &[u8], key: &[u8]) -> (usize, bool) {
        let prefix = self.prefix(image);
        if key.len() < prefix.len() || key[..prefix.len()] != *prefix {
            return match key.cmp(prefix) {
                Ordering::Less => (0, false),
                _ => (self.count, false),
            };
        }
        let rest = &key[prefix.len()..];
        let wanted = head_of(rest);
        let heads = &image[self.heads..self.offsets];
        let mut low = first_at_least(heads, wanted, self.count);
        // Equal heads, usually none or one, are decided by the keys.
        if low == self.count || self.head(image, low) != wanted {
            return (low, false);
        }
        let mut high = match wanted.checked_add(1) {
            Some(above) if low + 1 < self.count && self.head(image, low + 1) == wanted => {
                low + first_at_least(&heads[4 * low..], above, self.count - low)
            }
            None => self.count,
            Some(_) => low + 1,
        };
        while low < high {
            let middle = (low + high) / 2;
            match self.entry(image, middle).rest.cmp(rest) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return (middle, true),
                Ordering::Greater => high = middle,
            }
        }
        (low, false)
    }

    /// The child of an inner page that `key` belongs to.
    #[inline]
    pub(super) fn child_for(&self, image: &[u8], key: &[u8]) -> usize {
        match self.lower_bound(image, key) {
            (index, true) => index,
            (index, false) => index.saturating_sub(1),
        }
    }

    /// The pointer of an inner page's entry.
    #[inline]
    pub(super) fn child(&self, image: &[u8], index: usize) -> PagePtr {
        let end = self.offset(image, index + 1);
        PagePtr::decode(&image[end - PagePtr::LEN..end]).expect("checked when the page was read")
    }

    /// Writes the whole key of an entry to `key`.
    #[inline]
    pub(super) fn key_into(&self, image: &[u8], index: usize, key: &mut Vec<u8>) {
        key.clear();
        key.extend_from_slice(self.prefix(image));
        key.extend_from_slice(self.entry(image, index).rest);
    }
}

/// An entry of a page.
pub(super) struct Entry<'a> {
    /// The key without the page's prefix.
    pub rest: &'a [u8],
    /// The value, or the pointer to it.
    pub value: &'a [u8],
    /// Where the value begins in the image.
    pub value_at: usize,
    /// Whether the value is an [`ExtentPtr`].
    pub extent: bool,
}

/// The first four bytes as a big-endian number; missing ones are zeros.
#[inline]
fn head_of(rest: &[u8]) -> u32 {
    match rest.first_chunk::<4>() {
        Some(head) => u32::from_be_bytes(*head),
        None => {
            let mut head = [0; 4];
            head[..rest.len()].copy_from_slice(rest);
            u32::from_be_bytes(head)
        }
    }
}

/// The index of the first of `count` heads that is >= `wanted`. The loop's only branch is its end.
#[inline]
fn first_at_least(heads: &[u8], wanted: u32, count: usize) -> usize {
    let mut base = 0;
    let mut size = count;
    while size > 1 {
        let half = size / 2;
        base = std::hint::select_unpredictable(
            u32_at(heads, 4 * (base + half - 1)) < wanted,
            base + half,
            base,
        );
        size -= half;
    }
    base + usize::from(size == 1 && u32_at(heads, 4 * base) < wanted)
}

/// Parses `key length * 2 + extent` as a variable-length number: seven bits a byte, least
/// significant first.
fn read_length(image: &[u8], at: usize, end: usize) -> Option<(usize, bool, usize)> {
    let mut number = 0_u64;
    for (index, byte) in image[at..end].iter().take(5).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * index);
        if *byte < 0x80 {
            return Some(((number >> 1) as usize, number & 1 != 0, at + index + 1));
        }
    }
    None
}

fn write_length(image: &mut Vec<u8>, key_len: usize, extent: bool) {
    let mut number = (key_len as u64) << 1 | u64::from(extent);
    while number >= 0x80 {
        image.push(number as u8 | 0x80);
        number >>= 7;
    }
    image.push(number as u8);
}

fn length_len(key_len: usize) -> usize {
    match key_len {
        0..0x40 => 1,
        0x40..0x2000 => 2,
        0x2000..0x10_0000 => 3,
        0x10_0000..0x800_0000 => 4,
        _ => 5,
    }
}

/// Bytes that an entry takes in a page whose keys share no prefix.
pub(super) fn entry_len(key_len: usize, value_len: usize) -> usize {
    6 + length_len(key_len) + key_len + value_len
}

/// Length of the common prefix.
pub(super) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// An entry to write to a page.
#[derive(Clone, Copy)]
pub(super) struct NewEntry<'a> {
    pub key: &'a [u8],
    /// The value, or the pointer to it.
    pub value: &'a [u8],
    pub extent: bool,
}

/// Encodes the image of a page from ordered entries, at least one. `extents`: whether there are
/// large values in this page or below it. The first key of an inner page is not stored.
pub(super) fn encode<'a>(
    image: &mut Vec<u8>,
    table: u64,
    level: u8,
    extents: bool,
    entries: &(impl Iterator<Item = NewEntry<'a>> + Clone),
) {
    let (mut count, mut sum) = (0, 0);
    let (mut first, mut last): (Option<&[u8]>, &[u8]) = (None, &[]);
    for entry in entries.clone() {
        if level == 0 || count > 0 {
            first.get_or_insert(entry.key);
            last = entry.key;
        }
        count += 1;
        sum += 5 + entry.key.len() + entry.value.len();
    }
    let prefix = &last[..first.map_or(0, |first| common_prefix(first, last))];
    let heads = HEADER + prefix.len();
    let offsets = heads + 4 * count;
    // An upper bound of the image's length decides the offsets' width.
    let wide = offsets + 4 * (count + 1) + sum > usize::from(u16::MAX);
    let width = if wide { 4 } else { 2 };
    image.clear();
    image.resize(HEADER, 0);
    image.extend_from_slice(prefix);
    image.resize(offsets + width * (count + 1), 0);
    for (index, entry) in entries.clone().enumerate() {
        let rest = match entry.key.get(prefix.len()..) {
            Some(rest) if level == 0 || index > 0 => rest,
            _ => &[],
        };
        image[heads + 4 * index..][..4].copy_from_slice(&head_of(rest).to_le_bytes());
        set_offset(image, offsets, width, index);
        write_length(image, rest.len(), entry.extent);
        image.extend_from_slice(rest);
        image.extend_from_slice(entry.value);
    }
    set_offset(image, offsets, width, count);
    let header = Header {
        crc: 0,
        level,
        lz4: false,
        wide,
        extents,
        table,
        birth: 0,
        stored: image.len(),
        body: image.len() - HEADER,
        count,
        prefix: prefix.len(),
    };
    header.write(image);
}

fn set_offset(image: &mut [u8], offsets: usize, width: usize, index: usize) {
    let here = image.len() as u32;
    image[offsets + width * index..][..width].copy_from_slice(&here.to_le_bytes()[..width]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn page_of(keys: &[Vec<u8>]) -> Vec<u8> {
        let mut image = Vec::new();
        let entries = keys.iter().map(|key| NewEntry {
            key,
            value: &key[..key.len() / 2],
            extent: false,
        });
        encode(&mut image, 7, 0, false, &entries);
        image
    }

    proptest! {
        #[test]
        fn every_key_is_found_at_its_position(
            prefix in prop::collection::vec(any::<u8>(), 0..6),
            rests in prop::collection::btree_set(prop::collection::vec(0_u8..3, 0..7), 1..60),
            asked in prop::collection::vec(prop::collection::vec(0_u8..3, 0..8), 0..20),
        ) {
            let keys: Vec<Vec<u8>> = rests.iter().map(|rest| [&prefix[..], rest].concat()).collect();
            let mut image = page_of(&keys);
            let lz4 = keys.len() % 2 == 0;
            seal(&mut image, 3, lz4, 16);
            let header = check_stored(&image).unwrap();
            let image = unpack(&image, &header).unwrap();
            let shape = Shape::check(&image, &header).unwrap();
            prop_assert_eq!((shape.count, header.table, header.birth), (keys.len(), 7, 3));
            let mut key = Vec::new();
            for (index, expected) in keys.iter().enumerate() {
                shape.key_into(&image, index, &mut key);
                prop_assert_eq!(&key, expected);
                prop_assert_eq!(shape.entry(&image, index).value, &expected[..expected.len() / 2]);
            }
            let asked = asked.iter().map(|rest| [&prefix[..], rest].concat());
            for asked in asked.chain(keys.clone()).chain([vec![], vec![255; 9]]) {
                let expected = keys.partition_point(|key| *key < asked);
                let equal = keys.get(expected) == Some(&asked);
                prop_assert_eq!(shape.lower_bound(&image, &asked), (expected, equal));
            }
        }

        #[test]
        fn damaged_pages_are_refused_or_harmless(
            keys in prop::collection::btree_set(prop::collection::vec(any::<u8>(), 0..9), 1..30),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        ) {
            let keys: Vec<Vec<u8>> = keys.into_iter().collect();
            let mut image = page_of(&keys);
            seal(&mut image, 1, false, 4096);
            for (at, byte) in changes {
                let at = at.index(image.len());
                image[at] = byte;
            }
            // As in a forged page: with a correct checksum.
            let crc = crc32c::crc32c(&image[4..]);
            image[..4].copy_from_slice(&crc.to_le_bytes());
            if let Ok(header) = check_stored(&image)
                && let Ok(image) = unpack(&image, &header)
                && let Ok(shape) = Shape::check(&image, &header)
            {
                let mut key = Vec::new();
                for index in 0..shape.count {
                    shape.key_into(&image, index, &mut key);
                    shape.lower_bound(&image, &key);
                    if shape.level > 0 {
                        shape.child(&image, index);
                    }
                }
            }
        }
    }

    #[test]
    fn every_flipped_bit_is_detected() {
        let mut image = page_of(&[b"aa".to_vec(), b"ab".to_vec()]);
        seal(&mut image, 1, false, 4096);
        for bit in 0..8 * image.len() {
            let mut damaged = image.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(check_stored(&damaged).is_err(), "bit {bit}");
        }
    }
}
