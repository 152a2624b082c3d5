// Databases and collections: created, listed, renamed, modified, dropped, measured.
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { MongoServerError } from 'mongodb';
import { database, refused } from './support.mjs';

const ctx = database('admin');

test('collections are created, listed and dropped', async () => {
  await ctx.db.createCollection('explicit');
  await ctx.db.collection('implicit').insertOne({});
  const listed = await ctx.db.listCollections().toArray();
  assert.deepEqual(listed.map((c) => c.name).sort(), ['explicit', 'implicit']);
  assert.ok(listed.every((c) => c.type === 'collection' && c.info.uuid && c.idIndex.name === '_id_' && c.options));
  assert.deepEqual((await ctx.db.listCollections({ name: 'implicit' }, { nameOnly: true }).toArray()), [{ name: 'implicit', type: 'collection' }]);
  assert.equal(await ctx.db.collection('explicit').drop(), true);
  assert.deepEqual((await ctx.db.collections()).map((c) => c.collectionName), ['implicit']);
});


test('rename', async () => {
  const c = await ctx.empty('from');
  await (await ctx.empty('to')).insertOne({ _id: 'old' });
  await c.insertOne({ _id: 'new' });
  await c.createIndex({ a: 1 });
  await refused(c.rename('to'), MongoServerError, 48);
  await c.rename('to', { dropTarget: true });
  const to = ctx.db.collection('to');
  assert.deepEqual(await to.find().toArray(), [{ _id: 'new' }]);
  assert.equal((await to.indexes()).length, 2);
  await refused(ctx.db.collection('from').rename('elsewhere'), MongoServerError, 26);
  // By command: the driver's helper interprets code 20 differently.
  const itself = { renameCollection: 'node_admin.to', to: 'node_admin.to' };
  await refused(ctx.client.db('admin').command(itself), MongoServerError, 20);
});

test('databases are listed and dropped', async () => {
  const other = ctx.client.db('node_admin_other');
  await other.collection('c').insertOne({});
  const list = await ctx.client.db('admin').admin().listDatabases();
  const entry = list.databases.find((d) => d.name === 'node_admin_other');
  assert.equal(entry.empty, false);
  assert.ok(entry.sizeOnDisk >= 0);
  assert.ok(list.totalSize >= 0);
  const names = await ctx.client.db('admin').admin().listDatabases({ nameOnly: true });
  assert.ok(names.databases.some((d) => d.name === 'node_admin_other'));
  assert.equal(await other.dropDatabase(), true);
  const after = await ctx.client.db('admin').admin().listDatabases({ nameOnly: true });
  assert.ok(!after.databases.some((d) => d.name === 'node_admin_other'));
});

test('the same database in another case is refused', async () => {
  await ctx.client.db('node_admin_case').collection('c').insertOne({});
  await refused(ctx.client.db('node_ADMIN_case').collection('c').insertOne({}), MongoServerError, 13297);
  await ctx.client.db('node_admin_case').dropDatabase();
});

test('invalid names', async () => {
  await refused(ctx.db.command({ create: 'a$b' }), MongoServerError, 73);
  await refused(ctx.db.command({ create: '.a' }), MongoServerError, 73);
  await refused(ctx.db.command({ create: `x${'y'.repeat(300)}` }), MongoServerError, 73);
});

test('sizes of a collection', async () => {
  const c = await ctx.empty('sized');
  await c.insertMany(Array.from({ length: 200 }, (_, i) => ({ _id: i, pad: 'p'.repeat(200) })));
  await c.createIndex({ pad: 1 });
  const s = await ctx.db.command({ collStats: 'sized' });
  assert.deepEqual([s.ns, s.count, s.nindexes], ['node_admin.sized', 200, 2]);
  assert.ok(s.size > 40_000 && s.avgObjSize > 200 && s.storageSize > 0 && s.totalIndexSize > 0);
  const d = await ctx.db.stats();
  assert.ok(d.objects >= 200 && d.collections >= 1 && d.indexes >= 2);
});

test('dropping a collection drops its indexes and data', async () => {
  const c = await ctx.empty('again');
  await c.createIndex({ k: 1 }, { unique: true });
  await c.insertOne({ k: 1 });
  await c.drop();
  await c.insertMany([{ k: 1 }, { k: 1 }]);
  assert.equal((await c.indexes()).length, 1);
  assert.equal(await c.countDocuments(), 2);
});

test('reading a missing collection returns nothing', async () => {
  const c = ctx.db.collection('never');
  assert.equal(await c.findOne({}), null);
  assert.equal(await c.countDocuments(), 0);
  assert.equal(await c.estimatedDocumentCount(), 0);
  assert.deepEqual(await c.distinct('a'), []);
  assert.equal((await c.updateMany({}, { $set: { a: 1 } })).matchedCount, 0);
  assert.equal((await c.deleteMany({})).deletedCount, 0);
  assert.deepEqual(await c.aggregate([{ $match: {} }]).toArray(), []);
  assert.equal((await c.find({}).explain('queryPlanner')).queryPlanner.winningPlan.stage, 'EOF');
});

test('the profiler records the cost of operations', async () => {
  const c = await ctx.empty('profiled');
  await c.insertMany([{ _id: 1, a: 1 }, { _id: 2, a: 2 }]);
  await ctx.db.command({ profile: 2 });
  await c.find({ a: 1 }).comment('look for me').toArray();
  const was = await ctx.db.command({ profile: 0 });
  assert.equal(was.was, 2);
  const entry = await ctx.db.collection('system.profile').findOne({ op: 'query', 'command.comment': 'look for me' });
  assert.deepEqual([entry.ns, entry.docsExamined, entry.nreturned, entry.planSummary], ['node_admin.profiled', 2, 1, 'COLLSCAN']);
});
