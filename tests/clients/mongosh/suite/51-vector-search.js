// Vector indexes and $vectorSearch in the shell.

const byVector = { fields: [{ type: 'vector', path: 'v', numDimensions: 2, similarity: 'euclidean' }, { type: 'filter', path: 'k' }] };
const nearest = (c, queryVector, more) => c.aggregate([{ $vectorSearch: { index: 'near', path: 'v', queryVector, numCandidates: 10, limit: 3, ...more } }]).toArray().map((d) => d._id);

test('a vector index is created, updated and dropped', () => {
  const c = empty('vectors');
  c.insertMany([{ _id: 1, v: [0, 0], k: 1 }, { _id: 2, v: [3, 4], k: 2 }, { _id: 3, v: [6, 8], k: 1 }]);
  same(c.createSearchIndex('near', 'vectorSearch', byVector), 'near');
  same(nearest(c, [0, 1]), [1, 2, 3]);
  same(nearest(c, [6, 6], { filter: { k: 1 } }), [3, 1]);
  const listed = c.getSearchIndexes();
  same(listed.map((i) => [i.name, i.type, i.status]), [['near', 'vectorSearch', 'READY']]);
  c.updateSearchIndex('near', { fields: byVector.fields.slice(0, 1) });
  refused(2, () => nearest(c, [6, 6], { filter: { k: 1 } }));
  same(nearest(c, [3, 3]), [2, 1, 3]);
  c.dropSearchIndex('near');
  same(c.getSearchIndexes(), []);
  same(nearest(c, [3, 3]), []);
});
test('a vector index follows its collection', () => {
  const c = empty('vectors_from'), to = empty('vectors_to');
  c.insertMany([{ _id: 1, v: [0, 0] }, { _id: 2, v: [3, 4] }]);
  c.createSearchIndex('near', 'vectorSearch', byVector);
  same(db.vectors_from.renameCollection('vectors_to').ok, 1);
  same(nearest(to, [3, 3]), [2, 1]);
  same(to.validate({ full: true }).valid, true);
  to.drop();
  same(nearest(to, [3, 3]), []);
});
test('after an abort searches return the earlier vectors', () => {
  const c = empty('vectors_tx');
  c.insertOne({ _id: 1, v: [0, 0] });
  c.createSearchIndex('near', 'vectorSearch', byVector);
  const s = db.getMongo().startSession();
  s.startTransaction();
  s.getDatabase(db.getName()).vectors_tx.insertOne({ _id: 2, v: [1, 1] });
  same(nearest(s.getDatabase(db.getName()).vectors_tx, [1, 1]), [2, 1]);
  same(nearest(c, [1, 1]), [1]);
  s.abortTransaction();
  s.endSession();
  same(nearest(c, [1, 1]), [1]);
});
