// Capped collections, tailable cursors, and the details of a failed validation.
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { MongoServerError } from 'mongodb';
import { database, ids, refused } from './support.mjs';

const ctx = database('capped');

test('the oldest are removed, natural order both ways', async () => {
  const c = await ctx.db.createCollection('oldest', { capped: true, size: 4096, max: 3 });
  await c.insertMany([0, 1, 2, 3, 4].map((_id) => ({ _id })));
  assert.deepEqual(ids(await c.find().toArray()), [2, 3, 4]);
  assert.deepEqual(ids(await c.find().sort({ $natural: -1 }).toArray()), [4, 3, 2]);
  assert.equal(await c.isCapped(), true);
});

test('a tailable cursor is woken by an insert', async () => {
  const c = await ctx.db.createCollection('tailed', { capped: true, size: 4096 });
  await c.insertOne({ _id: 0 });
  const cursor = c.find({}, { tailable: true, awaitData: true, maxAwaitTimeMS: 20_000 });
  assert.deepEqual(await cursor.next(), { _id: 0 });
  const next = cursor.next();
  await new Promise((resolve) => setTimeout(resolve, 100));
  await c.insertOne({ _id: 1 });
  assert.deepEqual(await next, { _id: 1 });
  await cursor.close();
});

test('an overwritten position ends the cursor', async () => {
  const c = await ctx.db.createCollection('overwritten', { capped: true, size: 4096, max: 2 });
  await c.insertOne({ _id: 0 });
  const cursor = c.find({}, { tailable: true });
  assert.deepEqual(await cursor.next(), { _id: 0 });
  await c.insertMany([1, 2, 3].map((_id) => ({ _id })));
  await refused(cursor.next(), MongoServerError, 136);
});

test('a stream of documents', async () => {
  const c = await ctx.db.createCollection('streamed', { capped: true, size: 1 << 20 });
  await c.insertOne({ _id: -1 });
  const stream = c.find({ _id: { $gte: 0 } }, { tailable: true, awaitData: true }).stream();
  const seen = [];
  const all = new Promise((resolve, reject) => {
    stream.on('error', reject);
    stream.on('data', (doc) => {
      seen.push(doc._id);
      if (seen.length === 50) resolve();
    });
  });
  for (let i = 0; i < 50; i++) await c.insertOne({ _id: i });
  await all;
  stream.destroy();
  assert.deepEqual(seen, Array.from({ length: 50 }, (_, i) => i));
});

test('a failed validation reports why', async () => {
  const c = await ctx.db.createCollection('validated', { validator: { a: { $gt: 3 } } });
  const error = await refused(c.insertOne({ _id: 1, a: 2 }), MongoServerError, 121);
  assert.deepEqual(error.errInfo, {
    failingDocumentId: 1,
    details: {
      operatorName: '$gt',
      specifiedAs: { a: { $gt: 3 } },
      reason: 'comparison failed',
      consideredValue: 2,
    },
  });
  await c.insertOne({ _id: 1, a: 2 }, { bypassDocumentValidation: true });
  await ctx.db.command({ collMod: 'validated', validationLevel: 'moderate' });
  assert.equal((await c.updateOne({ _id: 1 }, { $set: { a: 1 } })).modifiedCount, 1);
});
