// Connecting: the handshake, monitoring, sessions, compression, sockets, many clients.
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { MongoClient } from 'mongodb';
import { database, serverStatus, SOCKET, URI } from './support.mjs';

const ctx = database('connect', { monitorCommands: true, appName: 'sheaf suite' });

test('the handshake returns what drivers need', async () => {
  const hello = await ctx.client.db('admin').command({ hello: 1 });
  assert.equal(hello.isWritablePrimary, true);
  assert.equal(hello.maxBsonObjectSize, 16 * 1024 * 1024);
  assert.equal(hello.maxMessageSizeBytes, 48_000_000);
  assert.equal(hello.maxWriteBatchSize, 100_000);
  assert.equal(hello.minWireVersion, 0);
  assert.equal(hello.readOnly, false);
  assert.ok(hello.localTime instanceof Date);
  assert.equal(typeof hello.connectionId, 'number');
});

test('ping and the legacy isMaster', async () => {
  assert.equal((await ctx.client.db('admin').command({ ping: 1 })).ok, 1);
  const legacy = await ctx.client.db('admin').command({ isMaster: 1 });
  assert.equal(legacy.ismaster, true);
});

test('the topology is a standalone server', async () => {
  const kinds = new Set();
  const client = new MongoClient(URI);
  client.on('serverDescriptionChanged', (e) => kinds.add(e.newDescription.type));
  await client.connect();
  assert.ok(kinds.has('Standalone'), [...kinds].join());
  await client.close();
});

test('monitoring keeps the connection alive through heartbeats', async () => {
  const client = new MongoClient(URI, { heartbeatFrequencyMS: 500, minHeartbeatFrequencyMS: 500 });
  let beats = 0;
  const enough = new Promise((resolve, reject) => {
    client.on('serverHeartbeatSucceeded', () => ++beats >= 3 && resolve());
    client.on('serverHeartbeatFailed', (e) => reject(e.failure));
  });
  await client.connect();
  await enough;
  await client.close();
});

test('implicit sessions are sent only if the server announces them', async () => {
  const hello = await ctx.client.db('admin').command({ hello: 1 });
  const started = [];
  const listen = (e) => started.push(e);
  ctx.client.on('commandStarted', listen);
  await ctx.db.collection('s').findOne({});
  ctx.client.off('commandStarted', listen);
  const find = started.find((e) => e.commandName === 'find');
  assert.equal(find.command.lsid !== undefined, hello.logicalSessionTimeoutMinutes !== undefined);
});

test('an explicit session carries several operations', async () => {
  const session = ctx.client.startSession();
  const c = await ctx.empty('sessions');
  await c.insertOne({ _id: 1 }, { session });
  assert.deepEqual(await c.find({}, { session }).toArray(), [{ _id: 1 }]);
  await session.endSession();
});

test('withSession ends its session', async () => {
  await ctx.client.withSession(async (session) => {
    assert.equal(await ctx.db.collection('sessions').countDocuments({}, { session }), 1);
  });
});

for (const compressor of ['snappy', 'zlib']) {
  test(`compression with ${compressor}`, async (t) => {
    const client = new MongoClient(URI, { compressors: [compressor] });
    const c = client.db('node_connect').collection(`compressed_${compressor}`);
    await c.drop();
    const before = (await serverStatus(client)).network.compression[compressor];
    const text = 'compressible '.repeat(20_000);
    await c.insertOne({ _id: 1, text });
    assert.equal((await c.findOne({ _id: 1 })).text, text);
    const after = (await serverStatus(client)).network.compression[compressor];
    // The decompressed input grew by at least the text; far less was received.
    const unpacked = Number(after.decompressor.bytesOut) - Number(before.decompressor.bytesOut);
    const packed = Number(after.decompressor.bytesIn) - Number(before.decompressor.bytesIn);
    assert.ok(unpacked > text.length, `unpacked ${unpacked}`);
    assert.ok(packed * 5 < unpacked, `packed ${packed} of ${unpacked}`);
    assert.ok(Number(after.compressor.bytesIn) - Number(before.compressor.bytesIn) > text.length);
    await client.close();
  });
}

test('over the unix socket', async () => {
  const client = new MongoClient(`mongodb://${encodeURIComponent(SOCKET)}/`);
  const c = client.db('node_connect').collection('socket');
  await c.drop();
  await c.insertMany(Array.from({ length: 500 }, (_, i) => ({ _id: i })));
  assert.equal((await c.find().batchSize(50).toArray()).length, 500);
  await client.close();
});

test('eight clients write and read at once', async () => {
  const c = await ctx.empty('parallel');
  await Promise.all(
    Array.from({ length: 8 }, async (_, who) => {
      const client = new MongoClient(URI, { maxPoolSize: 4 });
      const mine = client.db('node_connect').collection('parallel');
      for (let i = 0; i < 100; i++) {
        await mine.insertOne({ _id: `${who}-${i}`, who });
        await mine.updateOne({ _id: 'counter' }, { $inc: { n: 1 } }, { upsert: i === 0 }).catch((e) => {
          // Two upserts of one _id may conflict; the loser gets an error and updates instead.
          if (e.code !== 11000) throw e;
          return mine.updateOne({ _id: 'counter' }, { $inc: { n: 1 } });
        });
      }
      assert.equal(await mine.countDocuments({ who }), 100);
      await client.close();
    }),
  );
  assert.equal(await c.countDocuments(), 801);
  assert.equal((await c.findOne({ _id: 'counter' })).n, 800);
});

test('one client with a hundred operations in flight', async () => {
  const c = await ctx.empty('inflight');
  await Promise.all(Array.from({ length: 100 }, (_, i) => c.insertOne({ _id: i })));
  const found = await Promise.all(Array.from({ length: 100 }, (_, i) => c.findOne({ _id: i })));
  assert.deepEqual(found.map((d) => d._id), Array.from({ length: 100 }, (_, i) => i));
});

test('write concerns that a standalone server can satisfy', async () => {
  const c = await ctx.empty('concern');
  await c.insertOne({ _id: 1 }, { writeConcern: { w: 1, j: true } });
  await c.insertOne({ _id: 2 }, { writeConcern: { w: 'majority' } });
  const unacknowledged = await c.insertOne({ _id: 3 }, { writeConcern: { w: 0 } });
  assert.equal(unacknowledged.acknowledged, false);
  // An unacknowledged write has no reply: poll until it is visible.
  for (let tries = 0; tries < 100 && (await c.countDocuments()) < 3; tries++) await new Promise((r) => setTimeout(r, 20));
  assert.equal(await c.countDocuments(), 3);
});
