//! Runs the body of the pipeline fuzz target on damaged examples.
//!
//! `SHEAF_FUZZ_ROUNDS` damages each example more often, `SHEAF_FUZZ_SEED` otherwise.

use sheaf_bson::DocBuf;
use sheaf_bson::json::parse_doc;
use sheaf_testkit::fuzz::{Random, mutate, pipeline};

const DOCUMENT: &str = "{_id: 1, a: [1, 2.5, NumberLong('3'), null], s: 'abc', t: ISODate('2024-02-29T12:30:00Z'),
    d: {e: [{f: 1}, {f: 2}]}, n: NumberDecimal('1.50'), b: BinData(0, 'AQIDBA=='), o: ObjectId('65f000000000000000000001')}";

/// One of each family of stages, expressions, updates, schemas, and a bucket.
const EXAMPLES: [&str; 12] = [
    "{aggregate: 'c', pipeline: [{$match: {a: {$gt: 1}}}, {$group: {_id: '$s', n: {$sum: '$a'}, p: {$push: '$d'}, q: {$percentile: {input: '$_id', p: [0.5], method: 'approximate'}}}}, {$sort: {n: -1}}], cursor: {}}",
    "{aggregate: 'c', pipeline: [{$unwind: {path: '$a', includeArrayIndex: 'i'}}, {$setWindowFields: {partitionBy: '$s', sortBy: {i: 1}, output: {w: {$sum: '$a', window: {documents: [-1, 'current']}}, x: {$expMovingAvg: {input: '$a', N: 2}}}}}], cursor: {}}",
    "{aggregate: 'c', pipeline: [{$densify: {field: 'n', range: {step: 1, bounds: [0, 5]}}}, {$fill: {sortBy: {n: 1}, output: {s: {method: 'locf'}}}}, {$bucketAuto: {groupBy: '$n', buckets: 2}}], cursor: {}}",
    "{aggregate: 'c', pipeline: [{$facet: {x: [{$count: 'n'}], y: [{$bucket: {groupBy: '$_id', boundaries: [0, 5], default: 'z'}}]}}, {$replaceWith: {$mergeObjects: ['$$ROOT', {k: 1}]}}, {$redact: {$cond: [{$gt: ['$k', 0]}, '$$KEEP', '$$PRUNE']}}], cursor: {}}",
    "{find: 'c', filter: {$or: [{a: 1}, {b: {$in: [1, 2]}}], c: {$not: {$regex: '^x'}}}, sort: {a: 1}, projection: {a: {$slice: 1}}, collation: {locale: 'en'}, hint: {a: 1}, let: {x: 1}, expr: {$convert: {input: '$b', to: {type: 'string'}, format: 'base64', onError: 'e', onNull: null}}}",
    "{expr: {$convert: {input: '0x1F', to: 'int', base: 16, onError: null}}, schema: {bsonType: 'object', encryptMetadata: {keyId: [UUID('00000000-0000-4000-8000-000000000001')], algorithm: 'AEAD_AES_256_CBC_HMAC_SHA_512-Random'}, properties: {a: {encrypt: {bsonType: 'int', keyId: '/k'}}}}}",
    "{expr: {$dateFromString: {dateString: '2024-02-30 12:00:61.5 +02:30', format: '%Y-%m-%d %H:%M:%S.%L %z', timezone: 'Europe/Rome', onError: 1}}}",
    "{expr: [{$dateFromString: {dateString: '29 feb 2024 noon'}}, {$dateToString: {date: '$t', format: '%G-%V-%u %j %Z %%', timezone: '+01:00'}}, {$dateTrunc: {date: '$t', unit: 'week', binSize: 2, startOfWeek: 'mon'}}, {$dateAdd: {startDate: '$t', unit: 'month', amount: 13}}, {$dateDiff: {startDate: '$t', endDate: '$t', unit: 'quarter'}}]}",
    "{expr: [{$regexFindAll: {input: '$s', regex: '(a)(?<x>b)?', options: 'i'}}, {$range: [0, 10, 3]}, {$reduce: {input: '$a', initialValue: 0, in: {$add: ['$$value', '$$this']}}}, {$sortArray: {input: '$d.e', sortBy: {f: -1}}}, {$zip: {inputs: ['$a', [1]], useLongestLength: true, defaults: [0, 1]}}, {$trim: {input: '$s', chars: 'c'}}, {$bitAnd: [5, 3]}, {$round: ['$n', 1]}, {$switch: {branches: [{case: true, then: 1}]}}, {$setField: {field: 'x', input: '$d', value: 1}}]}",
    "{update: {$set: {'d.e.$[x].f': 5}, $push: {a: {$each: [1], $slice: -2, $sort: 1}}, $inc: {_n: 1}, $bit: {k: {or: 4}}, $currentDate: {z: {$type: 'timestamp'}}, $rename: {s: 'r'}}, arrayFilters: [{'x.f': {$gt: 1}}]}",
    "{update: {$pull: {a: {$gt: 1}}, $addToSet: {'d.e': {f: 1}}, $unset: {s: 1}, $min: {n: 1}, $mul: {q: 2}}, schema: {required: ['a'], properties: {a: {items: [{type: 'number', multipleOf: 2}], additionalItems: false, uniqueItems: true}, s: {pattern: '^a', maxLength: 3}}, dependencies: {a: ['s']}, patternProperties: {'^x': {minimum: 1, exclusiveMinimum: true}}}}",
    "{timeseries: {timeField: 't', metaField: 'm', granularity: 'seconds'}, bucket: {_id: ObjectId('65e0a0800000000000000001'), control: {version: 1, min: {_id: 1, t: ISODate('2024-02-29T15:20:00Z'), v: 1}, max: {_id: 2, t: ISODate('2024-02-29T15:20:30Z'), v: 2}}, meta: 1, data: {t: {'0': ISODate('2024-02-29T15:20:10Z'), '1': ISODate('2024-02-29T15:20:30Z')}, _id: {'0': 1, '1': 2}, v: {'0': 1, '1': 2}}}}",
];

fn of_environment(name: &str, otherwise: u64) -> u64 {
    let given = std::env::var(name)
        .ok()
        .and_then(|value| value.parse().ok());
    given.unwrap_or(otherwise)
}

fn damage(examples: &[DocBuf], doc: &DocBuf, random: &mut Random) {
    let mut asked = examples[random.below(examples.len())].as_bytes().to_vec();
    let mut on = doc.as_bytes().to_vec();
    match random.below(4) {
        0 => mutate(&mut on, random),
        1 => drop(std::mem::replace(&mut asked, swapped(examples, random))),
        _ => mutate(&mut asked, random),
    }
    // With a wrong length, nearly all damaged documents would be rejected.
    for bytes in [&mut asked, &mut on] {
        let len = bytes.len();
        if len > 4 && random.below(8) > 0 {
            bytes[..4].copy_from_slice(&(len as i32).to_le_bytes());
        }
    }
    pipeline(&[asked, on].concat());
}

/// An example in which one value was replaced by a value of another example.
fn swapped(examples: &[DocBuf], random: &mut Random) -> Vec<u8> {
    let mut values = Vec::new();
    for example in examples {
        gather(example.as_raw(), &mut values);
    }
    let base = examples[random.below(examples.len())].to_string();
    let (from, to) = (random.below(values.len()), random.below(values.len()));
    let text = base.replacen(&values[from], &values[to], 1);
    parse_doc(&text).map_or_else(|_| base.into_bytes(), |doc| doc.as_bytes().to_vec())
}

/// The text of all values in a document.
fn gather(doc: sheaf_bson::RawDoc<'_>, out: &mut Vec<String>) {
    for element in doc.iter() {
        out.push(sheaf_bson::json::shell(element.value()));
        if let Some(inner) = element.value().as_document() {
            gather(inner, out);
        }
        if let Some(items) = element.value().as_array() {
            for item in items.iter().filter_map(|item| item.as_document()) {
                gather(item, out);
            }
        }
    }
}

#[test]
fn damaged_pipelines_do_no_harm() {
    let doc = parse_doc(DOCUMENT).expect(DOCUMENT);
    let examples: Vec<DocBuf> = (EXAMPLES.iter())
        .map(|text| parse_doc(text).expect(text))
        .collect();
    for example in &examples {
        pipeline(&[example.as_bytes(), doc.as_bytes()].concat());
    }
    let mut random = Random::new(of_environment("SHEAF_FUZZ_SEED", 13));
    for _ in 0..of_environment("SHEAF_FUZZ_ROUNDS", 6000) {
        damage(&examples, &doc, &mut random);
    }
}
