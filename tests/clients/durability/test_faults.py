"""A disk that fails under a running server: errors that name it, reads that go on, and nothing acknowledged lost.

    clients ── j: true ──> server ── write, sync, read, ... ──> shim (faults.py) ── EIO, ENOSPC, half, lost
       │ what each was told           │ refuses writes from a failed write or sync on; not for a full disk
       └─> must hold: while it runs, and after kill -9 and a start without the shim

A client that was told of an error does not know what became of that one operation, and only of that one. What was
acknowledged is there, whatever failed before or after. SHEAF_FAULT_ROUNDS (6) rounds of faults at random;
SHEAF_FAULT_SEED repeats a run.
"""

import contextlib
import hashlib
import os
import random
import shutil
import threading
import time
import uuid

import bson
import pytest
from bson.int64 import Int64
from faults import EIO, ENOSPC, ERROR, FOLDER, HALF, LENGTH, LOG, LOST, OPEN, OTHER, READ, RENAME, SPARE, SYNC, TEMPORARY, TORN, TREE, WRITE, Faults, built
from pymongo import WriteConcern
from pymongo.errors import BulkWriteError, ConnectionFailure, OperationFailure, PyMongoError
from pymongo.read_concern import ReadConcern
from raw import Raw
from servers import Server
from test_kill_mix import initiated

ROUNDS = int(os.environ.get("SHEAF_FAULT_ROUNDS", "6"))
SEED = int(os.environ.get("SHEAF_FAULT_SEED", str(random.randrange(1 << 30))))
JOURNALED = WriteConcern(w=1, j=True)
FAILED, NO_SPACE = 96, 14031
ACCOUNTS = 6
# A small memory and a short interval: what is written is soon in the tree.
FLAGS = ("--wiredTigerCacheSizeGB", "0.03", "--syncdelay", "1")


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    return built(tmp_path_factory.mktemp("shim"))


@contextlib.contextmanager
def faulty(shim, folder, *flags, losing=False):
    """A server whose disk can be made to fail, and the faults."""
    faults = Faults(shim, folder.with_name(folder.name + ".faults"))
    s = Server(folder, *(flags or FLAGS))
    s.environment = faults.environment(folder, losing)
    s.start()
    try:
        yield s, faults
    finally:
        if s.process.poll() is None:
            s.kill()


def code_of(error):
    """The code that a client is told, wherever in the answer it stands."""
    details = error.details or {}
    if isinstance(error, BulkWriteError):
        return ([e["code"] for e in details["writeErrors"] + details["writeConcernErrors"]] or [None])[0]
    return error.code


def checked(_id, version, pad):
    body = f"{_id}/{version}/" + "x" * pad
    return {"_id": _id, "version": version, "group": version % 7, "body": body, "sum": hashlib.md5(body.encode()).hexdigest()}


class Client(threading.Thread):
    """Works until it is told to stop or the server dies; keeps the errors that it was told."""

    def __init__(self, s, rng):
        super().__init__(daemon=True)
        self.s, self.rng = s, rng
        self.codes, self.done, self.broken, self.stopped = [], 0, None, False

    def run(self):
        try:
            with self.s.client() as client:
                while not self.stopped:
                    try:
                        self.step(client)
                        self.done += 1
                    except OperationFailure as error:
                        self.codes.append(code_of(error))
                        self.message = str(error)
                        time.sleep(0.01)
        except ConnectionFailure:
            pass  # killed
        except Exception as error:
            self.broken = error


class Writer(Client):
    """Inserts, replaces and deletes documents of its own."""

    def __init__(self, s, rng, name):
        super().__init__(s, rng)
        self.name_ = name
        self.possible = {}  # _id -> the versions that may be there, None for no document
        self.version = 0

    def step(self, client):
        coll = client.faulty.get_collection("written", write_concern=JOURNALED)
        self.version += 1
        what = self.rng.random()
        sure = [_id for _id, versions in self.possible.items() if len(versions) == 1 and None not in versions]
        if what < 0.6 or len(sure) < 3:
            count = self.rng.choice([1, 1, 1, 20])
            docs = [checked(f"{self.name_}-{self.version}-{i}", self.version, self.rng.randrange(3000)) for i in range(count)]
            after = {d["_id"]: self.version for d in docs}
            work = lambda: coll.insert_many(docs)  # noqa: E731
        else:
            _id = self.rng.choice(sure)
            after = {_id: self.version if what < 0.9 else None}
            new = checked(_id, self.version, self.rng.randrange(3000))
            work = (lambda: coll.replace_one({"_id": _id}, new)) if what < 0.9 else (lambda: coll.delete_one({"_id": _id}))
        for _id, version in after.items():
            self.possible[_id] = self.possible.get(_id, {None}) | {version}
        work()
        for _id, version in after.items():
            self.possible[_id] = {version}

    def check(self, client):
        found = {}
        for d in client.faulty.written.find({"_id": {"$regex": f"^{self.name_}-"}}, hint=[("$natural", 1)]):
            assert hashlib.md5(d["body"].encode()).hexdigest() == d["sum"], f"{d['_id']} is torn"
            found[d["_id"]] = d["version"]
        assert set(found) <= set(self.possible)
        for _id, versions in self.possible.items():
            assert found.get(_id) in versions, f"{_id} is {found.get(_id)}, and not one of {versions}"


class Mover(Client):
    """Transactions over two collections: amounts move between accounts, and a receipt says so."""

    def __init__(self, s, rng):
        super().__init__(s, rng)
        self.number, self.committed, self.doubtful = 0, set(), set()

    def step(self, client):
        self.number += 1
        a, b = self.rng.sample(range(ACCOUNTS), 2)
        sum_ = self.rng.randrange(1, 100)
        db = client.faulty
        with client.start_session() as session:
            session.start_transaction(write_concern=JOURNALED)
            db.receipts.insert_one({"_id": self.number, "from": a, "to": b, "sum": sum_}, session=session)
            db.accounts.update_one({"_id": a}, {"$inc": {"sum": -sum_}}, session=session)
            db.accounts.update_one({"_id": b}, {"$inc": {"sum": sum_}}, session=session)
            self.doubtful.add(self.number)
            session.commit_transaction()
        self.doubtful.discard(self.number)
        self.committed.add(self.number)

    def check(self, client):
        receipts = list(client.faulty.receipts.find())
        found = {r["_id"] for r in receipts}
        assert self.committed <= found <= self.committed | self.doubtful, (self.committed - found, found - self.committed)
        sums = dict.fromkeys(range(ACCOUNTS), 0)
        for r in receipts:
            sums[r["from"]] -= r["sum"]
            sums[r["to"]] += r["sum"]
        assert {a["_id"]: a["sum"] for a in client.faulty.accounts.find()} == sums


class Definer(Client):
    """Collections and indexes that come and go, pipelines that write, compaction, checkpoints."""

    def step(self, client):
        db = client.get_database("faulty", write_concern=JOURNALED)
        what = self.rng.randrange(6)
        if what == 0:
            db.drop_collection("passing")
            db.passing.insert_many([{"_id": i, "a": i % 5} for i in range(50)])
        elif what == 1:
            db.still.create_index([(self.rng.choice("abc"), 1)])
        elif what == 2:
            for name in set(db.still.index_information()) - {"_id_"}:
                db.still.drop_index(name)
        elif what == 3:
            db.command("compact", "still", force=True)
        elif what == 4:
            db.still.aggregate([{"$match": {"_id": {"$lt": 300}}}, {"$out": "copied"}])
        else:
            client.admin.command("fsync")

    def check(self, client):
        assert client.faulty.copied.count_documents({}) in (0, 300)
        assert client.faulty.passing.count_documents({}) in (0, 50)


def prepare(client):
    db = client.get_database("faulty", write_concern=JOURNALED)
    db.written.create_index([("group", 1), ("version", -1)])
    db.written.create_index("sum")
    db.accounts.insert_many([{"_id": i, "sum": 0} for i in range(ACCOUNTS)])
    db.receipts.create_index("from")
    # More than the memory's map takes: pages are read by calls.
    db.still.insert_many([{"_id": i, "a": i % 10, "b": i % 77, "c": str(i), "pad": os.urandom(2000)} for i in range(2000)])


def clients_of(s, rng):
    seed = lambda: random.Random(rng.random())  # noqa: E731
    return [*(Writer(s, seed(), name) for name in "abc"), Mover(s, seed()), Definer(s, seed())]


def all_valid(client):
    for name in client.faulty.list_collection_names():
        found = client.faulty.command("validate", name, full=True)
        assert found["valid"] and not found["errors"], found


def writes(client):
    """Every kind of write, each of which would change something."""
    db = client.faulty
    probe = f"probe{time.monotonic_ns()}"

    def in_transaction():
        with client.start_session() as session, session.start_transaction():
            db.accounts.update_one({"_id": 0}, {"$set": {probe: 1}}, session=session)

    return {
        "insert": lambda: db.probes.insert_one({"_id": probe}),
        "insertMany": lambda: db.probes.insert_many([{"_id": probe + str(i)} for i in range(3)]),
        "update": lambda: db.still.update_one({"_id": 5}, {"$set": {probe: 1}}),
        "upsert": lambda: db.still.update_one({"_id": probe}, {"$set": {"x": 1}}, upsert=True),
        "findAndModify": lambda: db.still.find_one_and_update({"_id": 6}, {"$set": {probe: 1}}),
        "delete": lambda: db.still.delete_one({"_id": {"$gte": 1000, "$lt": 2000}}),
        "create": lambda: db.create_collection(probe),
        "createIndexes": lambda: db.still.create_index([(probe, 1), ("a", 1)]),
        "collMod": lambda: db.command("collMod", "still", validator={"a": {"$ne": probe}}),
        "renameCollection": lambda: db.accounts.rename(probe + "r") and db[probe + "r"].rename("accounts"),
        "$out": lambda: db.accounts.aggregate([{"$out": probe + "o"}]),
        "$merge": lambda: db.accounts.aggregate([{"$merge": {"into": probe + "m"}}]),
        "transaction": in_transaction,
        "drop": lambda: db.still.drop(),
    }


def refused(client, codes=(FAILED,), times=2):
    """Every kind of write is refused by a clear error, now and later; reads go on."""
    before = client.faulty.still.count_documents({})
    for _ in range(times):
        for name, write in writes(client).items():
            with pytest.raises(OperationFailure) as refusal:
                write()
            code = code_of(refusal.value)
            assert code in codes, (name, refusal.value.details)
            assert "refuses writes since" in str(refusal.value) or "space" in str(refusal.value), (name, refusal.value)
    assert client.faulty.still.count_documents({}) == before
    assert client.faulty.still.find_one({"_id": 1500})["c"] == "1500"
    assert client.admin.command("ping")["ok"] == 1


def accepted(client, seconds=15):
    """Writes are taken, if need be after a while."""
    until = time.monotonic() + seconds
    while True:
        try:
            client.faulty.get_collection("probes", write_concern=JOURNALED).insert_one({})
            return
        except OperationFailure as error:
            assert error.code in (FAILED, NO_SPACE), error
            assert time.monotonic() < until, f"the cause is gone, and writes are still refused: {error}"
            time.sleep(0.1)


def is_read_only(client):
    try:
        client.faulty.get_collection("probes", write_concern=JOURNALED).insert_one({})
        return False
    except OperationFailure as error:
        return "refuses writes since" in str(error)


def after_all(s, clients):
    """kill -9, a start without faults: everything acknowledged is there, nothing is half, and work goes on."""
    if s.process and s.process.poll() is None:
        s.kill()
    s.environment = {}
    s.start()
    with s.client() as client:
        for c in clients:
            c.check(client)
        all_valid(client)
        accepted(client, 0)
    s.kill()
    with open(s.log_path) as log:
        lines = [line for line in log if '"Panic"' in line or "panicked" in line]
    assert not lines, lines


def run_until(s, faults, clients, until, seconds=20):
    for c in clients:
        c.start()
    end = time.monotonic() + seconds
    while not until() and time.monotonic() < end:
        time.sleep(0.01)
        broken = [c.broken for c in clients if c.broken]
        assert not broken, broken
    assert s.process.poll() is None, s.log()


def stop(s, clients):
    for c in clients:
        c.stopped = True
    for c in clients:
        c.join(20)
        if c.is_alive():
            with s.client() as client:
                running = [op for op in client.admin.aggregate([{"$currentOp": {}}]) if op.get("secs_running", 0) > 5]
            raise AssertionError(f"operations do not end: {running}")
        assert c.broken is None, c.broken


# What fails from a call on, and stays failed. `n`: how many such calls pass before.
FINAL = {
    "a write of the log": (WRITE, LOG, ERROR, EIO, False),
    "no space in a write of the log": (WRITE, LOG, ERROR, ENOSPC, False),
    "a torn write of the log": (WRITE, LOG, TORN, EIO, False),
    "a sync of the log": (SYNC, LOG, ERROR, EIO, False),
    "a sync of the log that loses": (SYNC, LOG, LOST, EIO, True),
    "a write of the tree": (WRITE, TREE, ERROR, EIO, False),
    "a torn write of the tree": (WRITE, TREE, TORN, EIO, False),
    "a sync of the tree": (SYNC, TREE, ERROR, EIO, False),
    "a sync of the tree that loses": (SYNC, TREE, LOST, EIO, True),
}


@pytest.mark.parametrize("what", FINAL)
def test_what_failed_for_good(shim, tmp_path, what):
    """A write or sync that fails ends all writing, at once and for good; only the start after it begins anew."""
    ops, kinds, action, error, losing = FINAL[what]
    rng = random.Random(f"{SEED} {what}")
    print(f"SHEAF_FAULT_SEED={SEED}")
    with faulty(shim, tmp_path / "data", losing=losing) as (s, faults):
        with s.client() as client:
            prepare(client)
            clients = clients_of(s, rng)
            faults.arm(ops, kinds, action, error, skip=rng.randrange(60 if kinds == LOG else 12), times=0)
            run_until(s, faults, clients, lambda: faults.hits() and is_read_only(client))
            assert is_read_only(client), (faults.hits(), faults.seen())
            # Once it has failed, a disk that is well again is not believed.
            faults.clear()
            time.sleep(0.3)
            stop(s, clients)
            codes = {code for c in clients for code in c.codes}
            expected = {NO_SPACE} if error == ENOSPC else {FAILED}
            assert codes == expected, (codes, [c.message for c in clients if c.codes])
            refused(client, expected)
            for c in clients:
                c.check(client)
        after_all(s, clients)


# What fails and is well again: nothing but the operations that met it is to suffer. `harmless`: not even those.
PASSING = {
    "half a write of the log": (WRITE, LOG, HALF, 0, "harmless"),
    "half a write of the tree": (WRITE, TREE, HALF, 0, "harmless"),
    "half a read of the tree": (READ, TREE, HALF, 0, "harmless"),
    "no space in a write of the tree": (WRITE, TREE, ERROR, ENOSPC, "passing"),
    "a torn write of the tree for want of space": (WRITE, TREE, TORN, ENOSPC, "passing"),
    "no space for a next file of the log": (WRITE | OPEN, SPARE, ERROR, ENOSPC, "passing"),
    "a next file of the log that cannot be written": (WRITE | OPEN, SPARE, ERROR, EIO, "passing"),
    "a read of the tree": (READ, TREE, ERROR, EIO, "passing"),
}


@pytest.mark.parametrize("what", PASSING)
def test_what_failed_and_is_well_again(shim, tmp_path, what):
    """A full disk, and a read that failed, end nothing: with the cause gone writes go on, without a new start."""
    ops, kinds, action, error, kind = PASSING[what]
    rng = random.Random(f"{SEED} {what}")
    print(f"SHEAF_FAULT_SEED={SEED}")
    with faulty(shim, tmp_path / "data") as (s, faults):
        with s.client() as client:
            prepare(client)
            clients = clients_of(s, rng)
            faults.arm(ops, kinds, action, error, skip=rng.randrange(5), times=0)
            began = time.monotonic()
            if kinds == SPARE:
                # A file of the log is long: most of one is written before the next is wanted.
                filler = threading.Thread(target=fill_log, args=(s, lambda: bool(faults.hits())), daemon=True)
                filler.start()
            run_until(s, faults, clients, lambda: faults.hits() > 3 and time.monotonic() - began > 2, 40)
            assert faults.hits(), "no such call was made"
            faults.clear()
            if kind == "passing":
                accepted(client)
            else:
                assert not any(c.codes for c in clients), [c.message for c in clients if c.codes]
            done = [c.done for c in clients]
            until = time.monotonic() + 30
            while any(c.done <= d for c, d in zip(clients, done)) and time.monotonic() < until:
                time.sleep(0.02)
            stop(s, clients)
            assert all(c.done > d for c, d in zip(clients, done)), "not everybody went on"
            codes = {code for c in clients for code in c.codes}
            assert codes <= {NO_SPACE if error == ENOSPC else FAILED}, (codes, [c.message for c in clients if c.codes])
            assert not is_read_only(client)
            for c in clients:
                c.check(client)
            all_valid(client)
        after_all(s, clients)


def fill_log(s, until):
    with s.client() as client, contextlib.suppress(PyMongoError):
        while not until():
            client.faulty.filling.replace_one({"_id": 0}, {"_id": 0, "pad": os.urandom(1_000_000)}, upsert=True)


def test_reads_that_fail(shim, tmp_path):
    """More data than memory, on a disk of which parts cannot be read: queries say so, and the others are right."""
    with faulty(shim, tmp_path / "data", "--wiredTigerCacheSizeGB", "0.02") as (s, faults):
        with s.client() as client:
            coll = client.faulty.large
            count = 12_000
            for at in range(0, count, 1000):
                coll.insert_many([{"_id": i, "k": i * 7919 % count, "pad": os.urandom(3000)} for i in range(at, at + 1000)])
            coll.create_index("k")
            client.admin.command("fsync")
            sums = sum(range(count))
            queries = {
                "scan": lambda: sum(d["_id"] for d in coll.find(hint=[("$natural", 1)])),
                "index": lambda: sum(d["_id"] for d in coll.find({"k": {"$gte": 0}}, hint="k_1")),
                "group": lambda: list(coll.aggregate([{"$group": {"_id": None, "n": {"$sum": "$_id"}}}]))[0]["n"],
                "reverse": lambda: sum(d["_id"] for d in coll.find().sort("_id", -1)),
            }
            failures = 0
            for skip in (0, 1, 7, 40, 200):
                for name, query in queries.items():
                    faults.arm(READ, TREE, ERROR, EIO, skip=skip, times=1)
                    try:
                        assert query() == sums, name
                        assert not faults.hits(), f"{name}: a read failed and nobody said so"
                    except OperationFailure as error:
                        failures += 1
                        assert error.code == FAILED and error.details["codeName"] == "OperationFailed", error.details
                        assert "tree" in str(error) and "offset" in str(error), error
                    faults.clear()
                    assert query() == sums, name
            assert failures > 5, failures
            faults.arm(READ, TREE, HALF)
            for name, query in queries.items():
                assert query() == sums, name
            assert faults.hits()
            # All of them fail: what is in memory is still answered, and then all is well again.
            faults.arm(READ, TREE, ERROR, EIO)
            for name, query in queries.items():
                with pytest.raises(OperationFailure):
                    query()
            assert client.admin.command("ping")["ok"] == 1
            faults.clear()
            for name, query in queries.items():
                assert query() == sums, name
            accepted(client)
            all_valid(client)


@pytest.mark.parametrize("skip", [0, 3, 9])
def test_what_was_told_stays(shim, tmp_path, skip):
    """A sync of the log fails and loses: change streams and majority reads have told of nothing that is gone after it."""
    told, streamed, ended = set(), set(), []
    with faulty(shim, tmp_path / "data", *FLAGS, "--replSet", "rs0", losing=True) as (s, faults):
        with s.client(directConnection=True) as client:
            initiated(client, s.port)
            client.faulty.create_collection("told")
        local = {"directConnection": True}

        def write():
            with s.client(**local) as client:
                coll = client.faulty.get_collection("told", write_concern=WriteConcern(w=1, j=False))
                for i in range(1_000_000):
                    coll.insert_one({"_id": i})

        def read():
            with s.client(**local) as client:
                coll = client.faulty.get_collection("told", read_concern=ReadConcern("majority"))
                while True:
                    told.update(d["_id"] for d in coll.find({"_id": {"$gte": len(told) - 5}}))

        def watch():
            with s.client(**local) as client, client.faulty.told.watch(max_await_time_ms=100) as stream:
                while True:
                    event = stream.try_next()
                    if event:
                        streamed.add(event["documentKey"]["_id"])

        def until_refused(work):
            try:
                work()
            except OperationFailure as error:
                ended.append(code_of(error))
            except ConnectionFailure:
                ended.append("killed")

        threads = [threading.Thread(target=until_refused, args=(work,), daemon=True) for work in (write, read, watch)]
        for t in threads:
            t.start()
        until = time.monotonic() + 30
        while not (told and streamed) and time.monotonic() < until:
            time.sleep(0.01)
        faults.arm(SYNC, LOG, LOST, EIO, skip=skip)
        with s.client(**local) as client:
            run_until_read_only(client)
        time.sleep(0.3)
        s.kill()
        for t in threads:
            t.join(30)
            assert not t.is_alive()
        assert told and streamed
        assert set(ended) <= {FAILED, "killed"}, ended
        s.environment = {}
        s.start()
        with s.client(**local) as client:
            found = {d["_id"] for d in client.faulty.told.find()}
            assert told <= found, (len(told), len(found), sorted(told - found)[:5])
            assert streamed <= found, (len(streamed), len(found), sorted(streamed - found)[:5])
            assert found == set(range(len(found)))


def test_temporary_files_that_fail(shim, tmp_path):
    """Sorts, groups and index builds that spill: the operation fails by name, leaves no file, and nobody else notices."""
    with faulty(shim, tmp_path / "data") as (s, faults):
        with s.client() as client:
            prepare(client)
            client.admin.command("setParameter", 1, internalQueryMaxBlockingSortMemoryUsageBytes=200_000)
            still = client.faulty.still
            work = {
                "sort": lambda: [d["_id"] for d in still.aggregate([{"$sort": {"b": 1, "c": -1}}], allowDiskUse=True)],
                "group": lambda: sorted(d["_id"] for d in still.aggregate([{"$group": {"_id": "$c", "all": {"$push": "$pad"}}}], allowDiskUse=True)),
            }
            right = {name: run() for name, run in work.items()}
            hits = 0
            for ops, action, error, code in [
                (WRITE, ERROR, EIO, 39),
                (WRITE, TORN, EIO, 39),
                (READ, ERROR, EIO, 39),
                (WRITE, ERROR, ENOSPC, NO_SPACE),
                (OPEN, ERROR, EIO, 39),
                (OPEN, ERROR, ENOSPC, NO_SPACE),
            ]:
                for name, run in work.items():
                    for skip in (0, 3, 20):
                        faults.arm(ops, TEMPORARY, action, error, skip=skip, times=1)
                        try:
                            assert run() == right[name], name
                            assert not faults.hits(), f"{name}: a temporary file failed and nobody said so"
                        except OperationFailure as failed:
                            assert faults.hits() and failed.code == code, (name, ops, error, failed.details)
                            hits += 1
                        faults.clear()
                        assert os.listdir(tmp_path / "data" / "_tmp") == []
            assert hits > 12, hits
            for ops in (READ, WRITE):
                faults.arm(ops, TEMPORARY, HALF)
                for name, run in work.items():
                    assert run() == right[name], name
                assert faults.hits()
                faults.clear()
            accepted(client)


def test_a_commit_in_doubt(shim, tmp_path):
    """The sync of a commit fails: asked again the server says the same, and after a start what became of it."""
    for kept in (False, True):
        folder = tmp_path / f"data{kept}"
        lsid = {"id": bson.Binary.from_uuid(uuid.uuid4())}
        words = {"lsid": lsid, "txnNumber": Int64(1), "autocommit": False}
        commit = {"commitTransaction": 1, "$db": "admin", "writeConcern": {"w": "majority"}} | words
        with faulty(shim, folder, *FLAGS, "--replSet", "rs0", losing=True) as (s, faults):
            with s.client(directConnection=True) as client:
                initiated(client, s.port)
                client.faulty.get_collection("moved", write_concern=JOURNALED).insert_one({"_id": 0})
            with Raw(s.port) as raw:
                first = {"insert": "moved", "documents": [{"_id": 1}], "startTransaction": True, "$db": "faulty"}
                assert raw.command(first | words)["ok"] == 1
                faults.arm(SYNC, LOG, ERROR if kept else LOST, EIO)
                for _ in range(3):
                    reply = raw.command(commit)
                    assert reply["ok"] == 1 and reply["writeConcernError"]["codeName"] == "OperationFailed", reply
                write = {"insert": "moved", "documents": [{"_id": 2}], "lsid": lsid, "txnNumber": Int64(2), "$db": "faulty"}
                for _ in range(2):
                    reply = raw.command(write)
                    assert reply["ok"] == 0 and reply["code"] == FAILED and "errorLabels" not in reply, reply
            s.kill()
            s.environment = {}
            s.start()
            with s.client(directConnection=True) as client, Raw(s.port) as raw:
                assert {d["_id"] for d in client.faulty.moved.find()} == ({0, 1} if kept else {0})
                reply = raw.command(commit)
                assert (reply["ok"], reply.get("codeName")) == ((1, None) if kept else (0, "NoSuchTransaction")), reply


def test_an_index_build_that_cannot_be_taken_back(shim, tmp_path):
    """The log fails while an index is built: whoever wants the same index next is told so, and does not wait for it."""
    with faulty(shim, tmp_path / "data", "--journalCommitInterval", "5") as (s, faults):
        with s.client() as client:
            coll = client.faulty.built
            for at in range(0, 30_000, 10_000):
                coll.insert_many([{"_id": i, "k": i % 100, "c": str(i) * 5} for i in range(at, at + 10_000)])
            client.admin.command("fsync")
            faults.arm(WRITE, LOG, ERROR, EIO)
            for _ in range(3):
                with pytest.raises(OperationFailure) as failed:
                    coll.create_index([("c", 1), ("k", -1)])
                assert failed.value.code == FAILED, failed.value
                assert set(coll.index_information()) == {"_id_"}
            running = list(client.admin.aggregate([{"$currentOp": {}}, {"$match": {"command.createIndexes": "built"}}]))
            assert running == []
            assert coll.count_documents({"k": 7}) == 300
    s.environment = {}
    with s.start().client() as client:
        assert set(client.faulty.built.index_information()) == {"_id_"}
        client.faulty.built.create_index([("c", 1), ("k", -1)])
        all_valid(client)
        client.faulty.drop_collection("built")
    assert s.stop() == 0, s.log()


def test_reads_that_fail_of_a_mapped_file(shim, tmp_path):
    """Less data than memory: pages are read where they lie, and one that the disk cannot read is an error of its reader."""
    count = 3000
    with faulty(shim, tmp_path / "data", "--wiredTigerCacheSizeGB", "0.25") as (s, faults):
        with s.client() as client:
            client.faulty.small.insert_many([{"_id": i, "k": -i, "pad": "x" * 2000} for i in range(count)])
            client.faulty.small.create_index("k")
            client.faulty.large.insert_many([{"_id": i, "pad": os.urandom(300_000)} for i in range(5)])
        queries = {
            "scan": lambda db: sum(d["_id"] for d in db.small.find(hint=[("$natural", 1)])),
            "index": lambda db: -sum(d["k"] for d in db.small.find({}, {"k": 1, "_id": 0}, hint="k_1")),
            "large": lambda db: sum(len(d["pad"]) for d in db.large.find()),
        }
        right = {"scan": sum(range(count)), "index": sum(range(count)), "large": 1_500_000}
        failures = 0
        for name, query in queries.items():
            for skip in (0, 2):
                # After a start no page has been looked at.
                assert s.stop() == 0, s.log()
                s.start()
                with s.client() as client:
                    faults.arm(READ, TREE, ERROR, EIO, skip=skip, times=1)
                    try:
                        assert query(client.faulty) == right[name]
                        assert not faults.hits()
                    except OperationFailure as error:
                        failures += 1
                        assert error.code == FAILED and "tree at offset" in str(error), error
                    faults.clear()
                    faults.arm(READ, TREE, HALF)
                    assert query(client.faulty) == right[name], name
                    faults.clear()
                    memory = client.admin.command("serverStatus")["sheaf"]["memory"]
                    assert memory["mapped"]["bytes"] > 5_000_000, memory
        assert failures > 2, failures
        with s.client() as client:
            assert client.faulty.command("validate", "small", full=True)["valid"]


def test_backups_of_a_failing_disk(shim, tmp_path):
    """A backup that cannot read says so and leaves nothing; of a server that writes no more it has everything."""
    rng = random.Random(SEED)
    with faulty(shim, tmp_path / "data", "--wiredTigerCacheSizeGB", "0.02") as (s, faults):
        with s.client() as client:
            prepare(client)
            client.faulty.more.insert_many([{"pad": os.urandom(3000)} for _ in range(8_000)])
            client.admin.command("fsync")
            clients = clients_of(s, rng)[:4]
            run_until(s, faults, clients, lambda: all(c.done > 20 for c in clients))
            for skip in (0, 5, 50):
                faults.arm(READ, TREE, ERROR, EIO, skip=skip, min_bytes=8192)
                with pytest.raises(OperationFailure) as failed:
                    client.admin.command("createBackup", backupDir=str(tmp_path / "copy"))
                faults.clear()
                assert failed.value.code == FAILED and "tree" in str(failed.value), failed.value
                assert os.listdir(tmp_path / "copy") == []
            accepted(client)
            faults.arm(SYNC, LOG, ERROR, EIO)
            run_until_read_only(client)
            stop(s, clients)
            client.admin.command("createBackup", backupDir=str(tmp_path / "copy"))
            refused(client)
    copy = Server(tmp_path / "copy", *FLAGS)
    after_all(copy, clients)


def run_until_read_only(client):
    until = time.monotonic() + 20
    while not is_read_only(client):
        assert time.monotonic() < until
        time.sleep(0.01)


def started(s):
    """Whether the server starts; else it has refused, with a status and words that say why."""
    s.log_path = f"{s.folder}.{time.monotonic_ns()}.log"
    try:
        s.start()
        return True
    except AssertionError:
        with open(s.log_path) as log:
            text = log.read()
        assert s.process.poll() == 100, (s.process.poll(), text[-2000:])
        assert "The server cannot run" in text and '"Panic"' not in text, text[-2000:]
        assert "Input/output error" in text or "no space left" in text.lower(), text[-2000:]
        return False


STARTS = {
    "writes": (WRITE, ERROR, EIO),
    "torn writes": (WRITE, TORN, EIO),
    "writes without space": (WRITE | OPEN | LENGTH, ERROR, ENOSPC),
    "syncs": (SYNC, ERROR, EIO),
    "reads": (READ, ERROR, EIO),
    "renames": (RENAME | LENGTH, ERROR, EIO),
}


@pytest.mark.parametrize("what", STARTS)
def test_faults_at_the_start(shim, tmp_path, what):
    """Each call of a start that reads the log again fails in turn: it refuses or serves, and harms nothing."""
    ops, action, error = STARTS[what]
    original = tmp_path / "original"
    documents = {}
    # More in the log than the memory of the starts takes at once: part of it goes into the tree while it is read.
    with faulty(shim, original, "--wiredTigerCacheSizeGB", "1", "--syncdelay", "3600") as (s, faults):
        with s.client() as client:
            prepare(client)
            coll = client.faulty.get_collection("written", write_concern=JOURNALED)
            for i in range(150):
                documents[i] = checked(i, 1, i * 3777 % 200_000)
                coll.insert_one(documents[i])
        s.kill()
    kinds = LOG | SPARE | TREE | FOLDER | OTHER
    refusals = served = skip = 0
    while True:
        folder = tmp_path / "data"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(original, folder)
        faults = Faults(shim, tmp_path / "control")
        s = Server(folder, *FLAGS)
        s.environment = faults.environment(folder)
        faults.arm(ops, kinds, action, error, skip=skip, times=1)
        try:
            if started(s):
                served += 1
                # What comes after the start is not meant.
                faults.clear()
                with s.client() as client:
                    found = {d["_id"]: d for d in client.faulty.written.find({"_id": {"$gte": 0}})}
                    assert found == documents, (skip, len(found))
            else:
                refusals += 1
            hit = faults.hits()
        finally:
            if s.process.poll() is None:
                s.kill()
        s.environment = {}
        assert started(s), skip
        try:
            with s.client() as client:
                assert {d["_id"]: d for d in client.faulty.written.find({"_id": {"$gte": 0}})} == documents, skip
                if not hit or skip % 5 == 0:
                    all_valid(client)
        finally:
            s.kill()
        if not hit:
            break
        skip += 1 if skip < 8 else 1 + skip // 2
    assert refusals, (refusals, served)
    print(f"{what}: {refusals} starts refused, {served} served")


def test_faults_at_random(shim, tmp_path):
    """Any fault, once or for good, at any call: what was acknowledged is there, and nothing is half."""
    print(f"SHEAF_FAULT_SEED={SEED}")
    tally = {}
    for round_ in range(ROUNDS):
        rng = random.Random(SEED + round_)
        ops = rng.choice([WRITE, WRITE, SYNC, SYNC, LENGTH | OPEN | RENAME, WRITE | SYNC])
        action = rng.choice([ERROR, TORN]) if ops == WRITE else rng.choice([ERROR, LOST]) if ops == SYNC else ERROR
        rule = {"action": action, "error": rng.choice([EIO, ENOSPC]), "skip": int(rng.expovariate(1 / 12)), "times": rng.choice([0, 1, 1, 3])}
        kinds = rng.choice([LOG, TREE, LOG | SPARE | TREE | FOLDER])
        what = f"round {round_} of seed {SEED}: operations {ops}, files {kinds}, {rule}"
        folder = tmp_path / "data"
        shutil.rmtree(folder, ignore_errors=True)
        try:
            with faulty(shim, folder, losing=action == LOST) as (s, faults):
                with s.client() as client:
                    prepare(client)
                    clients = clients_of(s, rng)
                    faults.arm(ops, kinds, **rule)
                    began = time.monotonic()
                    run_until(s, faults, clients, lambda: faults.hits() and time.monotonic() - began > 0.7, 4)
                    stop(s, clients)
                    faults.clear()
                    codes = {code for c in clients for code in c.codes}
                    assert codes <= {FAILED, NO_SPACE}, (codes, [c.message for c in clients if c.codes])
                    ended = is_read_only(client)
                    if ended:
                        refused(client, {FAILED, NO_SPACE}, 1)
                    else:
                        accepted(client)
                    for c in clients:
                        c.check(client)
                    key = "nothing" if not faults.hits() else "ended" if ended else "went on"
                    tally[key] = tally.get(key, 0) + 1
                if rng.random() < 0.3:
                    status = s.stop()
                    assert status == 0 or (ended and status == 14), (status, s.log(5))
                after_all(s, clients)
        except AssertionError as error:
            raise AssertionError(f"{what}: {error}") from error
    print(tally)
