// Pipelines over several collections, views, and pipelines that write.

test('a lookup joins by fields, by a pipeline, and by both', () => {
  const o = empty('pipe_orders'), p = empty('pipe_products');
  o.insertMany([{ _id: 1, item: 'a', n: 2 }, { _id: 2, item: 'b', n: 1 }, { _id: 3 }]);
  p.insertMany([{ _id: 1, sku: 'a', q: 10 }, { _id: 2, sku: 'b', q: 1 }, { _id: 3, sku: null }]);
  const join = { from: 'pipe_products', localField: 'item', foreignField: 'sku', as: 'p' };
  const found = (stage) => o.aggregate([{ $lookup: stage }, { $project: { p: '$p._id' } }]).toArray().map((d) => d.p);
  same(found(join), [[1], [2], [3]]);
  p.createIndex({ sku: 1 });
  same(found(join), [[1], [2], [3]]);
  const pipeline = [{ $match: { $expr: { $gt: ['$q', '$$n'] } } }];
  same(found({ ...join, let: { n: '$n' }, pipeline }), [[1], [], []]);
  same(found({ from: 'pipe_products', pipeline: [{ $match: { q: 1 } }], as: 'p' }), [[2], [2], [2]]);
  const stage = o.explain('executionStats').aggregate([{ $lookup: join }]).stages[1];
  same([stage.strategy, stage.indexesUsed, Number(stage.collectionScans)], ['IndexedLoopJoin', ['sku_1'], 0]);
});
test('an $unwind of a $lookup is absorbed', () => {
  const stages = [{ $lookup: { from: 'pipe_products', localField: 'item', foreignField: 'sku', as: 'p' } }, { $unwind: '$p' }, { $match: { 'p.q': { $gt: 5 } } }];
  same(db.pipe_orders.aggregate(stages).toArray(), [{ _id: 1, item: 'a', n: 2, p: { _id: 1, sku: 'a', q: 10 } }]);
  const explained = db.pipe_orders.explain().aggregate(stages).stages;
  same(explained.length, 2);
  same(explained[1].$lookup.unwinding, { preserveNullAndEmptyArrays: false });
});
test('a graphLookup follows references and ends in cycles', () => {
  const c = empty('pipe_graph');
  c.insertMany([{ _id: 1, to: [2] }, { _id: 2, to: [3, 4] }, { _id: 3, to: [1] }, { _id: 4 }]);
  const graph = { from: 'pipe_graph', startWith: '$to', connectFromField: 'to', connectToField: '_id', depthField: 'd', as: 'r' };
  const reached = c.aggregate([{ $match: { _id: 1 } }, { $graphLookup: graph }, { $unwind: '$r' }, { $sort: { 'r._id': 1 } }, { $project: { _id: '$r._id', d: '$r.d' } }]).toArray();
  same(reached.map((d) => [d._id, Number(d.d)]), [[1, 2], [2, 0], [3, 1], [4, 1]]);
});
test('$facet, $unionWith', () => {
  same(db.pipe_orders.aggregate([{ $facet: { n: [{ $count: 'n' }], first: [{ $limit: 1 }, { $project: { _id: 1 } }] } }]).toArray(), [{ n: [{ n: 3 }], first: [{ _id: 1 }] }]);
  same(db.pipe_orders.aggregate([{ $unionWith: { coll: 'pipe_products', pipeline: [{ $match: { q: 1 } }] } }, { $count: 'n' }]).toArray(), [{ n: 4 }]);
});
test('$out replaces a collection, and keeps it if it fails', () => {
  const out = empty('pipe_out');
  out.createIndex({ n: 1 }, { unique: true });
  db.pipe_orders.aggregate([{ $match: { n: { $gt: 0 } } }, { $project: { n: 1 } }, { $out: 'pipe_out' }]);
  same(out.find().sort({ _id: 1 }).toArray(), [{ _id: 1, n: 2 }, { _id: 2, n: 1 }]);
  same(out.getIndexes().length, 2);
  refused(11000, () => db.pipe_orders.aggregate([{ $project: { n: { $literal: 1 } } }, { $out: 'pipe_out' }]).toArray());
  same(out.countDocuments(), 2);
  same(db.getCollectionNames().filter((n) => n.startsWith('tmp.')), []);
});
test('$merge merges, replaces, keeps, updates by a pipeline, and fails', () => {
  const t = db.pipe_merged;
  const run = (merge) => {
    t.drop();
    t.insertOne({ _id: 1, n: 100 });
    db.pipe_orders.aggregate([{ $match: { _id: { $lt: 3 } } }, { $project: { n: 1, item: 1 } }, { $merge: { into: 'pipe_merged', ...merge } }]);
    return t.find().sort({ _id: 1 }).toArray();
  };
  same(run({}), [{ _id: 1, n: 2, item: 'a' }, { _id: 2, item: 'b', n: 1 }]);
  same(run({ whenMatched: 'replace', whenNotMatched: 'discard' }), [{ _id: 1, item: 'a', n: 2 }]);
  same(run({ whenMatched: 'keepExisting' }).map((d) => d.n), [100, 1]);
  same(run({ whenMatched: [{ $set: { n: { $add: ['$n', '$$new.n'] } } }] }).map((d) => d.n), [102, 1]);
  refused(13113, () => run({ whenNotMatched: 'fail' }));
  refused(11000, () => run({ whenMatched: 'fail' }));
  refused(51183, () => run({ on: 'item' }));
});
test('views are read as collections are, and not written', () => {
  db.pipe_view.drop();
  db.pipe_wider.drop();
  db.createView('pipe_view', 'pipe_orders', [{ $match: { n: { $exists: true } } }]);
  db.createView('pipe_wider', 'pipe_view', [{ $addFields: { twice: { $multiply: ['$n', 2] } } }]);
  same(db.pipe_wider.find({ twice: { $gt: 2 } }, { twice: 1 }).toArray(), [{ _id: 1, twice: 4 }]);
  same(db.pipe_wider.find().sort({ twice: 1 }).skip(1).limit(1).toArray().map((d) => d._id), [1]);
  same(db.pipe_wider.countDocuments({ n: 1 }), 1);
  same(db.runCommand({ count: 'pipe_wider', query: { twice: 4 } }).n, 1);
  same(db.pipe_wider.distinct('item'), ['a', 'b']);
  same(db.pipe_wider.aggregate([{ $group: { _id: null, n: { $sum: '$twice' } } }]).toArray(), [{ _id: null, n: 6 }]);
  const info = db.getCollectionInfos({ name: 'pipe_view' })[0];
  same([info.type, info.options.viewOn, info.info.readOnly], ['view', 'pipe_orders', true]);
  refused(166, () => db.pipe_view.insertOne({}));
  refused(166, () => db.pipe_view.updateOne({}, { $set: { a: 1 } }));
  refused(166, () => db.pipe_view.deleteMany({}));
  refused(166, () => db.pipe_view.createIndex({ a: 1 }));
  refused(5, () => db.runCommand({ collMod: 'pipe_view', viewOn: 'pipe_wider', pipeline: [] }));
  same(db.runCommand({ collMod: 'pipe_view', viewOn: 'pipe_orders', pipeline: [{ $match: { n: 2 } }] }).ok, 1);
  same(db.pipe_wider.find().toArray().map((d) => d._id), [1]);
  db.pipe_view.drop();
  same(db.pipe_wider.find().toArray(), []);
});
test('$indexStats counts what plans use', () => {
  const c = empty('pipe_used');
  c.createIndex({ a: 1 });
  c.insertMany([{ a: 1 }, { a: 2 }]);
  const uses = () => Number(c.aggregate([{ $indexStats: {} }]).toArray().filter((i) => i.name === 'a_1')[0].accesses.ops);
  const before = uses();
  c.find({ a: 1 }).toArray();
  c.find({ a: 2 }).toArray();
  same(uses() - before, 2);
  c.find({ a: 1 }).explain();
  same(uses() - before, 2);
});
test('a pipeline beyond its memory limit spills, and reports it', () => {
  const c = empty('pipe_large');
  c.insertMany(Array.from({ length: 300 }, (_, i) => ({ _id: i, g: i % 100, s: 'x'.repeat(1000) })));
  const parameter = { setParameter: 1, internalQueryMaxBlockingSortMemoryUsageBytes: 20000 };
  const was = db.adminCommand(parameter).was;
  try {
    const stages = [{ $group: { _id: '$g', s: { $first: '$s' }, n: { $sum: 1 } } }, { $match: { n: 3 } }, { $count: 'n' }];
    same(c.aggregate(stages).toArray(), [{ n: 100 }]);
    const group = c.explain('executionStats').aggregate(stages).stages.filter((s) => s.$group)[0];
    same([group.usedDisk, Number(group.spills) > 1], [true, true]);
    refused(292, () => c.aggregate(stages, { allowDiskUse: false }).toArray());
    same(c.aggregate([{ $addFields: { m: { $mod: ['$_id', 7] } } }, { $sort: { m: -1, _id: 1 } }, { $limit: 290 }, { $skip: 288 }, { $project: { m: 1 } }]).toArray(), [{ _id: 217, m: 0 }, { _id: 224, m: 0 }]);
  } finally {
    db.adminCommand({ ...parameter, internalQueryMaxBlockingSortMemoryUsageBytes: was });
  }
});
test('stages are allowed at their positions', () => {
  const run = (stages) => () => db.pipe_orders.aggregate(stages).toArray();
  refused(40601, run([{ $out: 'x' }, { $match: {} }]));
  refused(40602, run([{ $match: {} }, { $indexStats: {} }]));
  refused(40600, run([{ $facet: { f: [{ $out: 'x' }] } }]));
  refused(51047, run([{ $lookup: { from: 'x', pipeline: [{ $merge: 'x' }], as: 'j' } }]));
  refused(40324, run([{ $nothing: 1 }]));
  refused(7749501, run(Array.from({ length: 1001 }, () => ({ $skip: 1 }))));
});
test('$collStats counts operations and scans', () => {
  const c = empty('pipe_counted');
  c.insertOne({ a: 1 });
  c.find({ a: 1 }).toArray();
  const stats = c.aggregate([{ $collStats: { latencyStats: { histograms: true }, queryExecStats: {}, count: {} } }]).toArray()[0];
  same([Number(stats.count), Number(stats.queryExecStats.collectionScans.total)], [1, 1]);
  same([Number(stats.latencyStats.reads.ops), Number(stats.latencyStats.writes.ops)], [1, 1]);
  same(stats.latencyStats.reads.histogram.map((b) => Number(b.count)), [1]);
});

test('$meta: metadata of a document', () => {
  const c = empty('meta');
  c.insertMany([{ _id: 1, a: [3, 1], b: 'x' }, { _id: 2, a: 2, b: 'y' }]);
  c.createIndex({ a: 1, b: -1 });
  const keys = [{ _id: 1, k: [1, 'x'] }, { _id: 2, k: [2, 'y'] }];
  same(c.find({}, { k: { $meta: 'sortKey' } }).sort({ a: 1, b: -1 }).toArray().map(d => ({ _id: d._id, k: d.k })), keys);
  same(c.aggregate([{ $sort: { a: 1, b: -1 } }, { $project: { k: { $meta: 'sortKey' } } }]).toArray(), keys);
  // $addFields keeps the other fields.
  same(c.aggregate([{ $match: { _id: 2 } }, { $sort: { b: 1 } }, { $set: { k: { $meta: 'sortKey' } } }]).toArray(),
    [{ _id: 2, a: 2, b: 'y', k: ['y'] }]);
  same(c.find({ a: 2 }, { _id: 0, b: 1, k: { $meta: 'indexKey' } }).hint({ a: 1, b: -1 }).toArray(), [{ b: 'y', k: { a: 2, b: 'y' } }]);
  same(c.find({ _id: 2 }, { k: { $meta: 'indexKey' } }).toArray(), [{ _id: 2, a: 2, b: 'y', k: { _id: 2 } }]);
  // A collection scan has no key.
  same(c.find({ b: 'x' }, { _id: 1, b: 1, k: { $meta: 'indexKey' } }).toArray(), [{ _id: 1, b: 'x' }]);
  same(typeof c.aggregate([{ $match: { _id: 1 } }, { $project: { r: { $meta: 'recordId' } } }]).next().r, 'object');
  const random = c.aggregate([{ $project: { r: { $add: [{ $meta: 'randVal' }, 0] } } }]).next().r;
  truth(random >= 0 && random < 1, 'randVal is ' + random);
  // Not available, unknown, not a name.
  refused(40218, () => c.find({}, { s: { $meta: 'textScore' } }).toArray());
  refused(40218, () => c.find({}).sort({ s: { $meta: 'textScore' } }).toArray());
  refused(40218, () => c.aggregate([{ $project: { s: { $meta: 'vectorSearchScore' } } }]).toArray());
  refused(40218, () => c.aggregate([{ $group: { _id: '$b' } }, { $project: { s: { $meta: 'recordId' } } }]).toArray());
  refused(17308, () => c.aggregate([{ $project: { s: { $meta: 'nonsense' } } }]).toArray());
  refused(17308, () => c.find({}, { s: { $meta: 'nonsense' } }).toArray());
  refused(17307, () => c.find({}, { s: { $meta: 1 } }).toArray());
  refused(2, () => c.find({}, { s: { $meta: 'sortKey' } }).toArray());
});

test('$sample of a few among many reads a few', () => {
  const c = empty('sampled');
  c.insertMany(Array.from({ length: 2000 }, (_, i) => ({ _id: i, p: 'x'.repeat(50) })));
  const drawn = explained => explained.stages[0].$cursor;
  const plan = drawn(c.explain('executionStats').aggregate([{ $sample: { size: 5 } }, { $project: { _id: 1 } }]));
  same(plan.queryPlanner.winningPlan.stage, 'MULTI_ITERATOR');
  same(plan.executionStats.totalDocsExamined, 5);
  // Each document once, and eventually every one.
  const seen = new Set();
  for (let i = 0; i < 100; i++) {
    const ids = c.aggregate([{ $sample: { size: 80 } }]).toArray().map(d => d._id);
    same(new Set(ids).size, 80);
    ids.forEach(id => seen.add(id));
  }
  // 8000 draws among 2000: one in fifty is missed on average; a hundred are practically impossible.
  truth(seen.size > 1900, seen.size + ' were seen');
  // More than a twentieth, or after a filter: all are read.
  const whole = c.explain('executionStats').aggregate([{ $sample: { size: 500 } }]);
  same(drawn(whole).executionStats.totalDocsExamined, 2000);
  same(c.aggregate([{ $match: { _id: { $lt: 3 } } }, { $sample: { size: 5 } }]).toArray().map(d => d._id).sort(), [0, 1, 2]);
  // Most records are deleted: random record ids rarely exist.
  c.deleteMany({ _id: { $gte: 150 } });
  c.insertOne({ _id: 2000 });
  same(c.aggregate([{ $sample: { size: 7 } }]).toArray().length, 7);
});
