// Change streams on a plain single node.

function next(stream) {
  for (let i = 0; i < 50; i++) {
    const e = stream.tryNext();
    if (e !== null) return e;
  }
  throw new Error('no event came');
}
function brief(e) {
  const out = { operationType: e.operationType };
  for (const k of ['ns', 'documentKey', 'fullDocument', 'updateDescription', 'fullDocumentBeforeChange', 'to']) if (e[k] !== undefined) out[k] = e[k];
  return out;
}

test('the events of a collection', () => {
  const c = empty('csone');
  c.insertOne({ _id: 0 });
  const s = c.watch();
  const ns = { db: db.getName(), coll: 'csone' };
  c.insertOne({ _id: 1, a: 1, b: 'some longer text', list: [1, 2, 3], sub: { x: 1, y: 'more longer text' } });
  same(brief(next(s)), { operationType: 'insert', ns: ns, documentKey: { _id: 1 }, fullDocument: { _id: 1, a: 1, b: 'some longer text', list: [1, 2, 3], sub: { x: 1, y: 'more longer text' } } });
  c.updateOne({ _id: 1 }, { $set: { a: 2, 'sub.x': 5 }, $unset: { b: '' }, $pop: { list: 1 } });
  same(brief(next(s)), { operationType: 'update', ns: ns, documentKey: { _id: 1 }, updateDescription: { updatedFields: { a: 2, list: [1, 2], 'sub.x': 5 }, removedFields: ['b'], truncatedArrays: [] } });
  // Only a pipeline produces truncatedArrays.
  c.updateOne({ _id: 1 }, { $set: { list: Array.from({ length: 30 }, (_, i) => i) } });
  same(next(s).updateDescription.updatedFields.list.length, 30);
  c.updateOne({ _id: 1 }, [{ $set: { list: { $slice: ['$list', 20] } } }]);
  same(next(s).updateDescription, { updatedFields: {}, removedFields: [], truncatedArrays: [{ field: 'list', newSize: 20 }] });
  c.updateOne({ _id: 1 }, { $set: { a: 2 } });
  c.replaceOne({ _id: 1 }, { z: 1 });
  same(brief(next(s)), { operationType: 'replace', ns: ns, documentKey: { _id: 1 }, fullDocument: { _id: 1, z: 1 } });
  c.deleteOne({ _id: 1 });
  same(brief(next(s)), { operationType: 'delete', ns: ns, documentKey: { _id: 1 } });
  const e = (() => { c.insertOne({ _id: 2 }); return next(s); })();
  truth(e.clusterTime instanceof Timestamp && e.wallTime instanceof Date && typeof e._id._data === 'string', 'times and token');
  s.close();
});
test('drop ends a stream with invalidate', () => {
  const c = empty('csdrop');
  c.insertOne({ _id: 0 });
  const s = c.watch();
  c.drop();
  same(next(s).operationType, 'drop');
  const e = next(s);
  same(e.operationType, 'invalidate');
  truth(s.isClosed(), 'closed');
  refused(260, () => { const r = db.csdrop.watch([], { resumeAfter: e._id }); return r.tryNext(); });
  const again = db.csdrop.watch([], { startAfter: e._id });
  db.csdrop.insertOne({ _id: 7 });
  same(next(again).documentKey, { _id: 7 });
  again.close();
});
test('resumed after an event', () => {
  const c = empty('csresume');
  c.insertOne({ _id: 0 });
  const s = c.watch();
  c.insertMany([{ _id: 1 }, { _id: 2 }, { _id: 3 }]);
  const first = next(s);
  same(first.documentKey, { _id: 1 });
  s.close();
  const again = c.watch([], { resumeAfter: first._id });
  same([next(again).documentKey._id, next(again).documentKey._id], [2, 3]);
  same(again.tryNext(), null);
  again.close();
  const at = c.watch([], { startAtOperationTime: first.clusterTime });
  same(next(at).documentKey, { _id: 1 });
  at.close();
});
test('a transaction is reported when it commits', () => {
  const c = empty('cstxn');
  c.insertOne({ _id: 0 });
  const s = c.watch();
  const session = db.getMongo().startSession();
  const t = session.getDatabase(db.getName()).getCollection('cstxn');
  session.startTransaction();
  t.insertOne({ _id: 1 });
  t.insertOne({ _id: 2 });
  same(s.tryNext(), null);
  session.commitTransaction();
  const a = next(s), b = next(s);
  same([a.documentKey._id, b.documentKey._id], [1, 2]);
  truth(a.txnNumber !== undefined && a.lsid !== undefined, 'txnNumber and lsid');
  const middle = c.watch([], { resumeAfter: a._id });
  same(next(middle).documentKey, { _id: 2 });
  middle.close();
  s.close();
  session.endSession();
});
test('following stages', () => {
  const c = empty('csstages');
  c.insertOne({ _id: 0 });
  const s = c.watch([{ $match: { 'fullDocument.n': { $gt: 1 } } }, { $project: { 'fullDocument.n': 1 } }]);
  c.insertMany([{ _id: 1, n: 1 }, { _id: 2, n: 2 }]);
  same(next(s).fullDocument, { n: 2 });
  s.close();
  refused(20, () => { const r = c.watch([{ $group: { _id: 1 } }]); return r.tryNext(); });
});
test('lookups and images', () => {
  empty('csimages');
  db.createCollection('csimages', { changeStreamPreAndPostImages: { enabled: true } });
  const c = db.csimages;
  c.insertOne({ _id: 1, a: 1, text: 'long enough for a difference' });
  const s = c.watch([], { fullDocument: 'required', fullDocumentBeforeChange: 'required' });
  const now = c.watch([], { fullDocument: 'updateLookup' });
  c.updateOne({ _id: 1 }, { $set: { a: 2 } });
  c.updateOne({ _id: 1 }, { $set: { a: 3 } });
  let e = next(s);
  same([e.fullDocumentBeforeChange.a, e.fullDocument.a], [1, 2]);
  e = next(s);
  same([e.fullDocumentBeforeChange.a, e.fullDocument.a], [2, 3]);
  same(next(now).fullDocument.a, 3);
  c.deleteOne({ _id: 1 });
  same(next(s).fullDocumentBeforeChange.a, 3);
  s.close();
  now.close();
});
test('a database and everything', () => {
  const c = empty('csall');
  const s = db.watch();
  const all = db.getMongo().watch();
  c.insertOne({ _id: 1 });
  db.getSiblingDB('csother').c.insertOne({ _id: 2 });
  same(next(s).ns, { db: db.getName(), coll: 'csall' });
  same(s.tryNext(), null);
  same([next(all).documentKey._id, next(all).ns.db], [1, 'csother']);
  db.getSiblingDB('csother').dropDatabase();
  same([next(all).operationType, next(all).operationType], ['drop', 'dropDatabase']);
  s.close();
  all.close();
});
