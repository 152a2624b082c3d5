// Helpers for the files of suite/, loaded first into the same session.
//
//   test('name', () => { ... })       prints one line; a throw fails the test
//   same(actual, expected)            deep equality of values as Extended JSON
//   truth(condition, what)
//   refused(code, () => ...)          the server must return this error code
//
// Callbacks are called only from here: mongosh waits for the shell's calls
// inside scripts, not inside functions handed to Node's library.

var reported = 0;

function test(name, body) {
  reported++;
  try {
    body();
    print('ok ' + name);
  } catch (e) {
    const text = e && e.stack && !e.code ? e.stack : (e && e.code !== undefined ? e.code + ' ' : '') + (e && e.message ? e.message : String(e));
    print('not ok ' + name + ': ' + String(text).split('\n').slice(0, 3).join(' / ').slice(0, 700));
  }
}

function plain(v) {
  return v === undefined ? 'undefined' : EJSON.stringify(v, { relaxed: true });
}

function same(actual, expected) {
  const a = plain(actual);
  const e = plain(expected);
  if (a !== e) throw new Error('got ' + a + ', expected ' + e);
}

function truth(condition, what) {
  if (!condition) throw new Error(what || 'not true');
}

// Returns the error for further checks.
function refused(code, body) {
  let error = null;
  try {
    body();
  } catch (e) {
    error = e;
  }
  if (error === null) throw new Error('accepted; expected error ' + code);
  if (error.code !== code) throw new Error('got ' + error.name + ' ' + error.code + ' ' + error.message + ', expected code ' + code);
  return error;
}

// An empty collection of that name.
function empty(name) {
  const c = db.getCollection(name);
  c.drop();
  return c;
}

db.dropDatabase();
