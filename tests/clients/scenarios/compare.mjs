// usage: compare.mjs OUT WAITING SCRIPT...
//
// OUT has one file of JSON lines per scenario, WAITING the checks that are known
// to fail. A check is as expected when it passes and is not listed, or fails and
// is listed. A listed check that passes is an error too, so that the list stays correct.
// So is a listed check that its scenario does not have, and a scenario that did not finish.
import { existsSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';

const [out, waitingPath, ...scripts] = process.argv.slice(2);
const waiting = new Set(
  readFileSync(waitingPath, 'utf8').split('\n').map((l) => l.trim()).filter((l) => /^\d\d-[\w-]+ \| /.test(l)),
);
const run = new Set(scripts.map((script) => basename(script, '.js')));
const unseen = new Set([...waiting].filter((key) => run.has(key.split(' | ')[0])));
let passed = 0;
let failed = 0;
let known = 0;

for (const script of scripts) {
  const name = basename(script, '.js');
  const path = join(out, `${name}.jsonl`);
  let finished = false;
  for (const line of existsSync(path) ? readFileSync(path, 'utf8').split('\n') : []) {
    if (!line.startsWith('{"scenario"')) continue;
    const check = JSON.parse(line);
    if (check.summary) {
      finished = true;
      continue;
    }
    const key = `${name} | ${check.check}`;
    unseen.delete(key);
    if (check.pass !== waiting.has(key)) {
      passed++;
      if (!check.pass) known++;
      continue;
    }
    failed++;
    if (check.pass) console.log(`${key}\n    passes: take it off ${basename(waitingPath)}`);
    else console.log(`${key}\n    expected ${JSON.stringify(check.expected)}\n    actual   ${JSON.stringify(check.actual)}`);
  }
  if (!finished) {
    failed++;
    const err = join(out, `${name}.err`);
    console.log(`${name} did not finish: ${existsSync(err) ? readFileSync(err, 'utf8').slice(-1500) : 'no output'}`);
  }
}
for (const key of unseen) {
  failed++;
  console.log(`${key}\n    is in ${basename(waitingPath)}, but no scenario has such a check`);
}
console.log(`${known} listed checks fail, as listed`);
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed === 0 && passed > 0 ? 0 : 1);
