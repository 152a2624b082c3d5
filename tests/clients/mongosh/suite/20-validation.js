// Validators, collMod, and how validate reports them.

test('a schema refuses documents with a reason', () => {
  db.dropDatabase();
  same(db.createCollection('students', {
    validator: {
      $jsonSchema: {
        bsonType: 'object',
        title: 'Student Object Validation',
        required: ['name', 'year'],
        properties: {
          name: { bsonType: 'string', description: "'name' must be a string and is required" },
          year: { bsonType: 'int', minimum: 2017, maximum: 3017 },
          gpa: { bsonType: ['double'], description: "'gpa' must be a double if the field exists" },
        },
      },
    },
  }).ok, 1);
  const e = refused(121, () => db.students.insertOne({ _id: 1, name: 'Alice', year: NumberInt(2019), gpa: NumberInt(3) }));
  same(e.message, 'Document failed validation');
  same(e.errInfo, {
    failingDocumentId: 1,
    details: {
      operatorName: '$jsonSchema',
      title: 'Student Object Validation',
      schemaRulesNotSatisfied: [{
        operatorName: 'properties',
        propertiesNotSatisfied: [{
          propertyName: 'gpa',
          description: "'gpa' must be a double if the field exists",
          details: [{
            operatorName: 'bsonType',
            specifiedAs: { bsonType: ['double'] },
            reason: 'type did not match',
            consideredValue: 3,
            consideredType: 'int',
          }],
        }],
      }],
    },
  });
  db.students.insertOne({ _id: 1, name: 'Alice', year: NumberInt(2019), gpa: Double(3) });
  refused(121, () => db.students.updateOne({ _id: 1 }, { $set: { year: NumberInt(1) } }));
  refused(121, () => db.students.replaceOne({ _id: 1 }, { name: 'x' }));
  refused(121, () => db.students.findOneAndUpdate({ _id: 1 }, { $unset: { name: 1 } }));
  refused(121, () => db.students.updateOne({ _id: 2 }, { $set: { a: 1 } }, { upsert: true }));
  same(db.students.find().toArray(), [{ _id: 1, name: 'Alice', year: 2019, gpa: 3 }]);
});
test('the valid documents of a batch are written', () => {
  const e = refused(121, () => db.students.insertMany([
    { _id: 5, name: 'a', year: NumberInt(2020) }, { _id: 6 }, { _id: 7, name: 'b', year: NumberInt(2020) },
  ], { ordered: false }));
  same(e.writeErrors.map((w) => [w.err.index, w.err.code, w.err.errInfo.failingDocumentId]), [[1, 121, 6]]);
  same(db.students.countDocuments(), 3);
});
test('bypassDocumentValidation on every command that writes', () => {
  const c = db.students;
  const bypassDocumentValidation = true;
  same(db.runCommand({ insert: 'students', documents: [{ _id: 10 }], bypassDocumentValidation }).n, 1);
  same(db.runCommand({ update: 'students', updates: [{ q: { _id: 10 }, u: { $set: { x: 1 } } }], bypassDocumentValidation }).nModified, 1);
  same(db.runCommand({ findAndModify: 'students', query: { _id: 10 }, update: { $set: { x: 2 } }, bypassDocumentValidation }).value, { _id: 10, x: 1 });
  refused(121, () => db.runCommand({ findAndModify: 'students', query: { _id: 10 }, update: { $set: { x: 3 } } }));
  db.plain.insertOne({ _id: 11 });
  refused(121, () => db.plain.aggregate([{ $merge: 'students' }]).toArray());
  db.plain.aggregate([{ $merge: 'students' }], { bypassDocumentValidation }).toArray();
  same(c.countDocuments({ _id: { $gte: 10 } }), 2);
  refused(121, () => db.plain.aggregate([{ $out: 'students' }]).toArray());
  same(c.countDocuments({ _id: 1 }), 1);
});
test('levels and actions by collMod', () => {
  const c = empty('levels');
  c.insertMany([{ _id: 1, a: 0 }, { _id: 2, a: 9 }]);
  same(db.runCommand({ collMod: 'levels', validator: { a: { $gte: 3 } }, validationLevel: 'moderate' }).ok, 1);
  c.updateOne({ _id: 1 }, { $set: { a: 1 } });
  refused(121, () => c.updateOne({ _id: 2 }, { $set: { a: 1 } }));
  refused(121, () => c.insertOne({ _id: 3, a: 1 }));
  db.runCommand({ collMod: 'levels', validationLevel: 'strict', validationAction: 'warn' });
  same(c.insertOne({ _id: 3, a: 1 }).insertedId, 3);
  same(db.getCollectionInfos({ name: 'levels' })[0].options,
    { validator: { a: { $gte: 3 } }, validationLevel: 'strict', validationAction: 'warn' });
  db.runCommand({ collMod: 'levels', validationLevel: 'off', validationAction: 'error' });
  same(c.insertOne({ _id: 4, a: 1 }).insertedId, 4);
  db.runCommand({ collMod: 'levels', validationLevel: 'strict' });
  refused(121, () => c.insertOne({ _id: 5, a: 1 }));
  const report = c.validate();
  same([report.valid, Number(report.nNonCompliantDocuments), report.warnings.length], [true, 3, 1]);
  db.runCommand({ collMod: 'levels', validator: {} });
  same(c.insertOne({ _id: 5, a: 1 }).insertedId, 5);
});
test('invalid validators', () => {
  refused(2, () => db.createCollection('bad', { validator: { $where: 'true' } }));
  refused(2, () => db.createCollection('bad', { validator: { a: { $near: [0, 0] } } }));
  refused(2, () => db.createCollection('bad', { validator: { $text: { $search: 'x' } } }));
  refused(9, () => db.createCollection('bad', { validator: { $jsonSchema: { $ref: '#' } } }));
  refused(14, () => db.createCollection('bad', { validator: { $jsonSchema: { minimum: 'x' } } }));
  refused(2, () => db.createCollection('bad', { validator: { a: 1 }, validationLevel: 'sometimes' }));
  refused(72, () => db.getSiblingDB('admin').createCollection('bad', { validator: { a: 1 } }));
  same(db.getCollectionNames().includes('bad'), false);
});
test('$jsonSchema finds', () => {
  const c = empty('schemas');
  c.insertMany([{ _id: 1, a: 'x' }, { _id: 2, a: 5 }, { _id: 3 }]);
  const strings = { properties: { a: { bsonType: 'string' } } };
  same(c.find({ $jsonSchema: strings }).sort({ _id: 1 }).toArray().map((d) => d._id), [1, 3]);
  same(c.find({ $nor: [{ $jsonSchema: strings }] }).toArray().map((d) => d._id), [2]);
  same(c.aggregate([{ $match: { $jsonSchema: { required: ['a'] } } }, { $count: 'n' }]).toArray(), [{ n: 2 }]);
  same(c.deleteMany({ $jsonSchema: strings }).deletedCount, 2);
});
test('an index becomes unique', () => {
  const c = empty('toUnique');
  c.insertMany([{ _id: 1, a: 1 }, { _id: 2, a: 1 }, { _id: 3, a: 2 }]);
  c.createIndex({ a: 1 });
  const change = (index, more) => db.runCommand({ collMod: 'toUnique', index: { keyPattern: { a: 1 }, ...index }, ...more });
  refused(72, () => change({ unique: true }));
  const prepared = change({ prepareUnique: true });
  same([prepared.prepareUnique_old, prepared.prepareUnique_new], [false, true]);
  refused(11000, () => c.insertOne({ _id: 4, a: 2 }));
  refused(11000, () => c.insertOne({ _id: 4, a: 1 }));
  const e = refused(359, () => change({ unique: true }));
  same((e.errorResponse || e).violations || e.violations, [{ ids: [1, 2] }]);
  refused(359, () => change({ unique: true }, { dryRun: true }));
  c.deleteOne({ _id: 2 });
  same(change({ unique: true }, { dryRun: true }).unique_new, undefined);
  same(c.getIndexes()[1].unique, undefined);
  same(change({ unique: true }).unique_new, true);
  same(c.getIndexes()[1].unique, true);
  refused(11000, () => c.insertOne({ _id: 4, a: 1 }));
  refused(2, () => change({ unique: false }));
});
test('collMod names what it refuses', () => {
  empty('modded').insertOne({ _id: 1 });
  refused(40415, () => db.runCommand({ collMod: 'modded', nonsense: 1 }));
  refused(72, () => db.runCommand({ collMod: 'modded', cappedSize: 5000 }));
  refused(72, () => db.runCommand({ collMod: 'modded', viewOn: 'x' }));
  refused(72, () => db.runCommand({ collMod: 'modded', timeseries: { granularity: 'hours' } }));
  refused(72, () => db.runCommand({ collMod: 'modded', dryRun: true }));
  refused(14, () => db.runCommand({ collMod: 'modded', validator: 1 }));
  refused(26, () => db.runCommand({ collMod: 'none', validator: {} }));
});
