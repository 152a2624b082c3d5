//! The table of operators: every `{$name: ...}` that an expression can contain.
//!
//! An entry is a *call* (positional operands, their number, a function), a *named* call (operands
//! by name), or a *form* with its own syntax (`$let`, `$switch`, ...). A new operator is a line
//! here and a function in the file of its family. Names that are not in the table are rejected.

use super::entry::{CheckFn, Entry, Named, unchecked};
use super::operator::{Arity, EvalFn, Operator};
use super::{
    arithmetic, array, bitwise, boolean, comparison, conditional, convert, date, elementary, hash,
    meta, object, random, regular, script_parser, select, set, statistics, string, type_ops,
    vector,
};

const fn call(name: &'static str, arity: Arity, eval: EvalFn) -> Entry {
    Entry::Call(Operator { name, arity, eval })
}

/// `{$op: {name: ..., ...}}`, with the error codes for an operand that is not a document and for an
/// unknown name.
const fn named(
    name: &'static str,
    not_object: i32,
    unknown: i32,
    fields: &'static [(&'static str, Option<i32>)],
    eval: EvalFn,
) -> Entry {
    Entry::Named(Named {
        operator: Operator {
            name,
            arity: Arity::Exactly(fields.len()),
            eval,
        },
        fields,
        not_object,
        unknown,
        shorthand: false,
        check: unchecked,
    })
}

/// The same entry with a check of its operands; calls and forms are unchanged.
const fn checked(entry: Entry, check: CheckFn) -> Entry {
    match entry {
        Entry::Named(named) => Entry::Named(Named { check, ..named }),
        other => other,
    }
}

/// `{$year: date}` or `{$year: {date: ..., timezone: ...}}`.
const fn date_part(name: &'static str, eval: EvalFn) -> Entry {
    Entry::Named(Named {
        operator: Operator {
            name,
            arity: Arity::Exactly(2),
            eval,
        },
        fields: &[("date", Some(40539)), ("timezone", None)],
        not_object: 40536,
        unknown: 40535,
        shorthand: true,
        check: date::check_part,
    })
}

use Arity::{Any, AtLeast, Between, Exactly, Single};

/// Every operator, sorted by name.
pub static TABLE: &[Entry] = &[
    call("$abs", Exactly(1), arithmetic::abs),
    call("$acos", Exactly(1), elementary::acos),
    call("$acosh", Exactly(1), elementary::acosh),
    call("$add", Any, arithmetic::add),
    call("$allElementsTrue", Exactly(1), set::all_elements_true),
    call("$and", Any, boolean::and),
    call("$anyElementTrue", Exactly(1), set::any_element_true),
    call("$arrayElemAt", Exactly(2), array::array_elem_at),
    call("$arrayToObject", Exactly(1), object::array_to_object),
    call("$asin", Exactly(1), elementary::asin),
    call("$asinh", Exactly(1), elementary::asinh),
    call("$atan", Exactly(1), elementary::atan),
    call("$atan2", Exactly(2), elementary::atan2),
    call("$atanh", Exactly(1), elementary::atanh),
    call("$avg", Any, arithmetic::avg),
    call("$binarySize", Exactly(1), type_ops::binary_size),
    call("$bitAnd", Any, bitwise::bit_and),
    call("$bitNot", Exactly(1), bitwise::bit_not),
    call("$bitOr", Any, bitwise::bit_or),
    call("$bitXor", Any, bitwise::bit_xor),
    call("$bsonSize", Exactly(1), type_ops::bson_size),
    call("$ceil", Exactly(1), arithmetic::ceil),
    call("$cmp", Exactly(2), comparison::cmp),
    call("$concat", Any, string::concat),
    call("$concatArrays", Any, array::concat_arrays),
    Entry::Form("$cond", conditional::parse_cond),
    Entry::Form("$const", conditional::parse_literal),
    named(
        "$convert",
        9,
        9,
        &[
            ("input", Some(9)),
            ("to", Some(9)),
            ("format", None),
            ("byteOrder", None),
            ("onError", None),
            ("onNull", None),
        ],
        convert::convert_any,
    ),
    call("$cos", Exactly(1), elementary::cos),
    call("$cosh", Exactly(1), elementary::cosh),
    Entry::Form("$createObjectId", random::parse_create_object_id),
    checked(
        named(
            "$dateAdd",
            5166400,
            5166401,
            &[
                ("startDate", Some(5166402)),
                ("unit", Some(5166402)),
                ("amount", Some(5166402)),
                ("timezone", None),
            ],
            date::arithmetic::date_add,
        ),
        date::arithmetic::check_moved,
    ),
    checked(
        named(
            "$dateDiff",
            5166301,
            5166302,
            &[
                ("startDate", Some(5166303)),
                ("endDate", Some(5166304)),
                ("unit", Some(5166305)),
                ("timezone", None),
                ("startOfWeek", None),
            ],
            date::arithmetic::date_diff,
        ),
        date::arithmetic::check_diff,
    ),
    checked(
        named(
            "$dateFromParts",
            40519,
            40518,
            &date::parts::PARTS,
            date::parts::date_from_parts,
        ),
        date::parts::check_from_parts,
    ),
    checked(
        named(
            "$dateFromString",
            40540,
            40541,
            &[
                ("dateString", Some(40542)),
                ("format", None),
                ("timezone", None),
                ("onError", None),
                ("onNull", None),
            ],
            date::format::date_from_string,
        ),
        date::format::check_zone,
    ),
    checked(
        named(
            "$dateSubtract",
            5166400,
            5166401,
            &[
                ("startDate", Some(5166402)),
                ("unit", Some(5166402)),
                ("amount", Some(5166402)),
                ("timezone", None),
            ],
            date::arithmetic::date_subtract,
        ),
        date::arithmetic::check_moved,
    ),
    checked(
        named(
            "$dateToParts",
            40524,
            40520,
            &[("date", Some(40522)), ("timezone", None), ("iso8601", None)],
            date::parts::date_to_parts,
        ),
        date::parts::check_to_parts,
    ),
    checked(
        named(
            "$dateToString",
            18629,
            18534,
            &[
                ("date", Some(18628)),
                ("format", None),
                ("timezone", None),
                ("onNull", None),
            ],
            date::format::date_to_string,
        ),
        date::format::check_zone,
    ),
    checked(
        named(
            "$dateTrunc",
            5439007,
            5439008,
            &[
                ("date", Some(5439009)),
                ("unit", Some(5439010)),
                ("binSize", None),
                ("timezone", None),
                ("startOfWeek", None),
            ],
            date::arithmetic::date_trunc,
        ),
        date::arithmetic::check_trunc,
    ),
    date_part("$dayOfMonth", date::day_of_month),
    date_part("$dayOfWeek", date::day_of_week),
    date_part("$dayOfYear", date::day_of_year),
    call(
        "$degreesToRadians",
        Exactly(1),
        elementary::degrees_to_radians,
    ),
    call("$divide", Exactly(2), arithmetic::divide),
    call("$eq", Exactly(2), comparison::eq),
    call("$exp", Exactly(1), elementary::exp),
    Entry::Form("$expr", conditional::parse_expr),
    Entry::Form("$filter", array::parse_filter),
    call("$first", Exactly(1), array::first),
    named(
        "$firstN",
        5787801,
        5787901,
        &[("n", Some(5787906)), ("input", Some(5787907))],
        select::first_n,
    ),
    call("$floor", Exactly(1), arithmetic::floor),
    Entry::Form("$function", script_parser::parse_function),
    Entry::Form("$getField", object::parse_get_field),
    call("$gt", Exactly(2), comparison::gt),
    call("$gte", Exactly(2), comparison::gte),
    named(
        "$hash",
        9,
        9,
        &[("input", Some(9)), ("algorithm", Some(9))],
        hash::hash,
    ),
    named(
        "$hexHash",
        9,
        9,
        &[("input", Some(9)), ("algorithm", Some(9))],
        hash::hex_hash,
    ),
    date_part("$hour", date::hour),
    call("$ifNull", Any, conditional::if_null),
    call("$in", Exactly(2), array::in_array),
    call("$indexOfArray", Between(2, 4), array::index_of_array),
    call("$indexOfBytes", Between(2, 4), string::index_of_bytes),
    call("$indexOfCP", Between(2, 4), string::index_of_cp),
    call("$isArray", Exactly(1), type_ops::is_array),
    call("$isNumber", Exactly(1), type_ops::is_number),
    date_part("$isoDayOfWeek", date::iso_day_of_week),
    date_part("$isoWeek", date::iso_week),
    date_part("$isoWeekYear", date::iso_week_year),
    call("$last", Exactly(1), array::last),
    named(
        "$lastN",
        5787801,
        5787901,
        &[("n", Some(5787906)), ("input", Some(5787907))],
        select::last_n,
    ),
    Entry::Form("$let", conditional::parse_let),
    Entry::Form("$literal", conditional::parse_literal),
    call("$ln", Exactly(1), elementary::ln),
    call("$log", Exactly(2), elementary::log),
    call("$log10", Exactly(1), elementary::log10),
    call("$lt", Exactly(2), comparison::lt),
    call("$lte", Exactly(2), comparison::lte),
    named(
        "$ltrim",
        50696,
        50694,
        &[("input", Some(50695)), ("chars", None)],
        string::ltrim,
    ),
    Entry::Form("$map", array::parse_map),
    call("$max", Any, comparison::max),
    named(
        "$maxN",
        5787801,
        5787901,
        &[("n", Some(5787906)), ("input", Some(5787907))],
        select::max_n,
    ),
    Entry::Form("$median", statistics::parse_median),
    call("$mergeObjects", Any, object::merge_objects),
    Entry::Form("$meta", meta::parse_meta),
    date_part("$millisecond", date::millisecond),
    call("$min", Any, comparison::min),
    named(
        "$minN",
        5787801,
        5787901,
        &[("n", Some(5787906)), ("input", Some(5787907))],
        select::min_n,
    ),
    date_part("$minute", date::minute),
    call("$mod", Exactly(2), arithmetic::modulo),
    date_part("$month", date::month),
    call("$multiply", Any, arithmetic::multiply),
    call("$ne", Exactly(2), comparison::ne),
    call("$not", Exactly(1), boolean::not),
    call("$objectToArray", Exactly(1), object::object_to_array),
    call("$or", Any, boolean::or),
    Entry::Form("$percentile", statistics::parse_percentile),
    call("$pow", Exactly(2), elementary::pow),
    call(
        "$radiansToDegrees",
        Exactly(1),
        elementary::radians_to_degrees,
    ),
    Entry::Form("$rand", random::parse_rand),
    call("$range", Between(2, 3), array::range),
    Entry::Form("$reduce", array::parse_reduce),
    named(
        "$regexFind",
        51103,
        31024,
        &[
            ("input", Some(31022)),
            ("regex", Some(31023)),
            ("options", None),
        ],
        regular::regex_find,
    ),
    named(
        "$regexFindAll",
        51103,
        31024,
        &[
            ("input", Some(31022)),
            ("regex", Some(31023)),
            ("options", None),
        ],
        regular::regex_find_all,
    ),
    named(
        "$regexMatch",
        51103,
        31024,
        &[
            ("input", Some(31022)),
            ("regex", Some(31023)),
            ("options", None),
        ],
        regular::regex_match,
    ),
    named(
        "$replaceAll",
        51751,
        51750,
        &[
            ("input", Some(51749)),
            ("find", Some(51748)),
            ("replacement", Some(51747)),
        ],
        string::replace_all,
    ),
    named(
        "$replaceOne",
        51751,
        51750,
        &[
            ("input", Some(51749)),
            ("find", Some(51748)),
            ("replacement", Some(51747)),
        ],
        string::replace_one,
    ),
    call("$reverseArray", Exactly(1), array::reverse_array),
    call("$round", Between(1, 2), arithmetic::round),
    named(
        "$rtrim",
        50696,
        50694,
        &[("input", Some(50695)), ("chars", None)],
        string::rtrim,
    ),
    date_part("$second", date::second),
    call("$setDifference", Exactly(2), set::set_difference),
    call("$setEquals", AtLeast(2), set::set_equals),
    Entry::Form("$setField", object::parse_set_field),
    call("$setIntersection", Any, set::set_intersection),
    call("$setIsSubset", Exactly(2), set::set_is_subset),
    call("$setUnion", Any, set::set_union),
    call("$sigmoid", Exactly(1), elementary::sigmoid),
    Entry::Form("$similarityCosine", vector::parse_cosine),
    Entry::Form("$similarityDotProduct", vector::parse_dot_product),
    Entry::Form("$similarityEuclidean", vector::parse_euclidean),
    call("$sin", Exactly(1), elementary::sin),
    call("$sinh", Exactly(1), elementary::sinh),
    call("$size", Exactly(1), array::size),
    call("$slice", Between(2, 3), array::slice),
    Entry::Form("$sortArray", select::parse_sort_array),
    call("$split", Exactly(2), string::split),
    call("$sqrt", Exactly(1), elementary::sqrt),
    call("$stdDevPop", Any, statistics::std_dev_pop),
    call("$stdDevSamp", Any, statistics::std_dev_samp),
    call("$strLenBytes", Exactly(1), string::str_len_bytes),
    call("$strLenCP", Exactly(1), string::str_len_cp),
    call("$strcasecmp", Exactly(2), string::strcasecmp),
    call("$substr", Exactly(3), string::substr_bytes),
    call("$substrBytes", Exactly(3), string::substr_bytes),
    call("$substrCP", Exactly(3), string::substr_cp),
    call("$subtract", Exactly(2), arithmetic::subtract),
    call("$subtype", Exactly(1), type_ops::subtype),
    call("$sum", Any, arithmetic::sum),
    Entry::Form("$switch", conditional::parse_switch),
    call("$tan", Exactly(1), elementary::tan),
    call("$tanh", Exactly(1), elementary::tanh),
    call("$toArray", Single, convert::to_array),
    call("$toBool", Single, convert::to_bool),
    call("$toDate", Single, convert::to_date),
    call("$toDecimal", Single, convert::to_decimal_number),
    call("$toDouble", Single, convert::to_double_number),
    call(
        "$toHashedIndexKey",
        Exactly(1),
        type_ops::to_hashed_index_key,
    ),
    call("$toInt", Single, convert::to_int),
    call("$toLong", Single, convert::to_long),
    call("$toLower", Exactly(1), string::to_lower),
    call("$toObject", Single, convert::to_object),
    call("$toObjectId", Single, convert::to_object_id),
    call("$toString", Single, convert::to_text),
    call("$toUUID", Single, convert::to_uuid),
    call("$toUpper", Exactly(1), string::to_upper),
    named(
        "$trim",
        50696,
        50694,
        &[("input", Some(50695)), ("chars", None)],
        string::trim,
    ),
    call("$trunc", Between(1, 2), arithmetic::trunc),
    call("$tsIncrement", Exactly(1), type_ops::ts_increment),
    call("$tsSecond", Exactly(1), type_ops::ts_second),
    call("$type", Exactly(1), type_ops::type_name),
    Entry::Form("$unsetField", object::parse_unset_field),
    date_part("$week", date::week),
    date_part("$year", date::year),
    Entry::Form("$zip", select::parse_zip),
];

/// The entry with this name; `None` if there is none.
pub fn find(name: &str) -> Option<&'static Entry> {
    TABLE
        .binary_search_by(|entry| entry.name().cmp(name))
        .ok()
        .map(|at| &TABLE[at])
}

/// Whether an expression operator has this name.
pub fn exists(name: &str) -> bool {
    find(name).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted() {
        for pair in TABLE.windows(2) {
            assert!(
                pair[0].name() < pair[1].name(),
                "{} {}",
                pair[0].name(),
                pair[1].name()
            );
        }
    }
}
