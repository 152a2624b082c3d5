// What the server refuses, with which class, code and message.
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { MongoServerError, MongoWriteConcernError } from 'mongodb';
import { database, refused } from './support.mjs';

const ctx = database('errors');

test('unknown commands, stages, operators, modifiers, options: by name', async () => {
  const c = await ctx.empty('c');
  await c.insertOne({ a: 1 });
  const said = async (promise, code, pattern) => assert.match((await refused(promise, MongoServerError, code)).message, pattern);
  await said(ctx.db.command({ frobnicate: 1 }), 59, /no such command: 'frobnicate'/);
  await said(c.findOne({ a: { $frob: 1 } }), 2, /unknown operator: \$frob/);
  await said(c.findOne({ $frob: 1 }), 2, /unknown top level operator: \$frob/);
  await said(c.updateOne({}, { $frob: { a: 1 } }), 9, /unknown modifier: \$frob/i);
  await said(c.aggregate([{ $frob: 1 }]).toArray(), 40324, /Unrecognized pipeline stage name: '\$frob'/);
  await said(ctx.db.command({ find: 'c', frob: 1 }), 40415, /frob/);
  await said(ctx.db.command({ insert: 'c', documents: [{}], frob: 1 }), 40415, /frob/);
  await said(ctx.db.command({ update: 'c', updates: [{ q: {}, u: {}, frob: 1 }] }), 40415, /frob/);
  await said(c.aggregate([{ $project: { x: { $frob: 1 } } }]).toArray(), 31325, /\$frob/);
  await said(c.aggregate([{ $group: { _id: null, x: { $frob: 1 } } }]).toArray(), 15952, /unknown group operator '\$frob'/);
});

test('a message names code and codeName', async () => {
  const e = await refused(ctx.db.command({ frobnicate: 1 }), MongoServerError, 59);
  assert.equal(e.codeName, 'CommandNotFound');
  assert.equal(e.ok, 0);
});

test('missing and mistyped command fields', async () => {
  await refused(ctx.db.command({ insert: 'c' }), MongoServerError, 40414);
  await refused(ctx.db.command({ find: 'c', filter: 5 }), MongoServerError, 14);
  await refused(ctx.db.command({ find: '' }), MongoServerError, 73);
  await refused(ctx.db.command({ insert: 'c', documents: [] }), MongoServerError, 16);
});

test('invalid updates', async () => {
  const c = await ctx.empty('u');
  await c.insertOne({ _id: 1, n: 1, s: 'x', a: [1] });
  const update = (u, options) => c.updateOne({ _id: 1 }, u, options);
  await refused(update({ $set: { n: 1 }, $unset: { n: 1 } }), MongoServerError, 40);
  await refused(update({ $set: { 'a.b': 1 } }), MongoServerError, 28);
  await refused(update({ $inc: { s: 1 } }), MongoServerError, 14);
  await refused(update({ $inc: { n: 'x' } }), MongoServerError, 14);
  await refused(update({ $push: { n: 1 } }), MongoServerError, 2);
  await refused(update({ $pop: { a: 2 } }), MongoServerError, 9);
  await refused(update({ $set: { _id: 2 } }), MongoServerError, 66);
  await refused(c.replaceOne({ _id: 1 }, { _id: 2 }), MongoServerError, 66);
  await refused(update({ $rename: { n: 'n' } }), MongoServerError, 2);
  await refused(update({ $set: { '': 1 } }), MongoServerError, 56);
  await refused(update({ $inc: {} , $set: 5 }), MongoServerError, 9);
  assert.deepEqual(await c.findOne(), { _id: 1, n: 1, s: 'x', a: [1] });
});

test('arithmetic past 64 bits', async () => {
  const c = await ctx.empty('overflow');
  const { Long } = await import('mongodb');
  await c.insertOne({ _id: 1, n: Long.MAX_VALUE });
  await refused(c.updateOne({ _id: 1 }, { $inc: { n: 1 } }), MongoServerError, 2);
});

test('bad queries', async () => {
  const c = await ctx.empty('q');
  await c.insertOne({ a: 1 });
  const find = (filter, options) => c.find(filter, options).toArray();
  await refused(find({ a: { $in: 1 } }), MongoServerError, 2);
  await refused(find({ $and: [] }), MongoServerError, 2);
  await refused(find({ $or: 5 }), MongoServerError, 2);
  await refused(find({ a: { $size: -1 } }), MongoServerError, 2);
  await refused(find({ a: { $mod: [0, 1] } }), MongoServerError, 2);
  await refused(find({ a: { $exists: 1, $elemMatch: 5 } }), MongoServerError, 2);
  await refused(find({ a: { $regex: '[' } }), MongoServerError, 51091);
  await refused(find({ a: { $type: 'nonsense' } }), MongoServerError, 2);
  await refused(find({}, { hint: 'no_such' }), MongoServerError, 2);
  await refused(ctx.db.command({ find: 'q', sort: { a: 5 } }), MongoServerError, 15975);
  await refused(find({}, { min: { a: 1 } }), MongoServerError, 51173);
});

test('invalid ids', async () => {
  const c = await ctx.empty('ids');
  for (const _id of [[1], /x/]) await assert.rejects(c.insertOne({ _id }), MongoServerError);
  assert.equal(await c.countDocuments(), 0);
});

test('dollars and dots in field names are data since MongoDB 5', async () => {
  const c = await ctx.empty('names');
  await c.insertOne({ _id: 1, 'a.b': 1, o: { $x: 1 } });
  assert.deepEqual(await c.findOne(), { _id: 1, 'a.b': 1, o: { $x: 1 } });
});

test('maxTimeMS ends a long operation', async () => {
  const c = await ctx.empty('slow');
  await c.insertMany(Array.from({ length: 20_000 }, (_, i) => ({ _id: i, t: `${'a'.repeat(40)}${i}` })));
  // Forty expressions on each of 20,000 documents take far more than a millisecond.
  const slow = { $or: Array.from({ length: 40 }, (_, i) => ({ t: { $regex: `[xyz]+${i}$` } })) };
  const e = await refused(c.find(slow, { maxTimeMS: 1 }).toArray(), MongoServerError, 50);
  assert.equal(e.codeName, 'MaxTimeMSExpired');
  assert.equal((await c.find({ _id: 7 }, { maxTimeMS: 60_000 }).toArray()).length, 1);
});

test('an unsatisfiable write concern', async () => {
  const c = await ctx.empty('concern');
  const e = await c.insertOne({ _id: 1 }, { writeConcern: { w: 2 } }).catch((x) => x);
  // A standalone server has no second member.
  assert.ok(e instanceof MongoServerError || e instanceof MongoWriteConcernError, String(e));
  assert.equal(e.code, 2);
});

test('the connection remains usable after many errors', async () => {
  for (let i = 0; i < 100; i++) await refused(ctx.db.command({ frobnicate: i }), MongoServerError, 59);
  assert.equal((await ctx.db.command({ ping: 1 })).ok, 1);
});
