// The table of operators and commands that the drivers' suites share: each once, through Node.
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { BSON } from 'mongodb';
import { database } from './support.mjs';

const file = new URL('../../tables/operators.json', import.meta.url);
const table = BSON.EJSON.parse(readFileSync(file, 'utf8'));
const documents = [1, 2, 3, 4].map((n) => ({ _id: n, n, gap: n === 1 || n === 4 ? n : null }));
const ctx = database('operators', {}, (db) => db.collection('numbers').insertMany(documents));
const numbers = () => ctx.db.collection('numbers');
const plain = (value) => BSON.EJSON.stringify({ value });
const each = (kind, body) => {
  test(kind, async (t) => {
    for (const row of table[kind]) {
      const name = typeof row[0] === 'string' ? row[0] : JSON.stringify(row[0]).slice(0, 60);
      await t.test(name, () => body(...row));
    }
  });
};
const same = (found, expected) => assert.equal(plain(found), plain(expected));

each('expressions', async (expression, expected) => {
  const input = { a: [1, 2, 3], t: new Date('2024-02-29T12:30:05.250Z') };
  const stages = [{ $documents: [input] }, { $replaceWith: { v: expression } }];
  const [found] = await ctx.db.aggregate(stages).toArray();
  same(found.v, expected);
});

each('accumulators', async (accumulator, expected) => {
  const stages = [{ $sort: { n: 1 } }, { $group: { _id: null, v: accumulator } }];
  const [found] = await numbers().aggregate(stages).toArray();
  same(found.v, expected);
});

each('windows', async (operator, expected) => {
  const window = { $setWindowFields: { sortBy: { n: 1 }, output: { v: operator } } };
  const found = await numbers().aggregate([window]).toArray();
  same(found.map((doc) => doc.v), expected);
});

each('queries', async (filter, expected) => {
  const found = await numbers().find(filter).sort({ n: 1 }).toArray();
  same(found.map((doc) => doc.n), expected);
});

each('updates', async (update, options, expected) => {
  const coll = ctx.db.collection('updated');
  await coll.deleteMany({});
  await coll.insertOne({ _id: 1, a: [1, 2, 3], k: 4 });
  await coll.updateOne({}, update, options);
  same(await coll.findOne({}, { projection: { _id: 0 } }), expected);
});

each('stages', async (stages, expected) => same(await numbers().aggregate(stages).toArray(), expected));

each('commands', async (name, command, fields) => {
  const reply = await ctx.client.db('admin').command(command);
  assert.equal(reply.ok, 1);
  for (const field of fields) assert.ok(field in reply, `${name}: ${field}`);
});
