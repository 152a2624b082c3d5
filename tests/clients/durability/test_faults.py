"""A disk that fails under a running server: clear errors, reads that continue, and no acknowledged write lost.

A permanent failure ends all writing until the next start; a temporary one does not. See fault_clients.py.
SHEAF_FAULT_ROUNDS (6) rounds of faults at random; SHEAF_FAULT_SEED repeats a run.
"""

import contextlib
import os
import random
import shutil
import threading
import time
import uuid

import bson
import pytest
from bson.int64 import Int64
from fault_clients import FAILED, FLAGS, JOURNALED, NO_SPACE, SEED, accepted, after_all, all_valid, clients_of, code_of, faulty, is_read_only, prepare, refused, run_until, run_until_read_only, stop
from faults import EIO, ENOSPC, ERROR, FOLDER, HALF, LENGTH, LOG, LOST, OPEN, READ, RENAME, SPARE, SYNC, TORN, TREE, WRITE
from pymongo import WriteConcern
from pymongo.errors import ConnectionFailure, OperationFailure, PyMongoError
from pymongo.read_concern import ReadConcern
from raw import Raw
from test_kill_mix import initiated

ROUNDS = int(os.environ.get("SHEAF_FAULT_ROUNDS", "6"))


# Calls that fail permanently from a certain call on.
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
def test_permanent_failures(shim, tmp_path, what):
    """A write or sync that fails ends all writing, immediately and permanently; only a restart allows writes again."""
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
            # A disk that works again after a failure is not trusted.
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


# Temporary failures: only the affected operations fail. `harmless`: not even those.
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
def test_temporary_failures(shim, tmp_path, what):
    """A full disk, and a read that failed, do not end writing: once the cause is removed, writes continue without a restart."""
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
                # A log file is long: most of one is written before the next is needed.
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


@pytest.mark.parametrize("skip", [0, 3, 9])
def test_reported_writes_are_kept(shim, tmp_path, skip):
    """A sync of the log fails and loses: change streams and majority reads have returned nothing that is lost by it."""
    reported, streamed, ended = set(), set(), []
    with faulty(shim, tmp_path / "data", *FLAGS, "--replSet", "rs0", losing=True) as (s, faults):
        with s.client(directConnection=True) as client:
            initiated(client, s.port)
            client.faulty.create_collection("reported")
        local = {"directConnection": True}

        def write():
            with s.client(**local) as client:
                coll = client.faulty.get_collection("reported", write_concern=WriteConcern(w=1, j=False))
                for i in range(1_000_000):
                    coll.insert_one({"_id": i})

        def read():
            with s.client(**local) as client:
                coll = client.faulty.get_collection("reported", read_concern=ReadConcern("majority"))
                while True:
                    reported.update(d["_id"] for d in coll.find({"_id": {"$gte": len(reported) - 5}}))

        def watch():
            with s.client(**local) as client, client.faulty.reported.watch(max_await_time_ms=100) as stream:
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
        while not (reported and streamed) and time.monotonic() < until:
            time.sleep(0.01)
        faults.arm(SYNC, LOG, LOST, EIO, skip=skip)
        with s.client(**local) as client:
            run_until_read_only(client)
        time.sleep(0.3)
        s.kill()
        for t in threads:
            t.join(30)
            assert not t.is_alive()
        assert reported and streamed
        assert set(ended) <= {FAILED, "killed"}, ended
        s.environment = {}
        s.start()
        with s.client(**local) as client:
            found = {d["_id"] for d in client.faulty.reported.find()}
            assert reported <= found, (len(reported), len(found), sorted(reported - found)[:5])
            assert streamed <= found, (len(streamed), len(found), sorted(streamed - found)[:5])
            assert found == set(range(len(found)))


def test_a_commit_with_an_unknown_outcome(shim, tmp_path):
    """The sync of a commit fails: repeated, it returns the same error, and after a restart the outcome."""
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


def test_an_index_build_that_cannot_be_rolled_back(shim, tmp_path):
    """The log fails while an index is built: the next command for the same index fails instead of waiting for it."""
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


def test_faults_at_random(shim, tmp_path):
    """Any fault, temporary or permanent, at any call: acknowledged writes are kept, and none is partial."""
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
