//! Parses the operators under a path: `{a: {$gt: 3, $in: [...]}}`.

use std::sync::Arc;

use sheaf_bson::error_code::ErrorCode;
use sheaf_bson::json::shell;
use sheaf_bson::path::FieldPath;
use sheaf_bson::{ElementType, Error, RawArray, RawDoc, RawValue, Value, values_equal_with};

use super::normalize::compare_exactly;
use super::parse::{
    Level, collator_for, comparison, conjunction, equality, is_element_operators, is_operators,
    no_path, parse_filter,
};
use super::regex::CompiledRegex;
use super::{
    BitsOp, BitsTest, ComparisonOp, ExprComparison, In, MatchExpression, RegexMatch, TypeSet,
};

/// Parses every operator of `doc`, each on `path`, in the order of `doc`.
pub(super) fn parse_operators(
    path: &Arc<FieldPath>,
    doc: RawDoc<'_>,
    level: Level<'_>,
) -> Result<Vec<MatchExpression>, Error> {
    let level = level.deeper()?;
    let mut children = Vec::new();
    for element in doc.iter() {
        let (name, value) = (element.key(), element.value());
        children.push(match name {
            // The two form one predicate in either order; $regex parses both.
            "$regex" => regex_operator(path, doc, value, level)?,
            "$options" => {
                if doc.get("$regex").is_none() {
                    return Err(Error::bad_value("$options needs a $regex"));
                }
                continue;
            }
            _ => parse_operator(path, name, value, level)?,
        });
    }
    Ok(children)
}

fn parse_operator(
    path: &Arc<FieldPath>,
    name: &str,
    value: RawValue<'_>,
    level: Level<'_>,
) -> Result<MatchExpression, Error> {
    match name {
        "$eq" => equality(path, value, level),
        "$ne" => {
            if matches!(value, RawValue::Regex { .. }) {
                return Err(Error::bad_value(
                    "Can't have regex as arg to $ne; use $not to negate a pattern",
                ));
            }
            Ok(not(equality(path, value, level)?))
        }
        "$gt" => comparison(path, ComparisonOp::Gt, value, level),
        "$gte" => comparison(path, ComparisonOp::Gte, value, level),
        "$lt" => comparison(path, ComparisonOp::Lt, value, level),
        "$lte" => comparison(path, ComparisonOp::Lte, value, level),
        name if let Some(op) = ExprComparison::op_of(name) => {
            ExprComparison::new(path, op, value, level.context.collator())
                .map(MatchExpression::ExprComparison)
                .ok_or_else(|| {
                    Error::bad_value(format!("{name} cannot compare with {}", value.type_name()))
                })
        }
        "$in" => parse_in(path, name, value, level),
        "$nin" => Ok(not(parse_in(path, name, value, level)?)),
        "$not" => parse_not(path, value, level),
        "$exists" => {
            let exists = MatchExpression::Exists {
                path: Arc::clone(path),
            };
            Ok(if value.is_truthy() {
                exists
            } else {
                not(exists)
            })
        }
        "$type" => parse_type(path, value),
        "$size" => parse_size(path, value),
        "$mod" => parse_mod(path, value),
        "$all" => parse_all(path, value, level),
        "$elemMatch" => parse_elem_match(path, value, level),
        "$bitsAllSet" => parse_bits(path, name, BitsOp::AllSet, value),
        "$bitsAllClear" => parse_bits(path, name, BitsOp::AllClear, value),
        "$bitsAnySet" => parse_bits(path, name, BitsOp::AnySet, value),
        "$bitsAnyClear" => parse_bits(path, name, BitsOp::AnyClear, value),
        "$geoWithin" | "$within" | "$geoIntersects" | "$near" | "$nearSphere" | "$geoNear"
        | "$maxDistance" | "$minDistance" | "$uniqueDocs" => Err(Error::new(
            ErrorCode::NOT_IMPLEMENTED,
            format!("{name} is not supported: geospatial queries are not supported yet"),
        )),
        "$expr" if level.in_element => Err(Error::bad_value(
            "$expr can only be applied to the top-level document",
        )),
        _ => Err(Error::bad_value(format!("unknown operator: {name}"))),
    }
}

fn not(child: MatchExpression) -> MatchExpression {
    MatchExpression::Not(Box::new(child))
}

/// Parses the list of `$in` and `$nin`: values and regexes, but no operators.
fn parse_in(
    path: &Arc<FieldPath>,
    name: &str,
    value: RawValue<'_>,
    level: Level<'_>,
) -> Result<MatchExpression, Error> {
    let RawValue::Array(array) = value else {
        return Err(Error::bad_value(format!("{name} needs an array")));
    };
    let mut equalities: Vec<RawValue<'_>> = Vec::new();
    let mut regexes = Vec::new();
    for entry in array.iter() {
        match entry {
            RawValue::Document(doc) if is_operators(doc) => {
                return Err(Error::bad_value(format!(
                    "cannot nest $ under {name}: it takes values, not operators"
                )));
            }
            RawValue::Undefined => {
                return Err(Error::bad_value("cannot compare to undefined"));
            }
            RawValue::Regex { pattern, options } => {
                regexes.push(regex_match(&no_path(), pattern, options, level)?);
            }
            _ => equalities.push(entry),
        }
    }
    let collator = equalities
        .iter()
        .find_map(|value| collator_for(*value, level.context));
    let by = collator.as_deref();
    equalities.sort_by(|a, b| compare_exactly(*a, *b, by));
    equalities.dedup_by(|a, b| values_equal_with(*a, *b, by));
    Ok(MatchExpression::In(In {
        path: Arc::clone(path),
        equalities: Arc::new(equalities.into_iter().map(Value::from).collect()),
        regexes,
        collator,
    }))
}

fn parse_not(
    path: &Arc<FieldPath>,
    value: RawValue<'_>,
    level: Level<'_>,
) -> Result<MatchExpression, Error> {
    match value {
        RawValue::Regex { pattern, options } => Ok(not(regex(path, pattern, options, level)?)),
        RawValue::Document(doc) => {
            if doc.is_empty() {
                return Err(Error::bad_value("$not cannot be empty: specify operators"));
            }
            Ok(not(conjunction(parse_operators(path, doc, level)?)))
        }
        _ => Err(Error::bad_value(format!(
            "$not needs a regex or a document of operators, not {}",
            value.type_name()
        ))),
    }
}

fn parse_type(path: &Arc<FieldPath>, value: RawValue<'_>) -> Result<MatchExpression, Error> {
    let mut types = TypeSet::new();
    match value {
        RawValue::Array(array) => {
            for entry in array.iter() {
                add_type(&mut types, entry)?;
            }
        }
        _ => add_type(&mut types, value)?,
    }
    if types.is_empty() {
        return Err(Error::new(
            ErrorCode::FAILED_TO_PARSE,
            format!("{} must match at least one type", path.dotted()),
        ));
    }
    Ok(MatchExpression::Type {
        path: Arc::clone(path),
        types,
    })
}

/// Adds an operand of `$type`: a type number or an alias.
fn add_type(types: &mut TypeSet, entry: RawValue<'_>) -> Result<(), Error> {
    match entry {
        RawValue::String("number") => types.insert_numbers(),
        RawValue::String(alias) => types.insert(
            ElementType::from_name(alias)
                .ok_or_else(|| Error::bad_value(format!("Unknown type name alias: {alias}")))?,
        ),
        _ if entry.is_number() => {
            let found = entry
                .as_i64_exact()
                .filter(|&code| code != 255)
                .and_then(ElementType::from_type_code);
            types.insert(found.ok_or_else(|| {
                let hint = match entry.as_i64_exact() {
                    Some(0) => "; use {$exists: false} for a missing field",
                    _ => "",
                };
                Error::bad_value(format!(
                    "Invalid numerical type code: {}{hint}",
                    shell(entry)
                ))
            })?);
        }
        _ => {
            return Err(Error::new(
                ErrorCode::TYPE_MISMATCH,
                format!(
                    "type must be represented as a number or a string, not {}",
                    entry.type_name()
                ),
            ));
        }
    }
    Ok(())
}

/// A non-negative integer. Errors: the reason with MongoDB's message, to which the caller adds
/// context.
fn non_negative(name: &str, value: RawValue<'_>) -> Result<i64, String> {
    let shown = || format!("{name}: {}", shell(value));
    if !value.is_number() {
        return Err(format!("Expected a number in: {}", shown()));
    }
    if let Some(n) = value.as_i64_exact() {
        return if n < 0 {
            Err(format!("Expected a non-negative number in: {}", shown()))
        } else {
            Ok(n)
        };
    }
    let x = value.as_f64().unwrap_or(f64::NAN);
    Err(if x.is_nan() {
        format!("Expected an integer, but found NaN in: {}", shown())
    } else if x.trunc() == x {
        format!("Cannot represent as a 64-bit integer: {}", shown())
    } else {
        format!("Expected an integer: {}", shown())
    })
}

fn parse_size(path: &Arc<FieldPath>, value: RawValue<'_>) -> Result<MatchExpression, Error> {
    let size = non_negative("$size", value)
        .and_then(|size| match i32::try_from(size) {
            Ok(_) => Ok(size),
            Err(_) => Err(format!("Cannot represent in an int: {size}")),
        })
        .map_err(|why| Error::bad_value(format!("Failed to parse $size. {why}")))?;
    Ok(MatchExpression::Size {
        path: Arc::clone(path),
        size,
    })
}

/// A number truncated to an integer, as in `$mod`. `None` for other values, NaN, infinity, and
/// numbers beyond 64 bits.
pub(super) fn truncated_i64(value: RawValue<'_>) -> Option<i64> {
    if let Some(n) = value.as_i64_exact() {
        return Some(n);
    }
    match value {
        RawValue::Double(x) => RawValue::Double(x.trunc()).as_i64_exact(),
        RawValue::Decimal128(d) if d.is_finite() => {
            // It has a fraction, or it is too large: drop the digits after the decimal point.
            let (negative, coefficient, exponent) = d.decompose();
            let scale = 10u128.checked_pow(exponent.checked_neg()?.try_into().ok()?);
            let whole = scale.map_or(0, |scale| coefficient / scale);
            let magnitude = i64::try_from(whole).ok()?;
            Some(if negative { -magnitude } else { magnitude })
        }
        _ => None,
    }
}

fn parse_mod(path: &Arc<FieldPath>, value: RawValue<'_>) -> Result<MatchExpression, Error> {
    let RawValue::Array(array) = value else {
        return Err(Error::bad_value("malformed mod, needs to be an array"));
    };
    let mut entries = array.iter();
    let (divisor, remainder) = match (entries.next(), entries.next(), entries.next()) {
        (Some(divisor), Some(remainder), None) => (divisor, remainder),
        (_, _, Some(_)) => {
            return Err(Error::bad_value(
                "malformed mod, too many elements: specify [divisor, remainder]",
            ));
        }
        _ => {
            return Err(Error::bad_value(
                "malformed mod, not enough elements: specify [divisor, remainder]",
            ));
        }
    };
    let divisor = mod_number("divisor", divisor)?;
    let remainder = mod_number("remainder", remainder)?;
    if divisor == 0 {
        return Err(Error::bad_value("divisor cannot be 0"));
    }
    Ok(MatchExpression::Mod {
        path: Arc::clone(path),
        divisor,
        remainder,
    })
}

fn mod_number(which: &str, value: RawValue<'_>) -> Result<i64, Error> {
    if !value.is_number() {
        return Err(Error::bad_value(format!(
            "malformed mod, {which} not a number"
        )));
    }
    truncated_i64(value).ok_or_else(|| {
        let why = match value.as_f64() {
            Some(x) if x.is_finite() => "Out of bounds coercing to integral value",
            _ => "Unable to coerce NaN/Inf to integral type",
        };
        Error::bad_value(why).with_context(format!("malformed mod, {which} value is invalid"))
    })
}

/// Parses `$all` as a conjunction of equalities and regexes, or of `$elemMatch`es.
fn parse_all(
    path: &Arc<FieldPath>,
    value: RawValue<'_>,
    level: Level<'_>,
) -> Result<MatchExpression, Error> {
    let RawValue::Array(array) = value else {
        return Err(Error::bad_value("$all needs an array"));
    };
    let elem_match_of = |entry: RawValue<'_>| match entry {
        RawValue::Document(doc) => doc.first().is_some_and(|e| e.key() == "$elemMatch"),
        _ => false,
    };
    let of_elem_matches = array.iter().next().is_some_and(elem_match_of);
    let mut children = Vec::new();
    for entry in array.iter() {
        children.push(match entry {
            _ if of_elem_matches != elem_match_of(entry) => {
                return Err(Error::bad_value(
                    "$all/$elemMatch has to be consistent: all entries are $elemMatch or none is",
                ));
            }
            RawValue::Document(doc) if of_elem_matches => {
                conjunction(parse_operators(path, doc, level)?)
            }
            RawValue::Document(doc) if is_operators(doc) => {
                return Err(Error::bad_value("no $ expressions in $all"));
            }
            RawValue::Regex { pattern, options } => regex(path, pattern, options, level)?,
            _ => equality(path, entry, level)?,
        });
    }
    Ok(match children.len() {
        0 => MatchExpression::AlwaysFalse,
        _ => conjunction(children),
    })
}

fn parse_elem_match(
    path: &Arc<FieldPath>,
    value: RawValue<'_>,
    level: Level<'_>,
) -> Result<MatchExpression, Error> {
    let RawValue::Document(doc) = value else {
        return Err(Error::bad_value(format!(
            "$elemMatch needs an Object, not {}",
            value.type_name()
        )));
    };
    let level = level.element();
    let path = Arc::clone(path);
    if is_element_operators(doc) {
        let element = no_path();
        Ok(MatchExpression::ElemMatchValue {
            path,
            children: parse_operators(&element, doc, level)?,
        })
    } else {
        Ok(MatchExpression::ElemMatchObject {
            path,
            child: Box::new(parse_filter(doc, level)?),
        })
    }
}

fn regex_operator(
    path: &Arc<FieldPath>,
    doc: RawDoc<'_>,
    value: RawValue<'_>,
    level: Level<'_>,
) -> Result<MatchExpression, Error> {
    let given = match doc.get("$options") {
        // Empty options are equivalent to none.
        None | Some(RawValue::String("")) => None,
        Some(RawValue::String(options)) => Some(options),
        Some(_) => return Err(Error::bad_value("$options has to be a string")),
    };
    match value {
        RawValue::String(pattern) => regex(path, pattern, given.unwrap_or(""), level),
        RawValue::Regex { pattern, options } => match given {
            Some(_) if !options.is_empty() => {
                let first = doc
                    .iter()
                    .find(|e| matches!(e.key(), "$regex" | "$options"));
                let options_first = first.is_some_and(|e| e.key() == "$options");
                Err(Error::new(
                    ErrorCode(if options_first { 51074 } else { 51075 }),
                    "options set in both $regex and $options; set them once",
                ))
            }
            _ => regex(path, pattern, given.unwrap_or(options), level),
        },
        _ => Err(Error::bad_value("$regex has to be a string")),
    }
}

/// `{path: /pattern/options}`.
pub(super) fn regex(
    path: &Arc<FieldPath>,
    pattern: &str,
    options: &str,
    level: Level<'_>,
) -> Result<MatchExpression, Error> {
    regex_match(path, pattern, options, level).map(MatchExpression::Regex)
}

fn regex_match(
    path: &Arc<FieldPath>,
    pattern: &str,
    options: &str,
    level: Level<'_>,
) -> Result<RegexMatch, Error> {
    level.count_pattern()?;
    let compiled = CompiledRegex::new(pattern, options)?;
    Ok(RegexMatch {
        path: Arc::clone(path),
        pattern: compiled.pattern().into(),
        options: compiled.options().into(),
        compiled: Arc::new(compiled),
    })
}

fn parse_bits(
    path: &Arc<FieldPath>,
    name: &str,
    op: BitsOp,
    value: RawValue<'_>,
) -> Result<MatchExpression, Error> {
    let mut positions = match value {
        RawValue::Array(array) => bit_positions(array)?,
        RawValue::Binary { bytes, .. } => (0..8 * bytes.len() as u64)
            .filter(|p| bytes[(p / 8) as usize] >> (p % 8) & 1 == 1)
            .map(|p| p as u32)
            .collect(),
        _ if value.is_number() => {
            let mask = non_negative(name, value)
                .map_err(|why| Error::new(ErrorCode::FAILED_TO_PARSE, why))?;
            (0..63).filter(|p| mask >> p & 1 == 1).collect()
        }
        _ => {
            return Err(Error::bad_value(format!(
                "{} takes an Array, a number, or a BinData but received: {name}: {}",
                path.dotted(),
                shell(value)
            )));
        }
    };
    positions.sort_unstable();
    positions.dedup();
    Ok(MatchExpression::Bits(BitsTest {
        path: Arc::clone(path),
        op,
        positions: Arc::new(positions),
    }))
}

fn bit_positions(array: RawArray<'_>) -> Result<Vec<u32>, Error> {
    array
        .iter()
        .enumerate()
        .map(|(index, entry)| {
            let position = non_negative(&index.to_string(), entry).and_then(|n| {
                i32::try_from(n).map_err(|_| {
                    format!(
                        "Cannot represent as a 32-bit integer: {index}: {}",
                        shell(entry)
                    )
                })
            });
            position
                .map(|n| n as u32)
                .map_err(|why| Error::bad_value(format!("Failed to parse bit position. {why}")))
        })
        .collect()
}
