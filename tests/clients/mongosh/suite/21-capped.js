// Capped collections and tailable cursors.

test('the oldest are removed', () => {
  db.capped.drop();
  same(db.createCollection('capped', { capped: true, size: 5000, max: 3 }).ok, 1);
  for (let i = 0; i < 5; i++) db.capped.insertOne({ _id: i });
  same(db.capped.find().toArray(), [{ _id: 2 }, { _id: 3 }, { _id: 4 }]);
  same(db.capped.find().sort({ $natural: -1 }).toArray(), [{ _id: 4 }, { _id: 3 }, { _id: 2 }]);
  same(db.capped.isCapped(), true);
  same(db.getCollectionInfos({ name: 'capped' })[0].options, { capped: true, size: 5120, max: 3 });
  const stats = db.runCommand({ collStats: 'capped' });
  same([stats.capped, stats.max, stats.maxSize, stats.count], [true, 3, 5120, 3]);
});
test('deletes, updates, limits', () => {
  same(db.capped.deleteOne({ _id: 3 }).deletedCount, 1);
  same(db.capped.updateOne({ _id: 2 }, { $set: { text: 'longer than before' } }).modifiedCount, 1);
  same(db.runCommand({ collMod: 'capped', cappedMax: 2, cappedSize: 8192 }).ok, 1);
  db.capped.insertOne({ _id: 5 });
  same(db.capped.find().toArray(), [{ _id: 4 }, { _id: 5 }]);
  same(db.getCollectionInfos({ name: 'capped' })[0].options, { capped: true, size: 8192, max: 2 });
});
test('a tailable cursor continues, and is closed', () => {
  const opened = db.runCommand({ find: 'capped', tailable: true, awaitData: true });
  same(opened.cursor.firstBatch, [{ _id: 4 }, { _id: 5 }]);
  const id = opened.cursor.id;
  truth(id != 0, 'open');
  const more = (extra) => db.runCommand({ getMore: id, collection: 'capped', ...extra });
  same(more({ maxTimeMS: 10 }).cursor.nextBatch, []);
  db.capped.insertOne({ _id: 6 });
  same(more({}).cursor.nextBatch, [{ _id: 6 }]);
  db.capped.insertMany([{ _id: 7 }, { _id: 8 }]);
  refused(136, () => more({}));
  refused(43, () => more({}));
});
test('a cursor that does not wait', () => {
  const opened = db.runCommand({ find: 'capped', filter: { _id: 99 }, tailable: true });
  const id = opened.cursor.id;
  truth(id != 0, 'open');
  refused(2, () => db.runCommand({ getMore: id, collection: 'capped', maxTimeMS: 10 }));
  same(db.runCommand({ getMore: id, collection: 'capped' }).cursor.nextBatch, []);
  db.runCommand({ killCursors: 'capped', cursors: [id] });
});
test('where tailable cursors are refused', () => {
  db.createCollection('cappedEmpty', { capped: true, size: 5000 });
  same(Number(db.runCommand({ find: 'cappedEmpty', tailable: true }).cursor.id), 0);
  empty('notCapped').insertOne({ _id: 1 });
  refused(2, () => db.runCommand({ find: 'notCapped', tailable: true }));
  refused(9, () => db.runCommand({ find: 'capped', awaitData: true }));
  refused(2, () => db.runCommand({ find: 'capped', tailable: true, sort: { _id: 1 } }));
  refused(2, () => db.runCommand({ find: 'capped', tailable: true, sort: { $natural: -1 } }));
});
test('options that contradict each other', () => {
  refused(72, () => db.createCollection('bad', { capped: true }));
  refused(72, () => db.createCollection('bad', { size: 5000 }));
  refused(72, () => db.createCollection('bad', { max: 5 }));
  refused(2, () => db.createCollection('bad', { capped: true, size: 0 }));
  refused(6049200, () => db.createCollection('bad', { capped: true, size: 5000, clusteredIndex: { key: { _id: 1 }, unique: true } }));
  refused(72, () => db.createCollection('bad', { expireAfterSeconds: 5 }));
});
test('convertToCapped, cloneCollectionAsCapped', () => {
  const c = empty('converted');
  c.insertMany([...Array(1000).keys()].map((n) => ({ _id: n })));
  c.createIndex({ a: 1 });
  same(db.runCommand({ cloneCollectionAsCapped: 'converted', toCollection: 'cloned', size: 4096 }).ok, 1);
  same(db.runCommand({ convertToCapped: 'converted', size: 4096 }).ok, 1);
  for (const name of ['converted', 'cloned']) {
    same(db[name].isCapped(), true);
    same(db[name].find().toArray().pop(), { _id: 999 });
    same(db[name].countDocuments(), Math.floor(4096 / 14));
    same(db[name].getIndexes().length, 1);
  }
  db.cloned.drop();
  refused(26, () => db.runCommand({ convertToCapped: 'none', size: 4096 }));
});
test('$out does not go into a capped collection', () => {
  db.notCapped.aggregate([{ $match: {} }]).toArray();
  refused(17152, () => db.notCapped.aggregate([{ $out: 'capped' }]).toArray());
});
test('system.profile is capped, and can be made larger', () => {
  db.setProfilingLevel(2);
  db.notCapped.find().toArray();
  db.setProfilingLevel(0);
  const options = () => db.getCollectionInfos({ name: 'system.profile' })[0].options;
  same(options(), { capped: true, size: 1048576 });
  db.system.profile.drop();
  db.createCollection('system.profile', { capped: true, size: 4000000 });
  db.setProfilingLevel(2);
  db.notCapped.find().toArray();
  db.setProfilingLevel(0);
  same(options(), { capped: true, size: 4000000 });
  truth(db.system.profile.countDocuments() > 0, 'written');
  db.system.profile.drop();
});
