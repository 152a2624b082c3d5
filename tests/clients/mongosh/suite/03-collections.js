// Databases, collections, indexes, and their descriptions.

test('create, list, rename, drop', () => {
  db.dropDatabase();
  same(db.createCollection('made').ok, 1);
  db.made.insertOne({ _id: 1 });
  same(db.getCollectionNames(), ['made']);
  same(db.getCollectionInfos({ name: 'made' })[0].type, 'collection');
  truth(db.getCollectionInfos({ name: 'made' })[0].info.uuid !== undefined, 'a uuid');
  same(db.made.renameCollection('renamed').ok, 1);
  same(db.renamed.countDocuments(), 1);
  same(db.getCollectionNames(), ['renamed']);
  same(db.renamed.drop(), true);
  same(db.getCollectionNames(), []);
});
test('rename onto an existing one, with and without dropTarget', () => {
  empty('r1').insertOne({ _id: 'one' });
  empty('r2').insertOne({ _id: 'two' });
  refused(48, () => db.r1.renameCollection('r2'));
  same(db.r1.renameCollection('r2', true).ok, 1);
  same(db.r2.find().toArray(), [{ _id: 'one' }]);
  refused(26, () => db.r1.renameCollection('r3'));
});
test('databases are created and dropped', () => {
  const other = db.getSiblingDB('mongosh_suite_other');
  other.c.insertOne({});
  truth(db.getMongo().getDBNames().includes('mongosh_suite_other'), 'listed');
  const listed = db.adminCommand({ listDatabases: 1, filter: { name: 'mongosh_suite_other' } }).databases;
  same(listed.length, 1);
  same(listed[0].empty, false);
  same(other.dropDatabase(), { ok: 1, dropped: 'mongosh_suite_other' });
  truth(!db.getMongo().getDBNames().includes('mongosh_suite_other'), 'gone');
});
test('getIndexes, createIndex, createIndexes, dropIndex, dropIndexes', () => {
  const c = empty('indexed');
  same(c.createIndex({ a: 1 }), 'a_1');
  same(c.createIndex({ a: 1 }), 'a_1');
  same(c.createIndexes([{ b: -1 }, { 'c.d': 1, e: -1 }]), ['b_-1', 'c.d_1_e_-1']);
  c.createIndex({ u: 1 }, { unique: true, name: 'only' });
  c.createIndex({ s: 1 }, { sparse: true });
  c.createIndex({ p: 1 }, { partialFilterExpression: { p: { $gt: 5 } } });
  c.createIndex({ h: 1 }, { hidden: true });
  same(c.getIndexes(), [
    { v: 2, key: { _id: 1 }, name: '_id_' }, { v: 2, key: { a: 1 }, name: 'a_1' }, { v: 2, key: { b: -1 }, name: 'b_-1' },
    { v: 2, key: { 'c.d': 1, e: -1 }, name: 'c.d_1_e_-1' }, { v: 2, key: { u: 1 }, name: 'only', unique: true },
    { v: 2, key: { s: 1 }, name: 's_1', sparse: true }, { v: 2, key: { p: 1 }, name: 'p_1', partialFilterExpression: { p: { $gt: 5 } } },
    { v: 2, key: { h: 1 }, name: 'h_1', hidden: true },
  ]);
  same(c.getIndexKeys().length, 8);
  same(c.unhideIndex('h_1').hidden_new, false);
  const { nIndexesWas, ok } = c.dropIndex('a_1');
  same({ nIndexesWas, ok }, { nIndexesWas: 8, ok: 1 });
  same(c.dropIndex({ b: -1 }).nIndexesWas, 7);
  same(c.dropIndexes().nIndexesWas, 6);
  same(c.getIndexes().map((i) => i.name), ['_id_']);
});
test('index errors', () => {
  const c = empty('indexed');
  c.createIndex({ a: 1 });
  same(refused(85, () => c.createIndex({ a: 1 }, { name: 'again' })).codeName, 'IndexOptionsConflict');
  same(refused(86, () => c.createIndex({ b: 1 }, { name: 'a_1' })).codeName, 'IndexKeySpecsConflict');
  same(refused(86, () => c.createIndex({ a: 1 }, { unique: true })).codeName, 'IndexKeySpecsConflict');
  same(refused(27, () => c.dropIndex('nothing')).codeName, 'IndexNotFound');
  same(refused(72, () => c.dropIndex('_id_')).codeName, 'InvalidOptions');
  same(refused(67, () => c.createIndex({ a: 0 })).codeName, 'CannotCreateIndex');
  same(refused(26, () => db.no_such_collection.dropIndex('a_1')).codeName, 'NamespaceNotFound');
});
test('building a unique index over duplicates fails', () => {
  const c = empty('dups');
  c.insertMany([{ k: 1 }, { k: 2 }, { k: 1 }]);
  const e = refused(11000, () => c.createIndex({ k: 1 }, { unique: true }));
  truth(/E11000 duplicate key error collection: mongosh_suite\.dups index: k_1 dup key: \{ k: 1 \}/.test(e.message), e.message);
  same(c.getIndexes().length, 1);
});
test('stats()', () => {
  const c = empty('measured');
  for (let i = 0; i < 100; i++) c.insertOne({ _id: i, pad: 'x'.repeat(100) });
  c.createIndex({ pad: 1 });
  const s = c.stats();
  same([s.ns, s.count, s.nindexes, s.capped], ['mongosh_suite.measured', 100, 2, false]);
  truth(s.size > 100 * 100, 'size ' + s.size);
  truth(s.avgObjSize > 100 && s.avgObjSize < 200, 'avgObjSize ' + s.avgObjSize);
  truth(s.storageSize > 0 && s.totalIndexSize > 0, 'sizes');
  same(Object.keys(s.indexSizes), ['_id_', 'pad_1']);
  truth(c.dataSize() === s.size, 'dataSize');
  same(db.stats().db, 'mongosh_suite');
  truth(db.stats().objects >= 100, 'objects of the database');
});
test('explain helpers', () => {
  const c = db.measured;
  same(c.find({ _id: 5 }).explain().queryPlanner.namespace, 'mongosh_suite.measured');
  const e = c.find({ pad: 'x'.repeat(100) }).explain('executionStats');
  same([e.executionStats.nReturned, e.executionStats.totalKeysExamined, e.executionStats.totalDocsExamined], [100, 100, 100]);
  same(e.queryPlanner.winningPlan.stage, 'FETCH');
  same(e.queryPlanner.winningPlan.inputStage.indexName, 'pad_1');
  same(c.explain().find({ none: 1 }).finish().queryPlanner.winningPlan.stage, 'COLLSCAN');
  truth(c.explain('executionStats').count({ _id: { $gt: 10 } }).executionStats.executionSuccess, 'count');
  truth(c.explain().update({ _id: 1 }, { $set: { a: 1 } }).queryPlanner !== undefined, 'update');
  truth(c.explain().remove({ _id: 1 }).queryPlanner !== undefined, 'remove');
  same(c.countDocuments(), 100); // explain of a delete deletes nothing
  truth(c.explain().distinct('pad').queryPlanner !== undefined, 'distinct');
});
test('validate', () => {
  const v = db.measured.validate();
  same([v.valid, v.nrecords, v.nIndexes], [true, 100, 2]);
});
test('createIndexes: ignoreUnknownIndexOptions', () => {
  const c = empty('unknown_options');
  const index = { key: { a: 1 }, name: 'a_1', sparse: true, safe: true };
  refused(197, () => db.runCommand({ createIndexes: 'unknown_options', indexes: [index] }));
  same(db.runCommand({ createIndexes: 'unknown_options', indexes: [index], ignoreUnknownIndexOptions: true }).ok, 1);
  same(c.getIndexes()[1], { v: 2, key: { a: 1 }, name: 'a_1', sparse: true });
  // Known options are still checked.
  refused(67, () => db.runCommand({ createIndexes: 'unknown_options', indexes: [{ key: { b: 1 }, name: 'b_1', weights: { b: 1 } }], ignoreUnknownIndexOptions: true }));
});
