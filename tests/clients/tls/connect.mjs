// Connects to a URI and writes "ok", or the driver's error on one line.
import { createRequire } from 'node:module';

const require = createRequire(new URL('../node/package.json', import.meta.url));
const { MongoClient } = require('mongodb');

const client = new MongoClient(process.argv[2]);
try {
  const collection = client.db('node_tls').collection('documents');
  await collection.replaceOne({ _id: 1 }, { text: 'x'.repeat(100_000) }, { upsert: true });
  const found = await collection.findOne({ _id: 1 });
  console.log(found.text.length === 100_000 ? 'ok' : 'wrong document');
} catch (e) {
  console.log(`${e.name} ${e.message}`.replaceAll('\n', ' '));
}
await client.close();
