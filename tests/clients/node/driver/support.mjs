// Shared by the driver's test files: a client and a database per file.
import { after, before } from 'node:test';
import assert from 'node:assert/strict';
import { MongoClient } from 'mongodb';

export const URI = process.env.SHEAF_URI;
export const SOCKET = process.env.SHEAF_SOCKET;

// Opens `client` and an empty database before the file's tests, closes after them.
// `fill` inserts the test data; a second `before` would not wait for this one.
// The returned object is filled in by `before`, so read its fields inside tests.
export function database(name, options = {}, fill = async () => {}) {
  const ctx = { client: null, db: null };
  before(async () => {
    ctx.client = new MongoClient(URI, { serverSelectionTimeoutMS: 5000, ...options });
    ctx.db = ctx.client.db(`node_${name}`);
    await ctx.db.dropDatabase();
    await fill(ctx.db);
  });
  after(async () => {
    await ctx.client.close();
  });
  ctx.empty = async (collection) => {
    const c = ctx.db.collection(collection);
    await c.drop();
    return c;
  };
  return ctx;
}

// The promise must be rejected with this class and MongoDB error code; returns the error.
export async function refused(promise, type, code) {
  let error = null;
  try {
    await promise;
  } catch (e) {
    error = e;
  }
  assert.ok(error, `accepted; expected ${type.name} ${code}`);
  assert.ok(error instanceof type, `${error.constructor.name}: ${error.message}`);
  assert.equal(error.code, code, error.message);
  return error;
}

export const ids = (documents) => documents.map((d) => d._id);

// The server's process id, for totals from its own counters.
export const serverStatus = (client) => client.db('admin').command({ serverStatus: 1 });
