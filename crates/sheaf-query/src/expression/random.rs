//! Operators with a different value at each evaluation: `$rand`, a double from 0 to 1, and
//! `$createObjectId`.
//!
//! The random number generator is per thread, seeded from the standard library's random state. It
//! is good enough for sampling, but not for secrets. `$sample`, `$sampleRate` and random cursors
//! use it as well, so that one seed determines all that a thread draws.

use std::cell::Cell;
use std::hash::{BuildHasher, Hasher, RandomState};

use sheaf_bson::error_code::{ErrorCode, Result};
use sheaf_bson::{ObjectId, RawValue, Value};

use super::eval::{EvalContext, EvalValue};
use super::operator::{Arity, Operator};
use super::parser::Parser;
use super::{Expression, location};

thread_local! {
    static STATE: Cell<u64> = Cell::new(RandomState::new().build_hasher().finish());
}

/// Restarts the thread's generator, for tests: what it draws from here on depends only on `seed`.
pub fn seed_random(seed: u64) {
    STATE.set(seed);
}

/// 64 random bits (splitmix64).
pub fn random_bits() -> u64 {
    let state = STATE.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
    STATE.set(state);
    let mut z = state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// `$rand`. It must not be evaluated at parse time.
pub(super) static RAND: Operator = Operator {
    name: "$rand",
    arity: Arity::Exactly(0),
    eval: rand,
};

/// `$createObjectId`. It must not be evaluated at parse time.
static CREATE_OBJECT_ID: Operator = Operator {
    name: "$createObjectId",
    arity: Arity::Exactly(0),
    eval: create_object_id,
};

/// Whether the operator with this name has a different value at each evaluation.
pub(super) fn is_random(name: &str) -> bool {
    name == RAND.name || name == CREATE_OBJECT_ID.name
}

/// `{$rand: {}}`.
pub(super) fn parse_rand(_: &mut Parser<'_>, operand: RawValue<'_>) -> Result<Expression> {
    let arguments = match operand {
        RawValue::Document(doc) => doc.first().is_some(),
        RawValue::Array(array) => !array.is_empty(),
        other => {
            return Err(location(
                10065,
                format!(
                    "invalid parameter: expected an object ($rand), not {}",
                    other.type_name()
                ),
            ));
        }
    };
    if arguments {
        return Err(location(
            3040501,
            "$rand does not currently accept arguments",
        ));
    }
    Ok(Expression::Call {
        operator: &RAND,
        args: Vec::new(),
    })
}

/// `{$createObjectId: {}}`.
pub(super) fn parse_create_object_id(
    _: &mut Parser<'_>,
    operand: RawValue<'_>,
) -> Result<Expression> {
    if !matches!(operand, RawValue::Document(doc) if doc.is_empty()) {
        return Err(location(
            ErrorCode::FAILED_TO_PARSE.0,
            "$createObjectId takes an empty object as its argument",
        ));
    }
    Ok(Expression::Call {
        operator: &CREATE_OBJECT_ID,
        args: Vec::new(),
    })
}

fn create_object_id<'e>(
    _: &'static Operator,
    _: &'e [Expression],
    _: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    Ok(Value::ObjectId(ObjectId::new()).into())
}

fn rand<'e>(
    _: &'static Operator,
    _: &'e [Expression],
    _: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    Ok(Value::Double(random_number()).into())
}

/// A random number in [0, 1).
pub fn random_number() -> f64 {
    // Use 53 bits, the precision of a double.
    (random_bits() >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_determines_what_follows() {
        let drawn = |seed| {
            seed_random(seed);
            (random_number(), random_bits(), random_number())
        };
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
        assert!((0.0..1.0).contains(&drawn(7).0));
    }
}
