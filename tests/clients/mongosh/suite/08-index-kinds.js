// Wildcard, hashed and TTL indexes, the express path, index filters.

function winner(cursor) {
  return cursor.explain('executionStats');
}
function scanOf(explain) {
  let stage = explain.queryPlanner.winningPlan;
  while (stage.inputStage) stage = stage.inputStage;
  return stage;
}
function counts(explain) {
  const s = explain.executionStats;
  return [s.nReturned, s.totalKeysExamined, s.totalDocsExamined];
}

test('a wildcard index serves every path', () => {
  const c = empty('wild');
  c.createIndex({ '$**': 1 });
  same(c.getIndexes()[1], { v: 2, key: { '$**': 1 }, name: '$**_1' });
  c.insertMany([
    { _id: 1, a: { b: 5 }, t: ['x', 'y'] },
    { _id: 2, a: { b: 7 }, t: [] },
    { _id: 3, a: 9, t: null },
    { _id: 4, a: {}, u: [{ v: 1 }, { v: 2 }] },
  ]);
  const e = winner(c.find({ 'a.b': 5 }));
  const s = scanOf(e);
  same([s.stage, s.indexName, s.keyPattern], ['IXSCAN', '$**_1', { $_path: 1, 'a.b': 1 }]);
  same(s.indexBounds, { $_path: ['["a.b", "a.b"]'], 'a.b': ['[5, 5]'] });
  same([s.isMultiKey, s.multiKeyPaths, s.isSparse], [false, { $_path: [], 'a.b': [] }, true]);
  same(counts(e), [1, 1, 1]);
  const m = scanOf(winner(c.find({ 'u.v': { $gt: 1 } })));
  same([m.isMultiKey, m.multiKeyPaths], [true, { $_path: [], 'u.v': ['u'] }]);
  same(c.find({ t: 'y' }).toArray().map((d) => d._id), [1]);
  same(c.find({ a: { $exists: true } }).sort({ _id: 1 }).toArray().map((d) => d._id), [1, 2, 3, 4]);
  same(scanOf(winner(c.find({ a: { $exists: true } }))).indexBounds.$_path, ['["a", "a"]', '["a.", "a/")']);
  same(c.find({ a: {} }).toArray().map((d) => d._id), [4]);
});
test('queries that a wildcard index cannot serve use another plan', () => {
  const c = db.wild;
  for (const filter of [{ t: null }, { t: { $exists: false } }, { a: { b: 5 } }, { t: ['x', 'y'] }, { a: { $ne: 9 } }])
    same(scanOf(winner(c.find(filter))).stage, 'COLLSCAN');
  same(c.find({ t: null }).sort({ _id: 1 }).toArray().map((d) => d._id), [3, 4]);
  refused(291, () => c.find({ t: null }).hint('$**_1').toArray());
});
test('a wildcard index covers and sorts by one path', () => {
  const c = empty('wild');
  c.createIndex({ '$**': 1 }, { wildcardProjection: { a: 1, s: 1 } });
  for (let i = 0; i < 20; i++) c.insertOne({ _id: i, a: i % 5, s: { n: i }, other: i });
  const sorted = winner(c.find({ 's.n': { $gte: 15 } }).sort({ 's.n': -1 }).limit(2));
  same(counts(sorted), [2, 2, 2]);
  same(c.find({ 's.n': { $gte: 15 } }).sort({ 's.n': -1 }).limit(2).toArray().map((d) => d._id), [19, 18]);
  const covered = winner(c.find({ a: { $gt: 2 } }, { _id: 0, a: 1 }));
  same([covered.queryPlanner.winningPlan.stage, ...counts(covered)], ['PROJECTION_COVERED', 8, 8, 0]);
  same(scanOf(winner(c.find({ other: 3 }))).stage, 'COLLSCAN');
});
test('a compound wildcard index', () => {
  const c = empty('wild');
  c.createIndex({ tenant: 1, 'f.$**': 1, at: 1 });
  c.insertMany([{ tenant: 1, f: { x: 2 }, at: 3 }, { tenant: 1, f: { y: 2 }, at: 4 }, { tenant: 2, f: { x: 2 }, at: 3 }, { tenant: 1 }]);
  const e = winner(c.find({ tenant: 1, 'f.x': 2, at: { $gt: 0 } }));
  same(scanOf(e).keyPattern, { tenant: 1, $_path: 1, 'f.x': 1, at: 1 });
  same(counts(e), [1, 1, 1]);
  const all = winner(c.find({ tenant: 1 }));
  same([scanOf(all).stage, scanOf(all).indexBounds.$_path], ['IXSCAN', ['[MinKey, MinKey]', '["", {})']]);
  same(c.find({ tenant: 1 }).itcount(), 3);
  refused(201, () => c.insertOne({ tenant: [1], f: { x: 1 } }));
});
test('invalid wildcard and hashed indexes', () => {
  const c = empty('wild');
  refused(67, () => c.createIndex({ '$**': 1 }, { unique: true }));
  refused(67, () => c.createIndex({ '$**': 1 }, { expireAfterSeconds: 5 }));
  refused(67, () => c.createIndex({ 'a.$**': 1, 'b.$**': 1 }));
  refused(67, () => c.createIndex({ a: 1, 'a.$**': 1 }));
  refused(9, () => c.createIndex({ 'a.$**': 1 }, { wildcardProjection: { a: 1 } }));
  refused(2, () => c.createIndex({ a: 1 }, { wildcardProjection: { a: 1 } }));
  refused(16764, () => c.createIndex({ a: 'hashed' }, { unique: true }));
  refused(31303, () => c.createIndex({ a: 'hashed', b: 'hashed' }));
});
test('a hashed index serves equalities', () => {
  const c = empty('hashes');
  c.createIndex({ a: 'hashed' });
  same(c.getIndexes()[1], { v: 2, key: { a: 'hashed' }, name: 'a_hashed' });
  c.insertMany([{ _id: 1, a: 5 }, { _id: 2, a: 5.2 }, { _id: 3, a: 'x' }, { _id: 4 }]);
  const e = winner(c.find({ a: 5 }));
  same([scanOf(e).stage, ...counts(e)], ['IXSCAN', 1, 2, 2]);
  same(c.find({ a: { $in: [5.2, 'x'] } }).sort({ _id: 1 }).toArray().map((d) => d._id), [2, 3]);
  same(c.find({ a: null }).toArray().map((d) => d._id), [4]);
  same(scanOf(winner(c.find({ a: { $gt: 1 } }))).stage, 'COLLSCAN');
  same(scanOf(winner(c.find({ a: 1 }))).indexBounds, { a: ['[5902408780260971510, 5902408780260971510]'] });
  refused(16766, () => c.insertOne({ a: [1] }));
});
test('documents expire', () => {
  const c = empty('expiring');
  const ago = (seconds) => new Date(Date.now() - seconds * 1000);
  c.createIndex({ at: 1 }, { expireAfterSeconds: 1000 });
  c.insertMany([{ _id: 1, at: ago(2000) }, { _id: 2, at: ago(10) }, { _id: 3, at: [ago(10), ago(5000)] }, { _id: 4 }, { _id: 5, at: 'x' }]);
  const before = db.serverStatus().metrics.ttl;
  const admin = db.getSiblingDB('admin');
  same(admin.runCommand({ setParameter: 1, ttlMonitorSleepSecs: 1 }).was, 60);
  for (let i = 0; i < 300 && c.countDocuments() > 3; i++) sleep(50);
  same(c.find().sort({ _id: 1 }).toArray().map((d) => d._id), [2, 4, 5]);
  const changed = db.runCommand({ collMod: 'expiring', index: { keyPattern: { at: 1 }, expireAfterSeconds: 5 } });
  same([changed.expireAfterSeconds_old, changed.expireAfterSeconds_new].map(Number), [1000, 5]);
  for (let i = 0; i < 300 && c.countDocuments() > 2; i++) sleep(50);
  same(c.find().sort({ _id: 1 }).toArray().map((d) => d._id), [4, 5]);
  const after = db.serverStatus().metrics.ttl;
  same(Number(after.deletedDocuments) - Number(before.deletedDocuments), 3);
  truth(Number(after.passes) > Number(before.passes), 'passes are counted');
  admin.runCommand({ setParameter: 1, ttlMonitorSleepSecs: 60 });
});
test('reads and writes by a unique equality are express', () => {
  const c = empty('express');
  c.createIndex({ email: 1 }, { unique: true });
  c.insertMany([{ _id: 1, email: 'a' }, { _id: 2, email: 'b' }, { _id: 3 }]);
  const e = winner(c.find({ email: 'a' }));
  same([e.queryPlanner.winningPlan.stage, e.queryPlanner.winningPlan.indexName, ...counts(e)], ['EXPRESS_IXSCAN', 'email_1', 1, 1, 1]);
  same(winner(c.find({ email: null })).queryPlanner.winningPlan.stage, 'FETCH');
  same(c.explain().update({ email: 'a' }, { $set: { n: 1 } }).queryPlanner.winningPlan.stage, 'EXPRESS_UPDATE');
  same(c.explain().remove({ _id: 1 }).queryPlanner.winningPlan.stage, 'EXPRESS_DELETE');
  same(c.updateOne({ email: 'a' }, { $set: { n: 1 } }).modifiedCount, 1);
  same(c.deleteOne({ email: 'b' }).deletedCount, 1);
  same(c.find().sort({ _id: 1 }).toArray(), [{ _id: 1, email: 'a', n: 1 }, { _id: 3 }]);
});
test('index filters', () => {
  const c = empty('filtered');
  c.createIndexes([{ a: 1 }, { a: 1, b: 1 }]);
  for (let i = 0; i < 50; i++) c.insertOne({ a: i % 5, b: i });
  const explained = (filter, hint) => {
    const cursor = c.find(filter);
    const e = winner(hint ? cursor.hint(hint) : cursor);
    return [e.queryPlanner.indexFilterSet, scanOf(e).indexName ?? 'COLLSCAN'];
  };
  same(explained({ a: 1, b: { $gt: 40 } }), [false, 'a_1_b_1']);
  same(db.runCommand({ planCacheSetFilter: 'filtered', query: { a: 1, b: { $gt: 0 } }, indexes: [{ a: 1 }] }).ok, 1);
  same(explained({ a: 3, b: { $gt: 7 } }), [true, 'a_1']);
  same(explained({ a: 3, b: { $gt: 7 } }, 'a_1_b_1'), [true, 'a_1']);
  same(explained({ a: 3 }, 'a_1_b_1'), [false, 'a_1_b_1']);
  same(db.runCommand({ planCacheListFilters: 'filtered' }).filters, [{ query: { a: 1, b: { $gt: 0 } }, sort: {}, projection: {}, indexes: [{ a: 1 }] }]);
  db.runCommand({ planCacheSetFilter: 'filtered', query: { a: 1, b: { $gt: 0 } }, indexes: ['no_such_index'] });
  same(explained({ a: 3, b: { $gt: 7 } }), [true, 'COLLSCAN']);
  same(db.runCommand({ planCacheClearFilters: 'filtered', query: { a: 1, b: { $gt: 0 } } }).ok, 1);
  same(explained({ a: 3, b: { $gt: 7 } }), [false, 'a_1_b_1']);
  same(db.runCommand({ planCacheListFilters: 'filtered' }).filters, []);
  refused(2, () => db.runCommand({ planCacheSetFilter: 'filtered', query: { a: 1 } }));
  refused(2, () => db.runCommand({ planCacheSetFilter: 'filtered', query: { a: 1 }, indexes: [] }));
  refused(2, () => db.runCommand({ planCacheSetFilter: 'no_such', query: { a: 1 }, indexes: ['a_1'] }));
});
