"""kill -9 at random times loses no write acknowledged with j: true.

    writers ── insert, update, delete with {w: 1, j: true} ──> server ──x SIGKILL
       │ after each reply                                         │
       └─> what must hold from now on      same folder, new process ─> compare

Each thread owns its documents, so its expected state is exact: the operation in flight
when the server died may or may not have happened, every earlier one must have. SHEAF_KILL_ROUNDS (5) kills; SHEAF_KILL_SEED repeats a run.
"""

import hashlib
import os
import random
import threading
import time

import pytest
from pymongo import MongoClient, WriteConcern
from pymongo.errors import OperationFailure, PyMongoError
from servers import server

ROUNDS = int(os.environ.get("SHEAF_KILL_ROUNDS", "5"))
SEED = int(os.environ.get("SHEAF_KILL_SEED", str(random.randrange(1 << 30))))
JOURNALED = WriteConcern(w=1, j=True)


def checked(_id, version, pad):
    """A document with a checksum."""
    body = f"{_id}/{version}/" + "x" * pad
    return {"_id": _id, "version": version, "group": version % 7, "tags": [version % 3, version % 5], "body": body, "sum": hashlib.md5(body.encode()).hexdigest()}


class Writer(threading.Thread):
    """A client that writes until its server dies, and its acknowledged writes."""

    def __init__(self, uri, name, rng, known):
        super().__init__(daemon=True)
        self.uri, self.name_, self.rng = uri, name, rng
        self.known = known  # _id -> version that must be there, None for deleted
        self.doubtful = None  # (_id, version it would have now)
        self.acknowledged = 0

    def run(self):
        with MongoClient(self.uri, serverSelectionTimeoutMS=500, retryWrites=False) as client:
            coll = client.durable.get_collection("written", write_concern=JOURNALED)
            version = max((v for v in self.known.values() if v), default=0)
            try:
                while True:
                    version += 1
                    alive = [k for k, v in self.known.items() if v is not None]
                    what = self.rng.random()
                    if what < 0.6 or len(alive) < 3:
                        _id = f"{self.name_}-{version}"
                        self.doubtful = (_id, version)
                        coll.insert_one(checked(_id, version, self.rng.randrange(2000)))
                    elif what < 0.9:
                        _id = self.rng.choice(alive)
                        self.doubtful = (_id, version)
                        coll.replace_one({"_id": _id}, checked(_id, version, self.rng.randrange(2000)))
                    else:
                        _id = self.rng.choice(alive)
                        self.doubtful = (_id, None)
                        coll.delete_one({"_id": _id})
                    self.known[_id] = self.doubtful[1]
                    self.doubtful = None
                    self.acknowledged += 1
            except PyMongoError:
                pass  # the server was killed, as expected


def verify(coll, writers):
    """Compares the collection with the acknowledged writes of every writer, and validates its indexes."""
    found = {d["_id"]: d for d in coll.find(hint=[("$natural", 1)])}
    for d in found.values():
        assert hashlib.md5(d["body"].encode()).hexdigest() == d["sum"], f"{d['_id']} is torn"
    expected = set()
    for w in writers:
        for _id, version in w.known.items():
            there = found[_id]["version"] if _id in found else None
            accepted = {version}
            if w.doubtful and w.doubtful[0] == _id:
                accepted.add(w.doubtful[1])
            assert there in accepted, f"{_id}: found {there}, acknowledged {version}"
            w.known[_id] = there
            if there is not None:
                expected.add(_id)
        if w.doubtful and w.doubtful[0] not in w.known:  # an insert without a reply
            if w.doubtful[0] in found:
                w.known[w.doubtful[0]] = w.doubtful[1]
                expected.add(w.doubtful[0])
        w.doubtful = None
    assert set(found) == expected
    for keys in coll.index_information():
        by_index = [d["_id"] for d in coll.find({}, {"_id": 1}, hint=keys)]
        assert len(by_index) == len(set(by_index)) == len(found), f"index {keys} holds {len(by_index)} of {len(found)}"
    for group in range(7):
        by_index = {d["_id"] for d in coll.find({"group": group}, hint="group_1_version_-1")}
        assert by_index == {_id for _id, d in found.items() if d["group"] == group}
    assert coll.estimated_document_count() == len(found)
    validated = coll.database.command("validate", coll.name)
    assert validated["valid"], validated


@pytest.mark.parametrize("engine", ["sheaf", "redb"])
def test_acknowledged_writes_survive(tmp_path, engine):
    print(f"SHEAF_KILL_SEED={SEED}")
    rng = random.Random(SEED)
    known = [{} for _ in range(4)]
    total = 0
    for round_ in range(ROUNDS + 1):
        with server(tmp_path / "data", "--storageEngine", engine) as s:
            with s.client() as client:
                coll = client.durable.written
                if round_ == 0:
                    coll.create_index([("group", 1), ("version", -1)])
                    coll.create_index("tags")
                    coll.create_index("sum", unique=True)
                else:
                    verify(coll, writers)
            if round_ == ROUNDS:
                break
            writers = [Writer(s.uri, f"w{n}", random.Random(rng.random()), known[n]) for n in range(4)]
            for w in writers:
                w.start()
            # Each writer must be acknowledged at least once; then the time is random.
            until = time.monotonic() + 20
            while any(w.acknowledged == 0 for w in writers) and time.monotonic() < until:
                time.sleep(0.01)
            time.sleep(rng.uniform(0.05, 0.6))
            s.kill()
            for w in writers:
                w.join(20)
                assert not w.is_alive()
                assert w.acknowledged > 0, s.log()
            total += sum(w.acknowledged for w in writers)
    print(f"{total} acknowledged writes over {ROUNDS} kills")


def test_a_large_batch_is_whole_or_a_prefix(tmp_path):
    """An interrupted ordered insert_many leaves a prefix of its documents."""
    rng = random.Random(SEED)
    with server(tmp_path / "data") as s:
        with s.client() as client:
            client.durable.batch.create_index("n")
        sent = threading.Event()

        def load():
            with MongoClient(s.uri, serverSelectionTimeoutMS=500, retryWrites=False) as c:
                sent.set()
                try:
                    c.durable.get_collection("batch", write_concern=JOURNALED).insert_many({"_id": i, "n": i, "pad": "x" * 500} for i in range(100_000))
                except PyMongoError:
                    pass

        t = threading.Thread(target=load, daemon=True)
        t.start()
        sent.wait()
        time.sleep(rng.uniform(0.1, 0.8))
        s.kill()
        t.join(20)
    with server(tmp_path / "data") as s, s.client() as client:
        coll = client.durable.batch
        n = coll.count_documents({}, hint=[("$natural", 1)])
        assert [d["_id"] for d in coll.find({}, {"_id": 1}).sort("_id", 1)] == list(range(n))
        assert coll.count_documents({"n": {"$gte": 0}}, hint="n_1") == n


def test_kill_during_ddl(tmp_path):
    """DDL that a kill interrupts is undone or complete after the restart."""
    rng = random.Random(SEED + 1)
    for round_ in range(max(2, ROUNDS // 2)):
        with server(tmp_path / "data") as s:
            with s.client() as client:
                if round_ == 0:
                    client.durable.base.insert_many({"_id": i, "k": i % 100, "t": [i % 7, i % 11]} for i in range(20_000))

            def change():
                with MongoClient(s.uri, serverSelectionTimeoutMS=500, retryWrites=False) as c:
                    db = c.durable
                    try:
                        while True:
                            db.base.create_index([("k", 1), ("t", 1)])
                            db.other.insert_many({"_id": i} for i in range(100))
                            db.other.create_index("x")
                            db.other.rename("renamed", dropTarget=True)
                            db.base.drop_index("k_1_t_1")
                            db.renamed.drop()
                    except PyMongoError:
                        pass

            t = threading.Thread(target=change, daemon=True)
            t.start()
            time.sleep(rng.uniform(0.3, 1.0))
            s.kill()
            t.join(20)
            assert not t.is_alive()
        with server(tmp_path / "data") as s, s.client() as client:
            db = client.durable
            assert db.base.count_documents({}) == 20_000
            for name in db.list_collection_names():
                assert db.command("validate", name)["valid"], name
                documents = db[name].count_documents({})
                for index in db[name].index_information():
                    by_index = {d["_id"] for d in db[name].find({}, {"_id": 1}, hint=index)}
                    assert len(by_index) == documents, f"{name}.{index}"
                if name != "base":
                    assert 0 <= documents <= 100
            # Every name can be used again.
            db.base.create_index([("k", 1), ("t", 1)])
            assert db.base.count_documents({"k": 5}, hint="k_1_t_1") == 200
            db.base.drop_index("k_1_t_1")


def test_unjournaled_writes_are_lost_only_at_the_end(tmp_path):
    """Without j, only the newest writes are missing after a kill."""
    acknowledged = []
    with server(tmp_path / "data") as s:

        def load():
            with MongoClient(s.uri, serverSelectionTimeoutMS=500, retryWrites=False) as c:
                coll = c.durable.get_collection("fast", write_concern=WriteConcern(w=1, j=False))
                try:
                    while True:
                        coll.insert_one({"_id": len(acknowledged)})
                        acknowledged.append(time.monotonic())
                except PyMongoError:
                    pass

        t = threading.Thread(target=load, daemon=True)
        t.start()
        time.sleep(3)
        s.kill()
        killed = time.monotonic()
        t.join(20)
    with server(tmp_path / "data") as s, s.client() as client:
        ids = [d["_id"] for d in client.durable.fast.find(sort=[("_id", 1)])]
    assert ids == list(range(len(ids)))
    # Writes are flushed after 100 ms; a busy machine may be late, so the check allows two seconds.
    old_enough = sum(1 for at in acknowledged if at < killed - 2)
    assert old_enough > 0
    assert len(ids) >= old_enough


@pytest.mark.parametrize("batch", [1, 50])
def test_clean_stop_keeps_everything(tmp_path, batch):
    with server(tmp_path / "data") as s:
        with s.client() as client:
            coll = client.durable.get_collection("kept", write_concern=WriteConcern(w=1, j=False))
            coll.create_index("n", unique=True)
            for start in range(0, 500, batch):
                coll.insert_many({"_id": i, "n": i} for i in range(start, start + batch))
            coll.delete_many({"_id": {"$gte": 490}})
            before = client.durable.command("collStats", "kept")
        assert s.stop() == 0, s.log()
        with open(s.log_path) as log:
            assert "panicked" not in log.read()
    with server(tmp_path / "data") as s, s.client() as client:
        coll = client.durable.kept
        assert [d["_id"] for d in coll.find(sort=[("n", 1)])] == list(range(490))
        assert list(coll.index_information()) == ["_id_", "n_1"]
        assert coll.count_documents({"n": {"$gte": 0}}, hint="n_1") == 490
        after = client.durable.command("collStats", "kept")
        assert after["count"] == before["count"] == 490
        with pytest.raises(OperationFailure):
            coll.insert_one({"_id": "again", "n": 5})
        # Record ids increase: a new document is last in natural order.
        coll.insert_one({"_id": "new", "n": -1})
        assert list(coll.find(hint=[("$natural", -1)], limit=1))[0]["_id"] == "new"


def test_clean_stop_while_clients_write(tmp_path):
    rng = random.Random(SEED)
    with server(tmp_path / "data") as s:
        with s.client() as client:
            client.durable.written.create_index([("group", 1), ("version", -1)])
        writers = [Writer(s.uri, f"w{n}", random.Random(rng.random()), {}) for n in range(4)]
        for w in writers:
            w.start()
        time.sleep(0.5)
        assert s.stop() == 0, s.log()
        for w in writers:
            w.join(20)
            assert not w.is_alive()
    with server(tmp_path / "data") as s, s.client() as client:
        verify(client.durable.written, writers)
