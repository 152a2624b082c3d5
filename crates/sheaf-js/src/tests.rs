//! Tests of scripts, of type conversions, and of malicious scripts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::{
    ArrayBuf, DateTime, Decimal128, DocBuf, DocBuilder, ObjectId, RawValue, Timestamp, Value, doc,
};
use sheaf_query::interrupt::{self, Interrupt};
use sheaf_query::javascript::{
    Engine, JavaScript, Limits, NoStoredFunctions, SourceKind, StoredFunctions,
};

use crate::QuickJs;

const LIMITS: Limits = Limits {
    heap_bytes: 32 << 20,
};

fn environment() -> Arc<dyn JavaScript> {
    QuickJs.operation(LIMITS, Box::new(NoStoredFunctions))
}

fn call(source: &str, args: &ArrayBuf) -> Result<Value> {
    let environment = environment();
    let function = environment.compile(source, SourceKind::Function)?;
    environment.call(function, None, args.as_raw())
}

/// The value of an expression.
fn eval(expression: &str) -> Result<Value> {
    call(
        &format!("function() {{ return {expression}; }}"),
        &ArrayBuf::new(),
    )
}

fn args<'a>(values: impl IntoIterator<Item = RawValue<'a>>) -> ArrayBuf {
    ArrayBuf::from_values(values)
}

/// The result of a function that is called with a document and returns one.
fn through(source: &str, doc: &DocBuf) -> DocBuf {
    let value = call(source, &args([RawValue::Document(doc.as_raw())])).unwrap();
    match value {
        Value::Document(doc) => doc,
        other => panic!("{other:?}"),
    }
}

fn refused(expression: &str) -> Error {
    eval(expression).expect_err(expression)
}

/// An operation that is interrupted at a given time.
struct Until(Instant, AtomicU32);

impl Until {
    fn millis(millis: u64) -> Arc<Until> {
        let end = Instant::now() + Duration::from_millis(millis);
        Arc::new(Until(end, AtomicU32::new(0)))
    }
}

impl Interrupt for Until {
    fn check(&self) -> Result<()> {
        self.1.fetch_add(1, Ordering::Relaxed);
        match Instant::now() < self.0 {
            true => Ok(()),
            false => Err(Error::new(
                ErrorCode::MAX_TIME_MS_EXPIRED,
                "operation exceeded time limit",
            )),
        }
    }
}

fn every_type() -> DocBuf {
    let mut out = DocBuilder::new();
    out.append("double", 1.5)
        .append("whole", 3.0)
        .append("minus", -0.0);
    out.append("nan", f64::NAN)
        .append("int", 7)
        .append("long", 1i64 << 60);
    out.append("text", "a\0é\u{1F600}")
        .append("yes", true)
        .append("null", RawValue::Null);
    out.append("undefined", RawValue::Undefined);
    out.append("oid", RawValue::ObjectId(ObjectId([7; 12])));
    out.append("date", RawValue::DateTime(DateTime(-5)));
    out.append("far", RawValue::DateTime(DateTime::MAX));
    out.append(
        "bytes",
        RawValue::Binary {
            subtype: 4,
            bytes: &[9; 16],
        },
    );
    out.append(
        "old",
        RawValue::Binary {
            subtype: 2,
            bytes: &[1, 0, 0, 0, 5],
        },
    );
    out.append(
        "regex",
        RawValue::Regex {
            pattern: "^a/(?<=b)",
            options: "ix",
        },
    );
    out.append(
        "wild",
        RawValue::Regex {
            pattern: "(?>a",
            options: "",
        },
    );
    out.append("code", RawValue::JavaScript("function() {}"));
    let scope = doc! {"n": 5i32};
    let scope = scope.as_raw();
    out.append("scoped", RawValue::JavaScriptWithScope { code: "n", scope });
    out.append("symbol", RawValue::Symbol("s"));
    out.append(
        "pointer",
        RawValue::DbPointer {
            namespace: "a.b",
            id: ObjectId([3; 12]),
        },
    );
    out.append("time", RawValue::Timestamp(Timestamp::new(4, 0xffff_ffff)));
    out.append(
        "decimal",
        RawValue::Decimal128("1.500".parse::<Decimal128>().unwrap()),
    );
    out.append("snan", RawValue::Decimal128(Decimal128([0xff; 16])));
    out.append("min", RawValue::MinKey)
        .append("max", RawValue::MaxKey);
    out.append("10", 1)
        .append("9", 2)
        .append("__proto__", 3)
        .append("a.b", 4)
        .append("", 5);
    out.begin_document("ref")
        .append("$ref", "c")
        .append("$id", 1)
        .end();
    out.begin_array("list")
        .push(1)
        .push(2.0)
        .push(RawValue::Symbol("x"))
        .end();
    out.finish()
}

#[test]
fn every_type_returns_unchanged() {
    let doc = every_type();
    assert_eq!(
        through("function(d) { return d; }", &doc).as_bytes(),
        doc.as_bytes()
    );
    let copy = "function(d) { const out = {}; for (const k of Object.keys(d)) if (k != '__proto__') out[k] = d[k]; return {n: Object.keys(out).length}; }";
    assert_eq!(
        through(copy, &doc),
        doc! {"n": (doc.iter().count() - 1) as f64}
    );
}

/// A number is a double, unless the field was an int in the input document.
#[test]
fn numbers_become_doubles_except_in_place_of_an_int() {
    assert_eq!(
        call("x => x", &args([RawValue::Int32(4)])).unwrap(),
        Value::Double(4.0)
    );
    assert_eq!(eval("NumberInt(4)").unwrap(), Value::Int32(4));
    assert_eq!(
        eval("NumberLong('9223372036854775807')").unwrap(),
        Value::Int64(i64::MAX)
    );
    let doc = doc! {"i": 1i32, "d": 1.0, "l": 2i64};
    let out = through(
        "function(d) { d.i += 1; d.d += 1; d.l = d.l + 1; d.n = 1; return d; }",
        &doc,
    );
    assert_eq!(out, doc! {"i": 2i32, "d": 2.0, "l": 3.0, "n": 1.0});
    let out = through("function(d) { d.i = 0.5; return d; }", &doc);
    assert_eq!(out, doc! {"i": 0.5, "d": 1.0, "l": 2i64});
    // If two fields have the same name, the first one is read.
    let mut twice = DocBuilder::new();
    twice.append("a", 1).append("a", 2);
    assert_eq!(through("d => d", &twice.finish()), doc! {"a": 1i32});
}

#[test]
fn types_can_be_made() {
    for (expression, value) in [
        ("ObjectId('0123456789abcdefABCDEF00')", Value::ObjectId(ObjectId::parse_hex("0123456789abcdefabcdef00").unwrap())),
        ("NumberDecimal('1.10')", Value::Decimal128("1.10".parse().unwrap())),
        ("Timestamp(3, 4)", Value::Timestamp(Timestamp::new(3, 4))),
        ("ISODate('2020-01-02T03:04:05.006Z')", Value::DateTime(DateTime(1_577_934_245_006))),
        ("new Date(5)", Value::DateTime(DateTime(5))),
        ("new NumberLong(0, 1, 2)", Value::Int64((1 << 32) + 2)),
        ("hex_md5('a')", Value::String("0cc175b9c0f1b6a831c399e269772661".into())),
        ("Array.sum([1, 2, 3.5])", Value::Double(6.5)),
        ("tojson({a: [1, 'x', NumberLong(2)], d: new Date(0)})", Value::String(
            "{ \"a\" : [ 1, \"x\", NumberLong(2) ], \"d\" : ISODate(\"1970-01-01T00:00:00Z\") }".into())),
        ("UUID('00112233-4455-6677-8899-aabbccddeeff').hex()", Value::String("00112233445566778899aabbccddeeff".into())),
        ("NumberLong(5) + 1", Value::Double(6.0)),
        ("ObjectId('0123456789abcdefabcdef00').str.length", Value::Double(24.0)),
        ("new Number(3)", Value::Double(3.0)),
        ("12n", Value::Int64(12)),
        ("(print('x'), undefined)", Value::Undefined),
        ("typeof Proxy + typeof Atomics + typeof require + typeof std", Value::String("undefined".repeat(4))),
    ] {
        assert_eq!(eval(expression).unwrap(), value, "{expression}");
    }
    let Value::Regex { pattern, options } = eval("/a\\/b/gi").unwrap() else {
        panic!()
    };
    assert_eq!((&*pattern, &*options), ("a\\/b", "i"));
    let Value::JavaScript(code) = eval("function(x) { return 1; }").unwrap() else {
        panic!()
    };
    assert_eq!(&*code, "function(x) { return 1; }");
}

#[test]
fn where_takes_expressions_statements_and_functions() {
    let environment = environment();
    let doc = doc! {"a": 5i32, "b": "x"};
    for (source, passes) in [
        ("this.a > 4", true),
        ("obj.a > 5", false),
        ("this.a > 4;", true),
        ("return this.a > 4 && obj.b == 'x';", true),
        ("if (this.a > 4) return true; return false;", true),
        ("function() { return this.a == 5; }", true),
        ("function () { return obj.a == 6; };", false),
        ("() => this.a == 5", true),
        ("functional = 0", false),
        ("this.missing", false),
        ("'false'", true),
        ("NaN", false),
        ("", false),
    ] {
        let function = environment.compile(source, SourceKind::Where).unwrap();
        assert_eq!(
            environment.test(function, doc.as_raw()).unwrap(),
            passes,
            "{source}"
        );
    }
    let broken = environment
        .compile("this.a >", SourceKind::Where)
        .unwrap_err();
    assert_eq!(broken.code(), ErrorCode(139));
    assert!(
        broken.message().starts_with("SyntaxError: "),
        "{}",
        broken.message()
    );
}

#[test]
fn exceptions_are_reported() {
    for (expression, message) in [
        ("missing + 1", "ReferenceError: missing is not defined"),
        ("null.x", "TypeError: cannot read property 'x' of null"),
        ("(() => { throw 'text'; })()", "uncaught exception: text"),
        ("(() => { throw new Error('why'); })()", "Error: why"),
        ("(() => { throw null; })()", "InternalError: out of memory"),
        (
            "(() => { throw {get message() { throw 1; }}; })()",
            "uncaught exception: an object",
        ),
        ("Symbol()", "a symbol cannot be stored in BSON"),
        (
            "(async () => 1)()",
            "a Promise cannot be stored in BSON; functions must not be asynchronous",
        ),
        ("new Date(NaN)", "an invalid Date cannot be stored in BSON"),
        (
            "({'a\\0b': 1})",
            "a field name must not contain a null byte",
        ),
        ("ObjectId('x')", "Error: invalid object id: length"),
    ] {
        let error = refused(expression);
        assert_eq!(
            (error.code(), error.message()),
            (ErrorCode(139), message),
            "{expression}"
        );
    }
}

#[test]
fn results_are_bounded() {
    assert_eq!(
        refused("(() => { const a = {}; a.a = a; return a; })()").code(),
        ErrorCode(17279)
    );
    assert_eq!(
        refused("'x'.repeat(17 << 20)").code(),
        ErrorCode::BSON_OBJECT_TOO_LARGE
    );
    // Many references to one large value.
    let shared = "(() => { const s = 'x'.repeat(1 << 20); return Array(100).fill(s); })()";
    assert_eq!(refused(shared).code(), ErrorCode::BSON_OBJECT_TOO_LARGE);
    let shared =
        "(() => { let o = {}; for (let i = 0; i < 100; i++) o = {a: o, b: o}; return o; })()";
    assert_eq!(refused(shared).code(), ErrorCode::BSON_OBJECT_TOO_LARGE);
    assert_eq!(
        refused("Array(4294967295)").code(),
        ErrorCode::BSON_OBJECT_TOO_LARGE
    );
}

#[test]
fn memory_and_stack_are_bounded() {
    for expression in [
        "(() => { const a = []; for (;;) a.push('x'.repeat(1000) + a.length); })()",
        "'x'.repeat(1 << 29)",
        "new Uint8Array(1 << 30).length",
        "(() => { let s = 'x'; for (;;) s += s; })()",
        "(function f() { return f(); })()",
        "(function f(n) { return [f(n)]; })(1)",
        "JSON.parse('['.repeat(100000))",
        "new RegExp('('.repeat(100000))",
        "(() => { let a = []; for (let i = 0; i < 1e6; i++) a = [a]; return JSON.stringify(a); })()",
    ] {
        let error = refused(expression);
        assert!(
            matches!(error.code().0, 139 | 17279),
            "{expression}: {error:?}"
        );
    }
    // A script that catches the error does not get more memory.
    let stubborn = "(() => { for (let i = 0; i < 50; i++) { try { 'x'.repeat(1 << 29); } catch (e) {} } return 1; })()";
    assert_eq!(eval(stubborn).unwrap(), Value::Double(1.0));
}

/// A script that runs for this long is considered endless.
const HANG: Duration = Duration::from_secs(60);

#[test]
fn endless_scripts_are_interrupted() {
    for expression in [
        "(() => { for (;;); })()",
        "(() => { for (;;) { try { for (;;); } catch (e) {} finally { continue; } } })()",
        "/^(a+)+$/.test('a'.repeat(40) + 'b')",
        "Array(4294967295).indexOf(1)",
        "[].indexOf.call({length: 9007199254740991}, 1)",
        "Array(4294967295).forEach(x => x)",
        "new Set(Array(4294967295))",
        "new Set({[Symbol.iterator]() { return this; }, next: Object})",
        "Object.fromEntries({[Symbol.iterator]() { return this; }, next: Object.bind(null, {value: ['a', 1]})})",
        "({get a() { for (;;); }})",
        "[1, 2].sort(() => { for (;;); })",
        "sleep(1e9)",
        "[Array(4294967295)].flat()",
        "[].concat(Array(4294967295), Array(4294967295)).length",
    ] {
        let begun = Instant::now();
        let _entered = interrupt::enter(Until::millis(60));
        let error = refused(expression);
        let interrupted = error.code() == ErrorCode::MAX_TIME_MS_EXPIRED;
        assert!(
            interrupted || error.code() == ErrorCode(139),
            "{expression}: {error:?}"
        );
        assert!(
            begun.elapsed() < HANG,
            "{expression}: {:?}",
            begun.elapsed()
        );
    }
}

/// Calls that would loop in the engine without an interruption check are rejected.
#[test]
fn loops_over_lengths_are_refused() {
    for expression in [
        "Array(4294967295).join('')",
        "Array(4294967295).reverse()",
        "Array(4294967295).shift()",
        "Array(4294967295).sort()",
        "[].reverse.call({length: 9007199254740991})",
        "[].reverse.call({get length() { return this.n ? 9007199254740991 : (this.n = 1, 0); }})",
        "'a'.repeat(1 << 20).indexOf('a'.repeat(1 << 19) + 'b')",
    ] {
        let begun = Instant::now();
        let error = refused(expression);
        assert!(
            error.message().starts_with("RangeError: "),
            "{expression}: {error:?}"
        );
        assert!(begun.elapsed() < HANG, "{expression}");
    }
}

/// Changing built-in objects affects only the script's own results.
#[test]
fn changed_builtins_are_harmless() {
    for script in [
        "function(d) { Object.prototype[Object.getOwnPropertySymbols(ObjectId.prototype)[0]] = 1; return d; }",
        "function(d) { Object.defineProperty(Object.prototype, 'a', {set() { throw 1; }}); return {b: 1}; }",
        "function(d) { for (const k of Object.getOwnPropertyNames(globalThis)) { try { delete globalThis[k]; } catch (e) {} } return d; }",
        "function(d) { Array.prototype.push = null; Date.prototype.getTime = () => 'x'; return new Date(3); }",
        "function(d) { const o = ObjectId(); o[Object.getOwnPropertySymbols(o)[0]] = 'short'; return o; }",
        "function(d) { const b = BinData(2, ''); return b; }",
        "function(d) { Object.prototype.toJSON = () => 1; return {toJSON() { return 2; }}; }",
        "function(d) { String.prototype.toWellFormed = null; return '\\ud800'; }",
        "function(d) { Object.setPrototypeOf(d, ObjectId.prototype); return d; }",
        "function(d) { const c = Code('x', {}); c.scope = [c]; return c; }",
        "function(d) { const c = Code('x', {}); c.scope = {c}; return c; }",
    ] {
        let doc = doc! {"a": 1i32, "1": 2i32};
        let environment = environment();
        let function = environment.compile(script, SourceKind::Function).unwrap();
        let one = args([RawValue::Document(doc.as_raw())]);
        for _ in 0..2 {
            if let Err(error) = environment.call(function, None, one.as_raw()) {
                assert!(matches!(error.code().0, 139 | 17279), "{script}: {error:?}");
            }
        }
        // Another operation is not affected.
        assert_eq!(through("d => d", &doc), doc);
    }
}

#[test]
fn calls_share_an_environment_and_operations_do_not() {
    let one = environment();
    let count = "function() { globalThis.n = (globalThis.n || 0) + 1; return n; }";
    let function = one.compile(count, SourceKind::Function).unwrap();
    assert_eq!(one.compile(count, SourceKind::Function).unwrap(), function);
    let none = ArrayBuf::new();
    assert_eq!(
        one.call(function, None, none.as_raw()).unwrap(),
        Value::Double(1.0)
    );
    assert_eq!(
        one.call(function, None, none.as_raw()).unwrap(),
        Value::Double(2.0)
    );
    assert_eq!(eval("typeof n").unwrap(), Value::String("undefined".into()));
}

#[test]
fn folds_emits_and_globals() {
    let environment = environment();
    let sum = environment
        .compile(
            "function(s, a, b) { return s + a * b; }",
            SourceKind::Function,
        )
        .unwrap();
    let calls = [
        args([RawValue::Int32(2), RawValue::Int32(3)]),
        args([RawValue::Int32(4), RawValue::Int32(5)]),
    ];
    let calls = args(calls.iter().map(|call| RawValue::Array(call.as_raw())));
    assert_eq!(
        environment
            .fold(sum, RawValue::Int32(1), calls.as_raw())
            .unwrap(),
        Value::Double(27.0)
    );
    environment.set_globals(doc! {"factor": 10i32, "twice": Value::JavaScript("function(x) { return 2 * x; }".into())}.as_raw()).unwrap();
    let map = environment
        .compile(
            "function() { emit(this.k, twice(this.v) * factor); emit(undefined, 1); }",
            SourceKind::Function,
        )
        .unwrap();
    let doc = doc! {"k": "a", "v": 3i32};
    let Value::Array(emitted) = environment
        .emit(map, RawValue::Document(doc.as_raw()))
        .unwrap()
    else {
        panic!()
    };
    let expected = doc! {"e": vec![
        Value::Document(doc! {"k": "a", "v": 60.0}),
        Value::Document(doc! {"k": Value::Null, "v": 1.0}),
    ]};
    assert_eq!(expected.get("e"), Some(RawValue::Array(emitted.as_raw())));
    let outside = environment
        .compile("function() { emit(1, 2); }", SourceKind::Function)
        .unwrap();
    assert!(
        environment
            .call(outside, None, ArrayBuf::new().as_raw())
            .is_err()
    );
}

struct Stored;

impl StoredFunctions for Stored {
    fn load(&self) -> Result<Vec<(String, Value)>> {
        Ok(vec![
            (
                "even".into(),
                Value::JavaScript("function(n) { return n == 0 || odd(n - 1); }".into()),
            ),
            (
                "odd".into(),
                Value::JavaScript("function(n) { return n != 0 && even(n - 1); };".into()),
            ),
            ("broken".into(), Value::JavaScript("function(".into())),
            ("limit".into(), Value::Int64(5)),
        ])
    }
}

#[test]
fn stored_functions_compile_when_they_are_used() {
    let environment = QuickJs.operation(LIMITS, Box::new(Stored));
    let f = environment
        .compile(
            "function() { return even(10) && limit == 5; }",
            SourceKind::Function,
        )
        .unwrap();
    let none = ArrayBuf::new();
    assert_eq!(
        environment.call(f, None, none.as_raw()).unwrap(),
        Value::Boolean(true)
    );
    let f = environment
        .compile("function() { return broken(1); }", SourceKind::Function)
        .unwrap();
    assert_eq!(
        environment.call(f, None, none.as_raw()).unwrap_err().code(),
        ErrorCode(139)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    /// A document that a function returns unchanged has the same bytes.
    #[test]
    fn documents_return(doc in sheaf_testkit::generate::document()) {
        prop_assume!(sheaf_testkit::fuzz::names_are_unique(doc.as_raw()));
        let out = through("function(d) { return d; }", &doc);
        prop_assert_eq!(out.as_bytes(), doc.as_bytes());
    }
}

/// The fuzz target's body on damaged scripts: `SHEAF_FUZZ_ROUNDS` of each, by `SHEAF_FUZZ_SEED`.
#[test]
fn damaged_scripts() {
    use sheaf_testkit::fuzz::{Random, javascript, mutate};
    let scripts = [
        "function(d) { return Object.keys(d).map(k => [k, d[k], tojson(d[k])]); }",
        "this.a > 1 && obj.b[0].c == NumberLong('5') || /a+(b|c)*$/i.test(this.s)",
        "function() { const o = {get a() { return [ObjectId(), UUID(), BinData(2, 'AQAAAAU=')]; }}; o.o = Object.create(o); return [o, new Date(1e15), Code('x', {o})]; }",
        "x => { try { return [...x.list].sort().concat(new Set(x.list)); } finally { x.b = Timestamp(1, 2); } }",
        "function* g() { for (let i = 0; i < 1e9; i++) yield 'x'.repeat(i); }",
    ];
    let given = |name: &str, otherwise: u64| {
        let value = std::env::var(name).ok();
        value.map_or(otherwise, |value| value.parse().expect("a number"))
    };
    let mut random = Random::new(given("SHEAF_FUZZ_SEED", 7));
    for script in scripts {
        for round in 0..given("SHEAF_FUZZ_ROUNDS", 40) {
            let mut bytes = every_type().into_vec();
            let mut text = script.as_bytes().to_vec();
            if round > 0 {
                mutate(&mut text, &mut random);
            }
            if round % 4 == 3 {
                mutate(&mut bytes, &mut random);
            }
            bytes.extend(text);
            javascript(&QuickJs, &bytes);
        }
    }
}
