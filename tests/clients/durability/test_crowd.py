"""Everything concurrently: DDL, reads, writes, kills, and a shutdown under load.

    readers ─┐                      ┌─ create, drop, rename, collMod, indexes ─┐
    writers ─┼── same collections ──┤                                          ├── each error is one of EXPECTED
    cursors ─┘                      └─ killOp, killSessions, killCursors ──────┘

Nothing hangs, no error is internal, and the data is valid afterwards. Runs for SHEAF_CROWD_SECONDS (4).
"""

import collections
import json
import os
import random
import threading
import time
import traceback

from pymongo import MongoClient, WriteConcern
from pymongo.errors import BulkWriteError, ConnectionFailure, OperationFailure
from raw import Raw, message
from servers import server

SECONDS = float(os.environ.get("SHEAF_CROWD_SECONDS", "4"))
SEED = int(os.environ.get("SHEAF_CROWD_SEED", str(random.randrange(1 << 30))))
NAMES = ["a", "b", "c"]
# Errors that concurrent operations may cause.
EXPECTED = {
    "CursorNotFound", "QueryPlanKilled", "CursorKilled", "Interrupted", "NamespaceNotFound", "NamespaceExists", "IndexNotFound", "WriteConflict", "NoSuchTransaction", "TransactionTooOld",
    "IndexOptionsConflict", "IndexKeySpecsConflict", "IndexBuildAborted", "IndexAlreadyExists", "BackgroundOperationInProgressForNamespace", "LockTimeout", "DuplicateKey", "CommandNotSupportedOnView", "InvalidOptions",
    "ConflictingOperationInProgress", "SnapshotUnavailable", "MaxTimeMSExpired", "CursorInUse", "CappedPositionLost", "IllegalOperation", "BadValue", "OperationNotSupportedInTransaction", "DatabaseDropPending", "DocumentValidationFailure", "TransactionCommitted",
    "IndexNotFound", "NoSuchSession", "StaleConfig", "LockBusy", "ObjectIsBusy",
}  # fmt: skip
# A hint of an index that was dropped is a bad value; no other BadValue is expected.
ALLOWED_BAD = ("hint", "planner returned error", "$out", "$merge")


class Crowd:
    def __init__(self, s):
        self.s = s
        self.stopping = False
        self.wrong = []
        self.counts = collections.Counter()
        self.ending = False  # the server is being stopped

    def run(self, name, step, rng):
        try:
            with MongoClient(self.s.uri, serverSelectionTimeoutMS=2000, retryWrites=False, retryReads=False, socketTimeoutMS=30_000) as client:
                while not self.stopping:
                    begin = time.monotonic()
                    try:
                        step(client, rng)
                        self.counts[name] += 1
                    except (OperationFailure, BulkWriteError) as error:
                        self.refused(name, error)
                    except ConnectionFailure as error:
                        if self.ending:
                            return
                        self.wrong.append(f"{name}: {error!r}")
                        return
                    took = time.monotonic() - begin
                    if took > 20:
                        self.wrong.append(f"{name}: took {took} s")
        except Exception:
            if not self.ending:
                self.wrong.append(f"{name}: {traceback.format_exc()}")

    def refused(self, name, error):
        details = error.details or {}
        errors = details.get("writeErrors") or [details]
        for e in errors:
            said, code = e.get("errmsg", ""), e.get("codeName") or e.get("code", error.code)
            self.counts[f"{name}: {code}"] += 1
            if self.ending and code in ("ShutdownInProgress", "InterruptedAtShutdown", 91, 11600):
                continue
            known = code in EXPECTED or code in (11000, 112, 11601, 175, 26, 237, 121, 263)
            if not known or (code == "BadValue" and not any(a in said for a in ALLOWED_BAD)):
                self.wrong.append(f"{name}: {e}")

    def together(self, steps, seconds):
        rng = random.Random(SEED)
        threads = [threading.Thread(target=self.run, args=(step.__name__, step, random.Random(rng.random())), daemon=True) for step in steps]
        for t in threads:
            t.start()
        time.sleep(seconds)
        return threads

    def end(self, threads):
        self.stopping = True
        for t in threads:
            t.join(40)
            assert not t.is_alive(), "an operation hangs"
        assert not self.wrong, f"seed {SEED}: {len(self.wrong)}:\n" + "\n".join(w[:1200] for w in self.wrong[:15])


def documents(rng, count):
    return [{"k": rng.randrange(50), "tags": [rng.randrange(5), "x"], "pad": "p" * rng.randrange(300)} for _ in range(count)]


def inserts(client, rng):
    client.crowd[rng.choice(NAMES)].insert_many(documents(rng, rng.choice([1, 1, 100])), ordered=False)


def updates(client, rng):
    client.crowd[rng.choice(NAMES)].update_many({"k": rng.randrange(50)}, {"$inc": {"k": 1}, "$set": {"tags": [rng.randrange(5)]}})


def deletes(client, rng):
    client.crowd[rng.choice(NAMES)].delete_many({"k": rng.randrange(50)})


def modifies(client, rng):
    client.crowd[rng.choice(NAMES)].find_one_and_update({"k": {"$gte": rng.randrange(50)}}, {"$inc": {"n": 1}}, sort=[("k", 1)], upsert=rng.random() < 0.2)


def transacts(client, rng):
    with client.start_session() as session:
        session.start_transaction()
        for name in rng.sample(NAMES, 2):
            client.crowd[name].insert_one({"k": 1}, session=session)
            client.crowd[name].update_one({"k": 2}, {"$inc": {"t": 1}}, session=session)
        if rng.random() < 0.8:
            session.commit_transaction()
        else:
            session.abort_transaction()


def reads(client, rng):
    coll = client.crowd[rng.choice(NAMES)]
    hint = rng.choice([None, None, "k_1", "tags_1", "k_1_tags_1"])
    for n, _ in enumerate(coll.find({"k": {"$gte": rng.randrange(50)}}, batch_size=rng.choice([2, 50]), hint=hint, sort=rng.choice([None, [("k", 1)]]))):
        if n > 300 and rng.random() < 0.01:
            break


def aggregates(client, rng):
    coll = client.crowd[rng.choice(NAMES)]
    pipeline = rng.choice(
        [
            [{"$group": {"_id": "$k", "n": {"$sum": 1}}}, {"$sort": {"n": 1}}],
            [{"$lookup": {"from": rng.choice(NAMES), "localField": "k", "foreignField": "k", "as": "j", "pipeline": [{"$limit": 3}]}}, {"$limit": 50}],
            [{"$unionWith": rng.choice(NAMES)}, {"$count": "n"}],
            [{"$sort": {"pad": 1}}, {"$limit": 200}, {"$out": "d"}],
            [{"$limit": 100}, {"$merge": {"into": "e"}}],
            [{"$collStats": {"storageStats": {}, "count": {}}}],
            [{"$indexStats": {}}],
        ]
    )
    list(coll.aggregate(pipeline, batchSize=5))


def counts(client, rng):
    coll = client.crowd[rng.choice(NAMES)]
    coll.count_documents({"k": 3})
    coll.distinct("tags")
    coll.database.command("dbStats")
    coll.database.command("collStats", coll.name)
    assert coll.database.command("validate", coll.name)["valid"]


def indexes(client, rng):
    coll = client.crowd[rng.choice(NAMES)]
    name = rng.choice(["k_1", "tags_1", "k_1_tags_1", "n_1"])
    if rng.random() < 0.5:
        coll.create_index([(p, 1) for p in name.split("_")[::2]], name=name)
    else:
        coll.drop_index(name)


def defines(client, rng):
    db, what = client.crowd, rng.random()
    name = rng.choice(NAMES)
    if what < 0.2:
        db[name].drop()
    elif what < 0.4:
        db[name].rename(rng.choice([n for n in [*NAMES, "other"] if n != name]), dropTarget=True)
    elif what < 0.5:
        db.other.rename(name, dropTarget=True)
    elif what < 0.6:
        db.command({"create": name} | ({"capped": True, "size": 1 << 20} if rng.random() < 0.3 else {}))
    elif what < 0.8:
        db.command("collMod", name, validator={"k": {"$gte": 0}}, validationLevel=rng.choice(["off", "moderate"]))
    elif what < 0.85:
        db.command("convertToCapped", name, size=1 << 20)
    elif what < 0.9:
        db.command("compact", name)
    elif what < 0.92:
        client.drop_database("crowd")
    else:
        db.list_collection_names()
        list(db[name].list_indexes())
    time.sleep(0.02)


def watches(client, rng):
    with client.crowd[rng.choice(NAMES)].watch(max_await_time_ms=20) as stream:
        for _ in range(20):
            stream.try_next()


def kills(client, rng):
    what = rng.random()
    for op in client.admin.command("currentOp")["inprog"]:
        if what < 0.5 and op.get("opid") and rng.random() < 0.3:
            client.admin.command("killOp", 1, op=op["opid"])
    if what > 0.8:
        client.admin.command("killAllSessions", [])
    elif what > 0.5:
        sessions = list(client.crowd.aggregate([{"$listLocalSessions": {}}]))
        client.admin.command("killSessions", [s["_id"] for s in rng.sample(sessions, min(3, len(sessions)))])
    time.sleep(0.1)


READERS = [reads, reads, aggregates, counts]
WRITERS = [inserts, inserts, updates, deletes, modifies, transacts]


def no_panic(s):
    with open(s.log_path) as log:
        panics = [line for line in log if json.loads(line)["msg"] == "Panic"]
    assert not panics, panics


def all_valid(client):
    for name in client.crowd.list_collection_names():
        found = client.crowd.command("validate", name, full=True)
        assert found["valid"], found


def test_everything_concurrently(tmp_path):
    print(f"SHEAF_CROWD_SEED={SEED}")
    with server(tmp_path / "data", "--wiredTigerCacheSizeGB", "0.05") as s:
        crowd = Crowd(s)
        crowd.end(crowd.together([*READERS, *WRITERS, indexes, defines, watches, kills], SECONDS))
        print(crowd.counts)
        with s.client() as client:
            all_valid(client)
            until = time.monotonic() + 20
            while client.admin.command("serverStatus")["transactions"]["currentOpen"]:
                assert time.monotonic() < until, "a transaction is left open"
                time.sleep(0.1)
        assert s.stop() == 0, s.log()
        no_panic(s)
    with server(tmp_path / "data") as s, s.client() as client:
        all_valid(client)


def long_ones(client, rng):
    list(client.crowd.a.aggregate([{"$lookup": {"from": "b", "pipeline": [{"$match": {"$expr": {"$gt": ["$k", "$$n"]}}}], "let": {"n": "$k"}, "as": "j"}}, {"$group": {"_id": None, "n": {"$sum": {"$size": "$j"}}}}]))


def waiting_ones(client, rng):
    with client.crowd.a.watch(max_await_time_ms=60_000) as stream:
        stream.try_next()


def builds(client, rng):
    client.crowd.b.create_index([("pad", 1), ("k", 1)])
    client.crowd.b.drop_index("pad_1_k_1")


def test_a_shutdown_under_load_is_clean_and_fast(tmp_path):
    """SIGTERM, or the command; endless operations do not delay it, and acknowledged writes are kept."""
    for by_command in (False, True):
        with server(tmp_path / "data") as s:
            with s.client() as client:
                client.crowd.drop_collection("kept")
                for name in ("a", "b"):
                    client.crowd[name].insert_many(documents(random.Random(1), 5000))
            acknowledged = []

            def keeps(client, rng):
                n = len(acknowledged)
                client.crowd.get_collection("kept", write_concern=WriteConcern(w=1, j=False)).insert_one({"_id": n})
                acknowledged.append(n)

            crowd = Crowd(s)
            threads = crowd.together([*READERS, *WRITERS, keeps, long_ones, waiting_ones, builds], 1.5)
            crowd.ending = True
            begin = time.monotonic()
            if by_command:
                with Raw(s.port) as raw:
                    raw.send(message({"shutdown": 1, "$db": "admin"}))
                    status = s.process.wait(timeout=30)
            else:
                status = s.stop()
            took = time.monotonic() - begin
            assert status == 0, s.log()
            print(f"ended in {took:.1f} s")
            assert took < 20, took
            crowd.end(threads)
            no_panic(s)
        with server(tmp_path / "data") as s, s.client() as client:
            found = {d["_id"] for d in client.crowd.kept.find()}
            assert set(acknowledged) <= found <= {*acknowledged, len(acknowledged)}
            all_valid(client)
            recovered = [json.loads(line) for line in s.log(1000).splitlines() if "Recovered from the log" in line]
            assert not recovered or recovered[-1]["attr"]["batches"] == 0, "a clean end leaves nothing to be read again"


def test_cursors_of_dropped_collections_and_indexes(tmp_path):
    """An index or collection is dropped while a cursor uses it: the cursor fails, or continues with its snapshot."""
    with server(tmp_path / "data") as s, s.client() as client:
        for gone in ("index", "collection", "database", "renamed"):
            client.drop_database("crowd")
            coll = client.crowd.a
            coll.insert_many({"_id": i, "k": i} for i in range(1000))
            coll.create_index("k")
            cursors = [coll.find({"k": {"$gte": 0}}, hint="k_1", batch_size=10), coll.find(batch_size=10), coll.aggregate([{"$match": {"k": {"$gte": 0}}}, {"$addFields": {"x": 1}}], batchSize=10)]
            firsts = [[next(c)["_id"] for _ in range(10)] for c in cursors]
            if gone == "index":
                coll.drop_index("k_1")
            elif gone == "collection":
                coll.drop()
            elif gone == "database":
                client.drop_database("crowd")
            else:
                coll.rename("z")
            for cursor, first in zip(cursors, firsts):
                try:
                    rest = [d["_id"] for d in cursor]
                    assert first + rest == list(range(1000)), (gone, len(rest))
                    assert gone in ("index", "renamed"), f"a cursor outlived its {gone}"
                except OperationFailure as error:
                    assert error.code in (43, 175), (gone, error)
