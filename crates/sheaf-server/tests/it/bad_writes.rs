//! Generated malformed writes: the right code, no change, and the other statements of a batch
//! executed as ordered or unordered requires.
//!
//! ```text
//!   a kind of mistake (a row of KINDS) x fields, values, harmless company, place in the batch, ordered or not
//!     ── update ──> code of its write error          ── findAndModify ──> code of the command
//! ```
//!
//! The kinds follow the manual's rules of each operator and option, one at a time.
//! `SHEAF_BAD_WRITES_SEED` and
//! `SHEAF_BAD_WRITES` (the number of batches) change the run; a failure names its seed.

use sheaf_bson::json::{parse, shell_doc};
use sheaf_bson::{ArrayBuf, DocBuf, DocBuilder, RawValue, Value, doc};
use sheaf_testkit::differential::setting;

use super::client::{Client, command};
use super::server::Server;

const BAD_VALUE: i64 = 2;
const FAILED_TO_PARSE: i64 = 9;
const TYPE_MISMATCH: i64 = 14;
const PATH_NOT_VIABLE: i64 = 28;
const CONFLICT: i64 = 40;
const DOLLAR_PREFIXED: i64 = 52;
const INVALID_ID: i64 = 53;
const EMPTY_NAME: i64 = 56;
const IMMUTABLE: i64 = 66;
const INVALID_OPTIONS: i64 = 72;
const DUPLICATE_KEY: i64 = 11000;

/// Documents 0 to 7 are targets of malformed statements, those from here on of valid ones.
const GOOD: i32 = 100;
const DOCUMENTS: i32 = 8;

/// A reproducible random number generator.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut n = self.0;
        n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        n ^ n >> 31
    }

    fn below(&mut self, n: usize) -> usize {
        (self.roll() % n as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn of<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
}

/// The fields of every document: one of each type.
const FIELDS: &str = "n: 5, l: NumberLong(7), d: 1.5, dec: NumberDecimal('2.5'), s: 'text', b: true, nul: null, \
    date: ISODate('2024-01-01T00:00:00Z'), id: ObjectId('0123456789abcdef01234567'), re: /a/, \
    big: NumberLong('9223372036854775807'), arr: [1, 2, 3], docs: [{x: 1, y: 2}, {x: 3, y: 4}], \
    sub: {x: 1, s: 'in', list: [1, 2]}, empty: {}, none: []";

const NUMERIC: &[&str] = &[
    "n", "l", "d", "dec", "sub.x", "arr.0", "docs.1.y", "missing", "sub.new",
];
const NOT_NUMERIC: &[&str] = &[
    "s", "b", "nul", "date", "id", "re", "arr", "docs", "sub", "empty", "none", "sub.s", "docs.0",
];
const ARRAYS: &[&str] = &["arr", "docs", "none", "sub.list"];
const NOT_ARRAYS: &[&str] = &[
    "n", "s", "b", "nul", "date", "sub", "empty", "sub.x", "arr.0", "docs.0.x",
];
const ANY_FIELD: &[&str] = &[
    "n", "s", "arr", "docs", "sub", "missing", "sub.x", "arr.1", "docs.0.x", "none.0",
];
const NOT_NUMBERS: &[&str] = &[
    "'1'",
    "null",
    "true",
    "[1]",
    "{x: 1}",
    "ISODate('2024-01-01T00:00:00Z')",
    "/a/",
    "ObjectId('0123456789abcdef01234567')",
];
const NOT_ARRAY_VALUES: &[&str] = &["1", "'x'", "null", "true", "{a: 1}", "1.5", "NumberLong(1)"];
const NOT_DOCUMENTS: &[&str] = &["1", "'x'", "null", "true", "[]", "[{a: 1}]", "1.5"];
const VALUES: &[&str] = &[
    "1",
    "'x'",
    "null",
    "true",
    "[1]",
    "{a: 1}",
    "1.5",
    "NumberLong(1)",
    "MinKey",
];
/// Operators that take a field and a value.
const FIELD_OPERATORS: &[&str] = &[
    "$set",
    "$setOnInsert",
    "$min",
    "$max",
    "$unset",
    "$push",
    "$addToSet",
];
const OPERATORS: &[&str] = &[
    "$set",
    "$setOnInsert",
    "$inc",
    "$mul",
    "$min",
    "$max",
    "$unset",
    "$rename",
    "$currentDate",
    "$push",
    "$addToSet",
    "$pop",
    "$pull",
    "$pullAll",
    "$bit",
];

/// The parts of a statement as text; its filter selects one document.
#[derive(Default)]
struct Bad {
    update: String,
    array_filters: Option<String>,
    /// Further parts of the filter.
    also: &'static str,
    /// Further options; if there are any, the mistake does not apply to findAndModify.
    options: &'static str,
    code: i64,
}

impl Bad {
    fn new(code: i64, update: String) -> Bad {
        Bad {
            update,
            code,
            ..Bad::default()
        }
    }

    fn filters(code: i64, update: &str, filters: &str) -> Bad {
        Bad {
            array_filters: Some(filters.to_owned()),
            ..Bad::new(code, update.to_owned())
        }
    }
}

type Kind = (&'static str, fn(&mut Dice) -> Bad);

/// One operator on one field, with a valid field before or after it.
fn on_field(dice: &mut Dice, code: i64, operator: &str, field: &str, argument: &str) -> Bad {
    let fields = match dice.below(4) {
        0 if operator != "$rename" => match operator {
            "$inc" | "$mul" => format!("'{field}': {argument}, other: 1"),
            "$min" | "$max" | "$set" | "$setOnInsert" | "$unset" => {
                format!("other: 1, '{field}': {argument}")
            }
            _ => format!("'{field}': {argument}"),
        },
        _ => format!("'{field}': {argument}"),
    };
    let wrong = format!("'{operator}': {{{fields}}}");
    // A valid operator does not make the invalid one acceptable, whatever their order.
    let (company, own) = match operator {
        "$set" => ("$max: {extra: 3}", "$max"),
        _ => ("$set: {extra: 3, 'more.of': [1]}", "$set"),
    };
    let update = match dice.below(3) {
        _ if own == operator => format!("{{{wrong}}}"),
        0 => format!("{{{company}, {wrong}}}"),
        1 => format!("{{{wrong}, {company}}}"),
        _ => format!("{{{wrong}}}"),
    };
    Bad::new(code, update)
}

const KINDS: &[Kind] = &[
    ("an operator that does not exist", |dice| {
        let name = dice.of(&[
            "$foo",
            "$inC",
            "$sets",
            "$each",
            "$position",
            "$slice",
            "$push ",
            "$where",
            "$",
        ]);
        let field = dice.of(ANY_FIELD);
        let update = match dice.below(2) {
            0 => format!("{{'{name}': {{'{field}': 1}}}}"),
            _ => format!("{{$set: {{extra: 1}}, '{name}': {{'{field}': 1}}}}"),
        };
        Bad::new(FAILED_TO_PARSE, update)
    }),
    ("an operator whose argument is no document", |dice| {
        let (name, argument) = (dice.of(OPERATORS), dice.of(NOT_DOCUMENTS));
        Bad::new(FAILED_TO_PARSE, format!("{{'{name}': {argument}}}"))
    }),
    ("fields after operators", |dice| {
        let (field, value) = (dice.of(&["a", "n", "x"]), dice.of(VALUES));
        Bad::new(
            FAILED_TO_PARSE,
            format!("{{$set: {{extra: 1}}, {field}: {value}}}"),
        )
    }),
    ("operators after fields", |dice| {
        let (name, value) = (dice.of(OPERATORS), dice.of(VALUES));
        Bad::new(
            DOLLAR_PREFIXED,
            format!("{{a: {value}, '{name}': {{b: 1}}}}"),
        )
    }),
    ("one path twice", |dice| {
        let (one, other) = (
            dice.of(FIELD_OPERATORS),
            dice.of(&["$inc", "$mul", "$currentDate"]),
        );
        let field = dice.of(ANY_FIELD);
        let argument = if other == "$currentDate" { "true" } else { "1" };
        let update = format!("{{'{one}': {{'{field}': 1}}, '{other}': {{'{field}': {argument}}}}}");
        Bad::new(CONFLICT, update)
    }),
    ("a path and what lies under it", |dice| {
        let (one, other) = (dice.of(FIELD_OPERATORS), dice.of(&["$inc", "$mul"]));
        let (above, below) = match dice.below(3) {
            0 => ("sub", "sub.x"),
            1 => ("docs.0", "docs.0.x.y"),
            _ => ("missing", "missing.a.b.c"),
        };
        let (above, below) = match dice.one_in(2) {
            true => (above, below),
            false => (below, above),
        };
        Bad::new(
            CONFLICT,
            format!("{{'{one}': {{'{above}': 1}}, '{other}': {{'{below}': 1}}}}"),
        )
    }),
    ("a number added to what is none", |dice| {
        let (operator, field) = (dice.of(&["$inc", "$mul"]), dice.of(NOT_NUMERIC));
        let number = dice.of(&["1", "1.5", "NumberLong(3)", "NumberDecimal('1')"]);
        on_field(dice, TYPE_MISMATCH, operator, field, number)
    }),
    ("what is no number, added", |dice| {
        let (operator, field) = (dice.of(&["$inc", "$mul"]), dice.of(NUMERIC));
        let argument = dice.of(NOT_NUMBERS);
        on_field(dice, TYPE_MISMATCH, operator, field, argument)
    }),
    ("more than a long holds", |dice| {
        let (operator, by) = match dice.below(3) {
            0 => ("$inc", "1"),
            1 => ("$inc", "NumberLong(2)"),
            _ => ("$mul", "2"),
        };
        on_field(dice, BAD_VALUE, operator, "big", by)
    }),
    ("an array operator on what is no array", |dice| {
        let (operator, argument) = match dice.below(4) {
            0 => ("$push", "1"),
            1 => ("$addToSet", "1"),
            2 => ("$pull", "1"),
            _ => ("$pullAll", "[1]"),
        };
        let field = dice.of(NOT_ARRAYS);
        on_field(dice, BAD_VALUE, operator, field, argument)
    }),
    ("$pop of what is no array", |dice| {
        let (field, end) = (dice.of(NOT_ARRAYS), dice.of(&["1", "-1"]));
        on_field(dice, TYPE_MISMATCH, "$pop", field, end)
    }),
    ("$pop of neither end", |dice| {
        let (field, end) = (
            dice.of(ARRAYS),
            dice.of(&["0", "2", "-2", "'1'", "null", "1.5", "true", "[]"]),
        );
        on_field(dice, FAILED_TO_PARSE, "$pop", field, end)
    }),
    ("$each of what is no array", |dice| {
        let (operator, field) = (dice.of(&["$push", "$addToSet"]), dice.of(ARRAYS));
        let argument = format!("{{$each: {}}}", dice.of(NOT_ARRAY_VALUES));
        let code = match operator {
            "$addToSet" => TYPE_MISMATCH,
            _ => BAD_VALUE,
        };
        on_field(dice, code, operator, field, &argument)
    }),
    ("modifiers of $push", |dice| {
        let field = dice.of(ARRAYS);
        let modifier = dice.of(&[
            "$foo: 1",
            "$slice: 'x'",
            "$slice: null",
            "$slice: 1.5",
            "$slice: [1]",
            "$position: 'x'",
            "$position: 1.5",
            "$position: null",
            "$sort: 0",
            "$sort: 'x'",
            "$sort: 2",
            "$sort: {}",
            "$sort: {x: 2}",
            "$sort: {x: 'y'}",
            "$sort: [1]",
            "$sort: {'': 1}",
            "$sort: {'x.': 1}",
            "field: 1",
        ]);
        let argument = format!("{{$each: [1], {modifier}}}");
        on_field(dice, BAD_VALUE, "$push", field, &argument)
    }),
    ("modifiers of $addToSet", |dice| {
        let field = dice.of(ARRAYS);
        let modifier = dice.of(&[
            "$slice: 1",
            "$sort: 1",
            "$position: 0",
            "$foo: 1",
            "field: 1",
        ]);
        on_field(
            dice,
            BAD_VALUE,
            "$addToSet",
            field,
            &format!("{{$each: [1], {modifier}}}"),
        )
    }),
    ("$pullAll of what is no array", |dice| {
        let (field, value) = (dice.of(ARRAYS), dice.of(NOT_ARRAY_VALUES));
        on_field(dice, BAD_VALUE, "$pullAll", field, value)
    }),
    ("$pull with a query that is none", |dice| {
        let field = dice.of(ARRAYS);
        let query = dice.of(&[
            "{$foo: 1}",
            "{$in: 1}",
            "{$gt: 1, $bar: 2}",
            "{x: {$foo: 1}}",
            "{$elemMatch: 5}",
        ]);
        on_field(dice, BAD_VALUE, "$pull", field, query)
    }),
    ("$rename", |dice| {
        let (from, to) = match dice.below(9) {
            0 => ("n", "1"),
            7 => ("sub", "'sub.under'"),
            8 => ("sub.x", "'sub'"),
            1 => ("n", "null"),
            2 => ("n", "'n'"),
            3 => ("docs.x", "'elsewhere'"),
            4 => ("n", "'docs.y'"),
            5 => ("arr.0", "'elsewhere'"),
            _ => ("n", "'arr.0'"),
        };
        on_field(dice, BAD_VALUE, "$rename", from, to)
    }),
    ("$currentDate", |dice| {
        let field = dice.of(&["n", "date", "missing", "sub.x"]);
        let argument = dice.of(&[
            "1",
            "'date'",
            "null",
            "{}",
            "{$type: 'time'}",
            "{$type: 9}",
            "{type: 'date'}",
            "[true]",
        ]);
        on_field(dice, BAD_VALUE, "$currentDate", field, argument)
    }),
    ("$bit with what it does not know", |dice| {
        let field = dice.of(&["n", "l", "missing"]);
        let argument = dice.of(&[
            "1",
            "'and'",
            "null",
            "{}",
            "{nand: 1}",
            "{and: 1.5}",
            "{or: 'x'}",
            "{xor: null}",
            "{and: NumberDecimal('1')}",
        ]);
        on_field(dice, BAD_VALUE, "$bit", field, argument)
    }),
    ("$bit of what is no integer", |dice| {
        let field = dice.of(&["d", "dec", "s", "b", "nul", "arr", "sub", "date"]);
        let argument = dice.of(&["{and: 1}", "{or: NumberLong(4)}", "{xor: 7}"]);
        on_field(dice, BAD_VALUE, "$bit", field, argument)
    }),
    ("a path with an empty name", |dice| {
        let path = dice.of(&["", "a.", ".a", "a..b", "sub.", ".", "sub..x", "a.b."]);
        let operator = dice.of(FIELD_OPERATORS);
        on_field(dice, EMPTY_NAME, operator, path, "1")
    }),
    ("a path with a dollar", |dice| {
        let path = dice.of(&["$a", "$inc", "$id"]);
        let operator = dice.of(&["$set", "$inc", "$min", "$max", "$mul"]);
        on_field(dice, DOLLAR_PREFIXED, operator, path, "1")
    }),
    ("a path through what has no fields", |dice| {
        let path = dice.of(&[
            "n.a", "s.a.b", "nul.a", "date.x", "sub.x.y", "arr.x", "docs.x", "arr.0.x", "docs.y.z",
        ]);
        let (operator, argument) = match dice.below(5) {
            0 => ("$set", "1"),
            1 => ("$inc", "1"),
            2 => ("$push", "1"),
            3 => ("$max", "'x'"),
            _ => ("$addToSet", "{a: 1}"),
        };
        on_field(dice, PATH_NOT_VIABLE, operator, path, argument)
    }),
    ("the _id", |dice| {
        let update = dice.of(&[
            "{$set: {_id: 77}}",
            "{$inc: {_id: 1}}",
            "{$unset: {_id: ''}}",
            "{$rename: {_id: 'x'}}",
            "{$rename: {s: '_id'}}",
            "{$max: {_id: 7777}}",
            "{$currentDate: {_id: true}}",
            "{_id: 77, a: 1}",
            "{a: 1, _id: 'other'}",
            "{$set: {a: 1, _id: 77}}",
            "[{$set: {_id: 77}}]",
            "[{$replaceWith: {_id: 77}}]",
            "[{$set: {extra: 1}}, {$set: {_id: 'x'}}]",
        ]);
        Bad::new(IMMUTABLE, update.to_owned())
    }),
    ("an _id of a wrong kind", |dice| {
        let (code, update) = match dice.below(3) {
            0 => (INVALID_ID, "{_id: [1], a: 1}"),
            1 => (INVALID_ID, "{_id: /x/}"),
            _ => (DOLLAR_PREFIXED, "{_id: {$x: 1}}"),
        };
        Bad::new(code, update.to_owned())
    }),
    ("array filters that fit nothing", |dice| {
        let update = dice.of(&[
            "{$set: {n: 1}}",
            "{$set: {'arr.$[]': 1}}",
            "{$set: {'arr.$[y]': 1}}",
        ]);
        let filters = match update.contains("$[y]") {
            true => "[{y: 1}, {x: 1}]",
            false => "[{x: 1}]",
        };
        Bad::filters(FAILED_TO_PARSE, update, filters)
    }),
    ("an identifier without a filter", |dice| {
        let path = dice.of(&["arr.$[x]", "docs.$[x].y", "sub.list.$[x]"]);
        let update = format!("{{$set: {{'{path}': 1}}}}");
        match dice.below(2) {
            0 => Bad::new(BAD_VALUE, update),
            _ => Bad::filters(BAD_VALUE, &update, "[]"),
        }
    }),
    ("array filters that are none", |dice| {
        let filters = dice.of(&[
            "[{}]",
            "[{x: 1}, {x: 2}]",
            "[{'x.a': 1, y: 1}]",
            "[{$or: [{x: 1}, {y: 1}]}]",
            "[{x: 1}, {'x.y': 2}]",
        ]);
        Bad::filters(FAILED_TO_PARSE, "{$set: {'arr.$[x]': 1}}", filters)
    }),
    ("identifiers that are none", |dice| {
        let name = dice.of(&["X", "1a", "Abc", "_x", "a-b"]);
        let update = format!("{{$set: {{'arr.$[{name}]': 1}}}}");
        Bad::filters(BAD_VALUE, &update, &format!("[{{'{name}': 1}}]"))
    }),
    ("array filters of an update without operators", |dice| {
        let update = dice.of(&["{a: 1}", "[{$set: {a: 1}}]"]);
        Bad::filters(FAILED_TO_PARSE, update, "[{x: 1}]")
    }),
    ("every element of what is no array", |dice| {
        let path = dice.of(&[
            "n.$[]",
            "s.$[]",
            "sub.$[]",
            "missing.$[]",
            "missing.$[].x",
            "docs.$[].x.$[]",
        ]);
        let operator = dice.of(&["$set", "$inc", "$max"]);
        on_field(dice, BAD_VALUE, operator, path, "1")
    }),
    ("$ without an array in the filter", |dice| {
        let path = dice.of(&["arr.$", "docs.$.x", "sub.list.$"]);
        let operator = dice.of(&["$set", "$inc", "$mul"]);
        on_field(dice, BAD_VALUE, operator, path, "1")
    }),
    ("$ twice, or in front", |dice| {
        let path = dice.of(&["arr.$.a.$", "$", "$.x", "docs.$.y.$"]);
        Bad {
            also: ", arr: 1",
            ..Bad::new(BAD_VALUE, format!("{{$set: {{'{path}': 1}}}}"))
        }
    }),
    ("stages that updates do not have", |dice| {
        let stage = dice.of(&[
            "{$match: {}}",
            "{$group: {_id: 1}}",
            "{$sort: {a: 1}}",
            "{$limit: 1}",
            "{$unwind: '$arr'}",
            "{$lookup: {from: 'x', localField: 'a', foreignField: 'b', as: 'c'}}",
            "{$out: 'x'}",
            "{$count: 'x'}",
        ]);
        let update = match dice.below(2) {
            0 => format!("[{stage}]"),
            _ => format!("[{{$set: {{extra: 1}}}}, {stage}]"),
        };
        Bad::new(INVALID_OPTIONS, update)
    }),
    ("stages that are none", |dice| {
        let (code, stage) = match dice.below(5) {
            0 => (40324, "{$foo: 1}"),
            1 => (40323, "{$set: {a: 1}, $unset: 'b'}"),
            2 => (40323, "{}"),
            3 => (40272, "{$set: 5}"),
            _ => (40272, "{$addFields: 'x'}"),
        };
        Bad::new(code, format!("[{stage}]"))
    }),
    ("expressions that fail", |dice| {
        let (code, expression) = match dice.below(4) {
            0 => (168, "{$foo: 1}"),
            1 => (TYPE_MISMATCH, "{$add: ['$s', 1]}"),
            2 => (16020, "{$subtract: ['$n', 1, 2]}"),
            _ => (TYPE_MISMATCH, "{$multiply: ['$sub', 2]}"),
        };
        Bad::new(
            code,
            format!("[{{$set: {{extra: 1}}}}, {{$set: {{n: {expression}}}}}]"),
        )
    }),
    ("a replacement that is no document", |dice| {
        let of = dice.of(&["'$n'", "'$arr'", "'$missing'", "5", "'$s'"]);
        let update = match dice.below(2) {
            0 => format!("[{{$replaceWith: {of}}}]"),
            _ => format!("[{{$replaceRoot: {{newRoot: {of}}}}}]"),
        };
        Bad::new(40228, update)
    }),
    ("replacing many", |_| Bad {
        options: ", multi: true",
        ..Bad::new(FAILED_TO_PARSE, "{a: 1}".to_owned())
    }),
    ("a hint to an index that is not there", |dice| Bad {
        options: match dice.below(2) {
            0 => ", hint: 'nosuch'",
            _ => ", hint: {nosuch: 1}",
        },
        ..Bad::new(BAD_VALUE, "{$set: {extra: 1}}".to_owned())
    }),
    ("a filter that is none", |dice| {
        let also = match dice.below(6) {
            0 => ", n: {$foo: 1}",
            1 => ", $and: []",
            2 => ", $or: 5",
            3 => ", n: {$in: 1}",
            4 => ", $nor: [1]",
            _ => ", n: {$mod: [0, 1]}",
        };
        Bad {
            also,
            ..Bad::new(BAD_VALUE, "{$set: {extra: 1}}".to_owned())
        }
    }),
    ("a unique key that another has", |dice| {
        let update = dice.of(&["{$set: {u: 1000}}", "{$inc: {u: 1}}", "[{$set: {u: 1000}}]"]);
        Bad::new(
            DUPLICATE_KEY,
            update.replace("{$inc: {u: 1}}", "{$max: {u: 1000}}"),
        )
    }),
    ("an array that would be far too long", |dice| {
        let path = dice.of(&["arr.1500004", "none.2000000", "sub.list.1600000"]);
        on_field(dice, 34, "$set", path, "1")
    }),
];

fn value(text: &str) -> Value {
    parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// The state: every document of the collection, in order.
fn documents(client: &mut Client) -> Vec<String> {
    let found = client.ok(&command("{find: 'c', sort: {_id: 1}, batchSize: 1000}"));
    let cursor = found.as_raw().get("cursor").and_then(|c| c.as_document());
    let batch = cursor.and_then(|cursor| cursor.get("firstBatch")?.as_array());
    let shown = |value| match value {
        RawValue::Document(doc) => shell_doc(doc),
        other => panic!("{other:?}"),
    };
    batch.expect("a batch").iter().map(shown).collect()
}

fn prepare(client: &mut Client) {
    for id in 0..DOCUMENTS {
        let insert = format!("{{insert: 'c', documents: [{{_id: {id}, u: {id}, {FIELDS}}}]}}");
        client.ok(&command(&insert));
    }
    for id in GOOD..GOOD + 4 {
        let insert = format!(
            "{{insert: 'c', documents: [{{_id: {id}, u: {}, good: 0}}]}}",
            id + 900
        );
        client.ok(&command(&insert));
    }
    let indexes = "{createIndexes: 'c', indexes: [{key: {u: 1}, name: 'u', unique: true}, {key: {n: 1, s: -1}, \
        name: 'ns'}, {key: {'docs.x': 1}, name: 'dx'}, {key: {arr: 1}, name: 'arr'}, {key: {'$**': 1}, name: 'all'}]}";
    client.ok(&command(indexes));
}

/// Checks that every index equals one rebuilt from the documents.
fn assert_valid(client: &mut Client) {
    let report = client.ok(&command("{validate: 'c', full: true}"));
    assert!(
        matches!(report.get("valid"), Some(RawValue::Boolean(true))),
        "{report}"
    );
}

fn log_bytes(client: &mut Client) -> f64 {
    client.ok(&command("{fsync: 1, $db: 'admin'}"));
    let status = client.ok(&command("{serverStatus: 1}"));
    let engine = status.as_raw().get("sheaf").and_then(|s| s.as_document());
    let bytes = engine.and_then(|engine| engine.get("logBytes")?.as_f64());
    bytes.expect("the engine's log")
}

/// Index and code of each write error.
fn write_errors(reply: &DocBuf) -> Vec<(usize, i64)> {
    let errors = reply.as_raw().get("writeErrors").and_then(|e| e.as_array());
    let error = |value| match value {
        RawValue::Document(error) => {
            let number = |name| error.get(name).and_then(|v| v.as_i64_exact());
            let message = error.get("errmsg").and_then(|v| v.as_str());
            assert!(message.is_some_and(|m| !m.is_empty()), "{error}");
            (number("index").unwrap() as usize, number("code").unwrap())
        }
        other => panic!("{other:?}"),
    };
    errors.map_or_else(Vec::new, |errors| errors.iter().map(error).collect())
}

/// A batch with some malformed statements: the documents, the expected error of each, and how many
/// of the others are executed.
struct Batch {
    ordered: bool,
    statements: Vec<(DocBuf, Option<i64>)>,
    shown: Vec<String>,
}

impl Batch {
    fn expected_errors(&self) -> Vec<(usize, i64)> {
        let all = self.statements.iter().enumerate();
        let errors = all.filter_map(|(at, (_, code))| Some((at, (*code)?)));
        errors
            .take(if self.ordered { 1 } else { usize::MAX })
            .collect()
    }

    /// The number of valid statements that are executed.
    fn expected_done(&self) -> usize {
        let up_to = match (self.ordered, self.expected_errors().first()) {
            (true, Some((at, _))) => *at,
            _ => self.statements.len(),
        };
        let done = &self.statements[..up_to];
        done.iter().filter(|(_, code)| code.is_none()).count()
    }

    fn command(&self, name: &str, list: &str) -> DocBuf {
        let mut out = DocBuilder::new();
        out.append(name, "c");
        out.begin_array(list);
        for (statement, _) in &self.statements {
            out.push_document_bytes(statement.as_bytes());
        }
        out.end();
        out.append("ordered", self.ordered);
        out.append("$db", "test");
        out.finish()
    }
}

fn update_statement(bad: &Bad, id: usize) -> DocBuf {
    let text = format!("{{q: {{_id: {id}{}}}{}}}", bad.also, bad.options);
    let mut out = match value(&text) {
        Value::Document(doc) => DocBuilder::from_doc(doc.as_raw()),
        other => panic!("{other:?}"),
    };
    out.append_value("u", &value(&bad.update));
    if let Some(filters) = &bad.array_filters {
        out.append_value("arrayFilters", &value(filters));
    }
    out.finish()
}

#[test]
fn malformed_updates_change_nothing() {
    let server = Server::start();
    let mut client = server.client();
    prepare(&mut client);
    let seed = setting("SHEAF_BAD_WRITES_SEED", 1);
    let batches = setting("SHEAF_BAD_WRITES", 500);
    let before = documents(&mut client);
    let mut wrong: Vec<String> = Vec::new();
    let (mut malformed, mut good) = (0, 0);
    for number in 0..batches {
        let dice = &mut Dice(seed + number);
        let mut batch = Batch {
            ordered: dice.one_in(2),
            statements: Vec::new(),
            shown: Vec::new(),
        };
        for place in 0..1 + dice.below(6) {
            if dice.one_in(3) {
                let statement = doc! {"q": {"_id": GOOD}, "u": {"$inc": {"good": 1}}};
                batch.statements.push((statement, None));
                batch.shown.push("(in order)".into());
                continue;
            }
            // Every kind occurs, whatever the random numbers.
            let at = match place {
                0 => number as usize % KINDS.len(),
                _ => dice.below(KINDS.len()),
            };
            let (kind, make) = KINDS[at];
            let bad = make(dice);
            let id = dice.below(DOCUMENTS as usize);
            let statement = update_statement(&bad, id);
            batch
                .shown
                .push(format!("{kind}: {}", shell_doc(statement.as_raw())));
            // findAndModify reports what a single statement reports.
            if bad.options.is_empty() {
                let find = doc! {"findAndModify": "c", "$db": "test", "query": statement.get("q").unwrap()};
                let mut find = DocBuilder::from_doc(find.as_raw());
                find.append_value("update", &value(&bad.update));
                if let Some(filters) = &bad.array_filters {
                    find.append_value("arrayFilters", &value(filters));
                }
                let reply = client.run(&find.finish());
                if reply.is_ok() || reply.code() != bad.code {
                    wrong.push(format!(
                        "seed {}, findAndModify, {kind}, wanted {}: {}\n    {}",
                        seed + number,
                        bad.code,
                        shell_doc(statement.as_raw()),
                        shell_doc(reply.body.as_raw())
                    ));
                }
            }
            malformed += 1;
            batch.statements.push((statement, Some(bad.code)));
        }
        let reply = client.run(&batch.command("update", "updates"));
        let done = batch.expected_done();
        good += done as i64;
        let said = reply.body.get("nModified").and_then(|n| n.as_i64_exact());
        let errors = write_errors(&reply.body);
        if !reply.is_ok() || errors != batch.expected_errors() || said != Some(done as i64) {
            wrong.push(format!(
                "seed {}, ordered {}, wanted {:?} and {done} done: {}\n    {}",
                seed + number,
                batch.ordered,
                batch.expected_errors(),
                batch.shown.join("\n    "),
                shell_doc(reply.body.as_raw())
            ));
        }
        assert!(wrong.len() < 40, "{}", wrong.join("\n"));
    }
    let mut expected = before.clone();
    for doc in &mut expected {
        if doc.contains(&format!("_id: {GOOD},")) {
            *doc = doc.replace("good: 0", &format!("good: {good}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert_eq!(documents(&mut client), expected);
    assert_valid(&mut client);
    assert!(
        malformed > batches && good > 0,
        "{malformed} malformed, {good} in order"
    );

    // Malformed statements log no bytes.
    let before = log_bytes(&mut client);
    for (at, (kind, make)) in KINDS.iter().enumerate() {
        let bad = make(&mut Dice(seed + at as u64));
        let batch = Batch {
            ordered: false,
            statements: vec![(update_statement(&bad, 1), Some(bad.code))],
            shown: Vec::new(),
        };
        let reply = client.run(&batch.command("update", "updates"));
        assert_eq!(
            write_errors(&reply.body),
            [(0, bad.code)],
            "{kind}: {:?}",
            reply.body
        );
    }
    assert_eq!(log_bytes(&mut client), before);
    assert_eq!(documents(&mut client), expected);
}

#[test]
fn malformed_deletes_and_inserts_change_nothing() {
    let server = Server::start();
    let mut client = server.client();
    prepare(&mut client);
    let before = documents(&mut client);
    let seed = setting("SHEAF_BAD_WRITES_SEED", 1);
    let mut wrong: Vec<String> = Vec::new();
    let mut inserted = 0;
    for number in 0..setting("SHEAF_BAD_WRITES", 500) {
        let dice = &mut Dice(seed + number);
        let deletes = dice.one_in(2);
        let mut batch = Batch {
            ordered: dice.one_in(2),
            statements: Vec::new(),
            shown: Vec::new(),
        };
        for place in 0..1 + dice.below(5) {
            let (text, code) = match (deletes, dice.one_in(3)) {
                (true, true) => ("{q: {_id: 'nobody'}, limit: 1}".to_owned(), None),
                (true, false) => {
                    let (query, code) = match dice.below(12) {
                        0 => ("{n: {$foo: 1}}", BAD_VALUE),
                        1 => ("{$and: []}", BAD_VALUE),
                        2 => ("{$or: {}}", BAD_VALUE),
                        3 => ("{$nor: [1]}", BAD_VALUE),
                        4 => ("{n: {$in: 5}}", BAD_VALUE),
                        5 => ("{n: {$nin: {}}}", BAD_VALUE),
                        6 => ("{n: {$elemMatch: 1}}", BAD_VALUE),
                        7 => ("{n: {$mod: [0, 1]}}", BAD_VALUE),
                        8 => ("{$foo: 1}", BAD_VALUE),
                        9 => ("{n: {$not: 5}}", BAD_VALUE),
                        10 => ("{s: {$regex: 5}}", BAD_VALUE),
                        _ => ("{n: {$type: 'nosuch'}}", BAD_VALUE),
                    };
                    let limit = dice.of(&["0", "1"]);
                    let hint = match dice.below(5) {
                        0 => ", collation: {locale: 'en'}",
                        _ => "",
                    };
                    (format!("{{q: {query}, limit: {limit}{hint}}}"), Some(code))
                }
                (false, true) => {
                    inserted += 1;
                    let id = number * 10 + place as u64;
                    (
                        format!("{{_id: 'in order {id}', u: 'in order {id}'}}"),
                        None,
                    )
                }
                (false, false) => match dice.below(6) {
                    0 => ("{_id: [1, 2]}".to_owned(), Some(INVALID_ID)),
                    1 => ("{_id: /a/}".to_owned(), Some(INVALID_ID)),
                    2 => ("{a: 1, _id: {$x: 1}}".to_owned(), Some(DOLLAR_PREFIXED)),
                    3 => (format!("{{_id: {}}}", dice.below(8)), Some(DUPLICATE_KEY)),
                    4 => (format!("{{u: {}}}", dice.below(8)), Some(DUPLICATE_KEY)),
                    _ => ("{_id: 'p', arr: [1], n: [1], s: [2]}".to_owned(), Some(171)),
                },
            };
            let Value::Document(statement) = value(&text) else {
                panic!("{text}");
            };
            batch.shown.push(text);
            batch.statements.push((statement, code));
        }
        let (name, list) = match deletes {
            true => ("delete", "deletes"),
            false => ("insert", "documents"),
        };
        let reply = client.run(&batch.command(name, list));
        let n = reply.body.get("n").and_then(|n| n.as_i64_exact());
        let done = if deletes { 0 } else { batch.expected_done() };
        if !reply.is_ok()
            || write_errors(&reply.body) != batch.expected_errors()
            || n != Some(done as i64)
        {
            wrong.push(format!(
                "seed {}, {name}, ordered {}, wanted {:?} and {done} done: {}\n    {}",
                seed + number,
                batch.ordered,
                batch.expected_errors(),
                batch.shown.join("\n    "),
                shell_doc(reply.body.as_raw())
            ));
        }
        assert!(wrong.len() < 40, "{}", wrong.join("\n"));
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(inserted > 0);
    assert_valid(&mut client);
    let clean = doc! {"delete": "c", "$db": "test", "deletes": [{"q": {"_id": {"$type": "string"}}, "limit": 0}]};
    client.ok(&clean);
    assert_eq!(documents(&mut client), before);
}

/// A malformed request is refused before any of its statements is executed.
#[test]
fn a_malformed_request_executes_no_statement() {
    let server = Server::start();
    let mut client = server.client();
    prepare(&mut client);
    let (before, logged) = (documents(&mut client), log_bytes(&mut client));
    let good = [
        "{q: {_id: 100}, u: {$inc: {good: 1}}}",
        "{q: {_id: 100}, limit: 1}",
        "{_id: 500}",
    ];
    let rows: &[(usize, &str, i64)] = &[
        (0, "{q: {_id: 1}}", 40414),
        (0, "{u: {$set: {n: 1}}}", 40414),
        (0, "{q: 1, u: {$set: {n: 1}}}", TYPE_MISMATCH),
        (0, "{q: {}, u: {$set: {n: 1}}, multi: 'x'}", TYPE_MISMATCH),
        (0, "{q: {}, u: {$set: {n: 1}}, upsert: {}}", TYPE_MISMATCH),
        (0, "{q: {}, u: {$set: {n: 1}}, nosuch: 1}", 40415),
        (
            0,
            "{q: {}, u: {$set: {n: 1}}, arrayFilters: {x: 1}}",
            TYPE_MISMATCH,
        ),
        (0, "{q: {}, u: {$set: {n: 1}}, collation: 5}", TYPE_MISMATCH),
        (0, "5", TYPE_MISMATCH),
        (1, "{q: {_id: 1}}", 40414),
        (1, "{limit: 1}", 40414),
        (1, "{q: {_id: 1}, limit: 2}", FAILED_TO_PARSE),
        (1, "{q: [], limit: 1}", TYPE_MISMATCH),
        (1, "{q: {_id: 1}, limit: 1, nosuch: 1}", 40415),
        (2, "5", TYPE_MISMATCH),
    ];
    for (kind, statement, code) in rows {
        let (name, list) = [
            ("update", "updates"),
            ("delete", "deletes"),
            ("insert", "documents"),
        ][*kind];
        for ordered in [true, false] {
            let text = format!(
                "{{{name}: 'c', {list}: [{}, {statement}], ordered: {ordered}}}",
                good[*kind]
            );
            let reply = client.run(&command(&text));
            let got = (reply.is_ok(), reply.code());
            assert_eq!(got, (false, *code), "{text}: {:?}", reply.body);
        }
    }
    let empty: ArrayBuf = ArrayBuf::new();
    for (name, list) in [
        ("update", "updates"),
        ("delete", "deletes"),
        ("insert", "documents"),
    ] {
        let none = doc! {name: "c", list: empty.clone(), "$db": "test"};
        assert_eq!(client.run(&none).code(), 16, "{name}");
        let ordered = doc! {name: "c", list: empty.clone(), "ordered": "yes", "$db": "test"};
        assert_eq!(client.run(&ordered).code(), TYPE_MISMATCH, "{name}");
    }
    assert_eq!(documents(&mut client), before);
    assert_eq!(log_bytes(&mut client), logged);
}
