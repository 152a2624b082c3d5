// bulkWrite, ordered and unordered, with and without errors.
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { MongoBulkWriteError } from 'mongodb';
import { database, ids, refused } from './support.mjs';

const ctx = database('bulk');

const mixed = [
  { insertOne: { document: { _id: 1, n: 1 } } },
  { insertOne: { document: { _id: 2, n: 2 } } },
  { updateOne: { filter: { _id: 1 }, update: { $inc: { n: 10 } } } },
  { updateMany: { filter: { n: { $gt: 1 } }, update: { $set: { big: true } } } },
  { replaceOne: { filter: { _id: 3 }, replacement: { n: 3 }, upsert: true } },
  { updateOne: { filter: { _id: 4 }, update: { $set: { n: 4 } }, upsert: true } },
  { deleteOne: { filter: { _id: 2 } } },
  { deleteMany: { filter: { n: 4 } } },
];

test('mixed operations', async () => {
  const c = await ctx.empty('mixed');
  const r = await c.bulkWrite(mixed);
  assert.deepEqual([r.insertedCount, r.matchedCount, r.modifiedCount, r.deletedCount, r.upsertedCount], [2, 3, 3, 2, 2]);
  assert.deepEqual(r.upsertedIds, { 4: 3, 5: 4 });
  assert.deepEqual(await c.find().sort({ _id: 1 }).toArray(), [{ _id: 1, n: 11, big: true }, { _id: 3, n: 3 }]);
});

const clashing = [{ _id: 1 }, { _id: 1 }, { _id: 2 }, { _id: 2 }, { _id: 3 }].map((document) => ({ insertOne: { document } }));

test('an ordered bulk stops at its first error', async () => {
  const c = await ctx.empty('clash');
  const e = await refused(c.bulkWrite(clashing), MongoBulkWriteError, 11000);
  assert.equal(e.insertedCount, 1);
  assert.deepEqual(e.writeErrors.map((w) => [w.index, w.code]), [[1, 11000]]);
  assert.deepEqual(ids(await c.find().toArray()), [1]);
});

test('an unordered bulk continues after errors', async () => {
  const c = await ctx.empty('clash');
  const e = await refused(c.bulkWrite(clashing, { ordered: false }), MongoBulkWriteError, 11000);
  assert.equal(e.insertedCount, 3);
  assert.deepEqual(e.writeErrors.map((w) => [w.index, w.code]), [[1, 11000], [3, 11000]]);
  assert.deepEqual(ids(await c.find().sort({ _id: 1 }).toArray()), [1, 2, 3]);
});

test('update errors keep their index', async () => {
  const c = await ctx.empty('clash');
  await c.insertMany([{ _id: 1, s: 'x' }, { _id: 2, n: 1 }]);
  const e = await refused(
    c.bulkWrite(
      [
        { updateOne: { filter: { _id: 1 }, update: { $inc: { s: 1 } } } },
        { updateOne: { filter: { _id: 2 }, update: { $inc: { n: 1 } } } },
        { deleteOne: { filter: { $nonsense: 1 } } },
      ],
      { ordered: false },
    ),
    MongoBulkWriteError,
    14,
  );
  assert.deepEqual(e.writeErrors.map((w) => [w.index, w.code]), [[0, 14], [2, 2]]);
  assert.equal((await c.findOne({ _id: 2 })).n, 2);
});

test('insertMany unordered with a unique index', async () => {
  const c = await ctx.empty('unique');
  await c.createIndex({ k: 1 }, { unique: true });
  const e = await refused(c.insertMany([{ k: 1 }, { k: 1 }, { k: 2 }], { ordered: false }), MongoBulkWriteError, 11000);
  assert.equal(e.result.insertedCount, 2);
  assert.match(e.writeErrors[0].errmsg, /E11000 duplicate key error collection: node_bulk\.unique index: k_1 dup key: \{ k: 1 \}/);
  assert.equal(await c.countDocuments(), 2);
});

test('the fluent builder', async () => {
  const c = await ctx.empty('fluent');
  const bulk = c.initializeOrderedBulkOp();
  for (let i = 0; i < 1000; i++) bulk.insert({ _id: i });
  bulk.find({ _id: { $lt: 500 } }).update({ $set: { low: true } });
  bulk.find({ _id: { $gte: 900 } }).delete();
  const r = await bulk.execute();
  assert.deepEqual([r.insertedCount, r.modifiedCount, r.deletedCount], [1000, 500, 100]);
});

test('more operations than fit one batch', async () => {
  const c = await ctx.empty('many');
  // 100,000 is the limit of one command: the driver sends two.
  const r = await c.insertMany(Array.from({ length: 100_001 }, (_, i) => ({ _id: i })));
  assert.equal(r.insertedCount, 100_001);
  assert.equal(await c.countDocuments(), 100_001);
});
