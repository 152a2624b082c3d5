// Expressions, accumulators and stages as users see them: types in and out,
// errors with their codes, through the shell.

function one(stages, docs) {
  const c = empty('agg');
  if (docs && docs.length) c.insertMany(docs);
  return c.aggregate(stages).toArray();
}

function value(expression, doc) {
  return one([{ $project: { _id: 0, v: expression } }], [doc || { _id: 1 }])[0].v;
}

test('dates in a time zone', () => {
  const d = ISODate('2024-03-10T06:59:59.999Z');
  same(value({ $dateToString: { date: '$d', timezone: 'America/New_York' } }, { d }), '2024-03-10T01:59:59.999');
  same(value({ $hour: { date: { $dateAdd: { startDate: '$d', unit: 'millisecond', amount: 1 } }, timezone: 'America/New_York' } }, { d }), 3);
  same(value({ $dateTrunc: { date: '$d', unit: 'month', timezone: 'Europe/Berlin' } }, { d }), ISODate('2024-02-29T23:00:00Z'));
  same(value({ $dateDiff: { startDate: ISODate('2023-12-31T23:59:59Z'), endDate: '$d', unit: 'year' } }, { d }), Long(1));
  same(value({ $dateFromString: { dateString: '29.02.2024 12:30', format: '%d.%m.%Y %H:%M', timezone: '+01:00' } }), ISODate('2024-02-29T11:30:00Z'));
  same(value({ $dateFromParts: { year: 2024, month: 14, day: 1 } }), ISODate('2025-02-01T00:00:00Z'));
  refused(40485, () => value({ $year: { date: '$d', timezone: 'Nowhere' } }, { d }));
});

test('text', () => {
  same(value({ $trim: { input: '  x ' } }), 'x');
  same(value({ $regexFindAll: { input: 'éa1b22', regex: '[a-z]([0-9]+)' } }), [
    { match: 'a1', idx: 1, captures: ['1'] },
    { match: 'b22', idx: 3, captures: ['22'] },
  ]);
  same(value({ $replaceAll: { input: 'a-b-c', find: '-', replacement: '+' } }), 'a+b+c');
  same(value({ $indexOfCP: ['cafétéria', 't'] }), 4);
  refused(51111, () => value({ $regexMatch: { input: 'x', regex: '(' } }));
});

test('conversions', () => {
  same(value({ $convert: { input: 'x', to: 'int', onError: 'bad', onNull: 'none' } }), 'bad');
  same(value({ $convert: { input: '$nothing', to: 'int', onError: 'bad', onNull: 'none' } }), 'none');
  same(value({ $toString: UUID('867dee52-c331-484e-92d1-c56479b8e67e') }), '867dee52-c331-484e-92d1-c56479b8e67e');
  same(value({ $toLong: '9007199254740993' }), Long('9007199254740993'));
  refused(241, () => value({ $toInt: 'x' }));
});

test('numbers', () => {
  same(value({ $round: [{ $sin: 1 }, 12] }), 0.841470984808);
  same(value({ $sqrt: Decimal128('2') }), Decimal128('1.414213562373095048801688724209698'));
  same(value({ $bitXor: [12, 10] }), 6);
  same(value({ $log: [Decimal128('100'), 10] }), Decimal128('2.000000000000000000000000000000000'));
  same(value({ $median: { input: [5, 1, 9], method: 'approximate' } }), 5);
});

test('arrays and objects', () => {
  same(value({ $sortArray: { input: [{ a: 2 }, { a: 1 }], sortBy: { a: 1 } } }), [{ a: 1 }, { a: 2 }]);
  same(value({ $zip: { inputs: [[1, 2], ['x']], useLongestLength: true, defaults: [0, '-'] } }), [[1, 'x'], [2, '-']]);
  same(value({ $maxN: { n: 2, input: [3, 1, 2] } }), [3, 2]);
  same(value({ $setField: { field: 'a.b', input: { c: 1 }, value: 2 } }), { c: 1, 'a.b': 2 });
  same(value({ $getField: { field: { $literal: '$x' }, input: { $literal: { $x: 1 } } } }), 1);
});

test('expressions in filters and updates', () => {
  const c = empty('agg');
  c.insertMany([{ _id: 1, at: ISODate('2024-01-31T12:00:00Z'), n: ' x ' }, { _id: 2, at: ISODate('2024-02-01T00:30:00Z'), n: 'y' }]);
  same(c.countDocuments({ $expr: { $eq: [{ $month: { date: '$at', timezone: 'America/New_York' } }, 1] } }), 2);
  c.updateMany({}, [{ $set: { n: { $trim: { input: '$n' } }, next: { $dateAdd: { startDate: '$at', unit: 'month', amount: 1 } } } }]);
  same(c.findOne({ _id: 1 }), { _id: 1, at: ISODate('2024-01-31T12:00:00Z'), n: 'x', next: ISODate('2024-02-29T12:00:00Z') });
  same(c.countDocuments({ $sampleRate: 1 }), 2);
  same(c.countDocuments({ $sampleRate: 0 }), 0);
});

test('accumulators', () => {
  const docs = [{ g: 1, p: 'a', s: 3 }, { g: 1, p: 'b', s: 1 }, { g: 1, p: 'c', s: 2 }];
  same(one([{ $group: {
    _id: '$g',
    top: { $topN: { output: '$p', sortBy: { s: -1 }, n: 2 } },
    low: { $bottom: { output: '$p', sortBy: { s: -1 } } },
    dev: { $stdDevSamp: '$s' },
    half: { $median: { input: '$s', method: 'approximate' } },
    most: { $maxN: { input: '$s', n: 2 } },
  } }], docs), [{ _id: 1, top: ['a', 'c'], low: 'b', dev: 1, half: 2, most: [3, 2] }]);
  refused(4544710, () => one([{ $group: { _id: 1, x: { $accumulator: {} } } }], docs));
});

test('$bucket and $bucketAuto', () => {
  const docs = [1, 5, 12, 18, 25].map(v => ({ v }));
  same(one([{ $bucket: { groupBy: '$v', boundaries: [0, 10, 20], default: 'more' } }], docs), [
    { _id: 0, count: 2 }, { _id: 10, count: 2 }, { _id: 'more', count: 1 },
  ]);
  same(one([{ $bucketAuto: { groupBy: '$v', buckets: 2, output: { all: { $push: '$v' } } } }], docs), [
    { _id: { min: 1, max: 18 }, all: [1, 5, 12] }, { _id: { min: 18, max: 25 }, all: [18, 25] },
  ]);
});

test('$setWindowFields', () => {
  const docs = [['a', 1, 10], ['a', 2, 20], ['a', 4, 5], ['b', 1, 7]].map(([p, t, v]) => ({ p, t, v }));
  same(one([
    { $setWindowFields: { partitionBy: '$p', sortBy: { t: 1 }, output: {
      total: { $sum: '$v', window: { documents: ['unbounded', 'current'] } },
      near: { $avg: '$v', window: { range: [-1, 1] } },
      rank: { $rank: {} },
      before: { $shift: { output: '$v', by: -1, default: 'none' } },
    } } },
    { $project: { _id: 0, v: 0 } },
  ], docs), [
    { p: 'a', t: 1, total: 10, near: 15, rank: 1, before: 'none' },
    { p: 'a', t: 2, total: 30, near: 15, rank: 2, before: 10 },
    { p: 'a', t: 4, total: 35, near: 5, rank: 3, before: 20 },
    { p: 'b', t: 1, total: 7, near: 7, rank: 1, before: 'none' },
  ]);
  // An index on partition and order replaces the sort.
  db.agg.createIndex({ p: 1, t: 1 });
  const plan = JSON.stringify(db.agg.explain().aggregate([
    { $setWindowFields: { partitionBy: '$p', sortBy: { t: 1 }, output: { n: { $documentNumber: {} } } } },
  ]));
  truth(plan.includes('"IXSCAN"'), plan);
});

test('$densify and $fill', () => {
  const docs = [{ _id: 1, d: ISODate('2024-01-31T00:00:00Z'), v: 1 }, { _id: 2, d: ISODate('2024-03-31T00:00:00Z'), v: 3 }];
  same(one([
    { $densify: { field: 'd', range: { step: 1, unit: 'month', bounds: 'full' } } },
    { $fill: { sortBy: { d: 1 }, output: { v: { method: 'locf' }, w: { value: 'none' } } } },
    { $project: { _id: 0 } },
  ], docs), [
    { d: ISODate('2024-01-31T00:00:00Z'), v: 1, w: 'none' },
    { d: ISODate('2024-02-29T00:00:00Z'), v: 1, w: 'none' },
    { d: ISODate('2024-03-31T00:00:00Z'), v: 3, w: 'none' },
  ]);
});

test('$redact, $sample, $documents', () => {
  same(one([{ $redact: { $cond: [{ $eq: ['$secret', true] }, '$$PRUNE', '$$DESCEND'] } }], [
    { _id: 1, a: { secret: true, x: 1 }, b: [{ secret: true }, { y: 1 }] },
  ]), [{ _id: 1, b: [{ y: 1 }] }]);
  same(one([{ $sample: { size: 2 } }, { $count: 'n' }], [{}, {}, {}]), [{ n: 2 }]);
  same(db.aggregate([{ $documents: [{ a: 1 }, { a: 2 }] }, { $group: { _id: null, s: { $sum: '$a' } } }]).toArray(), [{ _id: null, s: 3 }]);
});

test('an expression nested too deeply is an error', () => {
  let deep = '$a';
  for (let i = 0; i < 150; i++) deep = { $not: [deep] };
  let error = null;
  try { value(deep); } catch (e) { error = e; }
  truth(error !== null && error.code !== undefined, String(error));
  same(value({ $add: [1, 1] }), 2);
});

test('places in loops, hashes, vectors, JSON, regular expressions that cut', () => {
  const value = expression => db.aggregate([{ $documents: [{ a: ['x', 'y'], s: 'a1b22c', j: '{"k":[1,2.5]}' }] }, { $replaceWith: { v: expression } }]).next().v;
  same(value({ $map: { input: '$a', as: 'e', arrayIndexAs: 'i', in: ['$$i', '$$e'] } }), [[0, 'x'], [1, 'y']]);
  same(value({ $filter: { input: '$a', cond: { $gt: ['$$IDX', 0] } } }), ['y']);
  same(value({ $hexHash: { input: 'report.pdf', algorithm: 'sha256' } }), '6466E450A16B77B865C5829D6B6C56D9F892956475642DBEB9CCC4340FE01B15');
  same(value({ $hexHash: { input: null, algorithm: 'md5' } }), null);
  same(value({ $subtype: BinData(4, 'gf1UcxdHTJ2HQ/EGQrO7mQ==') }), 4);
  same(value({ $toObject: '$j' }), { k: [1, 2.5] });
  same(value({ $toArray: '[1, "a", null]' }), [1, 'a', null]);
  refused(10503900, () => value({ $split: ['$s', /[0-9]+/] }));
  refused(10503901, () => value({ $replaceAll: { input: '$s', find: /[0-9]/, replacement: '#' } }));
  same(value({ $similarityDotProduct: [[1, 2, 3], [4, 5, 6]] }), 32);
  same(value({ $similarityEuclidean: { vectors: [[0, 0], [3, 4]], score: true } }), 1 / 6);
  same(value('$$USER_ROLES'), []);
  truth(value({ $createObjectId: {} }) instanceof ObjectId, 'an object id');
  refused(241, () => value({ $toArray: '{}' }));
});

test('arrays joined over windows, and scaling', () => {
  const c = empty('windows');
  c.insertMany([{ _id: 1, t: ['a'], n: 1 }, { _id: 2, t: ['b', 'a'], n: 5 }, { _id: 3, n: 21 }]);
  const window = { documents: ['unbounded', 'current'] };
  const stage = { $setWindowFields: { sortBy: { _id: 1 }, output: { all: { $concatArrays: '$t', window }, set: { $setUnion: '$t', window }, s: { $minMaxScaler: '$n' } } } };
  same(c.aggregate([stage, { $project: { all: 1, set: { $sortArray: { input: '$set', sortBy: 1 } }, s: 1 } }]).toArray(), [
    { _id: 1, all: ['a'], s: 0, set: ['a'] },
    { _id: 2, all: ['a', 'b', 'a'], s: 0.2, set: ['a', 'b'] },
    { _id: 3, all: ['a', 'b', 'a'], s: 1, set: ['a', 'b'] },
  ]);
  refused(9, () => c.aggregate([{ $setWindowFields: { sortBy: { _id: 1 }, output: { s: { $minMaxScaler: '$t' } } } }]).toArray());
});
