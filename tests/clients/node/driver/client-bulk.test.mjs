// MongoClient.bulkWrite: one bulkWrite command over several collections and databases.
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { MongoClient, MongoClientBulkWriteError, MongoServerError } from 'mongodb';
import { database, ids, refused, URI } from './support.mjs';

const ctx = database('client_bulk');

async function two(name) {
  const a = await ctx.empty(name);
  const b = ctx.client.db('node_client_bulk_other').collection(name);
  await b.drop();
  return [a, b];
}

const mixed = (a, b) => [
  { name: 'insertOne', namespace: a.namespace, document: { _id: 1, n: 1 } },
  { name: 'insertOne', namespace: b.namespace, document: { _id: 1 } },
  { name: 'updateOne', namespace: a.namespace, filter: { _id: 1 }, update: { $inc: { n: 10 } } },
  { name: 'updateMany', namespace: a.namespace, filter: {}, update: { $set: { n: 11 } } },
  { name: 'replaceOne', namespace: b.namespace, filter: { _id: 3 }, replacement: { n: 3 }, upsert: true },
  { name: 'deleteOne', namespace: a.namespace, filter: { _id: 2 } },
  { name: 'deleteMany', namespace: b.namespace, filter: {} },
];

test('totals and details', async () => {
  const [a, b] = await two('sums');
  const r = await ctx.client.bulkWrite(mixed(a, b), { verboseResults: true });
  const sums = [r.insertedCount, r.upsertedCount, r.matchedCount, r.modifiedCount, r.deletedCount];
  assert.deepEqual(sums, [2, 1, 2, 1, 2]);
  assert.deepEqual([...r.insertResults.values()].map((i) => i.insertedId), [1, 1]);
  assert.deepEqual([...r.updateResults].map(([i, u]) => [i, u.matchedCount, u.modifiedCount, u.upsertedId]), [
    [2, 1, 1, undefined],
    [3, 1, 0, undefined],
    [4, 1, 0, 3],
  ]);
  assert.deepEqual([...r.deleteResults].map(([i, d]) => [i, d.deletedCount]), [[5, 0], [6, 2]]);
  assert.deepEqual(await a.find().toArray(), [{ _id: 1, n: 11 }]);
});

test('errors keep their indexes', async () => {
  const [a, b] = await two('errors');
  const clashing = [1, 1, 2, 2, 3].map((_id) => ({ name: 'insertOne', namespace: a.namespace, document: { _id } }));
  clashing.push({ name: 'insertOne', namespace: b.namespace, document: { _id: 1 } });
  for (const [ordered, places, inserted] of [[true, [1], 1], [false, [1, 3], 4]]) {
    await a.drop();
    await b.drop();
    const e = await ctx.client.bulkWrite(clashing, { ordered, verboseResults: true }).catch((e) => e);
    assert.ok(e instanceof MongoClientBulkWriteError, e);
    assert.deepEqual([...e.writeErrors.keys()], places);
    for (const error of e.writeErrors.values()) assert.equal(error.code, 11000);
    assert.equal(e.partialResult.insertedCount, inserted);
  }
  await refused(ctx.client.db('admin').command({ bulkWrite: 1, ops: [{ nope: 0 }], nsInfo: [{ ns: 'a.b' }] }), MongoServerError, 40415);
});

test('several commands, several batches', async () => {
  const [a] = await two('many');
  const sent = [];
  const client = new MongoClient(URI, { monitorCommands: true });
  client.on('commandStarted', (e) => sent.push(e.commandName));
  try {
    const models = Array.from({ length: 100_001 }, (_, _id) => ({ name: 'insertOne', namespace: a.namespace, document: { _id } }));
    assert.equal((await client.bulkWrite(models)).insertedCount, 100_001);
    assert.equal(sent.filter((name) => name === 'bulkWrite').length, 2);
    const large = Array.from({ length: 30 }, (_, i) => 'x'.repeat(1_000_000) + i);
    const upserts = large.map((_id) => ({ name: 'updateOne', namespace: a.namespace, filter: { _id }, update: { $set: { n: 1 } }, upsert: true }));
    const r = await client.bulkWrite(upserts, { verboseResults: true });
    assert.deepEqual([...r.updateResults.values()].map((u) => u.upsertedId), large);
    assert.ok(sent.includes('getMore'));
  } finally {
    await client.close();
  }
});

test('in a transaction', async () => {
  const [a, b] = await two('transaction');
  const insert = (c, _id) => ({ name: 'insertOne', namespace: c.namespace, document: { _id } });
  await ctx.client.withSession(async (session) => {
    await session.withTransaction(async () => {
      await ctx.client.bulkWrite([insert(a, 1), insert(b, 1)], { session });
      assert.equal(await a.countDocuments(), 0);
    });
    assert.deepEqual([ids(await a.find().toArray()), ids(await b.find().toArray())], [[1], [1]]);
    session.startTransaction();
    await assert.rejects(ctx.client.bulkWrite([insert(a, 2), insert(b, 1)], { session }), MongoClientBulkWriteError);
    await assert.rejects(session.commitTransaction());
  });
  assert.deepEqual(ids(await a.find().toArray()), [1]);
});
