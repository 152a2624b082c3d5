"""Clients of a server whose disk fails: each records the replies it received, and checks what must hold.

    clients ── j: true ──> server ── write, sync, read, ... ──> shim (faults.py) ── EIO, ENOSPC, half, lost
       │ what was acknowledged to each │ refuses writes from a failed write or sync on; not for a full disk
       └─> must hold: while it runs, and after kill -9 and a start without the shim

The outcome of an operation that returned an error is unknown, that of every other operation is not. Acknowledged
writes are kept, whatever failed before or after. SHEAF_FAULT_SEED repeats a run.
"""

import contextlib
import hashlib
import os
import random
import threading
import time

import pytest
from faults import Faults
from pymongo import WriteConcern
from pymongo.errors import BulkWriteError, ConnectionFailure, OperationFailure
from servers import Server

SEED = int(os.environ.get("SHEAF_FAULT_SEED", str(random.randrange(1 << 30))))
JOURNALED = WriteConcern(w=1, j=True)
FAILED, NO_SPACE = 96, 14031
ACCOUNTS = 6
# Little memory and a short interval, so that writes soon reach the tree.
FLAGS = ("--wiredTigerCacheSizeGB", "0.03", "--syncdelay", "1")


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
    """The error code of a reply, wherever in the reply it is."""
    details = error.details or {}
    if isinstance(error, BulkWriteError):
        return ([e["code"] for e in details["writeErrors"] + details["writeConcernErrors"]] or [None])[0]
    return error.code


def checked(_id, version, pad):
    body = f"{_id}/{version}/" + "x" * pad
    return {"_id": _id, "version": version, "group": version % 7, "body": body, "sum": hashlib.md5(body.encode()).hexdigest()}


class Client(threading.Thread):
    """Works until it is stopped or the server dies; records the errors it received."""

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
    """Inserts, replaces and deletes separate documents."""

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
    """Transactions over two collections: amounts move between accounts, with a receipt for each transfer."""

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
    """Collections and indexes that are created and dropped, pipelines that write, compaction, checkpoints."""

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
    # More than the mapping covers, so that pages are read by system calls.
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
    """Every kind of write is refused with a clear error, now and later; reads continue."""
    before = client.faulty.still.count_documents({})
    for _ in range(times):
        for name, write in writes(client).items():
            with pytest.raises(OperationFailure) as refusal:
                write()
            code = code_of(refusal.value)
            assert code in codes, (name, refusal.value.details)
            assert "rejects writes since" in str(refusal.value) or "space" in str(refusal.value), (name, refusal.value)
    assert client.faulty.still.count_documents({}) == before
    assert client.faulty.still.find_one({"_id": 1500})["c"] == "1500"
    assert client.admin.command("ping")["ok"] == 1


def accepted(client, seconds=15):
    """Writes are accepted, if necessary after a while."""
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
        return "rejects writes since" in str(error)


def run_until_read_only(client):
    until = time.monotonic() + 20
    while not is_read_only(client):
        assert time.monotonic() < until
        time.sleep(0.01)


def after_all(s, clients):
    """kill -9, a start without faults: all acknowledged writes exist, none is partial, and the server works."""
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
