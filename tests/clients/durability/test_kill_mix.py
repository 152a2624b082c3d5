"""kill -9 during all kinds of work: each kind of collection and index, transactions, DDL, builds, spills.

    parts ── each a client that records its replies ──> server ──x SIGKILL
      │                                                      │
      └─> what must hold; operations in flight: done or not   same folder ─> check, validate {full: true}

A part owns its collections. An operation in flight when the server died may or may not have
happened. Where the protocol allows a retry (retryable writes, commits), the part retries and must
get the outcome. SHEAF_KILL_ROUNDS kills, at least 3; SHEAF_KILL_SEED repeats a run.
"""

import contextlib
import datetime
import os
import random
import subprocess
import threading
import time
import traceback
import uuid

import bson
from bson.int64 import Int64
from pymongo import MongoClient, WriteConcern
from pymongo.errors import ConnectionFailure, OperationFailure, PyMongoError, ServerSelectionTimeoutError
from pymongo.operations import SearchIndexModel
from raw import Raw
from servers import BINARY, Server

ROUNDS = max(3, int(os.environ.get("SHEAF_KILL_ROUNDS", "3")))
SEED = int(os.environ.get("SHEAF_KILL_SEED", str(random.randrange(1 << 30))))
JOURNALED = {"w": 1, "j": True}
# Time limit on a busy machine. No test measures time: it only ends what hangs.
PATIENCE = 180
# A small oplog, so that the work of each round stays constant.
FLAGS = ("--replSet", "rs0", "--oplogSize", "64", "--wiredTigerCacheSizeGB", "0.03", "--syncdelay", "1", "--setParameter", "ttlMonitorSleepSecs=1")
FAR = datetime.datetime(2100, 1, 1)
DB = "mix"


class Part:
    """A client's work: `prepare` once, `step` until the server dies, `check` after each start."""

    def __init__(self, rng):
        self.rng = rng
        self.steps = 0
        self.error = None
        self.killed = False  # set before the server is

    def prepare(self, client): ...
    def step(self, client): ...
    def check(self, client): ...

    def work(self, uri, port):
        self.port = port
        try:
            with MongoClient(uri, serverSelectionTimeoutMS=5000, retryWrites=False, retryReads=False, directConnection=True) as client:
                while True:
                    try:
                        self.step(client)
                        self.steps += 1
                    except ServerSelectionTimeoutError:
                        # No request was sent. A busy machine is no reason to stop.
                        if self.killed:
                            break
        except (ConnectionFailure, ConnectionError, OSError):
            # The server was killed, as expected.
            if not self.killed:
                self.error = traceback.format_exc()
        except Exception:
            self.error = traceback.format_exc()
        finally:
            self.ended()

    def ended(self): ...

    def coll(self, client, name):
        return client[DB].get_collection(name, write_concern=WriteConcern(**JOURNALED))


class Documents(Part):
    """Inserts, replaces, increments and deletes by _id, with indexes on the collection."""

    def __init__(self, rng, name, **options):
        super().__init__(rng)
        self.name, self.options = name, options
        self.known = {}
        self.doubt = None  # (_id, what it may be now)
        self.next = 0

    def prepare(self, client):
        client[DB].create_collection(self.name, **self.options)
        self.coll(client, self.name).create_index([("k", 1), ("n", -1)])
        self.coll(client, self.name).create_index("tags")

    def step(self, client):
        coll, what = self.coll(client, self.name), self.rng.random()
        if what < 0.5 or not self.known:
            docs = []
            for _ in range(self.rng.choice([1, 1, 1, 30])):
                self.next += 1
                docs.append({"_id": self.next, "n": 0, "k": self.next % 7, "tags": [self.next % 3, "x"], "pad": "p" * self.rng.randrange(4000)})
            self.doubt = [(d["_id"], 0) for d in docs]
            coll.insert_many(docs)
        else:
            _id = self.rng.choice(list(self.known))
            if what < 0.85:
                self.doubt = [(_id, self.known[_id] + 1)]
                assert coll.update_one({"_id": _id}, {"$inc": {"n": 1}, "$push": {"tags": {"$each": [self.rng.randrange(50)], "$slice": -6}}}).modified_count == 1
            else:
                self.doubt = [(_id, None)]
                assert coll.delete_one({"_id": _id}).deleted_count == 1
        for _id, n in self.doubt:
            self.known[_id] = n
            if n is None:
                del self.known[_id]
        self.doubt = None

    def check(self, client):
        found = {d["_id"]: d["n"] for d in self.coll(client, self.name).find({}, {"n": 1})}
        for _id, n in self.doubt or []:
            if found.get(_id) == n:
                self.known[_id] = n
                if n is None:
                    del self.known[_id]
        self.doubt = None
        assert found == self.known, (self.name, set(found.items()) ^ set(self.known.items()))


class Capped(Part):
    """Numbers in order; after any kill a suffix of the inserts, within the limit."""

    last = 0
    doubt = None

    def __init__(self, rng, name, most):
        super().__init__(rng)
        self.name, self.most = name, most

    def prepare(self, client):
        client[DB].create_collection(self.name, capped=True, size=1 << 20, max=self.most)
        self.coll(client, self.name).create_index("n", unique=True)

    def step(self, client):
        count = self.rng.choice([1, 1, 7, 40])
        self.doubt = self.last + count
        self.coll(client, self.name).insert_many([{"n": self.last + 1 + i, "pad": "c" * 100} for i in range(count)])
        self.last, self.doubt = self.doubt, None

    def check(self, client):
        found = [d["n"] for d in self.coll(client, self.name).find(sort=[("$natural", 1)])]
        if self.last:
            assert self.last <= found[-1] <= (self.doubt or self.last), (found[-1], self.last, self.doubt)
        last = found[-1] if found else 0
        assert found == list(range(max(1, last - self.most + 1), last + 1)), (self.name, last, len(found))
        self.last, self.doubt = last, None


class Expiring(Part):
    """A TTL index removes only expired documents."""

    def __init__(self, rng):
        super().__init__(rng)
        self.must, self.doubt, self.next = set(), [], 0

    def prepare(self, client):
        self.coll(client, "expiring").create_index("at", expireAfterSeconds=0)

    def step(self, client):
        docs = []
        for _ in range(20):
            self.next += 1
            docs.append({"_id": self.next, "at": FAR if self.next % 2 else datetime.datetime.now(datetime.UTC)})
        self.doubt = [d["_id"] for d in docs if d["at"] is FAR]
        self.coll(client, "expiring").insert_many(docs)
        self.must |= set(self.doubt)
        self.doubt = []

    def check(self, client):
        found = {d["_id"] for d in self.coll(client, "expiring").find({"at": FAR})}
        assert self.must <= found <= self.must | set(self.doubt)
        self.must, self.doubt = found, []


class Retried(Part):
    """A retryable write without a reply is sent again after the restart, and is executed once."""

    count = 0
    pending = None

    def __init__(self, rng):
        super().__init__(rng)
        self.lsid = {"id": bson.Binary.from_uuid(uuid.UUID(int=rng.getrandbits(128)))}
        self.number = 0
        self.raw = None

    def prepare(self, client):
        self.coll(client, "retried").insert_many([{"_id": "updated", "n": 0}, {"_id": "modified", "n": 0}])

    def step(self, client):
        if self.raw is None:
            self.raw = Raw(self.port, PATIENCE)
        self.number += 1
        what = self.number % 3
        if what == 0:
            command = {"insert": "retried", "documents": [{"_id": self.number}]}
        elif what == 1:
            command = {"update": "retried", "updates": [{"q": {"_id": "updated"}, "u": {"$inc": {"n": 1}}}]}
        else:
            command = {"findAndModify": "retried", "query": {"_id": "modified"}, "update": {"$inc": {"n": 1}}, "new": True}
        self.pending = command | {"lsid": self.lsid, "txnNumber": Int64(self.number), "$db": DB, "writeConcern": {"w": "majority"}}
        self.answered(self.raw.command(self.pending))

    def answered(self, reply):
        assert reply["ok"] == 1 and "writeErrors" not in reply, reply
        if "value" in reply:
            assert reply["value"]["n"] == (self.number + 1) // 3, (reply, self.number)
        else:
            assert reply["n"] == 1, reply
        self.pending = None

    def ended(self):
        if self.raw:
            self.raw.close()
            self.raw = None

    def check(self, client):
        if self.pending:
            with Raw(client.address[1], PATIENCE) as raw:
                self.answered(raw.command(self.pending))
        found = {d["_id"]: d.get("n") for d in self.coll(client, "retried").find()}
        assert found.pop("updated") == (self.number + 2) // 3, self.number
        assert found.pop("modified") == (self.number + 1) // 3, self.number
        assert set(found) == set(range(3, self.number + 1, 3))


class Transfers(Part):
    """Transactions over two collections; a commit without a reply is repeated after the restart."""

    ACCOUNTS = 8

    def __init__(self, rng):
        super().__init__(rng)
        self.lsid = {"id": bson.Binary.from_uuid(uuid.UUID(int=rng.getrandbits(128)))}
        self.number = 0
        self.committed, self.pending, self.raw = set(), None, None

    def prepare(self, client):
        self.coll(client, "accounts").insert_many([{"_id": i, "sum": 0} for i in range(self.ACCOUNTS)])
        self.coll(client, "receipts").create_index("from")

    def ask(self, raw, command, begin=False):
        more = {"lsid": self.lsid, "txnNumber": Int64(self.number), "autocommit": False} | ({"startTransaction": True} if begin else {})
        return raw.command(command | more)

    def step(self, client):
        if self.raw is None:
            self.raw = Raw(self.port, PATIENCE)
        self.number += 1
        a, b, sum_ = self.rng.randrange(self.ACCOUNTS), self.rng.randrange(self.ACCOUNTS), self.rng.randrange(100)
        receipt = {"_id": self.number, "from": a, "to": b, "sum": sum_, "pad": "r" * self.rng.choice([10, 10, 30_000])}
        moved = [{"q": {"_id": a}, "u": {"$inc": {"sum": -sum_}}}, {"q": {"_id": b}, "u": {"$inc": {"sum": sum_}}}]
        first = self.ask(self.raw, {"insert": "receipts", "documents": [receipt], "$db": DB}, True)
        second = self.ask(self.raw, {"update": "accounts", "updates": moved, "$db": DB})
        assert first["ok"] == second["ok"] == 1, (first, second)
        if self.rng.random() < 0.1:
            assert self.ask(self.raw, {"abortTransaction": 1, "$db": "admin"})["ok"] == 1
            return
        self.pending = {"commitTransaction": 1, "$db": "admin", "writeConcern": {"w": "majority"}}
        reply = self.ask(self.raw, self.pending)
        assert reply["ok"] == 1, reply
        self.committed.add(self.number)
        self.pending = None

    ended = Retried.ended

    def check(self, client):
        receipts = list(self.coll(client, "receipts").find())
        found = {r["_id"] for r in receipts}
        if self.pending:
            with Raw(client.address[1], PATIENCE) as raw:
                reply = self.ask(raw, self.pending)
            if self.number in found:
                assert reply["ok"] == 1, reply
                self.committed.add(self.number)
            else:
                assert reply["codeName"] == "NoSuchTransaction", reply
            self.pending = None
        assert found == self.committed
        sums = dict.fromkeys(range(self.ACCOUNTS), 0)
        for r in receipts:
            sums[r["from"]] -= r["sum"]
            sums[r["to"]] += r["sum"]
        assert {a["_id"]: a["sum"] for a in self.coll(client, "accounts").find()} == sums


class Watched(Part):
    """Numbered inserts, and a change stream across all kills: each number once, in order."""

    last = 0

    def __init__(self, rng):
        super().__init__(rng)
        self.seen, self.token, self.watcher = 0, None, None

    def prepare(self, client):
        client[DB].create_collection("watched")
        with self.coll(client, "watched").watch() as stream:
            self.token = stream.resume_token

    def follow(self, uri):
        try:
            with MongoClient(uri, serverSelectionTimeoutMS=5000, retryReads=False, directConnection=True) as client:
                with self.coll(client, "watched").watch(resume_after=self.token, max_await_time_ms=100) as stream:
                    while True:
                        self.take(stream.try_next(), stream)
        except PyMongoError as error:
            # The cursor cannot be reopened on a killed server.
            if isinstance(error, OperationFailure):
                self.error = traceback.format_exc()
        except Exception:
            self.error = traceback.format_exc()

    def take(self, event, stream):
        if event:
            assert event["operationType"] == "insert", event
            assert event["fullDocument"]["_id"] == self.seen + 1, (event, self.seen)
            self.seen += 1
        self.token = stream.resume_token

    def work(self, uri, port):
        self.watcher = threading.Thread(target=self.follow, args=(uri,), daemon=True)
        self.watcher.start()
        super().work(uri, port)
        self.watcher.join(PATIENCE)

    def step(self, client):
        self.coll(client, "watched").insert_one({"_id": self.last + 1})
        self.last += 1

    def check(self, client):
        count = self.coll(client, "watched").count_documents({})
        assert self.last <= count <= self.last + 1
        self.last = count
        assert self.seen <= count, "a change was streamed and is missing"
        with self.coll(client, "watched").watch(resume_after=self.token, max_await_time_ms=50) as stream:
            until = time.monotonic() + PATIENCE
            while self.seen < count:
                assert time.monotonic() < until, (self.seen, count)
                self.take(stream.try_next(), stream)


class Measured(Part):
    """Measurements into few open buckets, and deletes by meta value."""

    def __init__(self, rng):
        super().__init__(rng)
        self.known, self.added, self.removed, self.next = {}, {}, None, 0

    def prepare(self, client):
        client[DB].create_collection("measured", timeseries={"timeField": "t", "metaField": "m", "granularity": "seconds"})
        client[DB].measured.create_index([("m", 1), ("t", -1)])

    def step(self, client):
        coll = self.coll(client, "measured")
        if self.rng.random() < 0.9:
            docs = []
            for _ in range(self.rng.choice([1, 5, 60])):
                self.next += 1
                m = self.rng.randrange(4)
                t = datetime.datetime(2024, 5, 1) + datetime.timedelta(seconds=self.rng.randrange(6000))
                docs.append({"_id": self.next, "t": t, "m": m, "x": self.rng.random()})
            self.added = {d["_id"]: d["m"] for d in docs}
            coll.insert_many(docs, ordered=self.rng.random() < 0.5)
            self.known |= self.added
            self.added = {}
        else:
            self.removed = self.rng.randrange(4)
            coll.delete_many({"m": self.removed})
            self.known = {i: m for i, m in self.known.items() if m != self.removed}
            self.removed = None

    def check(self, client):
        docs = list(self.coll(client, "measured").find())
        found = {d["_id"]: d["m"] for d in docs}
        assert len(found) == len(docs), "a measurement is there twice"
        must = {i: m for i, m in self.known.items() if m != self.removed}
        assert must.items() <= found.items() <= (self.known | self.added).items()
        self.known, self.added, self.removed = found, {}, None


class Definitions(Part):
    """Collections, views and indexes that are created, changed and dropped; a model has the expected state."""

    NAME = "mix_ddl"

    def __init__(self, rng):
        super().__init__(rng)
        self.model, self.after, self.partly = {}, None, False

    def now(self, client):
        db, found = client[self.NAME], {}
        for c in db.list_collections():
            name, options = c["name"], c["options"]
            if name.startswith("system."):
                continue
            kind = "view" if c["type"] == "view" else "timeseries" if c["type"] == "timeseries" else "capped" if options.get("capped") else "clustered" if "clusteredIndex" in options else "plain"
            indexes = () if kind == "view" else tuple(sorted(n for n in db[name].index_information() if n.endswith("_1")))
            found[name] = (kind, options.get("validationLevel"), indexes, db[name].count_documents({}))
        return found

    def step(self, client):
        db, rng = client[self.NAME], self.rng
        tables = [n for n, (kind, *_) in self.model.items() if kind != "view"]
        after, partly = dict(self.model), False
        what = rng.randrange(100)
        free = rng.choice([n for n in "abcdefghij" if n not in self.model] or ["none"])
        if free == "none":
            name = rng.choice(list(self.model))
            del after[name]
            command = {"drop": name}
        elif what < 25 or not tables:
            kind = rng.choice(["plain", "plain", "capped", "clustered", "timeseries", "view"])
            options = {
                "plain": {},
                "capped": {"capped": True, "size": 4096},
                "clustered": {"clusteredIndex": {"key": {"_id": 1}, "unique": True}},
                "timeseries": {"timeseries": {"timeField": "t"}},
                "view": {"viewOn": "nowhere", "pipeline": [{"$match": {"x": 1}}]},
            }[kind]
            after[free] = (kind, None, (), 0)
            command = {"create": free} | options
        else:
            name = rng.choice(tables)
            kind, level, indexes, count = self.model[name]
            if what < 45:
                docs = [{"t": FAR, "x": i} for i in range(rng.randrange(1, 5))]
                after[name] = (kind, level, indexes, count + len(docs))
                # A batch is not atomic: any prefix may exist.
                partly = {count + i for i in range(len(docs) + 1)}, name
                command = {"insert": name, "documents": docs}
            elif what < 60:
                field = rng.choice("pqrs")
                if f"{field}_1" in indexes:
                    after[name] = (kind, level, tuple(i for i in indexes if i != f"{field}_1"), count)
                    command = {"dropIndexes": name, "index": f"{field}_1"}
                else:
                    after[name] = (kind, level, tuple(sorted([*indexes, f"{field}_1"])), count)
                    command = {"createIndexes": name, "indexes": [{"key": {field: 1}, "name": f"{field}_1"}]}
            elif what < 70 and kind != "timeseries":
                level = rng.choice(["off", "moderate", "strict"])
                after[name] = (kind, level, indexes, count)
                command = {"collMod": name, "validator": {"x": {"$gte": 0}}, "validationLevel": level}
            elif what < 85 and kind != "timeseries":
                target = rng.choice([free, *(t for t in tables if t != name and self.model[t][0] != "timeseries")])
                after[target] = after.pop(name)
                command = {"renameCollection": f"{self.NAME}.{name}", "to": f"{self.NAME}.{target}", "dropTarget": True}
            elif what < 88 and kind == "plain":
                command = {"convertToCapped": name, "size": 1 << 20}
                after[name] = ("capped", level, None, count)
            elif what < 98:
                del after[name]
                command = {"drop": name}
            else:
                after, partly = {}, True
                command = {"dropDatabase": 1}
        self.after, self.partly, self.did = after, partly, command
        try:
            (client.admin if "renameCollection" in command else db).command(command, writeConcern=JOURNALED)
        except OperationFailure as error:
            raise AssertionError(f"{command} on {self.model}: {error}") from error
        self.model, self.after, self.partly = after, None, False
        if "convertToCapped" in command:
            self.model = self.now(client)

    def check(self, client):
        found = self.now(client)

        def same(one, other):
            return one.keys() == other.keys() and all(a[:2] == b[:2] and a[3] == b[3] and (a[2] == b[2] or None in (a[2], b[2])) for a, b in ((one[n], other[n]) for n in one))

        accepted = same(found, self.model) or (self.after is not None and same(found, self.after))
        if not accepted and self.partly is True:
            accepted = found.items() <= self.model.items()
        elif not accepted and self.partly:
            counts, name = self.partly
            accepted = any(same(found, self.model | {name: (*self.model[name][:3], n)}) for n in counts)
        assert accepted, (found, self.model, self.after, self.did)
        self.model, self.after, self.partly = found, None, False


class Builds(Part):
    """Indexes over some thousand documents are created and dropped, with concurrent writes to the documents."""

    COUNT = 4000

    def __init__(self, rng):
        super().__init__(rng)
        self.there, self.doubt = set(), None

    def prepare(self, client):
        self.coll(client, "built").insert_many([{"_id": i, "a": i % 100, "b": [i % 7, i % 11], "c": str(i)} for i in range(self.COUNT)])

    def step(self, client):
        coll = self.coll(client, "built")
        name = self.rng.choice(["a_1", "b_1", "c_1", "a_1_b_1", "c_1_a_1"])
        self.doubt = name
        if name in self.there:
            coll.drop_index(name)
        else:
            parts = name.split("_")[::2]
            coll.create_index([(p, 1) for p in parts], name=name, unique=name.startswith("c"))
        self.there ^= {name}
        self.doubt = None

    def check(self, client):
        coll = self.coll(client, "built")
        found = set(coll.index_information()) - {"_id_"}
        assert found ^ self.there <= {self.doubt}, (found, self.there, self.doubt)
        self.there, self.doubt = found, None
        for name in found:
            assert len({d["_id"] for d in coll.find({}, {"_id": 1}, hint=name)}) == self.COUNT, name


class Touched(Part):
    """Changes the documents of `Builds` while indexes over them are built."""

    def step(self, client):
        for _ in range(3):
            _id = self.rng.randrange(Builds.COUNT)
            self.coll(client, "built").update_one({"_id": _id}, {"$set": {"a": self.rng.randrange(100), "b": [self.rng.randrange(9)]}})


def dimensions(name, count):
    fields = [{"type": "vector", "path": "v", "numDimensions": count, "similarity": "euclidean"}, {"type": "filter", "path": "kind"}]
    return SearchIndexModel({"fields": fields}, name=name, type="vectorSearch")


def nearest(coll, name, query, limit):
    """The result of an exact search, in the index's order."""
    stage = {"index": name, "path": "v", "queryVector": query, "limit": limit, "exact": True}
    return [d["_id"] for d in coll.aggregate([{"$vectorSearch": stage}, {"$project": {"_id": 1}}])]


class Vectors(Part):
    """Documents with vectors that are inserted, changed and deleted under a vector index; searches find the current vectors."""

    def __init__(self, rng):
        super().__init__(rng)
        self.known, self.doubt, self.next = {}, {}, 0

    def prepare(self, client):
        client[DB].create_collection("vectors")
        self.coll(client, "vectors").create_search_index(dimensions("near", 3))

    def vector(self):
        # Numbers that 32-bit floats represent exactly; no two documents are the same.
        return [self.next, self.rng.randrange(64), self.rng.randrange(64)]

    def step(self, client):
        coll, what = self.coll(client, "vectors"), self.rng.random()
        self.next += 1
        if what < 0.5 or len(self.known) < 5:
            ids = range(self.next, self.next + self.rng.choice([1, 1, 25]))
            docs = []
            for self.next in ids:
                docs.append({"_id": self.next, "kind": self.next % 3, "v": self.vector()})
            self.doubt = {d["_id"]: d["v"] for d in docs}
            coll.insert_many(docs)
        elif what < 0.7:
            _id = self.rng.choice(list(self.known))
            self.doubt = {_id: self.vector()}
            coll.update_one({"_id": _id}, {"$set": {"v": self.doubt[_id]}})
        elif what < 0.8:
            _id = self.rng.choice(list(self.known))
            self.doubt = {_id: None}
            coll.delete_one({"_id": _id})
        else:
            self.look(coll)
        self.settle(self.doubt)

    def settle(self, now):
        self.known |= now
        self.known = {_id: v for _id, v in self.known.items() if v is not None}
        self.doubt = {}

    def look(self, coll):
        _id = self.rng.choice(list(self.known))
        assert nearest(coll, "near", self.known[_id], 1) == [_id], (_id, self.known[_id])
        stage = {"index": "near", "path": "v", "queryVector": self.known[_id], "limit": 5, "numCandidates": 10_000}
        found = [d["_id"] for d in coll.aggregate([{"$vectorSearch": stage}])]
        assert found[0] == _id and set(found) <= set(self.known), found

    def check(self, client):
        coll = self.coll(client, "vectors")
        found = {d["_id"]: d["v"] for d in coll.find()}
        self.settle({_id: v for _id, v in self.doubt.items() if found.get(_id) == v})
        assert found == self.known, set(map(str, found.items())) ^ set(map(str, self.known.items()))
        if found:
            assert set(nearest(coll, "near", [0, 0, 0], len(found) + 10)) == set(found)
            self.look(coll)


class VectorBuilds(Part):
    """Vector indexes over some thousand vectors are created, changed and dropped: they exist completely or not at all."""

    COUNT = 3000

    def __init__(self, rng):
        super().__init__(rng)
        self.there, self.doubt = set(), None

    def prepare(self, client):
        client[DB].create_collection("embedded")
        self.coll(client, "embedded").insert_many([{"_id": i, "kind": i % 5, "v": [self.rng.random() for _ in range(16)]} for i in range(self.COUNT)])

    def step(self, client):
        coll = self.coll(client, "embedded")
        name = self.rng.choice(["one", "two"])
        if name not in self.there:
            self.doubt = name
            coll.create_search_index(dimensions(name, 16))
            self.there.add(name)
        elif self.rng.random() < 0.4:
            coll.update_search_index(name, dimensions(name, 16).document["definition"])
        else:
            self.doubt = name
            coll.drop_search_index(name)
            self.there.discard(name)
        self.doubt = None
        for name in self.there:
            self.look(coll, name)

    def look(self, coll, name):
        _id = self.rng.randrange(self.COUNT)
        assert nearest(coll, name, coll.find_one({"_id": _id})["v"], 1) == [_id]

    def check(self, client):
        coll = self.coll(client, "embedded")
        found = {index["name"] for index in coll.list_search_indexes()}
        assert found ^ self.there <= {self.doubt}, (found, self.there, self.doubt)
        self.there, self.doubt = found, None
        for name in found:
            assert len(set(nearest(coll, name, [0.5] * 16, self.COUNT))) == self.COUNT, name
            self.look(coll, name)


class Merged(Part):
    """$merge adds documents one by one, $out replaces a collection atomically."""

    def __init__(self, rng):
        super().__init__(rng)
        self.version, self.merged, self.put = 0, 0, 0

    def prepare(self, client):
        self.coll(client, "sources").insert_many([{"_id": i} for i in range(100)])
        client[DB].create_collection("merged")
        client[DB].replaced.create_index("version")

    def step(self, client):
        self.version += 1
        stamp = [{"$addFields": {"version": self.version}}]
        sources = self.coll(client, "sources")
        if self.rng.random() < 0.5:
            sources.aggregate([*stamp, {"$merge": {"into": "merged", "whenMatched": "replace"}}])
            self.merged = self.version
        else:
            sources.aggregate([*stamp, {"$out": "replaced"}])
            self.put = self.version

    def check(self, client):
        found = {d["_id"]: d["version"] for d in self.coll(client, "merged").find()}
        assert set(found) in (set(), set(range(100))) or self.merged == 0, len(found)
        assert set(found.values()) <= {self.merged, self.version}, (set(found.values()), self.merged, self.version)
        replaced = [d["version"] for d in self.coll(client, "replaced").find()]
        assert (len(replaced) == 100 and len(set(replaced)) == 1 and replaced[0] in (self.put, self.version)) or (replaced == [] and self.put == 0), (len(replaced), set(replaced), self.put)
        assert "version_1" in client[DB].replaced.index_information()
        # The next $merge replaces what an interrupted one left; either state is accepted here.
        self.merged = max(found.values(), default=0)
        self.put = replaced[0] if replaced else 0
        if len(set(found.values())) > 1:
            stamp = [{"$addFields": {"version": self.merged}}]
            self.coll(client, "sources").aggregate([*stamp, {"$merge": {"into": "merged", "whenMatched": "replace"}}])


class Chores(Part):
    """Compaction, checks, and pipelines that spill."""

    def step(self, client):
        db = client[DB]
        what = self.rng.randrange(4)
        if what == 0:
            db.command("compact", self.rng.choice(["documents", "built", "capped"]), force=True)
        elif what == 1:
            assert db.command("validate", "documents", full=True)["valid"]
        elif what == 2:
            rows = list(db.built.aggregate([{"$unwind": "$b"}, {"$addFields": {"pad": {"$concat": ["$c", "x" * 500]}}}, {"$sort": {"pad": -1, "b": 1}}, {"$limit": 5000}, {"$group": {"_id": "$pad", "n": {"$push": "$b"}}}], allowDiskUse=True))
            assert rows
        else:
            db.built.aggregate([{"$match": {"_id": {"$lt": 500}}}, {"$out": "copied"}])

    def check(self, client):
        # $out replaces the collection completely or not at all.
        assert client[DB].copied.count_documents({}) in (0, 500)


def initiated(client, port):
    """Waits until the only member accepts writes."""
    try:
        client.admin.command("replSetInitiate", {"_id": "rs0", "members": [{"_id": 0, "host": f"127.0.0.1:{port}"}]})
    except OperationFailure as error:
        assert error.details["codeName"] == "AlreadyInitialized", error
    until = time.monotonic() + PATIENCE
    while not client.admin.command("hello")["isWritablePrimary"]:
        assert time.monotonic() < until
        time.sleep(0.02)


@contextlib.contextmanager
def running(s):
    s.start()
    try:
        yield s
    finally:
        if s.process.poll() is None:
            s.kill()


def all_valid(client):
    for name in client.list_database_names():
        for c in client[name].list_collections():
            if c["type"] != "view":
                found = client[name].command("validate", c["name"], full=True)
                assert found["valid"] and not found["errors"], f"{name}: {found}"


def test_everything_at_once(tmp_path):
    print(f"SHEAF_KILL_SEED={SEED}")
    rng = random.Random(SEED)
    seed = lambda: random.Random(rng.random())  # noqa: E731
    parts = [
        Documents(seed(), "documents"),
        Documents(seed(), "clustered", clusteredIndex={"key": {"_id": 1}, "unique": True}),
        Documents(seed(), "ruled", validator={"n": {"$gte": 0}, "pad": {"$type": "string"}}, changeStreamPreAndPostImages={"enabled": True}),
        Capped(seed(), "capped", 300),
        Capped(seed(), "bounded", 5),
        Expiring(seed()),
        Retried(seed()),
        Transfers(seed()),
        Watched(seed()),
        Measured(seed()),
        Definitions(seed()),
        Builds(seed()),
        Touched(seed()),
        Vectors(seed()),
        VectorBuilds(seed()),
        Merged(seed()),
        Chores(seed()),
    ]
    # The port stays the same, since the configuration contains the member's address.
    s = Server(tmp_path / "data", *FLAGS)
    for round_ in range(ROUNDS + 1):
        if round_ and round_ % 5 == 0:
            r = subprocess.run([BINARY, "--dbpath", tmp_path / "data", "--verify"], capture_output=True, text=True, timeout=PATIENCE)
            assert r.returncode == 0, r.stdout
        with running(s):
            with s.client(directConnection=True) as client:
                initiated(client, s.port)
                client.admin.command("setParameter", 1, internalQueryMaxBlockingSortMemoryUsageBytes=1 << 18)
                leftovers = os.listdir(tmp_path / "data" / "_tmp") if (tmp_path / "data" / "_tmp").exists() else []
                assert not leftovers, leftovers
                for part in parts:
                    if round_ == 0:
                        part.prepare(client)
                    else:
                        part.check(client)
                all_valid(client)
            if round_ == ROUNDS:
                break
            before = [part.steps for part in parts]
            for part in parts:
                part.killed = False
            threads = [threading.Thread(target=part.work, args=(s.uri, s.port), daemon=True) for part in parts]
            for t in threads:
                t.start()
            time.sleep(0.5 + rng.random() * 2)
            until = time.monotonic() + PATIENCE
            while any(part.steps == b and not part.error for part, b in zip(parts, before)) and time.monotonic() < until:
                time.sleep(0.01)
            assert s.process.poll() is None, s.log()
            for part in parts:
                part.killed = True
            s.kill()
            for t in threads:
                t.join(PATIENCE)
                assert not t.is_alive()
            for part, b in zip(parts, before):
                assert part.error is None, part.error
                assert part.steps > b, type(part).__name__
    with open(s.log_path) as log:
        panics = [line for line in log if '"Panic"' in line]
    assert not panics, panics
    print({type(p).__name__: p.steps for p in parts})
