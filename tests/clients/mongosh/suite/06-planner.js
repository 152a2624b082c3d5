// The plan cache as users see it: $planCacheStats, planCacheClear.

test('$planCacheStats returns every cached plan', () => {
  const c = empty('planned');
  c.insertMany(Array.from({ length: 200 }, (_, i) => ({ _id: i, a: i % 20, b: i % 10 })));
  c.createIndexes([{ a: 1 }, { b: 1 }]); // and the intersection of both is a candidate
  same(c.getPlanCache().list(), []);
  c.find({ a: 1, b: 1 }).toArray();
  let entries = c.getPlanCache().list();
  same(entries.length, 1);
  same(entries[0].isActive, false);
  c.find({ a: 2, b: 2 }).toArray();
  entries = c.aggregate([{ $planCacheStats: {} }, { $project: { isActive: 1, createdFromQuery: 1, scores: { $size: '$candidatePlanScores' } } }]).toArray();
  same(entries, [{ isActive: true, createdFromQuery: { query: { a: 2, b: 2 }, sort: {}, projection: {} }, scores: 3 }]);
  refused(50933, () => db.getCollection('no such collection').aggregate([{ $planCacheStats: {} }]).toArray());
});
test('planCacheClear of one query shape keeps the others', () => {
  const c = db.planned;
  c.find({ a: 1, b: 1 }).sort({ b: 1 }).toArray();
  same(c.getPlanCache().list().length, 2);
  c.getPlanCache().clearPlansByQuery({ a: 5, b: 6 }, {}, { b: 1 });
  same(c.getPlanCache().list().map((e) => e.createdFromQuery.sort), [{}]);
  c.getPlanCache().clear();
  same(c.getPlanCache().list(), []);
  // Without a query, a sort selects nothing: the whole cache is cleared.
  same(db.runCommand({ planCacheClear: 'planned', sort: { a: 1 } }).ok, 1);
});
test('$planCacheStats comes first and takes no options', () => {
  refused(40602, () => db.planned.aggregate([{ $match: {} }, { $planCacheStats: {} }]).toArray());
  refused(9, () => db.planned.aggregate([{ $planCacheStats: { all: 1 } }]).toArray());
  refused(9, () => db.planned.aggregate([{ $planCacheStats: 1 }]).toArray());
});
test('a rooted $or is planned branch by branch, and cached so', () => {
  const c = db.planned;
  c.getPlanCache().clear();
  const q = (n) => ({ $or: [{ a: n, b: n }, { b: n, a: { $gt: 5 } }] });
  const plan = c.find(q(1)).explain().queryPlanner;
  same(plan.winningPlan.stage, 'SUBPLAN');
  same(plan.rejectedPlans, []);
  for (const n of [1, 2, 3]) c.find(q(n)).toArray();
  same(c.getPlanCache().list().length, 2);
});
test('explain reports which limits of the planner were reached', () => {
  const c = db.planned;
  const flags = (cursor) => {
    const p = cursor.explain().queryPlanner;
    return [p.maxIndexedOrSolutionsReached, p.maxIndexedAndSolutionsReached, p.maxScansToExplodeReached];
  };
  same(flags(c.find({ a: 1, b: 1 })), [false, false, false]);
  c.createIndex({ a: 1, s: 1 });
  same(flags(c.find({ a: { $in: Array.from({ length: 201 }, (_, i) => i) } }).sort({ s: 1 })), [false, false, true]);
  const was = db.adminCommand({ setParameter: 1, internalQueryPlannerMaxIndexedSolutions: 2 }).was;
  same(flags(c.find({ a: 1, b: 1 })), [false, true, false]);
  same(flags(c.find({ x: 1, $or: [{ a: 1, b: 1 }, { b: 2, a: 2 }] })), [false, true, false]);
  db.adminCommand({ setParameter: 1, internalQueryPlannerMaxIndexedSolutions: was });
});
test('plannerExtensions enables plans beyond the published ones', () => {
  const c = empty('extended');
  c.insertMany(Array.from({ length: 3000 }, (_, i) => ({ _id: i, kind: i % 4, at: (i * 7919) % 3001 })));
  c.createIndex({ kind: 1, at: -1 });
  const explained = (cursor) => cursor.explain('executionStats');
  const stages = (p) => [p.stage].concat(p.inputStage ? stages(p.inputStage) : [], ...(p.inputStages || []).map(stages));
  const newest = () => c.find().sort({ at: -1 }).limit(10);
  const skip = () => c.find({ at: 1500 });
  const results = [newest().toArray(), skip().toArray()];
  let e = explained(newest());
  truth(stages(e.queryPlanner.winningPlan).includes('SORT_MERGE'), 'merged');
  same(e.executionStats.totalDocsExamined, 10);
  truth(e.executionStats.totalKeysExamined < 30, 'a key for each kind and ten: ' + e.executionStats.totalKeysExamined);
  e = explained(skip());
  same(e.queryPlanner.winningPlan.inputStage.skipScan, { prefixFields: 1 });
  db.adminCommand({ setParameter: 1, plannerExtensions: false });
  same([newest().toArray(), skip().toArray()], results);
  e = explained(newest());
  same(stages(e.queryPlanner.winningPlan), ['SORT', 'COLLSCAN']);
  same(e.executionStats.totalDocsExamined, 3000);
  same(explained(skip()).queryPlanner.winningPlan.stage, 'COLLSCAN');
  db.adminCommand({ setParameter: 1, plannerExtensions: true });
});
test('errors of queries name the invalid part', () => {
  const c = db.planned;
  const why = (code, body) => refused(code, body).message;
  truth(why(2, () => c.find({ a: { $foo: 1 } }).toArray()).includes('$foo'), 'names the operator');
  truth(why(2, () => c.find({}).hint('none_1').toArray()).includes('none_1'), 'names the hint');
  truth(why(2, () => c.find({}).hint({ none: 1 }).toArray()).includes('none: 1'), 'shows the hint');
  truth(why(51175, () => c.find({}).hint({ a: 1 }).min({ a: 5 }).max({ a: 1 }).toArray()).includes('min'), 'names min');
  truth(why(51174, () => c.find({}).hint({ a: 1 }).min({ b: 5 }).toArray()).includes('a_1'), 'names the index');
  truth(why(51173, () => c.find({}).min({ a: 5 }).toArray()).includes('hint'), 'asks for a hint');
  same(c.find({ a: { $gt: 5, $lt: 3 } }).explain('executionStats').executionStats.totalKeysExamined, 0);
  c.insertOne({ _id: 'long', text: 'a'.repeat(40) + 'b' });
  truth(why(51156, () => c.find({ text: /^(a+)+$/ }).toArray()).includes('(a+)+'), 'shows the pattern');
});
test('counters of stages that fit are ints: mongosh shows no Long', () => {
  const c = empty('ints');
  c.insertMany([{ a: 1, b: 2 }, { a: 1, b: 1 }]);
  c.createIndex({ a: 1 });
  const sort = c.find({ a: 1 }).sort({ b: 1 }).limit(1).explain('executionStats').executionStats.executionStages;
  const fetch = sort.inputStage;
  const scan = fetch.inputStage;
  for (const value of [sort.memLimit, sort.limitAmount, sort.spills, fetch.docsExamined, scan.keysExamined, scan.seeks, scan.dupsTested]) same(typeof value, 'number');
  same([scan.keysExamined, scan.seeks, fetch.docsExamined, sort.limitAmount, sort.memLimit], [2, 1, 2, 1, 104857600]);
});
