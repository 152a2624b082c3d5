//! The inputs of a window's function, by document number.

use std::collections::VecDeque;

use sheaf_bson::{RawValue, Value};

use crate::arithmetic::Number;

/// The input that one document provides to the function.
#[derive(Debug)]
pub(super) struct Input {
    /// `None`: missing.
    pub(super) value: Option<Value>,
    /// The key by which it is ranked.
    pub(super) key: Vec<u8>,
    /// Its position on the axis of `$derivative` and `$integral`.
    pub(super) at: Number,
}

impl Input {
    pub(super) fn number(&self) -> Option<Number> {
        Number::from_raw(self.value.as_ref()?.as_raw())
    }

    pub(super) fn non_null(&self) -> Option<RawValue<'_>> {
        let raw = self.value.as_ref()?.as_raw();
        (!matches!(raw, RawValue::Null | RawValue::Undefined)).then_some(raw)
    }

    pub(super) fn or_null(&self) -> RawValue<'_> {
        self.value.as_ref().map_or(RawValue::Null, |v| v.as_raw())
    }

    /// The input as an array of two numbers.
    pub(super) fn pair(&self) -> Option<(Number, Number)> {
        let Some(RawValue::Array(array)) = self.value.as_ref().map(|v| v.as_raw()) else {
            return None;
        };
        let mut numbers = array.iter().map(Number::from_raw);
        match (numbers.next(), numbers.next(), numbers.next()) {
            (Some(Some(x)), Some(Some(y)), None) => Some((x, y)),
            _ => None,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let value = self.value.as_ref();
        size_of::<Input>()
            + self.key.len()
            + value.map_or(0, |v| crate::pipeline::accumulator::size(v.as_raw()))
    }
}

/// The inputs that the window holds, by document number.
#[derive(Debug, Default)]
pub(super) struct Inputs {
    pub(super) first: u64,
    pub(super) values: VecDeque<Input>,
    pub(super) bytes: usize,
}

impl Inputs {
    pub(super) fn get(&self, n: u64) -> Option<&Input> {
        self.values
            .get(usize::try_from(n.checked_sub(self.first)?).ok()?)
    }

    pub(super) fn range(
        &self,
        from: u64,
        to: u64,
    ) -> impl DoubleEndedIterator<Item = &Input> + ExactSizeIterator {
        let at = |n: u64| (n.saturating_sub(self.first) as usize).min(self.values.len());
        self.values.range(at(from)..at(to).max(at(from)))
    }
}
