// Time-series collections, as the manual's pages on them describe.

const start = new Date('2024-05-01T10:00:00Z');
const at = seconds => new Date(start.getTime() + seconds * 1000);
const info = name => db.getCollectionInfos({ name })[0];

test('create and list', () => {
  db.createCollection('weather', {
    timeseries: { timeField: 't', metaField: 'sensor', granularity: 'seconds' },
    expireAfterSeconds: 86400 * 365 * 50,
  });
  same(info('weather').type, 'timeseries');
  same(info('weather').options.timeseries, {
    timeField: 't', metaField: 'sensor', granularity: 'seconds', bucketMaxSpanSeconds: 3600,
  });
  same(info('system.buckets.weather').type, 'collection');
  same(db.weather.getIndexes().map(i => i.key), [{ sensor: 1, t: 1 }]);
  refused(48, () => db.createCollection('weather'));
  refused(73, () => db.createCollection('system.buckets.other'));
  refused(72, () => db.createCollection('bad', { timeseries: { timeField: 'a.b' } }));
  refused(72, () => db.createCollection('bad', { timeseries: { timeField: 't' }, capped: true, size: 4096 }));
});

test('insert and find', () => {
  const docs = [];
  for (let n = 0; n < 600; n++) {
    docs.push({ _id: n, t: at(n), sensor: { id: n % 3, room: 'a' }, temp: 20 + (n % 50) / 10, state: n % 2 ? 'on' : 'off' });
  }
  same(Object.keys(db.weather.insertMany(docs).insertedIds).length, 600);
  same(db.weather.countDocuments({}), 600);
  same(db.weather.estimatedDocumentCount(), 600);
  same(db.weather.findOne({ _id: 7 }), { t: at(7), sensor: { id: 1, room: 'a' }, _id: 7, temp: 20.7, state: 'on' });
  same(db.weather.find({ 'sensor.id': 1, t: { $gte: at(60), $lt: at(70) } }).sort({ t: 1 }).toArray().map(d => d._id), [61, 64, 67]);
  same(db.weather.find({ temp: { $gt: 24.8 } }).toArray().length, 12);
  same(db.weather.distinct('state').sort(), ['off', 'on']);
  same(db.getCollection('system.buckets.weather').countDocuments({}), 3);
  const bucket = db.getCollection('system.buckets.weather').findOne({ 'meta.id': 2 });
  same(bucket.control.count, 200);
  same(bucket.control.min.t, start);
  same(bucket.control.max.t, at(599));
  same(bucket.control.max.state, 'on');
  same(bucket.meta, { id: 2, room: 'a' });
});

test('invalid measurements', () => {
  refused(2, () => db.weather.insertOne({ sensor: 1 }));
  refused(2, () => db.weather.insertOne({ t: 5 }));
  refused(121, () => db.getCollection('system.buckets.weather').insertOne({ a: 1 }));
  const result = db.runCommand({ insert: 'weather', ordered: false, documents: [{ t: 1 }, { t: at(0), sensor: 'x' }, {}] });
  same([result.n, result.writeErrors.map(e => e.index)], [1, [0, 2]]);
  same(db.weather.deleteMany({ sensor: 'x' }).deletedCount, 1);
});

test('pipelines', () => {
  same(db.weather.aggregate([
    { $match: { 'sensor.id': { $in: [0, 1] } } },
    { $group: { _id: '$sensor.id', n: { $sum: 1 }, hot: { $max: '$temp' }, last: { $max: '$t' } } },
    { $sort: { _id: 1 } },
  ]).toArray(), [
    { _id: 0, n: 200, hot: 24.9, last: at(597) },
    { _id: 1, n: 200, hot: 24.9, last: at(598) },
  ]);
  db.rooms.insertOne({ _id: 'a', floor: 2 });
  same(db.rooms.aggregate([
    { $lookup: { from: 'weather', localField: '_id', foreignField: 'sensor.room', as: 'all' } },
    { $project: { n: { $size: '$all' } } },
  ]).toArray(), [{ _id: 'a', n: 600 }]);
  same(db.rooms.aggregate([{ $unionWith: { coll: 'weather', pipeline: [{ $match: { _id: 3 } }] } }]).toArray().length, 2);
  refused(166, () => db.rooms.aggregate([{ $merge: 'weather' }]).toArray());
  refused(166, () => db.weather.watch().tryNext());
});

test('explain reports which buckets were read', () => {
  const plan = db.weather.find({ 'sensor.id': 1, t: { $gte: at(60), $lt: at(70) } }).explain('executionStats');
  const stages = plan.stages;
  truth(stages[0].$cursor.queryPlanner.namespace.endsWith('.system.buckets.weather'), 'the buckets are read');
  const unpack = stages[1];
  same(unpack.$_internalUnpackBucket.timeField, 't');
  same(unpack.$_internalUnpackBucket.metaField, 'sensor');
  same(unpack.$_internalUnpackBucket.bucketMaxSpanSeconds, 3600);
  same([Number(unpack.nBucketsUnpacked), Number(unpack.nReturned)], [1, 3]);
  const none = db.weather.find({ temp: { $gt: 99 } }).explain('executionStats');
  same([Number(none.stages[1].nBucketsUnpacked), Number(none.stages[1].nBucketsSkipped)], [0, 3]);
  const gone = db.runCommand({
    explain: { delete: 'weather', deletes: [{ q: { 'sensor.id': 1, temp: { $gt: 24 } }, limit: 0 }] },
    verbosity: 'executionStats',
  });
  const modify = gone.executionStats.executionStages;
  same([modify.stage, modify.opType, Number(modify.nBucketsUnpacked)], ['TS_MODIFY', 'deleteMany', 1]);
});

test('indexes', () => {
  same(db.weather.createIndex({ 'sensor.id': 1, temp: -1 }), 'sensor.id_1_temp_-1');
  same(db.weather.getIndexes().map(i => i.name), ['sensor_1_t_1', 'sensor.id_1_temp_-1']);
  same(db.getCollection('system.buckets.weather').getIndexes().find(i => i.name === 'sensor.id_1_temp_-1').key,
    { 'meta.id': 1, 'control.max.temp': -1, 'control.min.temp': -1 });
  same(db.weather.find({ 'sensor.id': 1 }).hint('sensor.id_1_temp_-1').toArray().length, 200);
  refused(72, () => db.weather.createIndex({ sensor: 1 }, { unique: true }));
  refused(72, () => db.weather.createIndex({ t: 1 }, { expireAfterSeconds: 5 }));
  db.weather.dropIndex({ 'sensor.id': 1, temp: -1 });
  same(db.weather.getIndexes().length, 1);
});

test('updates change the meta field of whole series', () => {
  const result = db.weather.updateMany({ 'sensor.id': 2 }, { $set: { 'sensor.room': 'b' } });
  same([result.matchedCount, result.modifiedCount], [200, 200]);
  same(db.weather.countDocuments({ 'sensor.room': 'b' }), 200);
  refused(72, () => db.weather.updateOne({ 'sensor.id': 2 }, { $set: { 'sensor.room': 'c' } }));
  refused(72, () => db.weather.updateMany({ temp: 20 }, { $set: { 'sensor.room': 'c' } }));
  refused(72, () => db.weather.updateMany({ 'sensor.id': 2 }, { $set: { temp: 0 } }));
  refused(72, () => db.weather.updateMany({ 'sensor.id': 9 }, { $set: { 'sensor.room': 'c' } }, { upsert: true }));
  refused(72, () => db.weather.findOneAndUpdate({ 'sensor.id': 2 }, { $set: { 'sensor.room': 'c' } }));
});

test('deletes', () => {
  same(db.weather.deleteOne({ _id: 0 }).deletedCount, 1);
  same(db.weather.deleteMany({ temp: { $gte: 24.5 } }).deletedCount, 60);
  same(db.weather.deleteMany({ 'sensor.id': 2 }).deletedCount, 180);
  same(db.weather.countDocuments({}), 359);
  same(db.weather.findOneAndDelete({ _id: 1 }).temp, 20.1);
  same(db.getCollection('system.buckets.weather').countDocuments({}), 2);
});

test('collMod', () => {
  same(db.runCommand({ collMod: 'weather', timeseries: { granularity: 'minutes' } }).ok, 1);
  same(info('weather').options.timeseries.bucketMaxSpanSeconds, 86400);
  refused(72, () => db.runCommand({ collMod: 'weather', timeseries: { granularity: 'seconds' } }));
  same(db.runCommand({ collMod: 'weather', expireAfterSeconds: 'off' }).ok, 1);
  same(info('weather').options.expireAfterSeconds, undefined);
  refused(72, () => db.runCommand({ collMod: 'weather', validator: { a: 1 } }));
});

test('statistics', () => {
  const stats = db.weather.stats();
  same(stats.timeseries.bucketsNs, db.getName() + '.system.buckets.weather');
  same(Number(stats.timeseries.bucketCount), 2);
  truth(Number(stats.timeseries.numMeasurementsCommitted) >= 600, 'measurements are counted');
  same(db.weather.validate().valid, true);
  const one = db.weather.aggregate([{ $collStats: { storageStats: {} } }]).toArray()[0];
  same(Number(one.storageStats.timeseries.bucketCount), 2);
});

test('no transactions, no renames', () => {
  refused(166, () => db.weather.renameCollection('climate'));
  const session = db.getMongo().startSession();
  session.startTransaction();
  refused(263, () => session.getDatabase(db.getName()).weather.insertOne({ t: at(0), sensor: 1 }));
  session.abortTransaction();
});

test('drop takes both', () => {
  same(db.weather.drop(), true);
  same(db.getCollectionNames().filter(n => n.includes('weather')), []);
});

test('$out creates and replaces measurements, including indexes', () => {
  db.plain.drop();
  db.series.drop();
  db.plain.insertMany([1, 2, 3].map(i => ({ _id: i, t: new Date(2024, 0, i), s: i % 2, x: i })));
  const out = options => ({ $out: { db: db.getName(), coll: 'series', timeseries: options } });
  const options = { timeField: 't', metaField: 's', granularity: 'hours' };
  db.plain.aggregate([out(options)]);
  const made = db.getCollectionInfos({ name: 'series' })[0];
  same([made.type, made.options.timeseries.metaField, made.options.timeseries.granularity], ['timeseries', 's', 'hours']);
  same(db.series.find({ s: 1 }, { _id: 1 }).sort({ _id: 1 }).toArray(), [{ _id: 1 }, { _id: 3 }]);
  db.series.createIndex({ x: 1 });
  const indexes = () => db.series.getIndexes().map(i => i.name).sort();
  const before = indexes();
  db.plain.aggregate([{ $match: { _id: { $gt: 1 } } }, out(options)]);
  same(db.series.countDocuments(), 2);
  same(indexes(), before);
  db.series.insertOne({ t: new Date(2024, 0, 9), s: 1, x: 9 });
  same(db.series.countDocuments({ s: 1 }), 2);
  refused(7406103, () => db.plain.aggregate([out({ timeField: 't' })]));
  refused(7268700, () => db.series.aggregate([{ $out: { db: db.getName(), coll: 'plain', timeseries: options } }]));
  refused(166, () => db.plain.aggregate([{ $merge: 'series' }]));
  same(db.series.countDocuments(), 3);
  same(db.getCollectionNames().filter(n => n.includes('tmp.agg_out')), []);
  db.series.drop();
  db.plain.drop();
});
