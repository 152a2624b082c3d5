// Cursors over several batches, closed early, lost, and misused.
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { Long, MongoServerError } from 'mongodb';
import { database, ids, refused } from './support.mjs';

const all = Array.from({ length: 1000 }, (_, i) => i);
const ctx = database('cursors', { monitorCommands: true }, async (db) => {
  await db.collection('c').insertMany(all.map((i) => ({ _id: i, g: i % 10 })));
});

// Runs `body`; returns the commands that the driver sent.
async function sent(body) {
  const commands = [];
  const listen = (e) => commands.push(e);
  ctx.client.on('commandStarted', listen);
  await body();
  ctx.client.off('commandStarted', listen);
  return commands.map((e) => e.commandName);
}

test('batches of every size return the same documents', async () => {
  for (const size of [1, 7, 100, 999, 1000, 1001]) {
    const found = ids(await ctx.db.collection('c').find().sort({ _id: 1 }).batchSize(size).toArray());
    assert.deepEqual(found, all, `batchSize ${size}`);
  }
});

test('the number of round trips follows batchSize', async () => {
  const commands = await sent(() => ctx.db.collection('c').find().batchSize(300).toArray());
  assert.deepEqual(commands, ['find', 'getMore', 'getMore', 'getMore']);
});

test('the first batch is 101 documents by default', async () => {
  const r = await ctx.db.command({ find: 'c' });
  assert.equal(r.cursor.firstBatch.length, 101);
  assert.ok(!Long.fromValue(r.cursor.id).isZero());
  assert.equal(r.cursor.ns, 'node_cursors.c');
  const next = await ctx.db.command({ getMore: Long.fromValue(r.cursor.id), collection: 'c' });
  assert.equal(next.cursor.nextBatch.length, 899); // then up to 16 MB
  assert.ok(Long.fromValue(next.cursor.id).isZero());
});

test('limit, skip and batchSize together', async () => {
  const c = ctx.db.collection('c');
  assert.deepEqual(ids(await c.find().sort({ _id: 1 }).skip(10).limit(250).batchSize(100).toArray()), all.slice(10, 260));
  assert.deepEqual(ids(await c.find().sort({ _id: -1 }).limit(3).toArray()), [999, 998, 997]);
  assert.deepEqual(ids(await c.find().skip(995).sort({ _id: 1 }).toArray()), [995, 996, 997, 998, 999]);
  assert.equal((await c.find().skip(5000).toArray()).length, 0);
  assert.equal((await c.find().limit(0).toArray()).length, 1000);
});

test('a limit that fits one batch opens no cursor', async () => {
  assert.deepEqual(await sent(() => ctx.db.collection('c').find().limit(50).toArray()), ['find']);
  const r = await ctx.db.command({ find: 'c', limit: 5, singleBatch: true });
  assert.ok(Long.fromValue(r.cursor.id).isZero());
  const single = await ctx.db.command({ find: 'c', batchSize: 5, singleBatch: true });
  assert.equal(single.cursor.firstBatch.length, 5);
  assert.ok(Long.fromValue(single.cursor.id).isZero());
});

test('batchSize 0 opens a cursor without reading', async () => {
  const r = await ctx.db.command({ find: 'c', batchSize: 0 });
  assert.equal(r.cursor.firstBatch.length, 0);
  const next = await ctx.db.command({ getMore: Long.fromValue(r.cursor.id), collection: 'c', batchSize: 1000 });
  assert.equal(next.cursor.nextBatch.length, 1000);
});

test('for await, tryNext, hasNext, stream', async () => {
  const c = ctx.db.collection('c');
  let n = 0;
  for await (const d of c.find({ g: 3 }).batchSize(9)) n += d.g;
  assert.equal(n, 300);
  const cursor = c.find({ g: 1 }, { limit: 2 });
  assert.equal(await cursor.hasNext(), true);
  assert.equal((await cursor.next()).g, 1);
  assert.equal((await cursor.tryNext()).g, 1);
  assert.equal(await cursor.next(), null);
  let streamed = 0;
  for await (const _ of c.find().batchSize(64).stream()) streamed++;
  assert.equal(streamed, 1000);
});

test('closing early kills the cursor on the server', async () => {
  const cursor = ctx.db.collection('c').find().batchSize(10);
  await cursor.next();
  const id = Long.fromValue(cursor.id);
  const commands = await sent(() => cursor.close());
  assert.deepEqual(commands, ['killCursors']);
  await refused(ctx.db.command({ getMore: id, collection: 'c' }), MongoServerError, 43);
});

test('killCursors reports each cursor', async () => {
  const r = await ctx.db.command({ find: 'c', batchSize: 1 });
  const id = Long.fromValue(r.cursor.id);
  const k = await ctx.db.command({ killCursors: 'c', cursors: [id, Long.fromNumber(424242)] });
  assert.deepEqual(k.cursorsKilled.map(String), [String(id)]);
  assert.deepEqual(k.cursorsNotFound.map(String), ['424242']);
  assert.deepEqual([k.cursorsAlive, k.cursorsUnknown], [[], []]);
});

test('a lost cursor is CursorNotFound', async () => {
  const cursor = ctx.db.collection('c').find().batchSize(2);
  await cursor.next();
  await ctx.db.command({ killCursors: 'c', cursors: [cursor.id] });
  await cursor.next(); // still in the first batch
  const e = await refused(cursor.next(), MongoServerError, 43);
  assert.equal(e.codeName, 'CursorNotFound');
});

test('a cursor belongs to its collection', async () => {
  const r = await ctx.db.command({ find: 'c', batchSize: 1 });
  const id = Long.fromValue(r.cursor.id);
  await refused(ctx.db.command({ getMore: id, collection: 'another' }), MongoServerError, 13);
  const k = await ctx.db.command({ killCursors: 'c', cursors: [id] });
  assert.equal(k.cursorsKilled.length, 1);
});

test('dropping the collection ends its cursors', async () => {
  const c = await ctx.empty('dropped');
  await c.insertMany(all.map((i) => ({ _id: i })));
  const cursor = c.find().batchSize(10);
  await cursor.next();
  await c.drop();
  const rest = async () => { while (await cursor.next()); };
  // Killed with its plan, or already removed.
  await assert.rejects(rest, (e) => e instanceof MongoServerError && [43, 175].includes(e.code));
});

test('a cursor sees no document twice while others insert', async () => {
  const c = await ctx.empty('moving');
  await c.insertMany(all.map((i) => ({ _id: i })));
  const seen = new Set();
  let extra = 0;
  for await (const d of c.find({ _id: { $type: 'number' } }).batchSize(50)) {
    assert.ok(!seen.has(d._id), `${d._id} twice`);
    seen.add(d._id);
    if (seen.size % 100 === 0 && extra < 10) await c.insertOne({ _id: `x${extra++}` });
  }
  assert.equal(seen.size, 1000);
});

test('sorting without an index, over batches', async () => {
  const found = await ctx.db.collection('c').find().sort({ g: -1, _id: 1 }).batchSize(37).toArray();
  assert.equal(found.length, 1000);
  for (let i = 1; i < found.length; i++)
    assert.ok(found[i - 1].g > found[i].g || (found[i - 1].g === found[i].g && found[i - 1]._id < found[i]._id));
});

test('invalid sizes are refused', async () => {
  await refused(ctx.db.command({ find: 'c', batchSize: -1 }), MongoServerError, 2);
  await refused(ctx.db.command({ find: 'c', skip: -1 }), MongoServerError, 2);
  await refused(ctx.db.command({ find: 'c', limit: 'many' }), MongoServerError, 14);
});
