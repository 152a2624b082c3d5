// Runs the mongosh suite against the server at $SHEAF_URI.
//
// The files of suite/ run one after another in one mongosh session, as a user's
// scripts would; each test prints "ok NAME" or "not ok NAME: WHY". What only
// exists at mongosh's prompt (show dbs, use, it) is tested through --eval below.
// Closes with "N passed, N failed".
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const shell = join(here, 'mongosh');
const base = process.env.SHEAF_URI;
const uri = `${base}mongosh_suite`;
let passed = 0;
let failed = 0;

function verdict(name, why) {
  if (why === null) {
    passed++;
    console.log(`ok ${name}`);
  } else {
    failed++;
    console.log(`not ok ${name}: ${why}`);
  }
}

function mongosh(...words) {
  const r = spawnSync(shell, ['--quiet', ...words], { encoding: 'utf8', timeout: 300_000, maxBuffer: 1 << 26 });
  return { out: r.stdout ?? '', all: `${r.stdout}${r.stderr}`, status: r.status };
}

// ---- a replica set of one member, for what needs one: its address is SHEAF_SET_URI ----
const port = 20000 + (process.pid % 10000);
const folder = mkdtempSync(join(tmpdir(), 'sheaf-set-'));
const member = spawn(process.env.SHEAF_BINARY, ['--dbpath', folder, '--port', port, '--nounixsocket', '--replSet', 'rs0'], { stdio: 'ignore' });
process.on('exit', () => {
  member.kill('SIGKILL');
  rmSync(folder, { recursive: true, force: true });
});
process.env.SHEAF_SET_URI = `mongodb://127.0.0.1:${port}/?directConnection=true`;

// ---- scripts ----
const files = readdirSync(join(here, 'suite')).filter((f) => f.endsWith('.js')).sort();
const session = mongosh(uri, join(here, 'lib.js'), ...files.map((f) => join(here, 'suite', f)), join(here, 'done.js'));
for (const line of session.out.split('\n')) {
  if (line.startsWith('ok ')) verdict(line.slice(3), null);
  else if (line.startsWith('not ok ')) {
    const cut = line.indexOf(': ');
    verdict(line.slice(7, cut), line.slice(cut + 2));
  }
}
const done = /^done (\d+)$/m.exec(session.out);
if (!done || Number(done[1]) !== passed + failed || session.status !== 0)
  verdict('the session runs to its end', `status ${session.status}, ${session.all.slice(-1500)}`);

// ---- commands of the prompt ----
function evaluates(name, expression, expected, where = uri) {
  const { all, status } = mongosh(where, '--eval', expression);
  verdict(name, status === 0 && expected.test(all) ? null : `status ${status}, printed ${JSON.stringify(all.slice(0, 600))}`);
}
evaluates('insert through --eval', 'db.shown.insertMany([{_id: 1}, {_id: 2}])', /acknowledged: true/);
evaluates('show dbs', 'show dbs', /^mongosh_suite\s+[\d.]+ [KM]iB$/m);
evaluates('show collections', 'show collections', /^shown$/m);
evaluates('use', 'use elsewhere', /switched to db elsewhere/);
evaluates('db.version()', 'db.version()', /^\d+\.\d+\.\d+/m);
evaluates('a document prints in the shell\'s form', 'db.shown.findOne({_id: 2})', /\{ _id: 2 \}/);
evaluates('an explain prints', 'db.shown.find({_id: 1}).explain().queryPlanner.namespace', /mongosh_suite\.shown/);
evaluates('the 20 first of a longer result', 'for (let i = 3; i <= 30; i++) db.shown.insertOne({_id: i}); db.shown.find()', /Type "it" for more/);
evaluates('--json', 'EJSON.stringify(db.shown.find({}, {_id: 1}).sort({_id: -1}).limit(2).toArray())', /\[\{"_id":30\},\{"_id":29\}\]/);
{
  const { all, status } = mongosh(uri, '--eval', 'db.runCommand({nonsense: 1})');
  verdict('a failed command ends --eval with an error', status !== 0 && /no such command: 'nonsense'/.test(all) ? null : `status ${status}, ${all.slice(0, 300)}`);
}
{
  const socket = `mongodb://${encodeURIComponent(process.env.SHEAF_SOCKET)}/mongosh_suite`;
  evaluates('over the unix socket', 'db.shown.countDocuments()', /^30$/m, socket);
}
evaluates('over zlib', 'db.shown.countDocuments()', /^30$/m, `${uri}?compressors=zlib`);

console.log(`${passed} passed, ${failed} failed`);
process.exit(failed === 0 && passed > 0 ? 0 : 1);
