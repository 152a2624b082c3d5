// Query settings, set, listed, applied and removed through the driver on a replica set; statistics
// of queries.
import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { MongoClient, MongoServerError } from 'mongodb';
import { member } from './member.mjs';
import { refused } from './support.mjs';

let set, client, admin, c;
before(async () => {
  set = await member('rs0');
  client = new MongoClient(`mongodb://127.0.0.1:${set.port}/?directConnection=true`);
  admin = client.db('admin');
  c = client.db('node_settings').collection('c');
  await c.insertMany(Array.from({ length: 50 }, (_, n) => ({ _id: n, a: 1, b: n })));
  await c.createIndex({ a: 1 });
  await c.createIndex({ b: 1 });
});
after(async () => {
  await client.close();
  await set.stop();
});

const filter = { a: 1, b: 7 };
const shape = { aggregate: 'c', pipeline: [{ $match: filter }], $db: 'node_settings' };
const listed = () => admin.aggregate([{ $querySettings: { showDebugQueryShape: true } }]).toArray();

test('allowed indexes of a pipeline', async () => {
  const index = async () => (await c.aggregate([{ $match: filter }]).explain()).queryPlanner.winningPlan.inputStage.indexName;
  assert.equal(await index(), 'b_1');
  const indexHints = { ns: { db: 'node_settings', coll: 'c' }, allowedIndexes: [{ a: 1 }] };
  await admin.command({ setQuerySettings: shape, settings: { indexHints } });
  assert.equal(await index(), 'a_1');
  assert.deepEqual((await c.aggregate([{ $match: filter }]).toArray()).map((d) => d._id), [7]);
  const [entry] = await listed();
  assert.deepEqual(entry.settings, { indexHints: [indexHints] });
  assert.equal(entry.debugQueryShape.command, 'aggregate');
  await admin.command({ removeQuerySettings: shape });
  assert.equal(await index(), 'b_1');
  assert.deepEqual(await listed(), []);
});

test('a rejected find', async () => {
  const { queryShapeHash } = await admin.command({ setQuerySettings: { find: 'c', filter, $db: 'node_settings' }, settings: { reject: true } });
  await refused(c.find({ a: 2, b: 3 }).toArray(), MongoServerError, 411);
  await admin.command({ removeQuerySettings: queryShapeHash });
  assert.deepEqual(await c.find({ a: 2, b: 3 }).toArray(), []);
});

test('statistics of queries', async () => {
  await admin.command({ setParameter: 1, internalQueryStatsRateLimit: -1 });
  for (const n of [3, 4]) await c.find({ b: n }).toArray();
  const [entry] = await admin.aggregate([{ $queryStats: {} }, { $match: { 'key.queryShape.command': 'find' } }]).toArray();
  assert.deepEqual(entry.key.queryShape, { cmdNs: { db: 'node_settings', coll: 'c' }, command: 'find', filter: { b: { $eq: '?number' } } });
  assert.match(entry.key.client.driver.name, /nodejs/);
  assert.deepEqual([entry.metrics.execCount, entry.metrics.docsReturned.sum], [2, 2]);
  await admin.command({ setParameter: 1, internalQueryStatsRateLimit: 0 });
  const stages = await admin.aggregate([{ $listMqlEntities: { entityType: 'aggregationStages' } }]).toArray();
  assert.ok(stages.some((stage) => stage.name === '$queryStats'));
});
