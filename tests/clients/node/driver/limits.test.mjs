// Sizes at the limits: 16 MiB documents, 48 MB messages, 100,000 writes per command.
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { BSON, MongoServerError } from 'mongodb';
import { database, refused } from './support.mjs';

const ctx = database('limits');
const LIMIT = 16 * 1024 * 1024;

function documentOf(bytes, _id) {
  const empty = BSON.calculateObjectSize({ _id, s: '' });
  const d = { _id, s: 'x'.repeat(bytes - empty) };
  assert.equal(BSON.calculateObjectSize(d), bytes);
  return d;
}

test('exactly 16 MiB is stored and read back', async () => {
  const c = await ctx.empty('large');
  await c.insertOne(documentOf(LIMIT, 1));
  assert.equal(BSON.calculateObjectSize(await c.findOne({ _id: 1 })), LIMIT);
  assert.equal(await c.countDocuments(), 1);
});

test('one byte more is refused', async () => {
  const c = await ctx.empty('larger');
  await assert.rejects(c.insertOne(documentOf(LIMIT + 1, 1)), (e) => e.code === 10334 || e.code === 2 || /larger|too large/i.test(e.message));
  assert.equal(await c.countDocuments(), 0);
});

test('an update may not grow a document past it', async () => {
  const c = await ctx.empty('grow');
  await c.insertOne({ _id: 1, a: 'x'.repeat(9_000_000) });
  // MongoDB has two codes for this error.
  await assert.rejects(c.updateOne({ _id: 1 }, { $set: { b: 'y'.repeat(9_000_000) } }), (e) => [17419, 17420, 10334].includes(e.code));
  assert.deepEqual(Object.keys(await c.findOne()), ['_id', 'a']);
});

test('four documents of 15 MB are returned in several batches', async () => {
  const c = await ctx.empty('several');
  for (let i = 0; i < 4; i++) await c.insertOne(documentOf(15_000_000, i));
  let n = 0;
  for await (const d of c.find().sort({ _id: 1 })) assert.equal(d._id, n++);
  assert.equal(n, 4);
});

test('insertMany splits past 48 MB', async () => {
  const c = await ctx.empty('split');
  const r = await c.insertMany(Array.from({ length: 12 }, (_, i) => documentOf(6_000_000, i)));
  assert.equal(r.insertedCount, 12);
  assert.equal(await c.countDocuments(), 12);
});

test('a command with more than 100,000 writes is refused', async () => {
  const deletes = Array.from({ length: 100_001 }, () => ({ q: { _id: 0 }, limit: 1 }));
  await refused(ctx.db.command({ delete: 'c', deletes }), MongoServerError, 16);
});

test('a large array', async () => {
  const c = await ctx.empty('array');
  await c.insertOne({ _id: 1, a: Array.from({ length: 100_000 }, (_, i) => i) });
  assert.deepEqual((await c.findOne({ a: 99_999 }, { projection: { a: { $slice: -2 } } })).a, [99_998, 99_999]);
});

test('many fields', async () => {
  const c = await ctx.empty('fields');
  const d = { _id: 1 };
  for (let i = 0; i < 20_000; i++) d[`field${i}`] = i;
  await c.insertOne(d);
  assert.equal((await c.findOne({ field19999: 19_999 })).field7, 7);
});
