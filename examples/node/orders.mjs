// Orders in a document database: an index on an array, pages, a transaction, a change stream.
import { MongoClient } from 'mongodb';

const client = new MongoClient(process.env.SHEAF_URI ?? 'mongodb://127.0.0.1:27017/');
const db = client.db('examples');
await db.dropDatabase();
const orders = db.collection('orders');
const stock = db.collection('stock');

/** An order of two lines, or of the given lines. */
function order(number, lines) {
    return {
        _id: number,
        country: ['CH', 'FR', 'IT'][number % 3],
        at: new Date(Date.UTC(2026, 0, 1 + number)),
        lines: lines ?? [{ product: number % 7, quantity: 1 }, { product: (number + 3) % 7, quantity: 2 }],
    };
}

const numbers = Array.from({ length: 60 }, (_, i) => i + 1);
const result = await orders.insertMany(numbers.map((number) => order(number)));
console.log('inserted', result.insertedCount, 'orders');

// One index serves the filter on the array's elements and the order of the results.
console.log('index', await orders.createIndex({ country: 1, 'lines.product': 1, at: -1 }));

// The next page begins where the last one ended: no page costs more than the first.
let last = null;
for (let page = 1; ; page += 1) {
    const query = { country: 'CH', 'lines.product': 5 };
    if (last) query.at = { $lt: last.at };
    const found = await orders.find(query).sort({ at: -1 }).limit(4).toArray();
    if (found.length === 0) break;
    console.log(`page ${page}:`, ...found.map((document) => document._id));
    last = found.at(-1);
}

class OutOfStock extends Error {}

/** Inserts the order and takes from the stock, both or neither. */
async function sell(session, number, product, quantity) {
    await orders.insertOne(order(number, [{ product, quantity }]), { session });
    const enough = { _id: product, left: { $gte: quantity } };
    const taken = await stock.updateOne(enough, { $inc: { left: -quantity } }, { session });
    // Ends the transaction: the order is not inserted either.
    if (taken.matchedCount === 0) throw new OutOfStock();
}

await stock.insertOne({ _id: 5, left: 10 });
await client.withSession(async (session) => {
    for (const [number, quantity] of [[61, 3], [62, 9]]) {
        let outcome = 'sold';
        try {
            // Runs it again when it meets another transaction's write.
            await session.withTransaction(() => sell(session, number, 5, quantity));
        } catch (error) {
            if (!(error instanceof OutOfStock)) throw error;
            outcome = 'cannot sell';
        }
        const { left } = await stock.findOne({ _id: 5 });
        console.log(`${outcome} ${quantity} of product 5, ${left} left`);
    }
});
console.log('orders:', await orders.countDocuments());

const changes = orders.watch();
await changes.tryNext(); // opens it: the driver does so with the first read
await orders.insertOne(order(62));
const change = await changes.next();
console.log('change:', change.operationType, change.documentKey._id);

await changes.close();
await client.close();
