// A replica set of one member, and a proxy that drops replies.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { MongoClient } from 'mongodb';

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

async function freePort() {
  const server = net.createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
}

// Starts and initiates it: { port, stop }.
export async function member(name) {
  const port = await freePort();
  const folder = mkdtempSync(join(tmpdir(), 'sheaf-set-'));
  const child = spawn(process.env.SHEAF_BINARY, ['--dbpath', folder, '--port', port, '--nounixsocket', '--replSet', name], { stdio: 'ignore' });
  const orphan = () => child.kill('SIGKILL');
  process.on('exit', orphan);
  const client = new MongoClient(`mongodb://127.0.0.1:${port}/?directConnection=true`, { serverSelectionTimeoutMS: 20_000 });
  const admin = client.db('admin');
  await admin.command({ replSetInitiate: { _id: name, members: [{ _id: 0, host: `127.0.0.1:${port}` }] } });
  for (let tries = 0; !(await admin.command({ hello: 1 })).isWritablePrimary; tries++) {
    if (tries > 500) throw new Error('no primary');
    await pause(20);
  }
  await client.close();
  return {
    port,
    stop: async () => {
      const gone = once(child, 'exit');
      child.kill('SIGKILL');
      await gone;
      process.off('exit', orphan);
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

// driver ──> message with `marker` ──> server
// driver ──X connection closed     <── reply
export async function proxy(target) {
  const state = { marker: null, lost: 0 };
  const open = new Set();
  const server = net.createServer((near) => {
    const far = net.connect(target, '127.0.0.1');
    let doomed = false;
    for (const end of [near, far]) {
      open.add(end);
      end.on('error', () => {});
      end.on('close', () => (near.destroy(), far.destroy()));
    }
    near.on('data', (data) => {
      if (state.marker && data.includes(state.marker)) {
        state.marker = null;
        doomed = true;
      }
      far.write(data);
    });
    far.on('data', (data) => {
      if (!doomed) return near.write(data);
      state.lost += 1;
      near.destroy();
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  state.port = server.address().port;
  state.stop = () => {
    server.close();
    for (const end of open) end.destroy();
  };
  return state;
}
