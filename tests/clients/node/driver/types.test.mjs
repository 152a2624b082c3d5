// Every BSON type that the driver writes is returned unchanged, and can be found.
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { Binary, BSON, BSONRegExp, BSONSymbol, Code, Decimal128, Double, Int32, Long, MaxKey, MinKey, ObjectId, Timestamp, UUID } from 'mongodb';
import { database, ids } from './support.mjs';

const { EJSON } = BSON;

const ctx = database('types', { promoteValues: false, bsonRegExp: true });

const values = {
  double: new Double(1.5), minusZero: new Double(-0), nan: new Double(NaN), inf: new Double(-Infinity), tiny: new Double(5e-324),
  int: new Int32(-7), intMax: new Int32(2147483647), long: Long.fromString('9007199254740993'), longMin: Long.MIN_VALUE,
  decimal: Decimal128.fromString('0.1000'), decimalBig: Decimal128.fromString('9.999999999999999999999999999999999E+6144'),
  decimalNaN: Decimal128.fromString('NaN'), string: 'grüße 🐿', nul: 'a\0b', empty: '', object: { a: { b: {} } }, array: ['x', ['y', ['z']], {}, null],
  bin: new Binary(Buffer.from([1, 2, 3])), user: new Binary(Buffer.from([9]), 0x80), uuid: new UUID('01234567-89ab-4def-8123-456789abcdef'),
  oid: new ObjectId('0123456789abcdef01234567'), yes: true, no: false, date: new Date(-1), far: new Date(253402300799999), nil: null,
  regex: new BSONRegExp('a.*b', 'im'), code: new Code('function () { return 1; }'), scoped: new Code('f(x)', { x: new Int32(1) }),
  symbol: new BSONSymbol('sym'), ts: new Timestamp({ t: 4000000000, i: 7 }), min: new MinKey(), max: new MaxKey(),
};

test('one document with all types', async () => {
  const c = await ctx.empty('all');
  await c.insertOne({ _id: new Int32(1), ...values });
  const back = await c.findOne();
  assert.equal(EJSON.stringify(back, { relaxed: false }), EJSON.stringify({ _id: new Int32(1), ...values }, { relaxed: false }));
});

test('each value is found by equality, with and without an index', async () => {
  const c = await ctx.empty('each');
  await c.insertMany(Object.entries(values).map(([name, v]) => ({ _id: name, v })));
  const find = async (v) => ids(await c.find({ v: { $eq: v } }).toArray()).sort();
  const expected = {};
  for (const [name, v] of Object.entries(values)) {
    expected[name] = await find(v);
    assert.ok(expected[name].includes(name), `${name}: ${expected[name]}`);
  }
  assert.deepEqual(expected.nan, ['decimalNaN', 'nan']);
  await c.createIndex({ v: 1 });
  for (const [name, v] of Object.entries(values)) assert.deepEqual(await find(v), expected[name], name);
});

test('any of them can be an _id, except arrays and regular expressions', async () => {
  const c = await ctx.empty('ids');
  // Without null, for which the driver creates an id. NaN is one value, whatever its type.
  const refused = ['array', 'regex', 'nil', 'decimalNaN'];
  const usable = Object.entries(values).filter(([name]) => !refused.includes(name));
  await c.insertMany(usable.map(([name, v]) => ({ _id: v, name })));
  for (const [name, v] of usable) assert.equal((await c.findOne({ _id: { $eq: v } })).name, name);
});

test('equal numbers of different types are one _id', async () => {
  const c = await ctx.empty('numbers');
  await c.insertOne({ _id: new Int32(5) });
  for (const same of [Long.fromNumber(5), new Double(5), Decimal128.fromString('5.0')])
    await assert.rejects(c.insertOne({ _id: same }), (e) => Number(e.code) === 11000);
  assert.equal(Number(await c.countDocuments()), 1);
});

test('a covering index returns the exact type', async () => {
  const c = await ctx.empty('covered');
  const stored = [new Int32(1), new Long(1), new Double(1), Decimal128.fromString('1.00'), new Double(-0)];
  await c.insertMany(stored.map((v, i) => ({ _id: new Int32(i), v })));
  await c.createIndex({ v: 1, _id: 1 });
  const covered = await c.find({ v: { $gte: new Int32(-5) } }, { projection: { v: 1, _id: 0 } }).hint({ v: 1, _id: 1 }).toArray();
  assert.deepEqual(covered.map((d) => EJSON.stringify(d.v, { relaxed: false })).sort(), stored.map((v) => EJSON.stringify(v, { relaxed: false })).sort());
});

test('field order and duplicates of nesting are kept', async () => {
  const c = await ctx.empty('order');
  const doc = { _id: 'o', z: 1, a: { y: 1, b: [{ x: 1, c: 2 }] }, m: 3 };
  await c.insertOne(doc);
  const plain = ctx.client.db('node_types').collection('order', { promoteValues: true });
  assert.equal(JSON.stringify(await plain.findOne()), JSON.stringify(doc));
});

test('_id is moved to the front', async () => {
  const c = await ctx.empty('front');
  await c.insertOne({ a: 'x', _id: 'i' });
  assert.deepEqual(Object.keys(await c.findOne()), ['_id', 'a']);
});

test('a hundred levels of nesting are kept, more are refused', async () => {
  const c = await ctx.empty('deep');
  const nest = (levels) => { let d = { x: 'end' }; for (let i = 0; i < levels; i++) d = { d }; return d; };
  await c.insertOne({ _id: 'ok', v: nest(90) });
  assert.ok((await c.findOne({ _id: 'ok' })).v.d.d.d);
  await assert.rejects(c.insertOne({ _id: 'deep', v: nest(300) }));
  assert.equal(Number(await c.countDocuments()), 1);
});
