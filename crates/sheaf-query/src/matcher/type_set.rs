//! The operand of `$type`: a set of BSON types.

use sheaf_bson::{ElementType, RawValue};

/// A set of BSON types, and whether it was given as `"number"`, which explain prints in that form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct TypeSet {
    /// Bit `type_code + 1`: MinKey is bit 0, double bit 1 + 1, ...; MaxKey has bit 31.
    bits: u32,
    all_numbers: bool,
}

fn bit(element_type: ElementType) -> u32 {
    match element_type {
        ElementType::MaxKey => 1 << 31,
        other => 1 << (other.type_code() + 1),
    }
}

impl TypeSet {
    /// An empty set.
    pub fn new() -> TypeSet {
        TypeSet::default()
    }

    /// Adds one type.
    pub fn insert(&mut self, element_type: ElementType) {
        self.bits |= bit(element_type);
    }

    /// Adds the four numeric types under the alias "number".
    pub fn insert_numbers(&mut self) {
        self.all_numbers = true;
    }

    /// Whether the set contains no type.
    pub fn is_empty(&self) -> bool {
        self.bits == 0 && !self.all_numbers
    }

    /// Whether the set contains this type.
    pub fn contains(&self, element_type: ElementType) -> bool {
        self.bits & bit(element_type) != 0 || (self.all_numbers && element_type.is_number())
    }

    /// Whether this value passes. Does not traverse arrays; the caller must.
    pub fn test(&self, value: RawValue<'_>) -> bool {
        self.contains(value.element_type())
    }

    /// Whether the alias "number" was given.
    pub fn has_number_alias(&self) -> bool {
        self.all_numbers
    }

    /// The types given individually, MinKey first, then by type code.
    pub fn single_types(&self) -> impl Iterator<Item = ElementType> + use<> {
        let bits = self.bits;
        (-1..=127)
            .filter_map(ElementType::from_type_code)
            .filter(move |t| bits & bit(*t) != 0)
    }

    /// Every type in the set, with "number" expanded.
    pub fn types(&self) -> impl Iterator<Item = ElementType> + use<> {
        let set = *self;
        (-1..=127)
            .filter_map(ElementType::from_type_code)
            .filter(move |t| set.contains(*t))
    }
}
