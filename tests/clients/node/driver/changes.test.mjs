// Change streams on the plain standalone server.
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { MongoServerError } from 'mongodb';
import { database } from './support.mjs';

const ctx = database('changes');

// Opens a stream on `target`, runs `write`, returns the next `n` events, closes.
// The stream is open on the server before the write: its first tryNext has returned.
async function events(target, n, write, pipeline = [], options = {}) {
  const stream = target.watch(pipeline, { maxAwaitTimeMS: 50, ...options });
  try {
    if (!options.resumeAfter && !options.startAfter) assert.equal(await stream.tryNext(), null);
    await write();
    const found = [];
    while (found.length < n) found.push(await stream.next());
    return found;
  } finally {
    await stream.close();
  }
}

test('every write of a collection', async () => {
  const c = await ctx.empty('every');
  const [insert, update, replace, remove] = await events(c, 4, async () => {
    await c.insertOne({ _id: 1, a: 1, b: 2 });
    await c.updateOne({ _id: 1 }, { $set: { a: 5 }, $unset: { b: '' } });
    await c.replaceOne({ _id: 1 }, { c: 3 });
    await c.deleteOne({ _id: 1 });
  });
  assert.deepEqual([insert, update, replace, remove].map((e) => e.operationType), ['insert', 'update', 'replace', 'delete']);
  for (const e of [insert, update, replace, remove]) {
    assert.deepEqual([e.ns, e.documentKey], [{ db: 'node_changes', coll: 'every' }, { _id: 1 }]);
    assert.ok(e.clusterTime && e.wallTime instanceof Date);
  }
  assert.deepEqual(insert.fullDocument, { _id: 1, a: 1, b: 2 });
  assert.deepEqual(update.updateDescription, { updatedFields: { a: 5 }, removedFields: ['b'], truncatedArrays: [] });
  assert.equal(update.fullDocument, undefined);
  assert.deepEqual(replace.fullDocument, { _id: 1, c: 3 });
  assert.equal(remove.fullDocument, undefined);
});

test('a database, and the deployment', async () => {
  const one = await ctx.empty('one');
  const two = await ctx.empty('two');
  const write = async () => {
    await one.insertOne({ _id: 1 });
    await two.insertOne({ _id: 2 });
  };
  const seen = (list) => list.map((e) => [e.ns.coll, e.documentKey._id]);
  assert.deepEqual(seen(await events(ctx.db, 2, write)), [['one', 1], ['two', 2]]);
  await one.deleteMany({});
  await two.deleteMany({});
  const mine = [{ $match: { 'ns.db': 'node_changes' } }];
  assert.deepEqual(seen(await events(ctx.client, 2, write, mine)), [['one', 1], ['two', 2]]);
});

test('resumeAfter and startAfter continue after an event', async () => {
  const c = await ctx.empty('resumed');
  const [first] = await events(c, 2, () => c.insertMany([0, 1, 2, 3, 4].map((_id) => ({ _id }))));
  for (const option of ['resumeAfter', 'startAfter']) {
    const later = await events(c, 4, async () => {}, [], { [option]: first._id });
    assert.deepEqual(later.map((e) => e.documentKey._id), [1, 2, 3, 4]);
  }
});

test('a listener receives events', async () => {
  const c = await ctx.empty('listener');
  const stream = c.watch([{ $match: { operationType: 'insert' } }, { $project: { documentKey: 1 } }]);
  const seen = new Promise((resolve, reject) => {
    stream.on('change', resolve);
    stream.on('error', reject);
  });
  // The driver opens the stream later; writes continue until one is received.
  let n = 0;
  const writer = setInterval(() => c.insertOne({ _id: n++ }), 20);
  const event = await seen;
  clearInterval(writer);
  await stream.close();
  assert.deepEqual(Object.keys(event), ['_id', 'documentKey']);
});

test('a pipeline', async () => {
  const c = await ctx.empty('pipeline');
  const pipeline = [{ $match: { operationType: 'insert', 'fullDocument.n': { $gte: 2 } } }, { $set: { twice: { $multiply: ['$fullDocument.n', 2] } } }];
  const found = await events(c, 2, () => c.insertMany([0, 1, 2, 3].map((n) => ({ _id: n, n }))), pipeline);
  assert.deepEqual(found.map((e) => [e.documentKey._id, e.twice]), [[2, 4], [3, 6]]);
});

test('updateLookup', async () => {
  const c = await ctx.empty('lookup');
  await c.insertOne({ _id: 1, a: 1 });
  const [event] = await events(c, 1, () => c.updateOne({ _id: 1 }, { $set: { b: 2 } }), [], { fullDocument: 'updateLookup' });
  assert.deepEqual(event.updateDescription.updatedFields, { b: 2 });
  assert.deepEqual(event.fullDocument, { _id: 1, a: 1, b: 2 });
});

test('dropping the collection invalidates', async () => {
  const c = await ctx.empty('dropped');
  await c.insertOne({ _id: 1 });
  const found = await events(c, 2, () => c.drop());
  assert.deepEqual(found.map((e) => e.operationType), ['drop', 'invalidate']);
});

test('an invalid token', async () => {
  const stream = (await ctx.empty('token')).watch([], { resumeAfter: { _data: 'no token' } });
  await assert.rejects(stream.tryNext(), (e) => e instanceof MongoServerError && e.code === 9);
  await stream.close();
});
