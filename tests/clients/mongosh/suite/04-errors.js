// Errors as the shell throws them: MongoServerError with MongoDB's code and codeName.

test('a duplicate key', () => {
  const c = empty('errors');
  c.createIndex({ email: 1 }, { unique: true });
  c.insertOne({ _id: 1, email: 'a@b.c' });
  const e = refused(11000, () => c.insertOne({ _id: 2, email: 'a@b.c' }));
  same(e.name, 'MongoServerError');
  truth(/E11000 duplicate key error collection: mongosh_suite\.errors index: email_1 dup key: \{ email: "a@b\.c" \}/.test(e.message), e.message);
  same(e.keyPattern, { email: 1 });
  same(e.keyValue, { email: 'a@b.c' });
  refused(11000, () => c.updateOne({ _id: 3 }, { $set: { email: 'a@b.c' } }, { upsert: true }));
  same(c.countDocuments(), 1);
});
test('an ordered batch stops at the first error, an unordered one continues', () => {
  const c = empty('errors');
  c.insertOne({ _id: 2 });
  let e = refused(11000, () => c.insertMany([{ _id: 1 }, { _id: 2 }, { _id: 3 }]));
  same(e.name, 'MongoBulkWriteError');
  same(e.writeErrors.length, 1);
  same(e.writeErrors[0].index, 1);
  same(c.find().sort({ _id: 1 }).toArray().map((d) => d._id), [1, 2]);
  e = refused(11000, () => c.insertMany([{ _id: 1 }, { _id: 2 }, { _id: 3 }, { _id: 4 }], { ordered: false }));
  same(e.writeErrors.map((w) => w.index), [0, 1]);
  same(c.countDocuments(), 4);
});
test('unknown command', () => {
  const e = refused(59, () => db.runCommand({ doesNotExist: 1 }));
  same([e.name, e.codeName], ['MongoServerError', 'CommandNotFound']);
  truth(/no such command: 'doesNotExist'/.test(e.message), e.message);
});
test('unknown operators and options', () => {
  const c = empty('errors');
  c.insertOne({ a: 1, s: 'text', arr: [1] });
  truth(/unknown operator: \$near_by/.test(refused(2, () => c.findOne({ a: { $near_by: 1 } })).message), 'names the operator');
  truth(/unknown top level operator: \$whatever/.test(refused(2, () => c.findOne({ $whatever: [] })).message), 'names the operator');
  truth(/unknown modifier: \$grow/i.test(refused(9, () => c.updateOne({}, { $grow: { a: 1 } })).message), 'names the modifier');
  truth(/Unrecognized pipeline stage name: '\$explode'/.test(refused(40324, () => c.aggregate([{ $explode: 1 }]).toArray()).message), 'names the stage');
  truth(/filtr/.test(refused(40415, () => db.runCommand({ find: 'errors', filtr: {} })).message), 'names the option');
});
test('invalid updates', () => {
  const c = db.errors;
  refused(40, () => c.updateOne({}, { $set: { a: 1 }, $inc: { a: 1 } }));
  refused(14, () => c.updateOne({}, { $inc: { s: 1 } }));
  refused(2, () => c.updateOne({}, { $push: { a: 1 } }));
  refused(66, () => c.updateOne({}, { $set: { _id: 'other' } }));
  refused(28, () => c.updateOne({}, { $set: { 'a.b': 1 } }));
  same(c.findOne({}, { _id: 0 }), { a: 1, s: 'text', arr: [1] });
});
test('bad values', () => {
  refused(2, () => db.errors.find({ a: { $in: 5 } }).toArray());
  refused(2, () => db.errors.find().hint('no_such_index').toArray());
  refused(51091, () => db.errors.find({ s: { $regex: '(' } }).toArray());
  refused(31254, () => db.errors.find({}, { a: 1, s: 0 }).toArray());
  refused(31253, () => db.errors.find({}, { s: 0, a: 1 }).toArray());
  refused(73, () => db.runCommand({ insert: 'a$b', documents: [{}] }));
});
test('a missing cursor', () => {
  const e = refused(43, () => db.runCommand({ getMore: Long('123456789'), collection: 'errors' }));
  same(e.codeName, 'CursorNotFound');
});
test('the connection remains usable after errors', () => same(db.adminCommand({ ping: 1 }).ok, 1));
