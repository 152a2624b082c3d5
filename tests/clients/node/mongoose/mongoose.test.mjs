// Mongoose as applications use it: schemas, validation, indexes, populate, versions, cursors.
import { after, before, beforeEach, test } from 'node:test';
import assert from 'node:assert/strict';
import mongoose from 'mongoose';

const { Schema } = mongoose;

const authorSchema = new Schema(
  {
    name: { type: String, required: true, trim: true },
    email: { type: String, lowercase: true, unique: true, match: /@/ },
    born: Date,
    tags: [String],
    address: { street: String, city: { type: String, index: true } },
    score: { type: Number, default: 0, min: 0, max: 100 },
    balance: Schema.Types.Decimal128,
    visits: { type: Schema.Types.BigInt },
    raw: Buffer,
    id2: Schema.Types.UUID,
    extra: Schema.Types.Mixed,
    flags: { type: Map, of: Boolean },
  },
  { timestamps: true },
);
authorSchema.index({ name: 1, born: -1 });
authorSchema.virtual('initial').get(function () { return this.name[0]; });
authorSchema.methods.rename = function (to) { this.name = to; return this.save(); };
authorSchema.statics.named = function (name) { return this.findOne({ name }); };

const bookSchema = new Schema({
  title: { type: String, required: true },
  author: { type: Schema.Types.ObjectId, ref: 'Author' },
  reviewers: [{ type: Schema.Types.ObjectId, ref: 'Author' }],
  chapters: [{ title: String, pages: Number }],
});
authorSchema.virtual('books', { ref: 'Book', localField: '_id', foreignField: 'author' });

const connection = mongoose.createConnection(`${process.env.SHEAF_URI}mongoose_suite`, { serverSelectionTimeoutMS: 5000 });
const Author = connection.model('Author', authorSchema);
const Book = connection.model('Book', bookSchema);

before(async () => {
  await connection.asPromise();
  await connection.dropDatabase();
  await Promise.all([Author.init(), Book.init()]);
  await Promise.all([Author.syncIndexes(), Book.syncIndexes()]);
});
beforeEach(async () => {
  await Promise.all([Author.deleteMany({}), Book.deleteMany({})]);
});
after(() => connection.close());

test('a document is saved with its casts and defaults', async () => {
  const saved = await Author.create({ name: '  Ada ', email: 'ADA@x.org', born: '1815-12-10', tags: ['math'], address: { city: 'London' } });
  const found = await Author.findById(saved._id);
  assert.equal(found.name, 'Ada');
  assert.equal(found.email, 'ada@x.org');
  assert.equal(found.score, 0);
  assert.equal(found.__v, 0);
  assert.equal(found.initial, 'A');
  assert.deepEqual(found.born, new Date('1815-12-10'));
  assert.deepEqual([...found.tags], ['math']);
  assert.ok(found.createdAt instanceof Date && found.updatedAt instanceof Date);
});

test('types of the schema survive', async () => {
  const given = {
    name: 'T', email: 't@x', balance: '12.340', visits: 9007199254740993n, raw: Buffer.from([1, 2, 3]),
    id2: '01234567-89ab-4def-8123-456789abcdef', extra: { deep: [1, { x: null }] }, flags: { a: true, b: false },
  };
  const { _id } = await Author.create(given);
  const found = await Author.findById(_id);
  assert.equal(found.balance.toString(), '12.340');
  assert.equal(found.visits, 9007199254740993n);
  assert.deepEqual([...found.raw], [1, 2, 3]);
  assert.equal(found.id2.toString(), given.id2);
  assert.deepEqual(found.extra, { deep: [1, { x: null }] });
  assert.deepEqual([found.flags.get('a'), found.flags.get('b')], [true, false]);
});

test('validation refuses before a command is sent', async () => {
  await assert.rejects(Author.create({ email: 'no-at-sign', score: 500 }), (e) => {
    assert.ok(e instanceof mongoose.Error.ValidationError);
    assert.deepEqual(Object.keys(e.errors).sort(), ['email', 'name', 'score']);
    return true;
  });
  assert.equal(await Author.countDocuments(), 0);
  await assert.rejects(Author.updateOne({}, { score: 'many' }), mongoose.Error.CastError);
  await assert.rejects(Author.updateOne({}, { score: -5 }, { runValidators: true }), mongoose.Error.ValidationError);
});

test('the indexes of the schema are on the server', async () => {
  const indexes = await Author.listIndexes();
  const keys = indexes.map((i) => JSON.stringify(i.key)).sort();
  assert.deepEqual(keys, ['{"_id":1}', '{"address.city":1}', '{"email":1}', '{"name":1,"born":-1}']);
  assert.equal(indexes.find((i) => i.key.email).unique, true);
  assert.deepEqual(await Author.syncIndexes(), []); // nothing left to drop
  const diff = await Author.diffIndexes();
  assert.deepEqual([diff.toDrop, diff.toCreate], [[], []]);
});

test('syncIndexes drops indexes that are not in the schema', async () => {
  await Author.collection.createIndex({ stray: 1 });
  assert.deepEqual(await Author.syncIndexes(), ['stray_1']);
});

test('a unique path throws MongoServerError 11000', async () => {
  await Author.create({ name: 'A', email: 'same@x' });
  await assert.rejects(Author.create({ name: 'B', email: 'SAME@x' }), (e) => {
    assert.equal(e.name, 'MongoServerError');
    assert.equal(e.code, 11000);
    assert.deepEqual(e.keyPattern, { email: 1 });
    assert.deepEqual(e.keyValue, { email: 'same@x' });
    return true;
  });
});

test('queries: chains, operators, lean, select, sort, limit', async () => {
  await Author.insertMany(Array.from({ length: 30 }, (_, i) => ({ name: `n${String(i).padStart(2, '0')}`, email: `e${i}@x`, score: i, tags: [`t${i % 3}`] })));
  const page = await Author.find({ tags: 't1' }).where('score').gte(10).lt(25).sort('-score').limit(3).select('score -_id').lean();
  assert.deepEqual(page, [{ score: 22 }, { score: 19 }, { score: 16 }]);
  assert.ok(!(page[0] instanceof mongoose.Document));
  assert.equal(await Author.countDocuments({ score: { $gt: 20 } }), 9);
  assert.equal(await Author.estimatedDocumentCount(), 30);
  assert.deepEqual((await Author.distinct('tags')).sort(), ['t0', 't1', 't2']);
  assert.equal((await Author.exists({ name: 'n05' }))._id !== undefined, true);
  assert.equal(await Author.exists({ name: 'nobody' }), null);
  assert.equal((await Author.named('n07')).score, 7);
  assert.equal((await Author.find({ name: /^n2/ })).length, 10);
  assert.equal((await Author.findOne({ score: 3 }).lean()).name, 'n03');
  await assert.rejects(Author.findOne({ name: 'nobody' }).orFail(), mongoose.Error.DocumentNotFoundError);
});

test('populate joins through find', async () => {
  const [a, b] = await Author.create([{ name: 'A', email: 'a@x' }, { name: 'B', email: 'b@x' }]);
  await Book.create([{ title: 'one', author: a, reviewers: [b, a] }, { title: 'two', author: a }, { title: 'three', author: b }]);
  const one = await Book.findOne({ title: 'one' }).populate('author', 'name').populate('reviewers');
  assert.equal(one.author.name, 'A');
  assert.equal(one.author.email, undefined);
  assert.deepEqual(one.reviewers.map((r) => r.name), ['B', 'A']);
  const withBooks = await Author.findOne({ name: 'A' }).populate({ path: 'books', options: { sort: { title: 1 } } });
  assert.deepEqual(withBooks.books.map((x) => x.title), ['one', 'two']);
});

test('save sends only what changed, and a method saves', async () => {
  const { _id } = await Author.create({ name: 'A', email: 'a@x', tags: ['x'] });
  const author = await Author.findById(_id);
  author.tags.push('y');
  author.address.city = 'Paris';
  author.set('score', 7);
  assert.deepEqual(author.modifiedPaths().includes('tags'), true);
  await author.save();
  await author.rename('Z');
  const found = await Author.findById(_id).lean();
  assert.deepEqual([found.name, found.tags, found.address.city, found.score], ['Z', ['x', 'y'], 'Paris', 7]);
});

test('array methods become array operators', async () => {
  const book = await Book.create({ title: 'b', chapters: [{ title: 'c1', pages: 3 }, { title: 'c2', pages: 5 }] });
  book.chapters.id(book.chapters[0]._id).deleteOne();
  book.chapters.push({ title: 'c3', pages: 9 });
  await book.save();
  const found = await Book.findById(book._id);
  assert.deepEqual(found.chapters.map((c) => c.title), ['c2', 'c3']);
  await Book.updateOne({ _id: book._id, 'chapters.title': 'c3' }, { $pull: { chapters: { title: 'c2' } } });
  assert.equal((await Book.findById(book._id)).chapters.length, 1);
});

test('two saves of one array position: the second is a VersionError', async () => {
  const { _id } = await Book.create({ title: 'b', chapters: [{ title: 'c1', pages: 1 }, { title: 'c2', pages: 2 }] });
  const first = await Book.findById(_id);
  const second = await Book.findById(_id);
  first.chapters.splice(0, 1); // moves positions, so it raises __v
  await first.save();
  second.chapters[1].pages = 99;
  await assert.rejects(second.save(), mongoose.Error.VersionError);
  const found = await Book.findById(_id);
  assert.equal(found.__v, 1);
  assert.deepEqual(found.chapters.map((c) => c.pages), [2]);
});

test('optimistic concurrency refuses a stale save', async () => {
  const schema = new Schema({ n: Number }, { optimisticConcurrency: true });
  const Counter = connection.model('Counter', schema);
  await Counter.deleteMany({});
  const { _id } = await Counter.create({ n: 1 });
  const [x, y] = [await Counter.findById(_id), await Counter.findById(_id)];
  x.n = 2;
  await x.save();
  y.n = 3;
  await assert.rejects(y.save(), mongoose.Error.VersionError);
  assert.equal((await Counter.findById(_id)).n, 2);
});

test('saving a deleted document', async () => {
  const author = await Author.create({ name: 'A', email: 'a@x' });
  await Author.deleteOne({ _id: author._id });
  author.name = 'B';
  await assert.rejects(author.save(), mongoose.Error.DocumentNotFoundError);
});

test('findOneAndUpdate, upsert, findByIdAndDelete', async () => {
  const made = await Author.findOneAndUpdate({ email: 'u@x' }, { $set: { name: 'U' }, $inc: { score: 5 } }, { upsert: true, returnDocument: 'after', setDefaultsOnInsert: false });
  assert.deepEqual([made.name, made.email, made.score], ['U', 'u@x', 5]);
  const before = await Author.findOneAndUpdate({ email: 'u@x' }, { name: 'V' });
  assert.equal(before.name, 'U');
  assert.equal((await Author.findByIdAndDelete(made._id)).name, 'V');
  assert.equal(await Author.countDocuments(), 0);
});

test('bulkWrite and insertMany, ordered and not', async () => {
  const r = await Author.bulkWrite([
    { insertOne: { document: { name: 'A', email: 'a@x' } } },
    { updateOne: { filter: { email: 'a@x' }, update: { score: 9 } } },
    { updateOne: { filter: { email: 'b@x' }, update: { name: 'B' }, upsert: true } },
    { deleteOne: { filter: { email: 'a@x' } } },
  ]);
  assert.deepEqual([r.insertedCount, r.modifiedCount, r.upsertedCount, r.deletedCount], [1, 1, 1, 1]);
  await assert.rejects(
    Author.insertMany([{ name: 'C', email: 'b@x' }, { name: 'D', email: 'd@x' }], { ordered: false }),
    (e) => e.code === 11000,
  );
  assert.deepEqual((await Author.find().sort('email').lean()).map((d) => d.email), ['b@x', 'd@x']);
});

test('cursors and eachAsync', async () => {
  await Author.insertMany(Array.from({ length: 250 }, (_, i) => ({ name: `n${i}`, email: `e${i}@x`, score: i % 100 })));
  let n = 0;
  for await (const author of Author.find().cursor({ batchSize: 20 })) {
    assert.ok(author instanceof Author);
    n++;
  }
  assert.equal(n, 250);
  let sum = 0;
  await Author.find({ score: { $lt: 10 } }).cursor().eachAsync((d) => { sum += d.score; }, { parallel: 4 });
  assert.equal(sum, 3 * 45); // 0 to 9 occur in each hundred and in the half
});

test('aggregation', async () => {
  await Author.insertMany([{ name: 'A', email: '1@x', score: 1 }, { name: 'A', email: '2@x', score: 2 }, { name: 'B', email: '3@x', score: 4 }]);
  const rows = await Author.aggregate().match({ score: { $gt: 0 } }).group({ _id: '$name', total: { $sum: '$score' } }).sort('_id');
  assert.deepEqual(rows, [{ _id: 'A', total: 3 }, { _id: 'B', total: 4 }]);
});

test('middleware runs around the server call', async () => {
  const schema = new Schema({ n: Number });
  const log = [];
  schema.pre('save', function () { log.push(`pre ${this.n}`); });
  schema.post('save', (d) => { log.push(`post ${d.n}`); });
  schema.pre('find', function () { this.where({ n: { $gt: 1 } }); });
  const Hooked = connection.model('Hooked', schema);
  await Hooked.deleteMany({});
  await Hooked.create({ n: 1 });
  await Hooked.create({ n: 2 });
  assert.deepEqual(log, ['pre 1', 'post 1', 'pre 2', 'post 2']);
  assert.deepEqual((await Hooked.find()).map((d) => d.n), [2]);
});

test('discriminators keep several kinds in one collection', async () => {
  const Event = connection.model('Event', new Schema({ at: Date }, { discriminatorKey: 'kind' }));
  const Click = Event.discriminator('Click', new Schema({ x: Number }));
  const Key = Event.discriminator('Key', new Schema({ code: String }));
  await Event.deleteMany({});
  await Click.create({ x: 1 });
  await Key.create({ code: 'a' });
  assert.equal(await Event.countDocuments(), 2);
  assert.equal((await Click.find()).length, 1);
  assert.equal((await Event.findOne({ kind: 'Key' })).code, 'a');
});
