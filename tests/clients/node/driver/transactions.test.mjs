// Sessions and transactions on the plain standalone server, with no set-up step.
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { MongoServerError } from 'mongodb';
import { database, ids, refused } from './support.mjs';

const ctx = database('transactions', { monitorCommands: true });

// Runs `body`; returns the commands of this name that the driver sent.
async function sent(name, body) {
  const commands = [];
  const listen = (e) => e.commandName === name && commands.push(e.command);
  ctx.client.on('commandStarted', listen);
  await body();
  ctx.client.off('commandStarted', listen);
  return commands;
}

test('two collections commit as one', async () => {
  const a = await ctx.empty('commit_a');
  const b = await ctx.empty('commit_b');
  await a.insertOne({ _id: 1, n: 5 });
  await b.insertOne({ _id: 1, n: 0 });
  const session = ctx.client.startSession();
  session.startTransaction({ readConcern: { level: 'snapshot' }, writeConcern: { w: 'majority' } });
  await a.updateOne({ _id: 1 }, { $inc: { n: -5 } }, { session });
  await b.bulkWrite([{ updateOne: { filter: { _id: 1 }, update: { $inc: { n: 5 } } } }, { insertOne: { document: { _id: 2 } } }], { session });
  assert.deepEqual(await b.findOneAndUpdate({ _id: 2 }, { $set: { n: 7 } }, { session }), { _id: 2 });
  assert.deepEqual(await b.aggregate([{ $sort: { _id: 1 } }], { session }).toArray(), [{ _id: 1, n: 5 }, { _id: 2, n: 7 }]);
  assert.deepEqual([(await a.findOne()).n, (await b.findOne()).n, await b.countDocuments()], [5, 0, 1]);
  await session.commitTransaction();
  await session.commitTransaction(); // repeated: the transaction stays committed
  await session.endSession();
  assert.deepEqual([(await a.findOne()).n, (await b.findOne({ _id: 1 })).n, await b.countDocuments()], [0, 5, 2]);
});

test('abortTransaction leaves nothing', async () => {
  const a = await ctx.empty('abort_a');
  const b = await ctx.empty('abort_b');
  await a.insertOne({ _id: 1 });
  const session = ctx.client.startSession();
  session.startTransaction();
  await a.deleteOne({ _id: 1 }, { session });
  await b.insertOne({ _id: 1 }, { session });
  assert.equal(await a.countDocuments({}, { session }), 0);
  await session.abortTransaction();
  await session.endSession();
  assert.deepEqual([await a.countDocuments(), await b.countDocuments()], [1, 0]);
});

test('a failed statement ends the transaction', async () => {
  const c = await ctx.empty('failed');
  await c.insertOne({ _id: 1 });
  const session = ctx.client.startSession();
  session.startTransaction();
  await c.insertOne({ _id: 2 }, { session });
  await refused(c.insertOne({ _id: 1 }, { session }), MongoServerError, 11000);
  const e = await refused(c.findOne({}, { session }), MongoServerError, 251);
  assert.ok(e.hasErrorLabel('TransientTransactionError'));
  await session.abortTransaction();
  await session.endSession();
  assert.deepEqual(ids(await c.find().toArray()), [1]);
});

test('withTransaction retries after a conflict', async () => {
  const c = await ctx.empty('retried');
  await c.insertOne({ _id: 1, n: 0 });
  const failures = [];
  const answer = await ctx.client.withSession((session) =>
    session.withTransaction(async () => {
      const { n } = await c.findOne({ _id: 1 }, { session });
      if (failures.length === 0) await c.updateOne({ _id: 1 }, { $inc: { n: 10 } }); // another client, after this snapshot
      try {
        await c.updateOne({ _id: 1 }, { $set: { n: n + 1 } }, { session });
      } catch (e) {
        failures.push([e.code, e.codeName, e.hasErrorLabel('TransientTransactionError')]);
        throw e;
      }
      return 'done';
    }),
  );
  assert.equal(answer, 'done');
  assert.deepEqual(failures, [[112, 'WriteConflict', true]]);
  assert.equal((await c.findOne()).n, 11);
});

test('a cursor of several batches inside a transaction', async () => {
  const c = await ctx.empty('cursor');
  const all = Array.from({ length: 250 }, (_, i) => i);
  await c.insertMany(all.map((_id) => ({ _id })));
  await ctx.client.withSession((session) =>
    session.withTransaction(async () => {
      const cursor = c.find({}, { session, batchSize: 100, sort: { _id: 1 } });
      assert.deepEqual(await cursor.next(), { _id: 0 });
      await c.deleteMany({}); // another client, after the snapshot
      assert.deepEqual(ids(await cursor.toArray()), all.slice(1));
    }),
  );
  assert.equal(await c.countDocuments(), 0);
});

test('causally consistent sessions', async () => {
  const c = await ctx.empty('causal');
  const writer = ctx.client.startSession({ causalConsistency: true });
  const reader = ctx.client.startSession({ causalConsistency: true });
  await c.insertOne({ _id: 1 }, { session: writer });
  assert.ok(writer.operationTime && writer.clusterTime);
  reader.advanceClusterTime(writer.clusterTime);
  reader.advanceOperationTime(writer.operationTime);
  const [find] = await sent('find', async () => assert.deepEqual(await c.findOne({ _id: 1 }, { session: reader }), { _id: 1 }));
  assert.deepEqual(find.readConcern.afterClusterTime, writer.operationTime);
  assert.ok(reader.operationTime.greaterThanOrEqual(writer.operationTime));
  await writer.endSession();
  await reader.endSession();
});

test('a snapshot session reads the same twice', async () => {
  const c = await ctx.empty('snapshot');
  await c.insertMany([{ _id: 1, n: 1 }, { _id: 2, n: 2 }]);
  const session = ctx.client.startSession({ snapshot: true });
  const read = () => c.find({}, { session, sort: { _id: 1 } }).toArray();
  assert.deepEqual(await read(), [{ _id: 1, n: 1 }, { _id: 2, n: 2 }]);
  await c.updateOne({ _id: 1 }, { $set: { n: 100 } });
  await c.insertOne({ _id: 3, n: 3 });
  assert.deepEqual(await read(), [{ _id: 1, n: 1 }, { _id: 2, n: 2 }]);
  assert.deepEqual(await c.aggregate([{ $group: { _id: null, n: { $sum: '$n' } } }], { session }).toArray(), [{ _id: null, n: 3 }]);
  assert.deepEqual((await c.distinct('n', {}, { session })).sort(), [1, 2]);
  await session.endSession();
  assert.equal(await c.countDocuments(), 3);
});

// Retryable writes are for replica sets: the driver omits txnNumber.
test('the driver sends no number to a standalone', async () => {
  const c = await ctx.empty('plain');
  const [insert] = await sent('insert', () => c.insertOne({ _id: 1 }));
  assert.deepEqual([insert.txnNumber === undefined, insert.lsid !== undefined], [true, true]);
});
