// Vector indexes and $vectorSearch by the driver's helpers.
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { MongoServerError } from 'mongodb';
import { database, ids, refused } from './support.mjs';

const ctx = database('vectors');
const definition = {
  fields: [
    { type: 'vector', path: 'plot.embedding', numDimensions: 2, similarity: 'dotProduct' },
    { type: 'filter', path: 'year' },
    { type: 'filter', path: 'tags' },
  ],
};
const near = (queryVector, more) => ({ $vectorSearch: { index: 'plots', path: 'plot.embedding', queryVector, limit: 2, numCandidates: 20, ...more } });

test('an index is created, searched, listed and dropped', async () => {
  const c = await ctx.db.createCollection('films');
  await c.insertMany([
    { _id: 1, year: 1999, tags: ['a', 'b'], plot: { embedding: [1, 0] } },
    { _id: 2, year: 2005, tags: ['b'], plot: { embedding: [0.5, 0.5] } },
    { _id: 3, year: 2020, tags: [], plot: { embedding: [0, 1] } },
    { _id: 4, year: 2021, plot: { embedding: 'none' } },
  ]);
  assert.equal(await c.createSearchIndex({ name: 'plots', type: 'vectorSearch', definition }), 'plots');
  const found = (query, more) => c.aggregate([near(query, more)]).toArray();
  assert.deepEqual(ids(await found([1, 0.25])), [1, 2]);
  assert.deepEqual(ids(await found([1, 0.25], { filter: { year: { $gte: 2000 } } })), [2, 3]);
  // One element of an array suffices, as in a $match.
  assert.deepEqual(ids(await found([0, 1], { filter: { tags: 'b' } })), [2, 1]);
  assert.deepEqual(ids(await found([0, 1], { filter: { $and: [{ tags: { $ne: 'b' } }, { year: { $lt: 2021 } }] } })), [3]);
  const [listed] = await c.listSearchIndexes('plots').toArray();
  assert.deepEqual([listed.name, listed.status, listed.queryable, listed.type], ['plots', 'READY', true, 'vectorSearch']);
  assert.deepEqual(listed.latestDefinition.fields.map((f) => f.path), ['plot.embedding', 'year', 'tags']);
  await c.dropSearchIndex('plots');
  assert.deepEqual(await c.listSearchIndexes().toArray(), []);
  assert.deepEqual(await found([1, 0]), []);
});

test('results pass through the following stages with their scores', async () => {
  const c = await ctx.db.createCollection('stages');
  await c.insertMany(Array.from({ length: 30 }, (_, i) => ({ _id: i, year: i % 3, plot: { embedding: [i / 32, 1] } })));
  await c.createSearchIndex({ name: 'plots', type: 'vectorSearch', definition });
  const pipeline = [
    near([1, 0], { limit: 6 }),
    { $set: { score: { $meta: 'vectorSearchScore' } } },
    { $group: { _id: '$year', best: { $max: '$score' }, n: { $sum: 1 } } },
    { $sort: { _id: 1 } },
  ];
  // The last six, two of each year; a score is (1 + i / 32) / 2.
  const best = (i) => (1 + i / 32) / 2;
  assert.deepEqual(await c.aggregate(pipeline).toArray(), [
    { _id: 0, best: best(27), n: 2 },
    { _id: 1, best: best(28), n: 2 },
    { _id: 2, best: best(29), n: 2 },
  ]);
});

test('where a search is not allowed', async () => {
  const c = await ctx.db.createCollection('places');
  await refused(c.aggregate([{ $limit: 1 }, near([1, 0])]).toArray(), MongoServerError, 40602);
  await refused(c.aggregate([{ $facet: { a: [near([1, 0])] } }]).toArray(), MongoServerError, 40600);
  await refused(c.aggregate([near([1, 0], { limit: 0 })]).toArray(), MongoServerError, 2);
});
