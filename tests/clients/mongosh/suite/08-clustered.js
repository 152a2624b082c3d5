// Clustered collections: records in the order of _id, without an index on it.

function stageOf(cursor) {
  const e = cursor.explain('executionStats');
  let stage = e.queryPlanner.winningPlan;
  while (stage.inputStage) stage = stage.inputStage;
  return Object.assign({ n: e.executionStats.nReturned, keys: e.executionStats.totalKeysExamined, docs: e.executionStats.totalDocsExamined }, stage);
}
function clustered(name, more) {
  empty(name);
  db.createCollection(name, Object.assign({ clusteredIndex: { key: { _id: 1 }, unique: true, name: name + ' clustered key' } }, more));
  return db.getCollection(name);
}
function ids(cursor) {
  return cursor.toArray().map((d) => d._id);
}

test('descriptions of a clustered collection', () => {
  const c = clustered('stocks');
  same(db.getCollectionInfos({ name: 'stocks' })[0].options, { clusteredIndex: { v: 2, key: { _id: 1 }, name: 'stocks clustered key', unique: true } });
  same(db.getCollectionInfos({ name: 'stocks' })[0].idIndex, undefined);
  same(c.getIndexes(), [{ v: 2, key: { _id: 1 }, name: 'stocks clustered key', unique: true, clustered: true }]);
  c.createIndex({ a: 1 });
  same(c.getIndexes().map((i) => i.name), ['stocks clustered key', 'a_1']);
  const s = db.runCommand({ collStats: 'stocks' });
  same([s.clustered, s.nindexes, Object.keys(s.indexSizes)], [true, 1, ['a_1']]);
  same(db.createCollection('unnamed', { clusteredIndex: { key: { _id: 1 }, unique: true } }).ok, 1);
  same(db.unnamed.getIndexes()[0].name, '_id_');
  db.unnamed.drop();
});
test('invalid clustered collections', () => {
  empty('no');
  const make = (options) => db.createCollection('no', options);
  refused(197, () => make({ clusteredIndex: { key: { a: 1 }, unique: true } }));
  refused(197, () => make({ clusteredIndex: { key: { _id: -1 }, unique: true } }));
  refused(5979700, () => make({ clusteredIndex: { key: { _id: 1 }, unique: false } }));
  refused(40414, () => make({ clusteredIndex: { key: { _id: 1 } } }));
  refused(40415, () => make({ clusteredIndex: { key: { _id: 1 }, unique: true, sparse: true } }));
  refused(6049200, () => make({ clusteredIndex: { key: { _id: 1 }, unique: true }, capped: true, size: 4096 }));
  refused(72, () => make({ expireAfterSeconds: 5 }));
  same(db.getCollectionNames().includes('no'), false);
});
test('an _id is unique, and duplicates are reported', () => {
  const c = clustered('stocks');
  c.insertMany([{ _id: 2 }, { _id: 1 }, { _id: 'b' }, { _id: 'a' }]);
  same(ids(c.find()), [1, 2, 'a', 'b']);
  const e = refused(11000, () => c.insertOne({ _id: 1 }));
  same(e.message, 'E11000 duplicate key error collection: ' + db.getName() + '.stocks index: stocks clustered key dup key: { _id: 1 }');
  refused(66, () => c.updateOne({ _id: 1 }, { $set: { _id: 5 } }));
  same(c.insertMany([{ _id: 7 }]).insertedIds, { 0: 7 });
  same(c.updateOne({ _id: 9 }, { $set: { x: 1 } }, { upsert: true }).insertedId, 9);
  same(c.findOneAndDelete({ _id: 9 }), { _id: 9, x: 1 });
  same(c.deleteMany({ _id: { $lte: 2 } }).deletedCount, 2);
  same(c.validate({ full: true }).valid, true);
});
test('reads by _id and by ranges of it', () => {
  const c = clustered('stocks');
  for (let i = 0; i < 10; i++) c.insertMany(Array.from({ length: 100 }, (_, n) => ({ _id: i * 100 + n, a: n % 10 })));
  const one = stageOf(c.find({ _id: 5 }));
  same([one.stage, one.n, one.keys, one.docs], ['EXPRESS_CLUSTERED_IXSCAN', 1, 0, 1]);
  const range = stageOf(c.find({ _id: { $gte: 10, $lt: 20 } }));
  same([range.stage, range.direction, range.minRecord, range.maxRecord, range.n, range.keys, range.docs], ['CLUSTERED_IXSCAN', 'forward', 10, 20, 10, 0, 10]);
  const open = stageOf(c.find({ _id: { $gt: 990 }, a: 5 }));
  same([open.stage, open.filter, open.minRecord, open.n, open.docs], ['CLUSTERED_IXSCAN', { a: { $eq: 5 } }, 990, 1, 9]);
  const last = stageOf(c.find().sort({ _id: -1 }).limit(3));
  same([last.stage, last.direction, last.n, last.docs], ['COLLSCAN', 'backward', 3, 3]);
  const some = stageOf(c.find({ _id: { $in: [900, 5, 4000] } }));
  same([some.stage, some.n, some.docs, some.indexBounds._id.length], ['CLUSTERED_IXSCAN', 2, 2, 3]);
  same(ids(c.find({ _id: { $in: [900, 5, 700] } }).sort({ _id: -1 })), [900, 700, 5]);
  same(ids(c.find().hint('stocks clustered key').min({ _id: 4 }).max({ _id: 6 })), [4, 5]);
  same(ids(c.find({ a: 3 }).hint({ _id: 1 }).limit(2)), [3, 13]);
  same([c.countDocuments({ _id: { $lt: 7 } }), c.estimatedDocumentCount()], [7, 1000]);
  same(c.distinct('_id', { _id: { $lt: 3 } }), [0, 1, 2]);
});
test('a secondary index', () => {
  const c = db.stocks;
  c.createIndex({ a: 1 });
  const s = stageOf(c.find({ a: 5 }));
  same([s.stage, s.indexName, s.n, s.docs], ['IXSCAN', 'a_1', 100, 100]);
  same(stageOf(c.find({ a: 5, _id: { $lt: 20 } })).stage, 'CLUSTERED_IXSCAN');
  same(stageOf(c.find({ a: 5, _id: { $lt: 20 } }).hint({ a: 1 })).stage, 'IXSCAN');
  same(ids(c.find({ $or: [{ _id: 3 }, { a: 9 }] }).sort({ _id: 1 }).limit(3)), [3, 9, 19]);
  refused(72, () => c.dropIndex('stocks clustered key'));
  refused(72, () => c.dropIndex({ _id: 1 }));
  same(c.createIndex({ _id: 1 }), '_id_1');
  refused(6243700, () => { empty('plain').insertOne({}); db.runCommand({ createIndexes: 'plain', indexes: [{ key: { _id: 1 }, name: 'x', clustered: true, unique: true }] }); });
  c.dropIndexes();
  same(c.getIndexes().length, 1);
});
test('in $lookup, $merge, $out and a view', () => {
  const c = clustered('customers');
  c.insertMany([{ _id: 'x', n: 1 }, { _id: 'y', n: 2 }]);
  const o = empty('orders');
  o.insertMany([{ _id: 1, c: 'x' }, { _id: 2, c: 'y' }, { _id: 3, c: 'x' }, { _id: 4, c: 'z' }]);
  same(o.aggregate([{ $lookup: { from: 'customers', localField: 'c', foreignField: '_id', as: 'c' } }, { $sort: { _id: 1 } }]).toArray().map((d) => d.c.map((x) => x.n)), [[1], [2], [1], []]);
  same(c.aggregate([{ $match: { _id: { $gte: 'y' } } }, { $project: { n: 1, _id: 0 } }]).toArray(), [{ n: 2 }]);
  c.insertMany([{ _id: 'z', up: 'y' }, { _id: 'y2', up: 'x' }]);
  same(c.aggregate([{ $match: { _id: 'z' } }, { $graphLookup: { from: 'customers', startWith: '$up', connectFromField: 'up', connectToField: '_id', as: 'all' } }]).toArray()[0].all.map((d) => d._id), ['y']);
  o.aggregate([{ $match: { c: 'x' } }, { $project: { n: { $add: ['$_id', 100] }, _id: '$c' } }, { $merge: 'customers' }]);
  same(c.findOne({ _id: 'x' }).n, 103);
  o.aggregate([{ $out: 'customers' }]);
  same([db.getCollectionInfos({ name: 'customers' })[0].options.clusteredIndex.name, ids(c.find())], ['customers clustered key', [1, 2, 3, 4]]);
  db.getCollection('seen').drop();
  db.createView('seen', 'customers', [{ $match: { c: 'x' } }]);
  same(ids(db.seen.find({ _id: { $gt: 1 } })), [3]);
  db.seen.drop();
  same(c.renameCollection('renamed', true).ok, 1);
  refused(11000, () => db.renamed.insertOne({ _id: 4 }));
  db.renamed.drop();
});
test('with a collation', () => {
  const c = clustered('words', { collation: { locale: 'en', strength: 2 } });
  c.insertMany([{ _id: 'b' }, { _id: 'A' }, { _id: 'C' }]);
  refused(11000, () => c.insertOne({ _id: 'a' }));
  same(ids(c.find({ _id: { $gte: 'B' } })), ['b', 'C']);
  const s = stageOf(c.find({ _id: 'a' }));
  same([s.stage, s.n], ['EXPRESS_CLUSTERED_IXSCAN', 1]);
  same(stageOf(c.find({ _id: { $gte: 'B' } }).collation({ locale: 'simple' })).stage, 'COLLSCAN');
});
test('documents expire by the date in their _id', () => {
  const c = clustered('events', { expireAfterSeconds: 3600 });
  same(c.getIndexes()[0].expireAfterSeconds, 3600);
  same(db.runCommand({ collMod: 'events', expireAfterSeconds: 100 }).ok, 1);
  same(Number(db.getCollectionInfos({ name: 'events' })[0].options.expireAfterSeconds), 100);
  same(db.runCommand({ collMod: 'events', expireAfterSeconds: 'off' }).ok, 1);
  same(db.getCollectionInfos({ name: 'events' })[0].options.expireAfterSeconds, undefined);
  refused(72, () => db.runCommand({ collMod: 'events', index: { name: 'events clustered key', hidden: true } }));
  refused(72, () => { empty('plain'); db.createCollection('plain'); db.runCommand({ collMod: 'plain', expireAfterSeconds: 100 }); });
});
