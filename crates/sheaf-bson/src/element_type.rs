//! The BSON element type: type byte, names, numbers, and rank in the order of types.

/// The type of a BSON element. The discriminant is the format's type byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ElementType {
    /// 64-bit IEEE 754 binary floating point.
    Double = 0x01,
    /// UTF-8 string.
    String = 0x02,
    /// Embedded document.
    Document = 0x03,
    /// Array: a document whose keys are ignored.
    Array = 0x04,
    /// Bytes with a subtype.
    Binary = 0x05,
    /// Undefined (deprecated).
    Undefined = 0x06,
    /// Twelve bytes of object id.
    ObjectId = 0x07,
    /// True or false.
    Boolean = 0x08,
    /// Milliseconds since 1970, signed.
    DateTime = 0x09,
    /// Null.
    Null = 0x0A,
    /// Regular expression: pattern and options.
    Regex = 0x0B,
    /// DBPointer (deprecated).
    DbPointer = 0x0C,
    /// JavaScript code.
    JavaScript = 0x0D,
    /// Symbol (deprecated); compares like a string.
    Symbol = 0x0E,
    /// JavaScript code with a scope (deprecated).
    JavaScriptWithScope = 0x0F,
    /// 32-bit integer.
    Int32 = 0x10,
    /// MongoDB's internal timestamp: seconds and increment, unsigned.
    Timestamp = 0x11,
    /// 64-bit integer.
    Int64 = 0x12,
    /// 128-bit IEEE 754 decimal floating point.
    Decimal128 = 0x13,
    /// Sorts below everything.
    MinKey = 0xFF,
    /// Sorts above everything.
    MaxKey = 0x7F,
}

use ElementType::*;

impl ElementType {
    /// Every type in ascending type byte, MinKey and MaxKey last.
    pub const ALL: [ElementType; 21] = [
        Double,
        String,
        Document,
        Array,
        Binary,
        Undefined,
        ObjectId,
        Boolean,
        DateTime,
        Null,
        Regex,
        DbPointer,
        JavaScript,
        Symbol,
        JavaScriptWithScope,
        Int32,
        Timestamp,
        Int64,
        Decimal128,
        MinKey,
        MaxKey,
    ];

    /// The type with this type byte; `None` for a byte the format does not define.
    #[inline]
    pub const fn from_u8(byte: u8) -> Option<ElementType> {
        Some(match byte {
            0x01 => Double,
            0x02 => String,
            0x03 => Document,
            0x04 => Array,
            0x05 => Binary,
            0x06 => Undefined,
            0x07 => ObjectId,
            0x08 => Boolean,
            0x09 => DateTime,
            0x0A => Null,
            0x0B => Regex,
            0x0C => DbPointer,
            0x0D => JavaScript,
            0x0E => Symbol,
            0x0F => JavaScriptWithScope,
            0x10 => Int32,
            0x11 => Timestamp,
            0x12 => Int64,
            0x13 => Decimal128,
            0xFF => MinKey,
            0x7F => MaxKey,
            _ => return None,
        })
    }

    /// The type with this type byte, which was validated before; `Null` if it was not.
    #[inline]
    pub(crate) const fn from_known_u8(byte: u8) -> ElementType {
        match ElementType::from_u8(byte) {
            Some(element_type) => element_type,
            None => Null,
        }
    }

    /// The size in bytes of every value of this type; `None` if values differ in size.
    #[inline]
    pub(crate) const fn fixed_len(self) -> Option<u8> {
        match self {
            Undefined | Null | MinKey | MaxKey => Some(0),
            Boolean => Some(1),
            Int32 => Some(4),
            Double | DateTime | Timestamp | Int64 => Some(8),
            ObjectId => Some(12),
            Decimal128 => Some(16),
            _ => None,
        }
    }

    /// The number of this type in `$type`: the type byte, except that MinKey is -1.
    pub const fn type_code(self) -> i32 {
        match self {
            MinKey => -1,
            other => other as i32,
        }
    }

    /// The type with this number in `$type`. 255 also means MinKey.
    pub fn from_type_code(code: i64) -> Option<ElementType> {
        match code {
            -1 => Some(MinKey),
            0..=255 => ElementType::from_u8(code as u8),
            _ => None,
        }
    }

    /// The rank of this type in the order of all values. Types of equal rank compare by value: the
    /// four numeric types, and string with symbol.
    #[inline]
    pub const fn canonical_rank(self) -> i8 {
        match self {
            MinKey => -1,
            Undefined => 0,
            Null => 5,
            Double | Int32 | Int64 | Decimal128 => 10,
            String | Symbol => 15,
            Document => 20,
            Array => 25,
            Binary => 30,
            ObjectId => 35,
            Boolean => 40,
            DateTime => 45,
            Timestamp => 47,
            Regex => 50,
            DbPointer => 55,
            JavaScript => 60,
            JavaScriptWithScope => 65,
            MaxKey => 127,
        }
    }

    /// Int, long, double or decimal.
    #[inline]
    pub const fn is_number(self) -> bool {
        matches!(self, Double | Int32 | Int64 | Decimal128)
    }

    /// MongoDB's name of the type, as in the expression operator `$type` and in error messages.
    pub const fn name(self) -> &'static str {
        match self {
            Double => "double",
            String => "string",
            Document => "object",
            Array => "array",
            Binary => "binData",
            Undefined => "undefined",
            ObjectId => "objectId",
            Boolean => "bool",
            DateTime => "date",
            Null => "null",
            Regex => "regex",
            DbPointer => "dbPointer",
            JavaScript => "javascript",
            Symbol => "symbol",
            JavaScriptWithScope => "javascriptWithScope",
            Int32 => "int",
            Timestamp => "timestamp",
            Int64 => "long",
            Decimal128 => "decimal",
            MinKey => "minKey",
            MaxKey => "maxKey",
        }
    }

    /// The single type with this name in the match operator `$type`. "number" is several types: see
    /// [`ElementType::from_alias`].
    pub fn from_name(name: &str) -> Option<ElementType> {
        ElementType::ALL.into_iter().find(|t| t.name() == name)
    }

    /// The types with this name in the match operator `$type`: one, or four for "number".
    pub fn from_alias(alias: &str) -> Option<&'static [ElementType]> {
        if alias == "number" {
            return Some(&[Int32, Int64, Double, Decimal128]);
        }
        let position = ElementType::ALL.iter().position(|t| t.name() == alias)?;
        Some(&ElementType::ALL_STATIC[position..position + 1])
    }

    const ALL_STATIC: &'static [ElementType] = &ElementType::ALL;
}
