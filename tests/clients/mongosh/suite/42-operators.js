// What administrators use: profiling, operations in progress, statistics; and bulk writes over several collections.

test('Mongo.bulkWrite over two databases', () => {
  const c = empty('bulk_a');
  const other = db.getSiblingDB(db.getName() + '_other').bulk_b;
  other.drop();
  const ns = (c) => c.getDB().getName() + '.' + c.getName();
  const r = db.getMongo().bulkWrite([
    { name: 'insertOne', namespace: ns(c), document: { _id: 1, n: 1 } },
    { name: 'insertOne', namespace: ns(other), document: { _id: 1 } },
    { name: 'updateOne', namespace: ns(c), filter: { _id: 1 }, update: { $inc: { n: 1 } } },
    { name: 'deleteMany', namespace: ns(other), filter: {} },
  ]);
  same([r.insertedCount, r.modifiedCount, r.deletedCount], [2, 1, 1]);
  same(c.find().toArray(), [{ _id: 1, n: 2 }]);
});
test('profiling levels and filters', () => {
  const c = empty('profiled');
  c.insertMany([{ _id: 1 }, { _id: 2 }]);
  same(db.setProfilingLevel(1, { filter: { 'command.comment': 'watched' } }).was, 0);
  same(db.getProfilingStatus().filter, { 'command.comment': { $eq: 'watched' } });
  c.find().comment('watched').toArray();
  c.find().comment('other').toArray();
  same(db.setProfilingLevel(0, { filter: 'unset' }).was, 1);
  truth(db.getProfilingStatus().filter === undefined, 'the filter is gone');
  const seen = db.system.profile.find({ op: 'query', ns: c.getFullName() }).toArray();
  same(seen.map((d) => [d.command.comment, d.nreturned, d.docsExamined, d.planSummary]), [['watched', 2, 2, 'COLLSCAN']]);
  truth(seen[0].execStats.stage === 'COLLSCAN', 'what the stages did');
});
test('currentOp and killOp', () => {
  const own = db.currentOp({ 'command.comment': 'nobody' });
  same(own.inprog, []);
  const ops = db.getSiblingDB('admin').aggregate([{ $currentOp: { idleConnections: true } }]).toArray();
  truth(ops.some((op) => op.active && op.command.aggregate === 1), 'this one');
  truth(ops.every((op) => op.type === 'op' && op.connectionId > 0), 'connections');
  same(db.killOp(123456789).ok, 1);
});
test('top and dbHash', () => {
  const c = empty('counted');
  c.insertOne({ _id: 1 });
  c.find().toArray();
  const of = db.adminCommand({ top: 1 }).totals[c.getFullName()];
  same([of.insert.count, of.queries.count], [1, 1]);
  const sum = () => db.runCommand({ dbHash: 1, collections: ['counted'] }).collections.counted;
  const before = sum();
  truth(/^[0-9a-f]{32}$/.test(before), before);
  c.updateOne({ _id: 1 }, { $set: { a: 1 } });
  truth(sum() !== before, 'another document, another sum');
  c.updateOne({ _id: 1 }, { $unset: { a: 1 } });
  same(sum(), before);
});
