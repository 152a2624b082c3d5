// A replica set of one member: retryable writes are on, and a lost reply causes no duplicate write.
import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { MongoClient } from 'mongodb';
import { member, proxy } from './member.mjs';

let set;
before(async () => {
  set = await member('rs0');
});
after(() => set.stop());

// A client, and the commands that it sent: named(commandName).
function connect(port, how) {
  const client = new MongoClient(`mongodb://127.0.0.1:${port}/?${how}`, { monitorCommands: true, serverSelectionTimeoutMS: 5000 });
  const commands = [];
  client.on('commandStarted', (e) => commands.push(e));
  return { client, named: (name) => commands.filter((e) => e.commandName === name).map((e) => e.command) };
}

for (const [how, kind] of [['directConnection=true', 'Single'], ['replicaSet=rs0', 'ReplicaSetWithPrimary']]) {
  test(`writes carry numbers: ${how}`, async () => {
    const { client, named } = connect(set.port, how);
    const numbered = (name) => named(name).map((c) => c.txnNumber !== undefined);
    try {
      const kinds = new Set();
      client.on('topologyDescriptionChanged', (e) => kinds.add(e.newDescription.type));
      const c = client.db('node_set').collection('numbered');
      await c.drop();
      await c.insertOne({ _id: 1, n: 0 });
      assert.ok(kinds.has(kind), [...kinds].join());
      await c.insertMany([{ _id: 2 }, { _id: 3 }]);
      await c.updateOne({ _id: 1 }, { $inc: { n: 1 } });
      assert.equal((await c.findOneAndUpdate({ _id: 1 }, { $inc: { n: 1 } })).n, 1);
      assert.deepEqual(await c.findOneAndReplace({ _id: 2 }, { r: 1 }), { _id: 2 });
      assert.deepEqual(await c.findOneAndDelete({ _id: 3 }), { _id: 3 });
      await c.bulkWrite([
        { insertOne: { document: { _id: 4 } } },
        { updateOne: { filter: { _id: 4 }, update: { $set: { b: 1 } } } },
        { deleteOne: { filter: { _id: 2 } } },
      ]);
      // Writes to many documents are not retryable: the driver sends no number.
      await c.updateMany({}, { $set: { m: 1 } });
      assert.deepEqual(await c.find({}, { sort: { _id: 1 } }).toArray(), [{ _id: 1, n: 2, m: 1 }, { _id: 4, b: 1, m: 1 }]);
      assert.deepEqual(numbered('insert'), [true, true, true]);
      assert.deepEqual(numbered('update'), [true, true, false]);
      assert.deepEqual(numbered('findAndModify'), [true, true, true]);
      assert.deepEqual(numbered('delete'), [true]);
    } finally {
      await client.close();
    }
  });
}

test('a lost reply causes no duplicate write', async () => {
  const between = await proxy(set.port);
  const { client, named } = connect(between.port, 'directConnection=true');
  try {
    const c = client.db('node_set').collection('once');
    await c.drop();
    between.marker = 'first-of-all';
    await c.insertOne({ _id: 'first-of-all', n: 0 });
    between.marker = 'inc-by-update';
    assert.equal((await c.updateOne({ _id: 'first-of-all' }, { $inc: { n: 1 } }, { comment: 'inc-by-update' })).modifiedCount, 1);
    between.marker = 'inc-by-modify';
    const before = await c.findOneAndUpdate({ _id: 'first-of-all' }, { $inc: { n: 1 } }, { comment: 'inc-by-modify' });
    assert.deepEqual(before, { _id: 'first-of-all', n: 1 });
    await c.insertMany([{ _id: 2, k: 1 }, { _id: 3, k: 1 }]);
    between.marker = 'one-of-two';
    assert.equal((await c.deleteOne({ k: 1 }, { comment: 'one-of-two' })).deletedCount, 1);
    assert.equal((await c.findOne({ _id: 'first-of-all' })).n, 2);
    assert.equal(await c.countDocuments({ k: 1 }), 1);
    assert.equal(between.lost, 4);
    for (const [name, times] of [['insert', 3], ['update', 2], ['findAndModify', 2], ['delete', 2]]) {
      const found = named(name);
      assert.equal(found.length, times, name);
      assert.deepEqual([found[0].lsid, found[0].txnNumber], [found[1].lsid, found[1].txnNumber]);
    }
  } finally {
    await client.close();
    between.stop();
  }
});

test('a lost reply to a commit', async () => {
  const between = await proxy(set.port);
  const { client, named } = connect(between.port, 'directConnection=true');
  try {
    const c = client.db('node_set').collection('committed');
    await c.drop();
    await c.insertOne({ _id: 1, n: 0 });
    await client.withSession((session) =>
      session.withTransaction(async () => {
        await c.updateOne({ _id: 1 }, { $inc: { n: 1 } }, { session });
        between.marker = 'commitTransaction';
      }),
    );
    assert.equal((await c.findOne()).n, 1);
    assert.equal(between.lost, 1);
    assert.equal(named('commitTransaction').length, 2);
  } finally {
    await client.close();
    between.stop();
  }
});
