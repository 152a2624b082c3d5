// Multi-document transactions on a plain single node.

const mongo = db.getMongo();
function session() { return mongo.startSession(); }
function inTx(s, name) { return s.getDatabase(db.getName()).getCollection(name); }

test('a transaction over two collections commits as one', () => {
  const a = empty('txa'), b = empty('txb');
  a.insertOne({ _id: 1, n: 5 });
  b.insertOne({ _id: 1, n: 0 });
  const s = session();
  s.startTransaction({ readConcern: { level: 'snapshot' }, writeConcern: { w: 'majority' } });
  inTx(s, 'txa').updateOne({ _id: 1 }, { $inc: { n: -5 } });
  inTx(s, 'txb').updateOne({ _id: 1 }, { $inc: { n: 5 } });
  same(inTx(s, 'txb').findOne(), { _id: 1, n: 5 });
  same([a.findOne().n, b.findOne().n], [5, 0]);
  s.commitTransaction();
  same([a.findOne().n, b.findOne().n], [0, 5]);
  s.endSession();
});
test('an aborted transaction leaves nothing', () => {
  const c = empty('txabort');
  c.insertOne({ _id: 1 });
  const s = session();
  s.startTransaction();
  inTx(s, 'txabort').insertMany([{ _id: 2 }, { _id: 3 }]);
  inTx(s, 'txabort').deleteOne({ _id: 1 });
  same(inTx(s, 'txabort').find().sort({ _id: 1 }).toArray(), [{ _id: 2 }, { _id: 3 }]);
  s.abortTransaction();
  same(c.find().toArray(), [{ _id: 1 }]);
  s.endSession();
});
test('collections are created by the commit', () => {
  empty('txnew');
  const s = session();
  s.startTransaction();
  inTx(s, 'txnew').insertOne({ _id: 1 });
  same(db.getCollectionNames().includes('txnew'), false);
  s.commitTransaction();
  same(db.txnew.find().toArray(), [{ _id: 1 }]);
  s.endSession();
});
test('a cursor inside a transaction is read to its end', () => {
  const c = empty('txcursor');
  const docs = [];
  for (let i = 0; i < 250; i++) docs.push({ _id: i });
  c.insertMany(docs);
  const s = session();
  s.startTransaction();
  const cursor = inTx(s, 'txcursor').find().batchSize(100);
  same(cursor.next(), { _id: 0 });
  c.deleteMany({});
  let n = 1;
  while (cursor.hasNext()) { cursor.next(); n++; }
  same(n, 250);
  s.commitTransaction();
  s.endSession();
});
test('withTransaction retries after a conflict', () => {
  const c = empty('txretry');
  c.insertOne({ _id: 1, n: 0 });
  const s = session();
  let attempts = 0;
  s.withTransaction(() => {
    attempts++;
    inTx(s, 'txretry').findOne({ _id: 1 });
    if (attempts === 1) c.updateOne({ _id: 1 }, { $inc: { n: 10 } });
    inTx(s, 'txretry').updateOne({ _id: 1 }, { $inc: { n: 1 } });
  });
  same(attempts, 2);
  same(c.findOne().n, 11);
  s.endSession();
});
test('a duplicate key ends the transaction', () => {
  const c = empty('txdup');
  c.insertOne({ _id: 1 });
  const s = session();
  s.startTransaction();
  inTx(s, 'txdup').insertOne({ _id: 2 });
  refused(11000, () => { const r = inTx(s, 'txdup').insertOne({ _id: 1 }); return r; });
  const e = refused(251, () => { const r = inTx(s, 'txdup').findOne(); return r; });
  truth(e.errorLabels.includes('TransientTransactionError'), 'label');
  s.abortTransaction();
  same(c.countDocuments({}), 1);
  s.endSession();
});
test('operations refused in a transaction', () => {
  const c = empty('txrefused');
  c.insertOne({ _id: 1 });
  function once(code, body) {
    const s = session();
    s.startTransaction();
    refused(code, () => { const r = body(s.getDatabase(db.getName())); return r; });
    s.abortTransaction();
    s.endSession();
  }
  once(263, (d) => { const r = d.runCommand({ count: 'txrefused' }); return r; });
  once(263, (d) => { const r = d.runCommand({ collStats: 'txrefused' }); return r; });
  once(263, (d) => { const r = d.runCommand({ aggregate: 'txrefused', pipeline: [{ $out: 'x' }], cursor: {} }); return r; });
});
test('serverStatus counts transactions', () => {
  const t = db.serverStatus().transactions;
  // In mongosh a sum of Longs would be a string.
  const [started, committed, aborted] = [t.totalStarted, t.totalCommitted, t.totalAborted].map(Number);
  truth(started >= committed + aborted, 'started ' + plain(t));
  truth(committed >= 4 && aborted >= 3, 'ended ' + plain(t));
  same(t.currentOpen, Long(0));
});
