// Every write and read helper of a collection, and what it returns.
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { ObjectId } from 'mongodb';
import { database, ids } from './support.mjs';

const ctx = database('crud');

test('insertOne creates an id', async () => {
  const c = await ctx.empty('c');
  const r = await c.insertOne({ a: 1 });
  assert.ok(r.acknowledged && r.insertedId instanceof ObjectId);
  assert.deepEqual(await c.findOne({ _id: r.insertedId }), { _id: r.insertedId, a: 1 });
});

test('insertMany returns every id', async () => {
  const c = await ctx.empty('c');
  const r = await c.insertMany([{ _id: 'a' }, { _id: 2 }, { n: 3 }]);
  assert.equal(r.insertedCount, 3);
  assert.equal(r.insertedIds[0], 'a');
  assert.ok(r.insertedIds[2] instanceof ObjectId);
});

async function numbers(n = 20) {
  const c = await ctx.empty('numbers');
  await c.insertMany(Array.from({ length: n }, (_, i) => ({ _id: i, a: i % 4, b: `v${i}`, deep: { x: i, y: [i, i + 1] } })));
  return c;
}

test('findOne and find with their options', async () => {
  const c = await numbers();
  assert.equal(await c.findOne({ a: 77 }), null);
  assert.deepEqual(await c.findOne({ a: 2 }, { sort: { _id: -1 }, projection: { a: 1 } }), { _id: 18, a: 2 });
  assert.deepEqual(ids(await c.find({ a: 1 }, { sort: { _id: -1 }, skip: 1, limit: 2 }).toArray()), [13, 9]);
  assert.deepEqual(ids(await c.find({ 'deep.x': { $gte: 18 } }).toArray()), [18, 19]);
  assert.deepEqual(ids(await c.find({ 'deep.y': 7 }).toArray()), [6, 7]);
  assert.deepEqual(ids(await c.find({ 'deep.y.1': 7 }).toArray()), [6]);
  assert.deepEqual(ids(await c.find({ $or: [{ _id: 3 }, { b: 'v5' }] }).sort({ _id: 1 }).toArray()), [3, 5]);
  assert.deepEqual(ids(await c.find({ $expr: { $gt: ['$deep.x', 17] } }).toArray()), [18, 19]);
});

test('projections', async () => {
  const c = await ctx.empty('p');
  await c.insertOne({ _id: 1, a: 1, b: { c: 2, d: 3 }, e: [1, 2, 3, 4], f: [{ g: 1, h: 1 }, { g: 2, h: 2 }] });
  const project = (projection, filter = {}) => c.findOne(filter, { projection });
  assert.deepEqual(await project({ a: 1, _id: 0 }), { a: 1 });
  assert.deepEqual(await project({ a: 0, b: 0, f: 0 }), { _id: 1, e: [1, 2, 3, 4] });
  assert.deepEqual(await project({ 'b.c': 1 }), { _id: 1, b: { c: 2 } });
  assert.deepEqual(await project({ b: { d: 1 }, _id: 0 }), { b: { d: 3 } });
  assert.deepEqual(await project({ 'f.g': 1, _id: 0 }), { f: [{ g: 1 }, { g: 2 }] });
  assert.deepEqual(await project({ e: { $slice: 2 }, a: 1 }), { _id: 1, a: 1, e: [1, 2] });
  assert.deepEqual((await project({ e: { $slice: -1 } })).e, [4]);
  assert.deepEqual((await project({ e: { $slice: [1, 2] } })).e, [2, 3]);
  assert.deepEqual(await project({ f: { $elemMatch: { g: 2 } } }), { _id: 1, f: [{ g: 2, h: 2 }] });
  assert.deepEqual(await project({ 'e.$': 1 }, { e: { $gt: 2 } }), { _id: 1, e: [3] });
});

test('hint, min, max, comment, maxTimeMS, let', async () => {
  const c = await numbers();
  await c.createIndex({ a: 1, _id: 1 });
  assert.deepEqual(ids(await c.find({ a: 3 }, { hint: 'a_1__id_1', comment: 'why', maxTimeMS: 10_000 }).toArray()), [3, 7, 11, 15, 19]);
  assert.deepEqual(ids(await c.find({}, { min: { a: 1, _id: 9 }, max: { a: 2, _id: 6 }, hint: { a: 1, _id: 1 } }).toArray()), [9, 13, 17, 2]);
  assert.deepEqual(ids(await c.find({}, { hint: { $natural: -1 }, limit: 2 }).toArray()), [19, 18]);
  assert.deepEqual(ids(await c.find({ $expr: { $eq: ['$_id', '$$wanted'] } }, { let: { wanted: 4 } }).toArray()), [4]);
  assert.equal((await c.find({}, { returnKey: true, hint: { a: 1, _id: 1 }, limit: 1 }).toArray())[0].a, 0);
  assert.ok((await c.find({ _id: 0 }, { showRecordId: true }).toArray())[0].$recordId !== undefined);
});

test('counting and distinct', async () => {
  const c = await numbers();
  assert.equal(await c.countDocuments(), 20);
  assert.equal(await c.countDocuments({ a: 1 }, { skip: 1, limit: 3 }), 3);
  assert.equal(await c.countDocuments({ a: 9 }), 0);
  assert.equal(await c.estimatedDocumentCount(), 20);
  assert.equal(await c.count({ a: { $ne: 0 } }), 15);
  assert.deepEqual(await c.distinct('a'), [0, 1, 2, 3]);
  assert.deepEqual(await c.distinct('deep.y', { _id: { $lte: 1 } }), [0, 1, 2]);
  assert.deepEqual(await c.distinct('absent'), []);
});

test('updates count what they matched and changed', async () => {
  const c = await numbers();
  assert.deepEqual(await c.updateOne({ _id: 1 }, { $set: { a: 1 } }),
    { acknowledged: true, matchedCount: 1, modifiedCount: 0, upsertedCount: 0, upsertedId: null });
  const many = await c.updateMany({ a: 1 }, { $set: { seen: true }, $unset: { b: '' } });
  assert.deepEqual([many.matchedCount, many.modifiedCount], [5, 5]);
  assert.equal((await c.updateOne({ _id: 404 }, { $set: { a: 1 } })).matchedCount, 0);
  assert.equal((await c.replaceOne({ _id: 2 }, { only: 'this' })).modifiedCount, 1);
  assert.deepEqual(await c.findOne({ _id: 2 }), { _id: 2, only: 'this' });
});

test('update operators', async () => {
  const c = await ctx.empty('ops');
  await c.insertOne({ _id: 1, n: 10, s: 'x', o: { p: 1 } });
  const apply = async (update) => {
    const d = await c.findOneAndUpdate({ _id: 1 }, update, { returnDocument: 'after', projection: { _id: 0 } });
    return d;
  };
  assert.equal((await apply({ $inc: { n: 5 } })).n, 15);
  assert.equal((await apply({ $mul: { n: 2 } })).n, 30);
  assert.equal((await apply({ $min: { n: 3 } })).n, 3);
  assert.equal((await apply({ $max: { n: 8 } })).n, 8);
  assert.deepEqual((await apply({ $rename: { s: 't' } })), { n: 8, o: { p: 1 }, t: 'x' });
  assert.deepEqual((await apply({ $set: { 'o.q.r': 1 } })).o, { p: 1, q: { r: 1 } });
  assert.deepEqual((await apply({ $unset: { 'o.q': 1, t: 1 } })), { n: 8, o: { p: 1 } });
  assert.equal((await apply({ $inc: { fresh: 2 } })).fresh, 2);
  const dated = await apply({ $currentDate: { when: true, stamp: { $type: 'timestamp' } } });
  assert.ok(dated.when instanceof Date);
  assert.equal(dated.stamp._bsontype, 'Timestamp');
});

test('array update operators', async () => {
  const c = await ctx.empty('arrays');
  await c.insertOne({ _id: 1, a: [3, 1, 2], o: [{ k: 1, v: 'a' }, { k: 2, v: 'b' }] });
  const a = async (update, filter = { _id: 1 }) => (await c.findOneAndUpdate(filter, update, { returnDocument: 'after' })).a;
  assert.deepEqual(await a({ $push: { a: 4 } }), [3, 1, 2, 4]);
  assert.deepEqual(await a({ $push: { a: { $each: [9, 8], $position: 0, $slice: 5 } } }), [9, 8, 3, 1, 2]);
  assert.deepEqual(await a({ $push: { a: { $each: [], $sort: -1 } } }), [9, 8, 3, 2, 1]);
  assert.deepEqual(await a({ $addToSet: { a: 9 } }), [9, 8, 3, 2, 1]);
  assert.deepEqual(await a({ $pull: { a: { $in: [9, 1] } } }), [8, 3, 2]);
  assert.deepEqual(await a({ $pop: { a: 1 } }), [8, 3]);
  assert.deepEqual(await a({ $set: { 'a.3': 5 } }), [8, 3, null, 5]);
  await c.updateOne({ _id: 1 }, { $pull: { o: { k: 1 } } });
  assert.deepEqual((await c.findOne({})).o, [{ k: 2, v: 'b' }]);
});

test('upserts', async () => {
  const c = await ctx.empty('upserts');
  const r = await c.updateOne({ _id: 5, k: { $eq: 'x' } }, { $setOnInsert: { made: 1 }, $inc: { n: 1 } }, { upsert: true });
  assert.deepEqual([r.matchedCount, r.modifiedCount, r.upsertedCount, r.upsertedId], [0, 0, 1, 5]);
  assert.deepEqual(await c.findOne({ _id: 5 }), { _id: 5, k: 'x', made: 1, n: 1 });
  const again = await c.updateOne({ _id: 5 }, { $setOnInsert: { made: 2 }, $inc: { n: 1 } }, { upsert: true });
  assert.deepEqual([again.matchedCount, again.modifiedCount, again.upsertedCount], [1, 1, 0]);
  const replaced = await c.replaceOne({ k: 'none' }, { k: 'new' }, { upsert: true });
  assert.ok(replaced.upsertedId instanceof ObjectId);
  const many = await c.updateMany({ k: 'many' }, { $set: { v: 1 } }, { upsert: true });
  assert.equal(many.upsertedCount, 1);
});

test('findOneAnd*', async () => {
  const c = await ctx.empty('fam');
  await c.insertMany([{ _id: 1, n: 3 }, { _id: 2, n: 1 }, { _id: 3, n: 2 }]);
  assert.deepEqual(await c.findOneAndUpdate({}, { $inc: { n: 10 } }, { sort: { n: 1 } }), { _id: 2, n: 1 });
  assert.deepEqual(await c.findOneAndUpdate({ _id: 1 }, { $inc: { n: 1 } }, { returnDocument: 'after' }), { _id: 1, n: 4 });
  assert.deepEqual(await c.findOneAndReplace({ _id: 3 }, { z: 1 }, { returnDocument: 'after' }), { _id: 3, z: 1 });
  assert.deepEqual(await c.findOneAndDelete({ _id: 3 }, { projection: { _id: 0 } }), { z: 1 });
  assert.equal(await c.findOneAndDelete({ _id: 3 }), null);
  assert.equal(await c.findOneAndUpdate({ _id: 9 }, { $set: { v: 1 } }, { upsert: true }), null);
  const raw = await c.findOneAndUpdate({ _id: 10 }, { $set: { v: 1 } }, { upsert: true, returnDocument: 'after', includeResultMetadata: true });
  assert.deepEqual(raw.value, { _id: 10, v: 1 });
  assert.deepEqual(raw.lastErrorObject, { n: 1, updatedExisting: false, upserted: 10 });
});

test('deletes', async () => {
  const c = await numbers();
  assert.deepEqual(await c.deleteOne({ a: 1 }), { acknowledged: true, deletedCount: 1 });
  assert.equal((await c.deleteMany({ a: 1 })).deletedCount, 4);
  assert.equal((await c.deleteMany({ a: 1 })).deletedCount, 0);
  assert.equal((await c.deleteMany({})).deletedCount, 15);
  assert.equal(await c.countDocuments(), 0);
});

test('aggregation stages that the find layer executes', async () => {
  const c = await numbers();
  assert.deepEqual(await c.aggregate([{ $group: { _id: '$a', sum: { $sum: '$_id' }, n: { $sum: 1 } } }, { $sort: { _id: 1 } }]).toArray(),
    [{ _id: 0, sum: 40, n: 5 }, { _id: 1, sum: 45, n: 5 }, { _id: 2, sum: 50, n: 5 }, { _id: 3, sum: 55, n: 5 }]);
  assert.deepEqual(await c.aggregate([{ $match: { a: 2 } }, { $count: 'n' }]).toArray(), [{ n: 5 }]);
  assert.deepEqual(await c.aggregate([{ $match: { a: 9 } }, { $count: 'n' }]).toArray(), []);
  assert.deepEqual(await c.aggregate([{ $sort: { _id: -1 } }, { $skip: 2 }, { $limit: 2 }, { $project: { b: 1 } }]).toArray(),
    [{ _id: 17, b: 'v17' }, { _id: 16, b: 'v16' }]);
  assert.equal((await c.aggregate([{ $match: {} }], { batchSize: 3 }).toArray()).length, 20);
  const stats = await c.aggregate([{ $collStats: { count: {}, storageStats: {} } }]).toArray();
  assert.equal(stats[0].count, 20);
  assert.equal(stats[0].storageStats.count, 20);
});

test('explain', async () => {
  const c = await numbers();
  await c.createIndex({ a: 1, _id: 1 });
  const e = await c.find({ a: 2 }).sort({ _id: -1 }).limit(3).explain('executionStats');
  assert.equal(e.executionStats.nReturned, 3);
  assert.equal(e.executionStats.totalKeysExamined, 3);
  assert.equal(e.executionStats.totalDocsExamined, 3);
  assert.equal(e.queryPlanner.winningPlan.stage, 'LIMIT');
  const scan = e.queryPlanner.winningPlan.inputStage.inputStage;
  assert.deepEqual([scan.stage, scan.indexName, scan.direction], ['IXSCAN', 'a_1__id_1', 'backward']);
  assert.deepEqual(scan.indexBounds, { a: ['[2, 2]'], _id: ['[MaxKey, MinKey]'] });
  assert.equal((await c.find({ b: 'v1' }).explain('queryPlanner')).queryPlanner.winningPlan.stage, 'COLLSCAN');
  assert.ok((await c.find({ a: { $gte: 0 } }).explain('allPlansExecution')).executionStats.allPlansExecution);
});
