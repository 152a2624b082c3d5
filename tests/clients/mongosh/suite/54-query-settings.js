// Query settings, on a replica set of one member. The other scripts' server has none.

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
