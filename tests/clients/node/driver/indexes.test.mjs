// Indexes: created, listed, used, dropped, and what they refuse.
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { MongoServerError } from 'mongodb';
import { database, ids, refused } from './support.mjs';

const ctx = database('indexes');

test('create, list, drop', async () => {
  const c = await ctx.empty('c');
  assert.equal(await c.createIndex({ a: 1 }), 'a_1');
  assert.equal(await c.createIndex({ a: 1 }), 'a_1'); // creating it again is a no-op
  assert.equal(await c.createIndex({ b: -1, 'c.d': 1 }, { name: 'mine' }), 'mine');
  assert.deepEqual(await c.createIndexes([{ key: { x: 1 }, sparse: true }, { key: { y: 1 }, unique: true }]), ['x_1', 'y_1']);
  assert.deepEqual(await c.indexes(), [
    { v: 2, key: { _id: 1 }, name: '_id_' },
    { v: 2, key: { a: 1 }, name: 'a_1' },
    { v: 2, key: { b: -1, 'c.d': 1 }, name: 'mine' },
    { v: 2, key: { x: 1 }, name: 'x_1', sparse: true },
    { v: 2, key: { y: 1 }, name: 'y_1', unique: true },
  ]);
  assert.equal(await c.indexExists(['a_1', 'mine']), true);
  await c.dropIndex('mine');
  assert.equal(await c.indexExists('mine'), false);
  await c.dropIndexes();
  assert.deepEqual((await c.listIndexes().toArray()).map((i) => i.name), ['_id_']);
});

test('createIndexes reports what it did', async () => {
  const c = await ctx.empty('reported');
  const r = await ctx.db.command({ createIndexes: 'reported', indexes: [{ key: { a: 1 }, name: 'a_1' }] });
  assert.deepEqual([r.numIndexesBefore, r.numIndexesAfter, r.createdCollectionAutomatically, r.ok], [1, 2, true, 1]);
  const again = await ctx.db.command({ createIndexes: 'reported', indexes: [{ key: { a: 1 }, name: 'a_1' }] });
  assert.deepEqual([again.numIndexesBefore, again.numIndexesAfter], [2, 2]);
  assert.equal(again.note, 'all indexes already exist');
  assert.equal(await c.countDocuments(), 0);
});

test('conflicting names and options', async () => {
  const c = await ctx.empty('conflict');
  await c.createIndex({ a: 1 });
  await c.createIndex({ t: 1 }, { expireAfterSeconds: 10 });
  assert.equal((await refused(c.createIndex({ a: 1 }, { name: 'other' }), MongoServerError, 85)).codeName, 'IndexOptionsConflict');
  assert.equal((await refused(c.createIndex({ b: 1 }, { name: 'a_1' }), MongoServerError, 86)).codeName, 'IndexKeySpecsConflict');
  await refused(c.createIndex({ a: 1 }, { unique: true }), MongoServerError, 86);
  await refused(c.createIndex({ a: 1 }, { sparse: true }), MongoServerError, 86);
  await refused(c.createIndex({ t: 1 }, { expireAfterSeconds: 20 }), MongoServerError, 85);
  assert.equal((await c.indexes()).length, 3);
});

test('invalid keys', async () => {
  const c = await ctx.empty('bad');
  await refused(c.createIndex({ a: 0 }), MongoServerError, 67);
  await refused(c.createIndex({ a: 'nonsense' }), MongoServerError, 67);
  await refused(c.createIndex({ 'a..b': 1 }), MongoServerError, 67);
  // By command: the driver drops options that it does not know.
  const unknown = { createIndexes: 'bad', indexes: [{ key: { a: 1 }, name: 'a_1', nonsense: true }] };
  await refused(ctx.db.command(unknown), MongoServerError, 197);
  await c.insertOne({ a: [1], b: [2] });
  await refused(c.createIndex({ a: 1, b: 1 }), MongoServerError, 171);
  await c.createIndex({ p: 1, q: 1 });
  await refused(c.insertOne({ p: [1], q: [1] }), MongoServerError, 171);
});

test('dropping a missing index', async () => {
  const c = await ctx.empty('gone');
  await c.insertOne({});
  await refused(c.dropIndex('none'), MongoServerError, 27);
  await refused(c.dropIndex('_id_'), MongoServerError, 72);
  await refused(ctx.db.command({ listIndexes: 'absent' }), MongoServerError, 26);
});

test('a unique index', async () => {
  const c = await ctx.empty('unique');
  await c.createIndex({ a: 1, b: 1 }, { unique: true });
  await c.insertOne({ _id: 1, a: 1, b: 'x' });
  const e = await refused(c.insertOne({ _id: 2, a: 1, b: 'x' }), MongoServerError, 11000);
  assert.deepEqual(e.keyPattern, { a: 1, b: 1 });
  assert.deepEqual(e.keyValue, { a: 1, b: 'x' });
  assert.equal(e.message, 'E11000 duplicate key error collection: node_indexes.unique index: a_1_b_1 dup key: { a: 1, b: "x" }');
  await c.insertOne({ _id: 3, a: 1, b: 'y' });
  await refused(c.updateOne({ _id: 3 }, { $set: { b: 'x' } }), MongoServerError, 11000);
  await refused(c.replaceOne({ _id: 3 }, { a: 1, b: 'x' }), MongoServerError, 11000);
  await refused(c.findOneAndUpdate({ _id: 3 }, { $set: { b: 'x' } }), MongoServerError, 11000);
  assert.deepEqual(await c.findOne({ _id: 3 }), { _id: 3, a: 1, b: 'y' });
  // The value can be used again after its document is deleted.
  await c.deleteOne({ _id: 1 });
  await c.updateOne({ _id: 3 }, { $set: { b: 'x' } });
});

test('a unique index counts a missing field as null', async () => {
  const c = await ctx.empty('uniqueNull');
  await c.createIndex({ k: 1 }, { unique: true });
  await c.insertOne({ other: 1 });
  await refused(c.insertOne({ k: null }), MongoServerError, 11000);
  const s = await ctx.empty('uniqueSparse');
  await s.createIndex({ k: 1 }, { unique: true, sparse: true });
  await s.insertMany([{ other: 1 }, { other: 2 }, { k: 1 }]);
  await refused(s.insertOne({ k: 1 }), MongoServerError, 11000);
});

test('a unique index over arrays', async () => {
  const c = await ctx.empty('uniqueArray');
  await c.createIndex({ tags: 1 }, { unique: true });
  await c.insertOne({ _id: 1, tags: ['a', 'b', 'a'] }); // one document may repeat a value
  await refused(c.insertOne({ _id: 2, tags: ['c', 'b'] }), MongoServerError, 11000);
  await c.insertOne({ _id: 2, tags: ['c'] });
});

test('a unique index is not built over duplicates', async () => {
  const c = await ctx.empty('late');
  await c.insertMany([{ k: 1 }, { k: 1 }]);
  const e = await refused(c.createIndex({ k: 1 }, { unique: true }), MongoServerError, 11000);
  assert.deepEqual(e.keyValue, { k: 1 });
  assert.deepEqual((await c.indexes()).map((i) => i.name), ['_id_']);
});

test('a partial index serves only queries that it covers', async () => {
  const c = await ctx.empty('partial');
  await c.createIndex({ n: 1 }, { partialFilterExpression: { n: { $gte: 50 } }, unique: true });
  await c.insertMany(Array.from({ length: 100 }, (_, i) => ({ _id: i, n: i })));
  await c.insertOne({ _id: 'free', n: 3 });
  await refused(c.insertOne({ n: 70 }), MongoServerError, 11000);
  const stage = async (filter) => JSON.stringify((await c.find(filter).explain('queryPlanner')).queryPlanner.winningPlan);
  assert.match(await stage({ n: { $gt: 60 } }), /IXSCAN/);
  assert.match(await stage({ n: { $gt: 40 } }), /COLLSCAN/);
  assert.equal(await c.countDocuments({ n: { $gt: 40 } }), 59);
});

test('a hidden index is kept but not used', async () => {
  const c = await ctx.empty('hidden');
  await c.insertMany(Array.from({ length: 50 }, (_, i) => ({ n: i })));
  await c.createIndex({ n: 1 });
  const stage = async () => JSON.stringify((await c.find({ n: 5 }).explain('queryPlanner')).queryPlanner.winningPlan);
  assert.match(await stage(), /IXSCAN/);
  await ctx.db.command({ collMod: 'hidden', index: { name: 'n_1', hidden: true } });
  assert.match(await stage(), /COLLSCAN/);
  await c.insertOne({ n: 100 });
  await ctx.db.command({ collMod: 'hidden', index: { name: 'n_1', hidden: false } });
  assert.match(await stage(), /IXSCAN/);
  assert.equal((await c.find({ n: 100 }).hint({ n: 1 }).toArray()).length, 1);
});

test('an index built over data returns what a scan returns', async () => {
  const c = await ctx.empty('built');
  await c.insertMany(Array.from({ length: 5000 }, (_, i) => ({ _id: i, k: (i * 7919) % 1009, tags: [i % 10, i % 7] })));
  await c.createIndex({ k: 1, tags: -1 });
  for (const filter of [{ k: 5 }, { k: { $gt: 1000 } }, { k: { $lt: 50 }, tags: 3 }]) {
    const byIndex = ids(await c.find(filter).hint({ k: 1, tags: -1 }).toArray()).sort((a, b) => a - b);
    assert.deepEqual(byIndex, ids(await c.find(filter).hint({ $natural: 1 }).toArray()));
    assert.ok(byIndex.length > 0);
  }
});

test('writes continue while an index is built', async () => {
  const c = await ctx.empty('online');
  for (let b = 0; b < 10; b++) await c.insertMany(Array.from({ length: 2000 }, (_, i) => ({ _id: b * 2000 + i, k: i })));
  const build = c.createIndex({ k: 1 });
  for (let i = 0; i < 200; i++) {
    await c.insertOne({ _id: `new${i}`, k: -1 });
    await c.updateOne({ _id: i }, { $set: { k: -2 } });
    await c.deleteOne({ _id: 19_000 + i });
  }
  await build;
  const count = async (filter) => (await c.find(filter).hint({ k: 1 }).toArray()).length;
  assert.equal(await count({ k: -1 }), 200);
  assert.equal(await count({ k: -2 }), 200);
  assert.equal(await count({}), 20_000);
});
