// Every type that the shell can write is returned with the same type and value.

test('types survive a round trip', () => {
  const c = empty('types');
  const doc = {
    _id: 1, double: 1.5, minusZero: Double(-0), int: Int32(7), long: Long('9007199254740993'), decimal: Decimal128('0.10'),
    nan: NaN, inf: Infinity, string: 'žluťoučký 🐿', zero: 'a\u0000b', empty: '', object: { a: { b: {} } }, array: [1, [2, [3]], {}],
    bin: BinData(0, 'AQID'), uuid: UUID('01234567-89ab-cdef-0123-456789abcdef'), oid: ObjectId('0123456789abcdef01234567'), yes: true, no: false,
    date: ISODate('1969-12-31T23:59:59.999Z'), nil: null, regex: /a.*b/im, code: Code('function () {}'), ts: Timestamp({ t: 5, i: 6 }),
    min: MinKey(), max: MaxKey(),
  };
  c.insertOne(doc);
  const back = c.findOne();
  same(EJSON.stringify(back, { relaxed: false }), EJSON.stringify(doc, { relaxed: false }));
});
test('$type distinguishes them', () => {
  const c = db.types;
  const names = { double: 'double', int: 'int', long: 'long', decimal: 'decimal', string: 'string', object: 'object', bin: 'binData', uuid: 'binData', oid: 'objectId', yes: 'bool', date: 'date', nil: 'null', regex: 'regex', code: 'javascript', ts: 'timestamp', min: 'minKey', max: 'maxKey' };
  for (const field of Object.keys(names)) same([field, c.countDocuments({ [field]: { $type: names[field] } })], [field, 1]);
  same(c.countDocuments({ array: { $type: 'array' } }), 1);
});
test('numbers compare across types', () => {
  const c = empty('numbers');
  c.insertMany([{ _id: 1, n: Int32(3) }, { _id: 2, n: Long(3) }, { _id: 3, n: 3.0 }, { _id: 4, n: Decimal128('3.00') }, { _id: 5, n: Decimal128('3.1') }, { _id: 6, n: Long('9007199254740993') }]);
  c.createIndex({ n: 1 });
  same(c.find({ n: 3 }).sort({ _id: 1 }).toArray().map((d) => d._id), [1, 2, 3, 4]);
  same(c.find({ n: { $gt: 3 } }).sort({ n: 1 }).toArray().map((d) => d._id), [5, 6]);
  same(c.find({ n: Decimal128('9007199254740993') }).toArray().map((d) => d._id), [6]);
  same(c.find({ n: 9007199254740992 }).toArray().length, 0);
});
test('sorting across types', () => {
  const c = empty('order');
  const values = [MinKey(), null, Int32(-1), 2.5, Decimal128('3'), 'a', 'b', { a: 1 }, [], BinData(0, ''), ObjectId('000000000000000000000000'), false, true, ISODate('1970-01-01'), Timestamp({ t: 1, i: 1 }), /x/, MaxKey()];
  // An empty array has no element to sort by: it sorts below null.
  c.insertMany(values.map((v, i) => ({ _id: i, v: v })).reverse());
  const got = c.find().sort({ v: 1 }).toArray().map((d) => d._id);
  same(got, [0, 8, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 16]);
});
test('an empty array as a value', () => {
  const c = empty('types');
  c.insertMany([{ _id: 1, a: [] }, { _id: 2, a: null }, { _id: 3 }, { _id: 4, a: [null] }]);
  same(c.find({ a: [] }).toArray().map((d) => d._id), [1]);
  same(c.find({ a: null }).sort({ _id: 1 }).toArray().map((d) => d._id), [2, 3, 4]);
  same(c.find({ a: { $exists: false } }).toArray().map((d) => d._id), [3]);
  same(c.find({ a: { $size: 0 } }).toArray().map((d) => d._id), [1]);
});
