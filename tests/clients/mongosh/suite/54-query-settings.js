// Query settings, on a replica set of one member: the other scripts' server has none. Statistics of
// queries.

const set = new Mongo(process.env.SHEAF_SET_URI);
const setAdmin = set.getDB('admin');

test('a member is initiated', () => {
  setAdmin.runCommand({ replSetInitiate: {} });
  for (let tries = 0; !setAdmin.hello().isWritablePrimary; tries++) {
    truth(tries < 500, 'no primary');
    sleep(20);
  }
});
test('the manual\'s example: a hint for the executions of a shape', () => {
  const pizzas = set.getDB('settings').pizzaOrders;
  pizzas.insertMany(Array.from({ length: 40 }, (_, n) => ({ _id: n, totalNumber: n % 5, orderDate: new Date(Date.UTC(2023, n % 12, 1)) })));
  pizzas.createIndex({ orderDate: 1 });
  pizzas.createIndex({ totalNumber: 1 });
  const shape = { find: 'pizzaOrders', filter: { orderDate: { $gt: new Date(0) } }, sort: { totalNumber: 1 }, $db: 'settings' };
  const settings = {
    indexHints: [{ ns: { db: 'settings', coll: 'pizzaOrders' }, allowedIndexes: ['orderDate_1'] }],
    queryFramework: 'classic',
    comment: 'why',
  };
  const reply = setAdmin.runCommand({ setQuerySettings: shape, settings });
  same([reply.ok, reply.settings, reply.representativeQuery], [1, settings, shape]);
  const planner = pizzas.find({ orderDate: { $gt: new Date() } }).sort({ totalNumber: 1 }).explain().queryPlanner;
  same(planner.querySettings, settings);
  truth(EJSON.stringify(planner.winningPlan).includes('orderDate_1'), 'the allowed index');
  same(setAdmin.aggregate([{ $querySettings: {} }]).toArray(), [{ queryShapeHash: reply.queryShapeHash, settings, representativeQuery: shape }]);
  setAdmin.runCommand({ setQuerySettings: reply.queryShapeHash, settings: { reject: true } });
  refused(411, () => pizzas.find({ orderDate: { $gt: new Date() } }).sort({ totalNumber: 1 }).toArray());
  same(setAdmin.runCommand({ removeQuerySettings: shape }).ok, 1);
  same(pizzas.find({ orderDate: { $gt: new Date(0) } }).sort({ totalNumber: 1 }).toArray().length, 40);
});
test('a server without a replica set has no settings', () => {
  const shape = { find: 'c', filter: { a: 1 }, $db: 'd' };
  refused(20, () => db.adminCommand({ setQuerySettings: shape, settings: { reject: true } }));
  same(db.aggregate([{ $querySettings: {} }]).toArray(), []);
});
test('the manual\'s example of $queryStats', () => {
  const products = empty('products');
  products.insertMany([{ item: 'card', qty: 15 }, { item: 'envelope', qty: 20 }, { item: 'stamps', qty: 30 }]);
  db.adminCommand({ setParameter: 1, internalQueryStatsRateLimit: -1 });
  products.find({ item: 'card' }).toArray();
  products.aggregate([{ $match: { qty: { $gt: 20 } } }]).toArray();
  db.adminCommand({ setParameter: 1, internalQueryStatsRateLimit: 0 });
  const own = { $match: { 'key.queryShape.cmdNs.coll': 'products' } };
  const entries = db.getSiblingDB('admin').aggregate([{ $queryStats: {} }, own]).toArray();
  same(entries.map((e) => [e.key.queryShape.command, e.key.collectionType, e.metrics.execCount]), [['aggregate', 'collection', 1], ['find', 'collection', 1]]);
  same(entries[0].key.queryShape.pipeline, [{ $match: { qty: { $gt: '?number' } } }]);
  truth(entries[0].key.client.application.name.startsWith('mongosh'), 'names the client');
});
test('$listMqlEntities', () => {
  const stages = db.getSiblingDB('admin').aggregate([{ $listMqlEntities: { entityType: 'aggregationStages' } }]).toArray();
  truth(stages.map((stage) => stage.name).includes('$lookup'), 'lists $lookup');
});
