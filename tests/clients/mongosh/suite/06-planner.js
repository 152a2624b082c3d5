// The plan cache as users see it: $planCacheStats, planCacheClear.

test('$planCacheStats tells of every cached plan', () => {
  const c = empty('planned');
  c.insertMany(Array.from({ length: 200 }, (_, i) => ({ _id: i, a: i % 20, b: i % 10 })));
  c.createIndexes([{ a: 1 }, { b: 1 }]);
  same(c.getPlanCache().list(), []);
  c.find({ a: 1, b: 1 }).toArray();
  let entries = c.getPlanCache().list();
  same(entries.length, 1);
  same(entries[0].isActive, false);
  c.find({ a: 2, b: 2 }).toArray();
  entries = c.aggregate([{ $planCacheStats: {} }, { $project: { isActive: 1, createdFromQuery: 1, scores: { $size: '$candidatePlanScores' } } }]).toArray();
  same(entries, [{ isActive: true, createdFromQuery: { query: { a: 2, b: 2 }, sort: {}, projection: {} }, scores: 2 }]);
  same(db.getCollection('no such collection').aggregate([{ $planCacheStats: {} }]).toArray(), []);
});
test('planCacheClear of one query shape leaves the others', () => {
  const c = db.planned;
  c.find({ a: 1, b: 1 }).sort({ b: 1 }).toArray();
  same(c.getPlanCache().list().length, 2);
  c.getPlanCache().clearPlansByQuery({ a: 5, b: 6 }, {}, { b: 1 });
  same(c.getPlanCache().list().map((e) => e.createdFromQuery.sort), [{}]);
  c.getPlanCache().clear();
  same(c.getPlanCache().list(), []);
  refused(2, () => db.runCommand({ planCacheClear: 'planned', sort: { a: 1 } }));
});
test('$planCacheStats comes first and takes no options', () => {
  refused(40602, () => db.planned.aggregate([{ $match: {} }, { $planCacheStats: {} }]).toArray());
  refused(9, () => db.planned.aggregate([{ $planCacheStats: { all: 1 } }]).toArray());
  refused(9, () => db.planned.aggregate([{ $planCacheStats: 1 }]).toArray());
});
