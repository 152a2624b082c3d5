// Collations: of operations, indexes, collections and views.

function names(cursor) {
  return cursor.toArray().map((d) => d.s);
}
function ids(cursor) {
  return cursor.toArray().map((d) => d._id);
}
function bottom(explain) {
  let stage = explain.queryPlanner.winningPlan;
  while (stage.inputStage) stage = stage.inputStage;
  return stage;
}
const insensitive = { locale: 'en', strength: 2 };
const whole = (changed) => ({
  locale: 'en', caseLevel: false, caseFirst: 'off', strength: 3, numericOrdering: false,
  alternate: 'non-ignorable', maxVariable: 'punct', normalization: false, backwards: false, version: '57.1',
  ...changed,
});

test('a find compares and sorts by its collation', () => {
  const c = empty('coll');
  c.insertMany(['cote', 'Coté', 'côte', 'coté', 'COTE'].map((s, i) => ({ _id: i, s })));
  same(ids(c.find({ s: 'cote' })), [0]);
  same(ids(c.find({ s: 'cote' }).collation(insensitive)), [0, 4]);
  same(ids(c.find({ s: 'cote' }).collation({ locale: 'en', strength: 1 })), [0, 1, 2, 3, 4]);
  same(names(c.find().sort({ s: 1 }).collation({ locale: 'fr' })), ['cote', 'COTE', 'coté', 'Coté', 'côte']);
  same(names(c.find().sort({ s: 1 }).collation({ locale: 'fr_CA' })), ['cote', 'COTE', 'côte', 'coté', 'Coté']);
  same(ids(c.find({ s: /^cot/ }).collation(insensitive)), [0, 3]);
  same(ids(c.find({ s: { $in: ['COTÉ', 'x'] } }).collation(insensitive)), [1, 3]);
  same(ids(c.find({ s: { $gt: 'cote', $lt: 'd' } }).collation({ locale: 'en', strength: 1 })), []);
  same(ids(c.find({ $expr: { $eq: ['$s', 'CÔTE'] } }).collation(insensitive)), [2]);
});
test('numbers within text compare as numbers with numericOrdering', () => {
  const c = empty('coll');
  const given = ['1', '2', '2.1', '-2.1', '2.2', '2.10', '2.20', '-10', '10', '20', '20.1'];
  c.insertMany(given.map((s) => ({ s })));
  same(names(c.find().sort({ s: 1 }).collation({ locale: 'en_US', numericOrdering: true })),
    ['-2.1', '-10', '1', '2', '2.1', '2.2', '2.10', '2.20', '10', '20', '20.1']);
});
test('an index serves text only with its collation', () => {
  const c = empty('coll');
  same(c.createIndex({ s: 1 }, { collation: insensitive }), 's_1');
  same(c.getIndexes()[1], { v: 2, key: { s: 1 }, name: 's_1', collation: whole({ strength: 2 }) });
  for (let i = 0; i < 100; i++) c.insertOne({ _id: i, s: (i % 2 ? 'Word' : 'word') + (i >> 1), n: i });
  const found = c.find({ s: 'WORD7' }).collation(insensitive).explain('executionStats');
  same([found.executionStats.nReturned, found.executionStats.totalKeysExamined, found.executionStats.totalDocsExamined], [2, 2, 2]);
  same([bottom(found).stage, bottom(found).indexName, bottom(found).collation], ['IXSCAN', 's_1', whole({ strength: 2 })]);
  truth(/^\[CollationKey\(0x[0-9a-f]+\), CollationKey\(0x[0-9a-f]+\)\]$/.test(bottom(found).indexBounds.s[0]), 'bounds');
  same(found.queryPlanner.collation, whole({ strength: 2 }));
  same(bottom(c.find({ s: 'word7' }).explain()).stage, 'COLLSCAN');
  same(bottom(c.find({ s: 'word7' }).collation({ locale: 'en' }).explain()).stage, 'COLLSCAN');
  same(bottom(c.find({ s: 7 }).explain()).stage, 'IXSCAN');
  // The text cannot be restored from the key.
  same(c.find({ s: 'word7' }, { _id: 0, s: 1 }).collation(insensitive).toArray(), [{ s: 'word7' }, { s: 'Word7' }]);
  same(c.find().sort({ s: 1 }).collation(insensitive).limit(2).explain('executionStats').executionStats.totalKeysExamined, 2);
  same(c.find({ s: { $gte: 'WORD48' } }).sort({ s: -1 }).collation(insensitive).toArray().map((d) => d.n >> 1).slice(0, 2), [9, 9]);
  same(c.distinct('s', { s: { $lt: 'word1' } }, { collation: insensitive }), ['word0']);
});
test('one pattern has an index for each collation', () => {
  const c = empty('coll');
  c.createIndex({ s: 1 });
  refused(86, () => c.createIndex({ s: 1 }, { collation: insensitive }));
  c.createIndex({ s: 1 }, { collation: insensitive, name: 'insensitive' });
  c.createIndex({ s: 1 }, { collation: { locale: 'fr' }, name: 'french' });
  same(c.getIndexes().map((i) => i.name), ['_id_', 's_1', 'insensitive', 'french']);
  same(bottom(c.find({ s: 'x' }).explain()).indexName, 's_1');
  same(bottom(c.find({ s: 'x' }).collation(insensitive).explain()).indexName, 'insensitive');
  same(bottom(c.find({ s: 'x' }).collation({ locale: 'fr' }).explain()).indexName, 'french');
  refused(2, () => c.find({ s: 'x' }).hint({ s: 1 }).toArray());
  same(bottom(c.find({ s: 'x' }).hint('french').collation({ locale: 'fr' }).explain()).indexName, 'french');
  refused(181, () => db.runCommand({ dropIndexes: 'coll', index: { s: 1 } }));
  c.dropIndex('insensitive');
  same(c.getIndexes().map((i) => i.name), ['_id_', 's_1', 'french']);
});
test('a unique index compares by its collation', () => {
  const c = empty('users');
  c.createIndex({ email: 1 }, { unique: true, collation: insensitive });
  c.insertOne({ _id: 1, email: 'Ann@example.org' });
  const e = refused(11000, () => c.insertOne({ email: 'ann@EXAMPLE.org' }));
  truth(/index: email_1 collation: \{ locale: "en".* dup key: \{ email: "0x[0-9a-f]+" \}/.test(e.message), e.message);
  c.insertOne({ _id: 2, email: 'ánn@example.org' });
  refused(11000, () => c.updateOne({ _id: 2 }, { $set: { email: 'ANN@example.org' } }));
  same(c.updateOne({ email: 'ANN@EXAMPLE.ORG' }, { $set: { seen: true } }, { collation: insensitive }).modifiedCount, 1);
  const express = c.find({ email: 'ANN@EXAMPLE.ORG' }).collation(insensitive).explain('executionStats');
  same([express.queryPlanner.winningPlan.stage, express.executionStats.totalDocsExamined], ['EXPRESS_IXSCAN', 1]);
  same(c.validate().valid, true);
});
test('a collation of a collection is the default of its operations', () => {
  db.ci.drop();
  db.createCollection('ci', { collation: insensitive });
  same(db.getCollectionInfos({ name: 'ci' })[0].options, { collation: whole({ strength: 2 }) });
  const c = db.ci;
  c.insertMany([{ _id: 'a', s: 'x' }, { _id: 'b', s: 'X' }, { _id: 'c', s: 'y' }]);
  refused(11000, () => c.insertOne({ _id: 'A' }));
  same(ids(c.find({ s: 'X' })), ['a', 'b']);
  same(ids(c.find({ _id: 'B' })), ['b']);
  same(ids(c.find({ _id: 'B' }).collation({ locale: 'simple' })), []);
  same(ids(c.find({ s: 'X' }).collation({ locale: 'simple' })), ['b']);
  same(c.countDocuments({ s: 'X' }), 2);
  same(c.distinct('s'), ['x', 'y']);
  same(c.aggregate([{ $group: { _id: '$s', n: { $sum: 1 } } }, { $sort: { n: -1 } }]).toArray(), [{ _id: 'x', n: 2 }, { _id: 'y', n: 1 }]);
  c.createIndex({ s: 1 });
  c.createIndex({ t: 1 }, { collation: { locale: 'simple' } });
  same(c.getIndexes().map((i) => i.collation && i.collation.strength), [2, 2, undefined]);
  same(bottom(c.find({ s: 'X' }).explain()).stage, 'IXSCAN');
  same(bottom(c.find({ t: 'X' }).explain()).stage, 'COLLSCAN');
  same(c.updateMany({ s: 'X' }, { $set: { u: 1 } }).matchedCount, 2);
  same(c.findOneAndUpdate({ s: 'Y' }, { $set: { u: 2 } }, { returnDocument: 'after' }), { _id: 'c', s: 'y', u: 2 });
  same(c.deleteMany({ s: 'X' }).deletedCount, 2);
  refused(48, () => db.createCollection('ci', { collation: { locale: 'fr' } }));
});
test('updates and pipelines compare by the collation', () => {
  const c = empty('coll');
  c.insertOne({ _id: 1, l: ['a', 'B'], m: 'm' });
  const by = { collation: insensitive };
  same(c.updateOne({ _id: 1 }, { $addToSet: { l: 'b' } }, by).modifiedCount, 0);
  c.updateOne({ _id: 1 }, { $pull: { l: 'A' } }, by);
  c.updateOne({ _id: 1 }, { $min: { m: 'L' } }, by);
  same(c.updateOne({ _id: 1 }, { $min: { m: 'Z' } }, by).modifiedCount, 0);
  c.updateOne({ _id: 1 }, { $push: { l: { $each: ['c', 'A'], $sort: 1 } } }, by);
  same(c.findOne(), { _id: 1, l: ['A', 'B', 'c'], m: 'L' });
  c.updateOne({ _id: 1 }, { $set: { 'l.$[e]': 'z' } }, { ...by, arrayFilters: [{ e: 'b' }] });
  same(c.findOne().l, ['A', 'z', 'c']);
  same(c.aggregate([{ $project: {
    _id: 0, i: { $indexOfArray: ['$l', 'Z'] }, in: { $in: ['a', '$l'] }, cmp: { $cmp: ['$m', 'l'] },
    u: { $setUnion: ['$l', ['C', 'Z']] }, max: { $max: ['a', 'B'] },
  } }], by).toArray(), [{ i: 1, in: true, cmp: 0, u: ['A', 'c', 'z'], max: 'B' }]);
  same(c.bulkWrite([
    { updateOne: { filter: { m: 'l' }, update: { $set: { k: 1 } }, collation: insensitive } },
    { deleteOne: { filter: { m: 'l' } } },
    { deleteOne: { filter: { m: 'l' }, collation: insensitive } },
  ]).deletedCount, 1);
});
test('lookups compare by the collation of the operation', () => {
  const c = empty('coll');
  const other = empty('other');
  c.insertMany([{ _id: 1, k: 'A' }, { _id: 2, k: 'b' }, { _id: 3, k: 3 }]);
  other.insertMany([{ _id: 'a', k: 'a' }, { _id: 'B', k: 'B' }, { _id: 3, k: 3 }]);
  const join = (field) => [
    { $sort: { _id: 1 } },
    { $lookup: { from: 'other', localField: 'k', foreignField: field, as: 'f' } },
    { $project: { _id: 0, f: '$f._id' } },
  ];
  for (const field of ['k', '_id']) {
    same(c.aggregate(join(field)).toArray(), [{ f: [] }, { f: [] }, { f: [3] }]);
    same(c.aggregate(join(field), { collation: insensitive }).toArray(), [{ f: ['a'] }, { f: ['B'] }, { f: [3] }]);
  }
  other.createIndex({ k: 1 }, { collation: insensitive });
  same(c.aggregate(join('k')).toArray(), [{ f: [] }, { f: [] }, { f: [3] }]);
  same(c.aggregate(join('k'), { collation: insensitive }).toArray(), [{ f: ['a'] }, { f: ['B'] }, { f: [3] }]);
});
test('the collation of a view cannot be overridden', () => {
  const c = empty('coll');
  c.insertMany([{ _id: 1, s: 'x' }, { _id: 2, s: 'X' }]);
  for (const v of ['vs', 'vi', 'vv']) db.getCollection(v).drop();
  db.createView('vs', 'coll', []);
  db.createView('vi', 'coll', [{ $match: { s: 'x' } }], { collation: insensitive });
  same(db.getCollectionInfos({ name: 'vi' })[0].options.collation, whole({ strength: 2 }));
  same(ids(db.vs.find({ s: 'x' })), [1]);
  same(ids(db.vi.find({ s: 'X' })), [1, 2]);
  same(ids(db.vi.find({ s: 'X' }).collation(insensitive)), [1, 2]);
  same(db.vi.distinct('s'), ['x']);
  same(db.vi.countDocuments({ s: 'X' }), 2);
  refused(167, () => db.vi.find().collation({ locale: 'fr' }).toArray());
  refused(167, () => db.vs.aggregate([], { collation: insensitive }).toArray());
  refused(167, () => db.createView('vv', 'vi', []));
  db.createView('vv', 'vi', [], { collation: insensitive });
  same(ids(db.vv.find({ s: 'X' })), [1, 2]);
  refused(167, () => db.vs.aggregate([{ $lookup: { from: 'vi', localField: 's', foreignField: 's', as: 'f' } }]).toArray());
});
test('invalid collations are refused', () => {
  const c = empty('coll');
  const by = (collation) => () => c.find().collation(collation).toArray();
  refused(2, by({ locale: 'xx' }));
  refused(2, by({ locale: 'en', strength: 9 }));
  same(by({ locale: 'simple', strength: 1 })(), []);
  refused(40414, by({ strength: 1 }));
  refused(40415, by({ locale: 'en', level: 1 }));
  refused(14, by({ locale: 1 }));
  refused(161, by({ locale: 'en', version: '1.0' }));
  refused(2, () => c.createIndex({ s: 1 }, { collation: { locale: 'zz' } }));
  refused(2, () => db.createCollection('none', { collation: { locale: 'zz' } }));
});
