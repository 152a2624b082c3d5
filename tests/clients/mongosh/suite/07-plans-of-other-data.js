// The published plans over other data: the cost of a plan follows from the rule, not from the names, the types,
// the nesting or the direction. Expected counters are derived from how the documents are generated.

const kinds = {
  int: (n) => n,
  long: (n) => Long.fromString(n + '0000000000'),
  double: (n) => n + 0.5,
  decimal: (n) => Decimal128.fromString(n + '.25'),
  string: (n) => 'k' + String(n).padStart(4, '0'),
  date: (n) => new Date(1700000000000 + n * 1000),
  id: (n) => new ObjectId(String(n).padStart(24, '0')),
};

function stagesOf(plan) {
  if (!plan) return [];
  return [plan.stage].concat(stagesOf(plan.inputStage), ...(plan.inputStages || []).map(stagesOf));
}

function cost(explained) {
  const s = explained.executionStats || explained.stages[0].$cursor.executionStats;
  return { stages: stagesOf(s.executionStages).join(' '), returned: Number(s.nReturned), keys: Number(s.totalKeysExamined), documents: Number(s.totalDocsExamined) };
}

test('equality, element of a nested array, sort: as many keys as results, for every type and direction', () => {
  for (const kind of Object.keys(kinds)) {
    const of = kinds[kind];
    const c = empty('esr');
    // 90 documents, 30 of each region; every one has the codes 1 and 2 in two lines.
    c.insertMany([...Array(90).keys()].map((i) => ({ _id: i, o: { region: of(i % 3), lines: [{ p: { code: of(1) } }, { p: { code: of(2) } }], at: i } })));
    for (const direction of [1, -1]) {
      c.createIndex({ 'o.region': direction, 'o.lines.p.code': -direction, 'o.at': direction });
      for (const sort of [1, -1]) {
        for (const filter of [{ 'o.region': of(1), 'o.lines.p.code': of(2) }, { 'o.region': of(1), 'o.lines': { $elemMatch: { 'p.code': of(2) } } }]) {
          const page = () => c.find(filter).sort({ 'o.at': sort }).limit(4);
          same(cost(page().explain('executionStats')), { stages: 'LIMIT FETCH IXSCAN', returned: 4, keys: 4, documents: 4 });
          same(page().toArray().map((d) => d._id), sort > 0 ? [1, 4, 7, 10] : [88, 85, 82, 79]);
          const pipeline = [{ $match: filter }, { $sort: { 'o.at': sort } }, { $skip: 2 }, { $limit: 2 }];
          same(cost(c.explain('executionStats').aggregate(pipeline)).keys, 4);
          same(c.aggregate(pipeline).toArray().map((d) => d._id), sort > 0 ? [7, 10] : [82, 79]);
        }
      }
      c.dropIndexes();
    }
  }
});

test('values before the sort: one scan for each, up to 200; keys are limit and scans less one', () => {
  for (const kind of Object.keys(kinds)) {
    const of = kinds[kind];
    const c = empty('exploded');
    c.insertMany([...Array(603).keys()].map((i) => ({ _id: i, g: { v: of(i % 201) }, at: i })));
    c.createIndex({ 'g.v': 1, at: -1 });
    const values = (n) => [...Array(n).keys()].map(of);
    const page = (n) => cost(c.find({ 'g.v': { $in: values(n) } }).sort({ at: -1 }).limit(5).explain('executionStats'));
    for (const n of [2, 7, 200]) {
      const found = page(n);
      same(found.stages, ['LIMIT FETCH SORT_MERGE', ...Array(n).fill('IXSCAN')].join(' '));
      same([found.returned, found.keys, found.documents], [5, n + 4, 5]);
    }
    // One scan of 201 intervals; its keys contain the sort fields, so five documents are fetched.
    same([page(201).stages, page(201).keys, page(201).documents], ['FETCH SORT IXSCAN', 603, 5]);
    const either = { $or: [{ 'g.v': of(3) }, { 'g.v': of(4) }] };
    same(c.find(either).sort({ at: 1 }).limit(3).toArray().map((d) => d._id), [3, 4, 204]);
    same(cost(c.find(either).sort({ at: 1 }).limit(3).explain('executionStats')).keys, 4);
  }
});

test('a page of a range: in order, backward, covered', () => {
  for (const kind of Object.keys(kinds)) {
    const of = kinds[kind];
    for (const path of ['v', 'a.v', 'a.b.v']) {
      const c = empty('ranged');
      const within = (value) => path.split('.').reverse().reduce((inner, name) => ({ [name]: inner }), value);
      c.insertMany([...Array(50).keys()].map((i) => ({ _id: i, ...within(of((i * 7) % 50)) })));
      c.createIndex({ [path]: 1 });
      const filter = { [path]: { $gte: of(10), $lt: of(40) } };
      for (const sort of [1, -1]) {
        same(cost(c.find(filter).sort({ [path]: sort }).limit(5).explain('executionStats')), { stages: 'LIMIT FETCH IXSCAN', returned: 5, keys: 5, documents: 5 });
        same(cost(c.find(filter, { _id: 0, [path]: 1 }).sort({ [path]: sort }).limit(5).explain('executionStats')), { stages: 'LIMIT PROJECTION_COVERED IXSCAN', returned: 5, keys: 5, documents: 0 });
      }
      // i * 7 = 10, 11, 12 modulo 50
      same(c.find(filter).sort({ [path]: 1 }).limit(3).toArray().map((d) => d._id), [30, 23, 16]);
    }
  }
});

test('the first document of each group: from keys where they suffice', () => {
  for (const kind of Object.keys(kinds)) {
    const of = kinds[kind];
    const c = empty('grouped');
    c.insertMany([...Array(60).keys()].map((i) => ({ _id: i, m: { c: of(i % 6) }, at: i })));
    c.createIndex({ 'm.c': -1, at: -1 });
    const sort = { $sort: { 'm.c': -1, at: -1 } };
    const explained = (group) => cost(c.explain('executionStats').aggregate([sort, { $group: group }]));
    same(explained({ _id: '$m.c', at: { $first: '$at' } }), { stages: 'PROJECTION_COVERED DISTINCT_SCAN', returned: 6, keys: 6, documents: 0 });
    same(explained({ _id: '$m.c', last: { $first: '$$ROOT' } }), { stages: 'FETCH DISTINCT_SCAN', returned: 6, keys: 6, documents: 6 });
    same(explained({ _id: '$m.c' }), { stages: 'PROJECTION_COVERED DISTINCT_SCAN', returned: 6, keys: 6, documents: 0 });
    same(c.aggregate([sort, { $group: { _id: '$m.c', last: { $first: '$$ROOT' } } }]).toArray().map((d) => d.last._id).sort((x, y) => x - y), [54, 55, 56, 57, 58, 59]);
  }
});

test('bounds show values as messages do', () => {
  const c = empty('shown');
  c.createIndex({ v: 1 });
  const bounds = (filter) => c.find({ v: filter }).explain().queryPlanner.winningPlan.inputStage.indexBounds.v;
  same(bounds(Decimal128.fromString('4.50')), ['[4.50, 4.50]']);
  same(bounds({ $gt: Long.fromString('10000000000') }), ['(10000000000, inf.0]']);
  same(bounds({ $lte: 1.25 }), ['[-inf.0, 1.25]']);
  same(bounds({ $gte: new ObjectId('0123456789abcdef01234567') }), ["[ObjectId('0123456789abcdef01234567'), ObjectId('ffffffffffffffffffffffff')]"]);
  same(bounds({ $gt: new Date(5) }), ['(new Date(5), new Date(9223372036854775807)]']);
  same(bounds(/^ab\.c/), ['["ab.c", "ab.d")', '[/^ab\\.c/, /^ab\\.c/]']);
});
