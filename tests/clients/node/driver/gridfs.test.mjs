// GridFS through GridFSBucket: upload, range, revisions, rename, delete.
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { GridFSBucket } from 'mongodb';
import { database } from './support.mjs';

const ctx = database('gridfs');

async function bucket(bucketName) {
  for (const part of ['files', 'chunks']) await ctx.db.collection(`${bucketName}.${part}`).drop();
  return new GridFSBucket(ctx.db, { bucketName });
}

async function upload(b, name, data, options) {
  const stream = b.openUploadStream(name, options);
  await pipeline(Readable.from([data]), stream);
  return stream.id;
}

async function download(stream) {
  const pieces = [];
  for await (const piece of stream) pieces.push(piece);
  return Buffer.concat(pieces);
}

test('uploads can be downloaded, completely and in part', async () => {
  const b = await bucket('whole');
  for (const size of [0, 1, 261_120, 261_121, 1_000_000]) {
    const data = randomBytes(size);
    const id = await upload(b, `f${size}`, data);
    assert.ok(data.equals(await download(b.openDownloadStream(id))));
    for (const [start, end] of [[0, 10], [10, 300_000], [261_119, 261_122], [999_990, 1_000_000]]) {
      if (end > size) continue;
      assert.ok(data.subarray(start, end).equals(await download(b.openDownloadStream(id, { start, end }))));
    }
  }
});

test('revisions, rename, delete, find', async () => {
  const b = await bucket('names');
  const one = await upload(b, 'r', Buffer.from('one'), { metadata: { n: 1 } });
  const two = await upload(b, 'r', Buffer.from('two'), { metadata: { n: 2 } });
  assert.equal((await download(b.openDownloadStreamByName('r'))).toString(), 'two');
  assert.equal((await download(b.openDownloadStreamByName('r', { revision: 0 }))).toString(), 'one');
  await b.rename(one, 'other');
  assert.deepEqual((await b.find({ 'metadata.n': { $lt: 2 } }).toArray()).map((f) => [f.filename, f.length]), [['other', 3]]);
  await b.delete(two);
  await assert.rejects(download(b.openDownloadStream(two)), /FileNotFound/);
  assert.equal(await ctx.db.collection('names.chunks').countDocuments(), 1);
  await b.drop();
  assert.deepEqual(await ctx.db.listCollections({ name: /^names/ }).toArray(), []);
});

test('a large file', async () => {
  const b = await bucket('large');
  const data = randomBytes(20 << 20);
  const id = await upload(b, 'large', data);
  const digest = (bytes) => createHash('sha256').update(bytes).digest('hex');
  assert.equal(digest(await download(b.openDownloadStream(id))), digest(data));
  const indexes = await ctx.db.collection('large.chunks').indexes();
  assert.ok(indexes.some((index) => index.unique && index.name === 'files_id_1_n_1'));
});
