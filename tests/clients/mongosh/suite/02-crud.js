// The collection helpers of the shell and what they return.

test('insertOne returns its id', () => {
  const c = empty('crud');
  const r = c.insertOne({ a: 1 });
  same(r.acknowledged, true);
  truth(r.insertedId instanceof ObjectId, 'an ObjectId was made');
  same(c.findOne(r.insertedId).a, 1);
});
test('insertMany keeps order and ids', () => {
  const c = empty('crud');
  same(c.insertMany([{ _id: 'x' }, { _id: 2 }, { _id: 1.5 }]).insertedIds, { 0: 'x', 1: 2, 2: 1.5 });
  same(c.find().toArray().map((d) => d._id), ['x', 2, 1.5]);
});
test('find: filter, projection, sort, skip, limit', () => {
  const c = empty('crud');
  for (let i = 0; i < 20; i++) c.insertOne({ _id: i, a: i % 4, b: 'v' + i });
  same(c.find({ a: 1 }, { b: 1 }).sort({ _id: -1 }).skip(1).limit(2).toArray(), [{ _id: 13, b: 'v13' }, { _id: 9, b: 'v9' }]);
  same(c.find({ a: { $in: [0, 3] }, _id: { $gte: 8, $lt: 12 } }, { _id: 1 }).toArray(), [{ _id: 8 }, { _id: 11 }]);
  same(c.find({ b: /^v1[0-2]$/ }).count(), 3);
  same(c.findOne({ a: 9 }), null);
});
test('cursor helpers', () => {
  const c = db.crud;
  same(c.find({ a: 2 }).map((d) => d._id).toArray(), [2, 6, 10, 14, 18]);
  const cursor = c.find().sort({ _id: 1 }).batchSize(3);
  const seen = [];
  while (cursor.hasNext()) seen.push(cursor.next()._id);
  same(seen.length, 20);
  let sum = 0;
  c.find({ _id: { $lt: 5 } }).forEach((d) => { sum += d._id; });
  same(sum, 10);
  same(c.find().limit(7).itcount(), 7);
  same(c.find({ a: 1 }).comment('why').hint({ _id: 1 }).maxTimeMS(10000).itcount(), 5);
  same(c.find({}, { _id: 1 }).min({ _id: 3 }).max({ _id: 6 }).hint({ _id: 1 }).toArray(), [{ _id: 3 }, { _id: 4 }, { _id: 5 }]);
});
test('counting', () => {
  const c = db.crud;
  same(c.countDocuments(), 20);
  same(c.countDocuments({ a: 1 }), 5);
  same(c.countDocuments({}, { skip: 15, limit: 10 }), 5);
  same(c.estimatedDocumentCount(), 20);
  same(c.distinct('a'), [0, 1, 2, 3]);
  same(c.distinct('a', { _id: { $lt: 2 } }), [0, 1]);
});
test('updateOne, updateMany, replaceOne', () => {
  const c = db.crud;
  let r = c.updateOne({ _id: 1 }, { $set: { a: 100 }, $inc: { n: 5 } });
  same([r.matchedCount, r.modifiedCount, r.upsertedCount], [1, 1, 0]);
  r = c.updateOne({ _id: 1 }, { $set: { a: 100 } });
  same([r.matchedCount, r.modifiedCount], [1, 0]);
  r = c.updateMany({ a: 2 }, { $unset: { b: '' }, $rename: { a: 'z' } });
  same([r.matchedCount, r.modifiedCount], [5, 5]);
  same(c.findOne({ _id: 2 }), { _id: 2, z: 2 });
  r = c.replaceOne({ _id: 3 }, { whole: true });
  same(r.modifiedCount, 1);
  same(c.findOne({ _id: 3 }), { _id: 3, whole: true });
});
test('upserts', () => {
  const c = empty('upserts');
  let r = c.updateOne({ _id: 7, k: 'x' }, { $set: { v: 1 }, $setOnInsert: { made: true } }, { upsert: true });
  same([r.matchedCount, r.upsertedCount, r.insertedId], [0, 1, 7]);
  // New fields are added in the order of their names, whatever the order of the operators.
  same(c.findOne({ _id: 7 }), { _id: 7, k: 'x', made: true, v: 1 });
  r = c.replaceOne({ k: 'none' }, { k: 'new' }, { upsert: true });
  truth(r.insertedId instanceof ObjectId, 'an id was made');
  r = c.updateOne({ _id: 7 }, { $setOnInsert: { made: false } }, { upsert: true });
  same([r.matchedCount, r.modifiedCount, r.upsertedCount], [1, 0, 0]);
});
test('array updates', () => {
  const c = empty('arrays');
  c.insertOne({ _id: 1, a: [1, 2, 3] });
  const after = (u) => c.findOneAndUpdate({ _id: 1 }, u, { returnDocument: 'after' }).a;
  same(after({ $push: { a: 4 } }), [1, 2, 3, 4]);
  same(after({ $push: { a: { $each: [9, 0], $position: 1 } } }), [1, 9, 0, 2, 3, 4]);
  same(after({ $push: { a: { $each: [5], $sort: 1, $slice: -4 } } }), [3, 4, 5, 9]);
  same(after({ $addToSet: { a: { $each: [9, 7] } } }), [3, 4, 5, 9, 7]);
  same(after({ $pull: { a: { $gte: 7 } } }), [3, 4, 5]);
  same(after({ $pop: { a: -1 } }), [4, 5]);
  same(after({ $min: { 'a.0': 1 }, $max: { 'a.1': 50 } }), [1, 50]);
  same(after({ $mul: { 'a.1': 2 } }), [1, 100]);
});
test('findAndModify helpers', () => {
  const c = empty('fam');
  c.insertMany([{ _id: 1, n: 3 }, { _id: 2, n: 1 }, { _id: 3, n: 2 }]);
  same(c.findOneAndUpdate({}, { $inc: { n: 10 } }, { sort: { n: 1 } }), { _id: 2, n: 1 });
  same(c.findOneAndReplace({ _id: 1 }, { n: 'r' }, { returnDocument: 'after' }), { _id: 1, n: 'r' });
  same(c.findOneAndDelete({ n: 2 }, { projection: { _id: 0 } }), { n: 2 });
  same(c.findOneAndDelete({ n: 2 }), null);
  same(c.findAndModify({ query: { _id: 9 }, update: { $set: { n: 9 } }, upsert: true, new: true }), { _id: 9, n: 9 });
});
test('deleteOne, deleteMany', () => {
  const c = empty('gone');
  c.insertMany([{ g: 1 }, { g: 1 }, { g: 1 }, { g: 2 }]);
  same(c.deleteOne({ g: 1 }).deletedCount, 1);
  same(c.deleteMany({ g: 1 }).deletedCount, 2);
  same(c.deleteMany({ g: 5 }).deletedCount, 0);
  same(c.deleteMany({}).deletedCount, 1);
});
test('bulkWrite', () => {
  const c = empty('bulk');
  const r = c.bulkWrite([
    { insertOne: { document: { _id: 1 } } }, { insertOne: { document: { _id: 2 } } },
    { updateOne: { filter: { _id: 1 }, update: { $set: { a: 1 } } } }, { updateMany: { filter: {}, update: { $set: { b: 1 } } } },
    { replaceOne: { filter: { _id: 3 }, replacement: { c: 1 }, upsert: true } }, { deleteOne: { filter: { _id: 2 } } },
  ]);
  same([r.insertedCount, r.matchedCount, r.modifiedCount, r.deletedCount, r.upsertedCount], [2, 3, 3, 1, 1]);
  same(c.find().sort({ _id: 1 }).toArray(), [{ _id: 1, a: 1, b: 1 }, { _id: 3, c: 1 }]);
});
test('initializeUnorderedBulkOp', () => {
  const bulk = empty('bulk').initializeUnorderedBulkOp();
  for (let i = 0; i < 50; i++) bulk.insert({ _id: i });
  bulk.find({ _id: { $lt: 10 } }).update({ $set: { low: true } });
  bulk.find({ _id: 49 }).deleteOne();
  const r = bulk.execute();
  same([r.insertedCount, r.modifiedCount, r.deletedCount], [50, 10, 1]);
});
test('aggregate', () => {
  const c = empty('agg');
  c.insertMany([{ k: 'a', n: 1 }, { k: 'b', n: 2 }, { k: 'a', n: 3 }]);
  same(c.aggregate([{ $match: { n: { $gt: 0 } } }, { $group: { _id: '$k', total: { $sum: '$n' }, times: { $sum: 1 } } }, { $sort: { _id: 1 } }]).toArray(),
    [{ _id: 'a', total: 4, times: 2 }, { _id: 'b', total: 2, times: 1 }]);
  same(c.aggregate([{ $sort: { n: -1 } }, { $skip: 1 }, { $limit: 1 }, { $project: { _id: 0, n: 1 } }]).toArray(), [{ n: 2 }]);
  same(c.aggregate([{ $match: { k: 'a' } }, { $count: 'howMany' }]).toArray(), [{ howMany: 2 }]);
});
