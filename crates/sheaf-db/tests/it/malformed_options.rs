//! Thousands of malformed options of create and collMod, from a seed. Each has one fault, whose
//! code the tables below give, and is refused without changing anything.
//!
//! ```text
//!   valid options ─ one fault, in an option or nested in a schema ─> code
//! ```

use sheaf_bson::json::parse;
use sheaf_bson::{DocBuf, DocBuilder, RawDoc, Value, doc};
use sheaf_db::ddl::coll_mod::CollMod;
use sheaf_db::{CollectionOptions, Events};

use crate::support::{EngineKind, TestDb, ns};

const ROUNDS: u64 = 4000;

/// A small random number generator: the same seed gives the same faults everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % limit
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}

/// Faulty schemas and their codes.
const SCHEMAS: &[(&str, i32)] = &[
    ("{foo: 1}", 9),
    ("{$ref: '#'}", 9),
    ("{default: 1}", 9),
    ("{format: 'x'}", 9),
    ("{encrypt: {}, type: 'string'}", 9),
    ("{encrypt: 1}", 14),
    ("{encryptMetadata: {}}", 9),
    ("{type: 1}", 14),
    ("{type: 'integer'}", 9),
    ("{type: 'int'}", 2),
    ("{bsonType: 'foo'}", 2),
    ("{type: []}", 9),
    ("{type: 'string', bsonType: 'string'}", 9),
    ("{minimum: 'x'}", 14),
    ("{exclusiveMinimum: true}", 9),
    ("{maximum: 1, exclusiveMaximum: 1}", 14),
    ("{multipleOf: 0}", 9),
    ("{multipleOf: null}", 14),
    ("{minLength: -1}", 9),
    ("{maxItems: 1.5}", 9),
    ("{minProperties: 'x'}", 9),
    ("{pattern: 1}", 14),
    ("{pattern: '('}", 51091),
    ("{uniqueItems: 1}", 14),
    ("{items: 1}", 14),
    ("{additionalItems: 1}", 14),
    ("{properties: []}", 14),
    ("{properties: {a: 1}}", 14),
    ("{patternProperties: {'(': {}}}", 51091),
    ("{additionalProperties: 'x'}", 14),
    ("{required: []}", 9),
    ("{required: ['a', 'a']}", 9),
    ("{required: 'a'}", 14),
    ("{dependencies: {a: 1}}", 14),
    ("{dependencies: {a: []}}", 9),
    ("{enum: []}", 9),
    ("{enum: [1, 1.0]}", 9),
    ("{allOf: []}", 2),
    ("{anyOf: {}}", 14),
    ("{oneOf: [1]}", 14),
    ("{not: []}", 14),
    ("{title: 1}", 14),
];

/// Faulty filters and their codes.
const FILTERS: &[(&str, i32)] = &[
    ("{$foo: 1}", 2),
    ("{a: {$foo: 1}}", 2),
    ("{a: {$in: 1}}", 2),
    ("{a: {$type: 'foo'}}", 2),
    ("{a: {$type: []}}", 9),
    ("{a: {$mod: [0, 1]}}", 2),
    ("{a: {$elemMatch: 1}}", 2),
    ("{a: {$elemMatch: {$jsonSchema: {}}}}", 2),
    ("{$and: []}", 2),
    ("{$or: [1]}", 2),
    ("{$jsonSchema: 1}", 14),
    ("{$where: 'x'}", 2),
    ("{$text: {$search: 'x'}}", 2),
    ("{a: {$near: [1, 2]}}", 2),
    ("{a: {$nearSphere: [1, 2]}}", 2),
    (
        "{$expr: {$function: {body: 'x', args: [], lang: 'js'}}}",
        224,
    ),
];

fn value(text: &str) -> Value {
    parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// The faulty schema nested in valid ones.
fn schema(random: &mut Random, depth: usize) -> (String, i32) {
    if depth == 0 || random.below(3) == 0 {
        let (text, code) = SCHEMAS[random.below(SCHEMAS.len())];
        return (text.to_owned(), code);
    }
    let (inner, code) = schema(random, depth - 1);
    let around = random.pick(&[
        "{properties: {a: @, b: {type: 'string'}}}",
        "{patternProperties: {'^x': @}}",
        "{additionalProperties: @}",
        "{items: @}",
        "{items: [{}, @]}",
        "{items: [{}], additionalItems: @}",
        "{allOf: [{minimum: 1}, @]}",
        "{anyOf: [@, {}]}",
        "{oneOf: [{}, @]}",
        "{not: @}",
        "{dependencies: {a: @}}",
        "{title: 't', required: ['a'], not: @}",
    ]);
    (around.replace('@', &inner), code)
}

fn filter(random: &mut Random, depth: usize) -> (String, i32) {
    if depth == 0 || random.below(3) == 0 {
        return match random.below(2) {
            0 => {
                let (schema, code) = schema(random, 4);
                (format!("{{$jsonSchema: {schema}}}"), code)
            }
            _ => {
                let (text, code) = FILTERS[random.below(FILTERS.len())];
                (text.to_owned(), code)
            }
        };
    }
    let (inner, code) = filter(random, depth - 1);
    let around = random.pick(&[
        "{$and: [{a: 1}, @]}",
        "{$or: [@, {b: {$gt: 5}}]}",
        "{$nor: [@]}",
    ]);
    (around.replace('@', &inner), code)
}

/// A value of a type that no option accepts, except `but`.
fn odd(random: &mut Random, but: &str) -> String {
    loop {
        let value = random.pick(&[
            "1",
            "'x'",
            "[1]",
            "{z: 1}",
            "true",
            "ObjectId('0123456789abcdef01234567')",
        ]);
        let kind = match value.as_bytes()[0] {
            b'1' => "number",
            b'\'' => "string",
            b'[' => "array",
            b'{' => "document",
            b't' => "bool",
            _ => "other",
        };
        if !but.contains(kind) {
            return value.to_owned();
        }
    }
}

/// One option with a fault, as a field, and its code: the faults that both commands share.
fn shared_fault(random: &mut Random) -> (String, String, i32) {
    let of = |name: &str, value: String, code| (name.to_owned(), value, code);
    match random.below(8) {
        0 => of("validator", odd(random, "document"), 14),
        1 | 2 | 3 => {
            let (filter, code) = filter(random, 3);
            of("validator", filter, code)
        }
        4 => match random.below(2) {
            0 => of("validationLevel", odd(random, "string"), 14),
            _ => of(
                "validationLevel",
                random.pick(&["'Strict'", "''", "'error'"]).to_owned(),
                2,
            ),
        },
        5 => match random.below(2) {
            0 => of("validationAction", odd(random, "string"), 14),
            _ => of(
                "validationAction",
                random.pick(&["'Error'", "''", "'log'"]).to_owned(),
                2,
            ),
        },
        6 => match random.below(4) {
            0 => of("changeStreamPreAndPostImages", odd(random, "document"), 14),
            1 => of("changeStreamPreAndPostImages", "{}".into(), 40414),
            2 => of("changeStreamPreAndPostImages", "{enabled: 'x'}".into(), 14),
            _ => of(
                "changeStreamPreAndPostImages",
                "{enabled: true, x: 1}".into(),
                40415,
            ),
        },
        _ => {
            let name = format!("unknown{}", random.below(1000));
            let value = odd(random, "");
            (name, value, 40415)
        }
    }
}

fn create_fault(random: &mut Random) -> (Vec<(String, String)>, i32) {
    let one = |name: &str, value: &str, code| (vec![(name.to_owned(), value.to_owned())], code);
    let capped = |name: &str, value: String, code| {
        let mut fields = vec![("capped".to_owned(), "true".to_owned())];
        if name != "size" {
            fields.push(("size".into(), "4096".into()));
        }
        fields.push((name.into(), value));
        (fields, code)
    };
    match random.below(14) {
        0 => one("capped", "true", 72),
        1 => one("capped", &odd(random, "bool number"), 14),
        2 => capped("size", odd(random, "number"), 14),
        3 => {
            let size = random.pick(&["0", "-1", "NumberLong('1125899906842625')", "-5.5"]);
            capped("size", size.to_owned(), 2)
        }
        4 => capped("max", odd(random, "number"), 14),
        5 => capped("max", "NumberLong('2147483648')".into(), 2),
        6 => one("size", "4096", 72),
        7 => one("max", "4", 72),
        8 => one("collation", &odd(random, "document"), 14),
        9 => one("collation", "{locale: 'no such'}", 2),
        10 => one("idIndex", &odd(random, "document"), 14),
        11 => one("expireAfterSeconds", "5", 72),
        12 => one("storageEngine", &odd(random, "document"), 14),
        _ => {
            let (name, value, code) = shared_fault(random);
            (vec![(name, value)], code)
        }
    }
}

fn coll_mod_fault(random: &mut Random) -> (Vec<(String, String)>, i32) {
    let one = |name: &str, value: &str, code| (vec![(name.to_owned(), value.to_owned())], code);
    match random.below(14) {
        0 => one("index", &odd(random, "document"), 14),
        1 => one("index", "{}", 72),
        2 => one("index", "{name: 'a_1'}", 72),
        3 => one(
            "index",
            "{name: 'a_1', keyPattern: {a: 1}, hidden: true}",
            72,
        ),
        4 => one("index", "{name: 1, hidden: true}", 14),
        5 => one("index", "{name: 'a_1', hidden: 'x'}", 14),
        6 => one("index", "{name: 'none', hidden: true}", 27),
        7 => one("index", "{name: 'a_1', foo: 1}", 40415),
        8 => one("index", "{name: 'a_1', unique: true}", 72),
        9 => one("index", "{name: 'a_1', unique: false}", 2),
        10 => one("cappedSize", "5000", 72),
        11 => one("dryRun", "true", 72),
        12 => one(
            random.pick(&["viewOn", "pipeline", "timeseries"]),
            "'x'",
            72,
        ),
        _ => {
            let (name, value, code) = shared_fault(random);
            (vec![(name, value)], code)
        }
    }
}

/// The fields of the fault, with valid fields before and after them.
fn request(random: &mut Random, faulty: &[(String, String)]) -> DocBuf {
    const GOOD: [(&str, &str); 3] = [
        ("validationLevel", "'moderate'"),
        ("validationAction", "'warn'"),
        ("changeStreamPreAndPostImages", "{enabled: true}"),
    ];
    let mut fields: Vec<(String, String)> = faulty.to_vec();
    for (name, value) in GOOD {
        if random.below(2) == 0 && faulty.iter().all(|(own, _)| own != name) {
            let at = random.below(fields.len() + 1);
            fields.insert(at, (name.into(), value.into()));
        }
    }
    let mut out = DocBuilder::new();
    for (name, text) in &fields {
        out.append_value(name, &value(text));
    }
    out.finish()
}

#[test]
fn create_refuses_and_creates_nothing() {
    let t = TestDb::new(EngineKind::Memory, Events::default());
    let mut random = Random(0x5eed_0001);
    for round in 0..ROUNDS {
        let (faulty, code) = create_fault(&mut random);
        let request = request(&mut random, &faulty);
        let made = CollectionOptions::parse(request.as_raw())
            .and_then(|options| t.db.create_collection(&t.op, &ns("c"), options));
        match made {
            Err(error) => assert_eq!(error.code().0, code, "round {round}: {request}: {error}"),
            Ok(_) => panic!("round {round}: {request} was accepted; expected the code {code}"),
        }
        assert!(t.db.catalog().collection(&ns("c")).is_none(), "{request}");
    }
}

#[test]
fn coll_mod_refuses_and_changes_nothing() {
    let t = TestDb::new(EngineKind::Memory, Events::default());
    t.insert("c", doc! {"_id": 1, "a": 1}).unwrap();
    t.create_index("c", doc! {"a": 1}, doc! {}).unwrap();
    let shape = |t: &TestDb| {
        let collection = t.collection("c");
        let indexes: Vec<DocBuf> = collection
            .index_list()
            .iter()
            .map(|i| i.spec().to_doc())
            .collect();
        (
            collection.options().to_doc(),
            indexes,
            collection.generation(),
        )
    };
    let before = shape(&t);
    let mut random = Random(0x5eed_0002);
    for round in 0..ROUNDS {
        let (faulty, code) = coll_mod_fault(&mut random);
        let request = request(&mut random, &faulty);
        let changed = change(&t, request.as_raw());
        match changed {
            Err(error) => assert_eq!(error.code().0, code, "round {round}: {request}: {error}"),
            Ok(_) => panic!("round {round}: {request} was accepted; expected the code {code}"),
        }
    }
    assert_eq!(shape(&t), before);
    assert_eq!(t.documents("c"), [doc! {"_id": 1, "a": 1}]);
}

fn change(t: &TestDb, request: RawDoc<'_>) -> sheaf_bson::Result<()> {
    let parsed = CollMod::parse(request)?;
    t.db.coll_mod(&t.op, &ns("c"), &parsed).map(|_| ())
}
