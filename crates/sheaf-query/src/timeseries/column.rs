//! One field of a bucket's measurements: a compressed list of values, some of which may be missing.
//!
//! ```text
//!   column  = format (1 byte) block*
//!   block   = kind (1 byte)  rows (2 bytes, little endian)  per row, depending on the kind:
//!
//!   kind 0  missing    nothing                the measurement has no such field
//!   kind 1  repeat     nothing                the previous value again
//!   kind 2  literal    type, 0, value         a BSON element with an empty key
//!   kind 3  int        zigzag varint          int32, int64: difference from the previous value
//!   kind 4  date       zigzag varint          difference of this step from the previous step
//!   kind 5  objectId   two zigzag varints     differences in seconds and counter; the rest equal
//!   kind 6  double     length (1 byte), bytes XOR with the previous value, low zero bytes omitted
//!   kind 8+n           zigzag varint          doubles with at most n decimals, as integers:
//!                                             difference
//! ```
//!
//! A kind above 2 follows a value of its type; the first value of each type is a literal. A value
//! is added by appending its bytes and incrementing the row count of the last block, so existing
//! rows are not re-encoded.
//!
//! Invariant: values are restored with their exact type and bits. Damaged bytes result in an error
//! or in wrong values, never in a panic.

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::{DateTime, ElementType, ObjectId, RawElement, RawValue};

const FORMAT: u8 = 1;
const MISSING: u8 = 0;
const REPEAT: u8 = 1;
const LITERAL: u8 = 2;
const INT: u8 = 3;
const DATE: u8 = 4;
const OBJECT_ID: u8 = 5;
const XOR: u8 = 6;
const SCALED: u8 = 8;
/// Powers of ten of the decimals that scaled doubles may have.
const SCALES: [f64; 5] = [1.0, 10.0, 100.0, 1e3, 1e4];
/// Integers up to this one are exact as doubles, also after adding a step.
const SCALED_MAX: f64 = (1u64 << 51) as f64;
const BLOCK_HEAD: usize = 3;

fn damaged(what: &str) -> Error {
    Error::new(
        ErrorCode::DATA_CORRUPTION_DETECTED,
        format!("a column of a time-series bucket is damaged: {what}"),
    )
}

/// The state of the previous value that the next one depends on.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
enum Before {
    #[default]
    Nothing,
    Int32(i32),
    Int64(i64),
    /// The date, and its difference from the previous one.
    Date(i64, i64),
    Double(f64),
    ObjectId([u8; 12]),
    /// Offset of a literal of any other type.
    Literal(usize),
}

/// Reads a column from its first row. Does not hold the bytes: pass the same ones to every call.
#[derive(Debug, Clone, Default)]
pub struct ColumnCursor {
    at: usize,
    kind: u8,
    left: u16,
    before: Before,
    /// Offset of the last block.
    block: usize,
}

impl ColumnCursor {
    /// The next row's value; `None` for a row without a value, and after the last row. Errors:
    /// `DataCorruptionDetected`.
    #[inline]
    pub fn next<'c>(&mut self, column: &'c [u8]) -> Result<Option<RawValue<'c>>> {
        while self.left == 0 {
            if !self.next_block(column)? {
                return Ok(None);
            }
        }
        self.left -= 1;
        self.row(column)
    }

    /// Advances to the next block; false at the end.
    fn next_block(&mut self, column: &[u8]) -> Result<bool> {
        if self.at == 0 {
            match column.first() {
                None => return Ok(false),
                Some(&FORMAT) => self.at = 1,
                Some(_) => return Err(damaged("its format is unknown")),
            }
        }
        let Some(head) = column.get(self.at..self.at + BLOCK_HEAD) else {
            return match self.at >= column.len() {
                true => Ok(false),
                false => Err(damaged("it ends within a block's head")),
            };
        };
        self.block = self.at;
        self.kind = head[0];
        self.left = u16::from_le_bytes([head[1], head[2]]);
        self.at += BLOCK_HEAD;
        Ok(true)
    }

    #[inline]
    fn row<'c>(&mut self, column: &'c [u8]) -> Result<Option<RawValue<'c>>> {
        match (self.kind, self.before) {
            (MISSING, _) => return Ok(None),
            (REPEAT, Before::Date(date, _)) => self.before = Before::Date(date, 0),
            (REPEAT, Before::Nothing) => {
                return Err(damaged("a repeated value has no previous value"));
            }
            (REPEAT, _) => {}
            (LITERAL, before) => {
                let rest = column.get(self.at..).unwrap_or(&[]);
                let element = RawElement::parse_prefix(rest)
                    .filter(|element| element.key_bytes().is_empty())
                    .ok_or_else(|| damaged("a literal is not a value"))?;
                self.before = match (element.value(), before) {
                    (RawValue::Int32(n), _) => Before::Int32(n),
                    (RawValue::Int64(n), _) => Before::Int64(n),
                    (RawValue::DateTime(date), _) => Before::Date(date.millis(), 0),
                    (RawValue::Double(x), _) => Before::Double(x),
                    (RawValue::ObjectId(id), _) => Before::ObjectId(id.0),
                    _ => Before::Literal(self.at),
                };
                self.at += element.as_bytes().len();
                return Ok(Some(element.value()));
            }
            (INT, Before::Int32(n)) => {
                let step = self.varint(column)?;
                self.before = Before::Int32(n.wrapping_add(step as i32));
            }
            (INT, Before::Int64(n)) => {
                let step = self.varint(column)?;
                self.before = Before::Int64(n.wrapping_add(step));
            }
            (DATE, Before::Date(date, step)) => {
                let step = step.wrapping_add(self.varint(column)?);
                self.before = Before::Date(date.wrapping_add(step), step);
            }
            (OBJECT_ID, Before::ObjectId(id)) => {
                let (seconds, counter) = (self.varint(column)?, self.varint(column)?);
                self.before = Before::ObjectId(next_id(id, seconds, counter));
            }
            (XOR, Before::Double(x)) => {
                let len = usize::from(
                    *column
                        .get(self.at)
                        .ok_or_else(|| damaged("it ends early"))?,
                );
                let bytes = column.get(self.at + 1..self.at + 1 + len);
                let Some(bytes) = bytes.filter(|bytes| bytes.len() <= 8) else {
                    return Err(damaged("a double is truncated"));
                };
                let mut whole = [0; 8];
                whole[8 - len..].copy_from_slice(bytes);
                let bits = x.to_bits() ^ u64::from_le_bytes(whole);
                self.before = Before::Double(f64::from_bits(bits));
                self.at += 1 + len;
            }
            (kind, Before::Double(x)) if kind >= SCALED => {
                let scale = SCALES
                    .get(usize::from(kind - SCALED))
                    .ok_or_else(|| damaged("a block's kind is unknown"))?;
                let before = (x * scale).round() as i64;
                let step = self.varint(column)?;
                self.before = Before::Double(before.wrapping_add(step) as f64 / scale);
            }
            _ => return Err(damaged("a block does not fit the value before it")),
        }
        Ok(Some(match self.before {
            Before::Int32(n) => RawValue::Int32(n),
            Before::Int64(n) => RawValue::Int64(n),
            Before::Date(date, _) => RawValue::DateTime(DateTime(date)),
            Before::Double(x) => RawValue::Double(x),
            Before::ObjectId(id) => RawValue::ObjectId(ObjectId(id)),
            Before::Literal(at) => RawElement::parse_prefix(column.get(at..).unwrap_or(&[]))
                .ok_or_else(|| damaged("a literal is not a value"))?
                .value(),
            Before::Nothing => return Err(damaged("a value is missing")),
        }))
    }

    #[inline]
    fn varint(&mut self, column: &[u8]) -> Result<i64> {
        let (mut bits, mut shift) = (0u64, 0);
        loop {
            let byte = *column
                .get(self.at)
                .ok_or_else(|| damaged("a number is truncated"))?;
            self.at += 1;
            bits |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok((bits >> 1) as i64 ^ -((bits & 1) as i64));
            }
            shift += 7;
            if shift > 63 {
                return Err(damaged("a number is too long"));
            }
        }
    }
}

/// The id with these differences added to its seconds and counter.
fn next_id(id: [u8; 12], seconds: i64, counter: i64) -> [u8; 12] {
    let (was, count) = id_parts(id);
    let mut next = id;
    next[..4].copy_from_slice(&was.wrapping_add(seconds as u32).to_be_bytes());
    next[9..].copy_from_slice(&count.wrapping_add(counter as u32).to_be_bytes()[1..]);
    next
}

/// The seconds and counter of an id.
fn id_parts(id: [u8; 12]) -> (u32, u32) {
    (
        u32::from_be_bytes([id[0], id[1], id[2], id[3]]),
        u32::from_be_bytes([0, id[9], id[10], id[11]]),
    )
}

/// A column to which rows are added.
#[derive(Debug, Clone)]
pub struct ColumnWriter {
    bytes: Vec<u8>,
    rows: usize,
    before: Before,
    /// Offset of the last block; 0 if there is none.
    block: usize,
}

impl Default for ColumnWriter {
    fn default() -> ColumnWriter {
        ColumnWriter {
            bytes: vec![FORMAT],
            rows: 0,
            before: Before::Nothing,
            block: 0,
        }
    }
}

impl ColumnWriter {
    /// Opens a column to append rows. Errors: `DataCorruptionDetected`.
    pub fn open(column: &[u8]) -> Result<ColumnWriter> {
        let mut cursor = ColumnCursor::default();
        let mut rows = 0;
        loop {
            while cursor.left == 0 {
                if !cursor.next_block(column)? {
                    return Ok(ColumnWriter {
                        bytes: match column.is_empty() {
                            true => vec![FORMAT],
                            false => column.to_vec(),
                        },
                        rows,
                        before: cursor.before,
                        block: cursor.block,
                    });
                }
            }
            cursor.left -= 1;
            cursor.row(column)?;
            rows += 1;
        }
    }

    /// Number of rows, including those without a value.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Length in bytes.
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes of the column.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Appends rows without a value until there are `rows`.
    pub fn pad(&mut self, rows: usize) {
        while self.rows < rows {
            self.begin_row(MISSING);
        }
    }

    /// Appends a row with this value.
    pub fn push(&mut self, element: RawElement<'_>) {
        match (element.value(), self.before) {
            (RawValue::Int32(n), Before::Int32(was)) => {
                self.begin_row(INT);
                self.varint(i64::from(n.wrapping_sub(was)));
                self.before = Before::Int32(n);
            }
            (RawValue::Int64(n), Before::Int64(was)) => {
                self.begin_row(INT);
                self.varint(n.wrapping_sub(was));
                self.before = Before::Int64(n);
            }
            (RawValue::DateTime(date), Before::Date(was, step_was)) => {
                let step = date.millis().wrapping_sub(was);
                self.begin_row(DATE);
                self.varint(step.wrapping_sub(step_was));
                self.before = Before::Date(date.millis(), step);
            }
            (RawValue::ObjectId(id), Before::ObjectId(was)) if id.0[4..9] == was[4..9] => {
                let ((a, b), (c, d)) = (id_parts(id.0), id_parts(was));
                self.begin_row(OBJECT_ID);
                self.varint(i64::from(a.wrapping_sub(c) as i32));
                self.varint(i64::from(b) - i64::from(d));
                self.before = Before::ObjectId(id.0);
            }
            (RawValue::Double(x), Before::Double(was)) => self.push_double(x, was),
            (_, Before::Literal(at)) if self.is_same(at, element) => self.begin_row(REPEAT),
            _ => self.push_literal(element),
        }
    }

    /// Whether the literal at this offset has the same type and bits.
    fn is_same(&self, at: usize, element: RawElement<'_>) -> bool {
        RawElement::parse_prefix(&self.bytes[at..]).is_some_and(|before| {
            before.element_type() == element.element_type()
                && before.raw_value_bytes() == element.raw_value_bytes()
        })
    }

    fn push_literal(&mut self, element: RawElement<'_>) {
        self.begin_row(LITERAL);
        let at = self.bytes.len();
        self.bytes.push(element.element_type() as u8);
        self.bytes.push(0);
        self.bytes.extend_from_slice(element.raw_value_bytes());
        self.before = match element.value() {
            RawValue::Int32(n) => Before::Int32(n),
            RawValue::Int64(n) => Before::Int64(n),
            RawValue::DateTime(date) => Before::Date(date.millis(), 0),
            RawValue::Double(x) => Before::Double(x),
            RawValue::ObjectId(id) => Before::ObjectId(id.0),
            _ => Before::Literal(at),
        };
    }

    /// Encodes scaled integers if both values have few decimals, otherwise the differing bits.
    fn push_double(&mut self, x: f64, was: f64) {
        let first = match self.last_kind() {
            Some(kind) if kind >= SCALED => usize::from(kind - SCALED),
            _ => 0,
        };
        let scaled = (first..SCALES.len()).find_map(|scale| {
            let (new, old) = (as_scaled(x, scale)?, as_scaled(was, scale)?);
            Some((scale, new - old))
        });
        match scaled {
            Some((scale, step)) => {
                self.begin_row(SCALED + scale as u8);
                self.varint(step);
            }
            None => {
                self.begin_row(XOR);
                let bits = (x.to_bits() ^ was.to_bits()).to_le_bytes();
                let zeros = bits.iter().take_while(|byte| **byte == 0).count();
                self.bytes.push((8 - zeros) as u8);
                self.bytes.extend_from_slice(&bits[zeros..]);
            }
        }
        self.before = Before::Double(x);
    }

    fn last_kind(&self) -> Option<u8> {
        (self.block > 0).then(|| self.bytes[self.block])
    }

    /// Counts a row of this kind in the last block, or in a new one.
    fn begin_row(&mut self, kind: u8) {
        self.rows += 1;
        if self.last_kind() == Some(kind) {
            let at = self.block + 1;
            let rows = u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]]);
            if let Some(rows) = rows.checked_add(1) {
                self.bytes[at..at + 2].copy_from_slice(&rows.to_le_bytes());
                return;
            }
        }
        self.block = self.bytes.len();
        self.bytes.extend_from_slice(&[kind, 1, 0]);
    }

    fn varint(&mut self, n: i64) {
        let mut bits = ((n << 1) ^ (n >> 63)) as u64;
        while bits >= 0x80 {
            self.bytes.push(bits as u8 | 0x80);
            bits >>= 7;
        }
        self.bytes.push(bits as u8);
    }
}

/// The double times a power of ten, if that is an integer from which the same bits can be restored.
fn as_scaled(x: f64, scale: usize) -> Option<i64> {
    let scaled = (x * SCALES[scale]).round();
    let fits = scaled.abs() <= SCALED_MAX;
    (fits && (scaled as i64 as f64 / SCALES[scale]).to_bits() == x.to_bits())
        .then_some(scaled as i64)
}

/// The bytes of a column; `None` if the value is not binary of the columns' subtype, which is one
/// that users may define.
pub fn as_column(value: RawValue<'_>) -> Option<&[u8]> {
    match value {
        RawValue::Binary {
            subtype: COLUMN_SUBTYPE,
            bytes,
        } => Some(bytes),
        _ => None,
    }
}

/// The binary subtype of columns.
pub const COLUMN_SUBTYPE: u8 = 0x80;

/// The BSON type of columns.
pub const COLUMN_TYPE: ElementType = ElementType::Binary;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sheaf_bson::{DocBuf, DocBuilder, Timestamp, Value, doc};

    use super::*;

    fn write(rows: &[Option<Value>]) -> ColumnWriter {
        let mut writer = ColumnWriter::default();
        for (at, row) in rows.iter().enumerate() {
            writer.pad(at);
            if let Some(value) = row {
                let doc: DocBuf = doc! {"v": value.as_raw()};
                writer.push(doc.as_raw().first().unwrap());
            }
        }
        writer
    }

    fn read(column: &[u8], rows: usize) -> Vec<Option<Value>> {
        let mut cursor = ColumnCursor::default();
        (0..rows)
            .map(|_| cursor.next(column).unwrap().map(|v| v.to_value()))
            .collect()
    }

    /// Whether two lists of values are equal, bit by bit.
    fn same(a: &[Option<Value>], b: &[Option<Value>]) -> bool {
        let bytes = |rows: &[Option<Value>]| {
            let mut out = DocBuilder::new();
            for row in rows {
                match row {
                    Some(value) => out.append_value("v", value),
                    None => out.append("none", 1),
                };
            }
            out.finish().into_vec()
        };
        bytes(a) == bytes(b)
    }

    fn value() -> impl Strategy<Value = Option<Value>> {
        prop_oneof![
            Just(None),
            Just(None),
            any::<i32>().prop_map(|n| Some(Value::Int32(n))),
            (-5i32..5).prop_map(|n| Some(Value::Int32(n))),
            any::<i64>().prop_map(|n| Some(Value::Int64(n))),
            any::<i64>().prop_map(|n| Some(Value::DateTime(DateTime(n)))),
            (0i64..1000)
                .prop_map(|n| Some(Value::DateTime(DateTime(1_700_000_000_000 + n * 1000)))),
            any::<f64>().prop_map(|x| Some(Value::Double(x))),
            (-100_000i64..100_000).prop_map(|n| Some(Value::Double(n as f64 / 100.0))),
            Just(Some(Value::Double(-0.0))),
            Just(Some(Value::Double(f64::NAN))),
            any::<[u8; 12]>().prop_map(|id| Some(Value::ObjectId(ObjectId(id)))),
            (any::<u8>(), any::<u8>()).prop_map(|(a, b)| {
                Some(Value::ObjectId(ObjectId([
                    0, 0, 0, a, 1, 1, 1, 1, 1, 0, 0, b,
                ])))
            }),
            "[a-c]{0,2}".prop_map(|s| Some(Value::String(s))),
            any::<bool>().prop_map(|b| Some(Value::Boolean(b))),
            any::<u64>().prop_map(|n| Some(Value::Timestamp(Timestamp::from_u64(n)))),
            Just(Some(Value::Null)),
            Just(Some(Value::Document(doc! {"a": 1}))),
        ]
    }

    proptest! {
        #[test]
        fn what_is_pushed_comes_out(rows in prop::collection::vec(value(), 0..60)) {
            let writer = write(&rows);
            prop_assert!(same(&read(writer.as_bytes(), rows.len()), &rows));
        }

        /// Reopening a column and appending to it yields the same bytes as writing it at once.
        #[test]
        fn appending_is_writing(rows in prop::collection::vec(value(), 1..40), cut in 0usize..40) {
            let cut = cut.min(rows.len());
            let mut writer = ColumnWriter::open(write(&rows[..cut]).as_bytes()).unwrap();
            for (at, row) in rows.iter().enumerate().skip(cut) {
                writer.pad(at);
                if let Some(value) = row {
                    let doc: DocBuf = doc! {"v": value.as_raw()};
                    writer.push(doc.as_raw().first().unwrap());
                }
            }
            let at_once = write(&rows);
            prop_assert_eq!(writer.as_bytes(), at_once.as_bytes());
        }

        #[test]
        fn damage_is_an_error(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let mut cursor = ColumnCursor::default();
            for _ in 0..200 {
                if cursor.next(&bytes).is_err() {
                    break;
                }
            }
            let _ = ColumnWriter::open(&bytes);
        }
    }

    #[test]
    fn regular_series_take_few_bytes() {
        let times: Vec<_> = (0..1000)
            .map(|n| Some(Value::DateTime(DateTime(1_700_000_000_000 + n * 10_000))))
            .collect();
        assert!(write(&times).len_bytes() < 1100);
        let readings: Vec<_> = (0..1000)
            .map(|n| Some(Value::Double((200 + n % 37) as f64 / 10.0)))
            .collect();
        assert!(write(&readings).len_bytes() < 1200);
        let states: Vec<_> = (0..1000)
            .map(|_| Some(Value::String("running".into())))
            .collect();
        assert!(write(&states).len_bytes() < 40);
    }
}
