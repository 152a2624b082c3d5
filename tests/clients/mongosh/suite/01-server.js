// What the shell requests from a server at its start.

test('hello', () => {
  const h = db.hello();
  same(h.isWritablePrimary, true);
  same(h.readOnly, false);
  same(h.maxBsonObjectSize, 16777216);
  same(h.maxMessageSizeBytes, 48000000);
  same(h.maxWriteBatchSize, 100000);
  truth(h.localTime instanceof Date, 'localTime is a date');
  truth(h.maxWireVersion >= 21, 'maxWireVersion ' + h.maxWireVersion);
  truth(h.setName === undefined, 'a standalone server names no set');
  same(h.ok, 1);
});
test('ping', () => same(db.adminCommand({ ping: 1 }).ok, 1));
test('db.version() and buildInfo agree', () => same(db.version(), db.serverBuildInfo().version));
test('buildInfo', () => {
  const b = db.serverBuildInfo();
  truth(Array.isArray(b.versionArray) && b.versionArray.length === 4, 'versionArray has four numbers');
  same(b.maxBsonObjectSize, 16777216);
  truth(b.bits === 64, 'bits');
});
test('hostInfo', () => truth(db.hostInfo().system.numCores >= 1, 'cores'));
test('serverStatus', () => {
  const s = db.serverStatus();
  truth(s.connections.current >= 1, 'a connection is open');
  truth(s.uptime >= 0, 'uptime');
  truth(s.opcounters.command >= 1, 'commands are counted');
  truth(s.mem.resident > 0, 'resident memory in MB');
  truth(s.pid > 0, 'pid');
});
test('opcounters count inserts', () => {
  const before = db.serverStatus().opcounters.insert;
  empty('counted').insertMany([{}, {}, {}]);
  same(db.serverStatus().opcounters.insert - before, 3);
});
test('getCmdLineOpts', () => truth(db.adminCommand({ getCmdLineOpts: 1 }).argv.length > 0, 'argv'));
test('getParameter and setParameter', () => {
  const r = db.adminCommand({ getParameter: 1, logComponentVerbosity: 1 });
  same(r.ok, 1);
  truth(r.logComponentVerbosity.verbosity !== undefined, 'verbosity');
});
test('connectionStatus', () => same(db.runCommand({ connectionStatus: 1 }).authInfo.authenticatedUsers, []));
test('whatsmyuri', () => truth(/^127\.0\.0\.1:\d+$/.test(db.adminCommand({ whatsmyuri: 1 }).you), 'an address and a port'));
test('getLog', () => {
  truth(db.adminCommand({ getLog: '*' }).names.includes('global'), 'names');
  const lines = db.adminCommand({ getLog: 'global' }).log;
  truth(lines.length > 0 && JSON.parse(lines[0]).msg !== undefined, 'JSON lines');
});
test('listCommands', () => {
  const c = db.adminCommand({ listCommands: 1 }).commands;
  for (const name of ['find', 'insert', 'update', 'delete', 'aggregate', 'getMore', 'createIndexes', 'hello']) truth(c[name] !== undefined, name);
});
test('profiling level', () => {
  same(db.getProfilingStatus().was, 0);
  same(db.setProfilingLevel(0).was, 0);
});
test('currentOp', () => truth(Array.isArray(db.currentOp().inprog), 'inprog'));
test('serverStatus has the fields that monitoring reads', () => {
  const s = db.serverStatus();
  for (const part of ['currentQueue', 'activeClients']) for (const who of ['total', 'readers', 'writers']) truth(typeof s.globalLock[part][who] === 'number', part + '.' + who);
  truth(s.globalLock.activeClients.total >= 1, 'this command is active');
  truth(s.logicalSessionRecordCache.activeSessionsCount >= 1, 'this session');
  same(db.serverStatus({ globalLock: 0 }).globalLock, undefined);
});
test('connPoolStats: no connections to other servers', () => {
  const s = db.adminCommand({ connPoolStats: 1 });
  same([s.totalInUse, s.totalAvailable, s.totalCreated, s.pools, s.hosts], [0, 0, 0, {}, {}]);
  same(db.adminCommand({ connPoolStats: 1, nosuch: 1 }).ok, 1);
});
