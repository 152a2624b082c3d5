"""Backups of a running server: consistent, complete or refused, under writers, kills and full disks.

    writers, transfers, DDL ──> server ── createBackup ──> folder ──> sheafd --dbpath, --verify
                                   x SIGKILL in the middle    └ incomplete: refused

Transactions move amounts between accounts in two collections, and numbers are inserted into a third in order. In a
consistent backup the total is unchanged, each move has its receipt, and no number below the last is missing.
SHEAF_BACKUP_ROUNDS (4) kills; SHEAF_BACKUP_SEED repeats a run.
"""

import contextlib
import json
import os
import random
import shutil
import subprocess
import threading
import time

import pytest
from pymongo import WriteConcern
from pymongo.errors import ConnectionFailure, OperationFailure, ServerSelectionTimeoutError
from servers import BINARY, Server, free_port, server
from test_full_disk import fill_up, small_disk
from test_kill_mix import running

ROUNDS = int(os.environ.get("SHEAF_BACKUP_ROUNDS", "4"))
SEED = int(os.environ.get("SHEAF_BACKUP_SEED", str(random.randrange(1 << 30))))
JOURNALED = WriteConcern(w=1, j=True)
FLAGS = ("--wiredTigerCacheSizeGB", "0.05", "--syncdelay", "1")
ACCOUNTS = 10
EACH = 1000
NO_SPACE, CANNOT_BACKUP = 14031, 268


class Work(threading.Thread):
    """One of the clients, until it is stopped or the server dies."""

    def __init__(self, s, step):
        super().__init__(daemon=True)
        self.s, self.step = s, step
        self.done, self.error, self.stopped, self.codes = 0, None, False, set()

    def run(self):
        try:
            with self.s.client(serverSelectionTimeoutMS=1000) as client:
                db = client.get_database("bank", write_concern=JOURNALED)
                while not self.stopped:
                    try:
                        self.step(self, client, db)
                        self.done += 1
                    except ServerSelectionTimeoutError:
                        # No request was sent. A busy machine is no reason to stop.
                        if self.s.process.poll() is not None:
                            return
                    except OperationFailure as error:
                        # Transfers conflict with each other.
                        if error.code != 112:
                            self.codes.add(error.code)
                            time.sleep(0.01)
        except ConnectionFailure:
            pass  # killed
        except Exception as error:
            self.error = error


def mover(rng):
    def step(self, client, db):
        a, b = rng.sample(range(ACCOUNTS), 2)
        amount = rng.randrange(1, 50)
        with client.start_session() as session, session.start_transaction(write_concern=JOURNALED):
            db.accounts.update_one({"_id": a}, {"$inc": {"amount": -amount, "moves": 1}}, session=session)
            db.accounts.update_one({"_id": b}, {"$inc": {"amount": amount, "moves": 1}}, session=session)
            db.receipts.insert_one({"from": a, "to": b, "amount": amount}, session=session)

    return step


def counter():
    def step(self, client, db):
        db.numbers.insert_one({"_id": self.done, "pad": os.urandom(50)})

    return step


def definer(rng):
    """Collections and indexes that are created and dropped: each is in the backup completely or not at all."""

    def step(self, client, db):
        name = f"passing{rng.randrange(3)}"
        what = rng.randrange(4)
        if what == 0:
            db.drop_collection(name)
        elif what == 1 and name not in db.list_collection_names():
            with client.start_session() as session, session.start_transaction(write_concern=JOURNALED):
                db[name].insert_many([{"_id": i, "a": i % 7} for i in range(50)], session=session)
        elif what == 2:
            db.still.create_index([(rng.choice("abc"), 1)])
        else:
            db.still.drop_indexes()

    return step


def prepare(client):
    db = client.get_database("bank", write_concern=JOURNALED)
    db.accounts.insert_many([{"_id": i, "amount": EACH, "moves": 0} for i in range(ACCOUNTS)])
    db.receipts.create_index("from")
    db.still.insert_many([{"_id": i, "a": i, "b": i % 10, "c": str(i), "pad": os.urandom(3000)} for i in range(3000)])


@contextlib.contextmanager
def working(s, rng, numbers=0):
    """Movers, a counter that continues from `numbers`, and DDL."""
    steps = [mover(rng), mover(random.Random(rng.random())), counter(), definer(random.Random(rng.random()))]
    clients = [Work(s, step) for step in steps]
    clients[2].done = numbers
    for c in clients:
        c.start()
    try:
        yield clients
    finally:
        for c in clients:
            c.stopped = True
        for c in clients:
            c.join(60)
            assert not c.is_alive() and c.error is None, c.error


def one_moment(client):
    """Checks that the server's data is consistent; returns how many numbers it has."""
    db = client.bank
    amounts = {a["_id"]: a["amount"] for a in db.accounts.find()}
    assert sum(amounts.values()) == ACCOUNTS * EACH, amounts
    sums = dict.fromkeys(range(ACCOUNTS), EACH)
    moves = 0
    for r in db.receipts.find(hint=[("$natural", 1)]):
        sums[r["from"]] -= r["amount"]
        sums[r["to"]] += r["amount"]
        moves += 2
    assert amounts == sums
    assert sum(a["moves"] for a in db.accounts.find()) == moves
    numbers = sorted(d["_id"] for d in db.numbers.find({}, {"_id": 1}))
    assert numbers == list(range(len(numbers)))
    assert db.still.count_documents({}) == 3000
    for name in db.list_collection_names():
        if name.startswith("passing"):
            assert db[name].count_documents({}) in (0, 50), name
        found = db.command("validate", name, full=True)
        assert found["valid"] and not found["errors"], found
    return len(numbers)


def ended_by_itself(folder, *words):
    """A server that is expected to end: its status, and its log's entries."""
    command = [BINARY, "--dbpath", str(folder), "--port", str(free_port()), "--nounixsocket", *words]
    r = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    return r.returncode, [json.loads(line) for line in r.stdout.splitlines() if line.startswith("{")]


def opens_whole(folder):
    status, log = ended_by_itself(folder, "--verify")
    assert status == 0, log
    with server(folder, *FLAGS) as copy:
        with copy.client() as client:
            count = one_moment(client)
            client.bank.numbers.insert_one({"_id": count})
        assert copy.stop() == 0, copy.log()
    return count


def test_a_backup_is_consistent_and_opens(tmp_path):
    rng = random.Random(SEED)
    print(f"SHEAF_BACKUP_SEED={SEED}")
    with server(tmp_path / "data", *FLAGS) as s, s.client() as client:
        prepare(client)
        between = []
        with working(s, rng) as clients:
            for n in range(2):
                until = time.monotonic() + 60
                before = [c.done for c in clients]
                while any(c.done < b + 3 for c, b in zip(clients, before)) and time.monotonic() < until:
                    time.sleep(0.01)
                acknowledged = clients[2].done
                answer = client.admin.command("createBackup", backupDir=str(tmp_path / "deep" / f"copy{n}"))
                assert answer["bytes"] > 9_000_000, answer
                between.append((acknowledged, clients[2].done + 1))
            assert not any(c.codes for c in clients), [c.codes for c in clients]
        one_moment(client)
    for n, (least, most) in enumerate(between):
        # It contains all writes acknowledged before it began, and none begun after it ended.
        count = opens_whole(tmp_path / "deep" / f"copy{n}")
        assert least <= count <= most, (least, count, most)


def test_what_a_backup_refuses(tmp_path):
    with server(tmp_path / "data") as s, s.client() as client:
        client.d.c.insert_one({"_id": 1})
        full = tmp_path / "full"
        full.mkdir()
        (full / "mine").write_text("kept")
        for words, code in [
            ({"backupDir": "relative"}, 30),
            ({"backupDir": str(full)}, CANNOT_BACKUP),
            ({"backupDir": str(full / "mine")}, CANNOT_BACKUP),
            ({"backupDir": "/proc/none"}, CANNOT_BACKUP),
            ({"backupDir": 5}, 14),
            ({}, 40414),
            ({"backupDir": str(tmp_path / "a"), "archive": "a.tar"}, 40415),
        ]:
            with pytest.raises(OperationFailure) as refused:
                client.admin.command("createBackup", 1, **words)
            assert refused.value.code == code, (words, refused.value)
        assert (full / "mine").read_text() == "kept" and os.listdir(full) == ["mine"]
        with pytest.raises(OperationFailure) as refused:
            client.d.command("createBackup", backupDir=str(tmp_path / "a"))
        assert refused.value.code == 13, refused.value
        client.d.c.insert_one({"_id": 2})
    with server(tmp_path / "other", "--storageEngine", "redb") as s, s.client() as client:
        with pytest.raises(OperationFailure) as refused:
            client.admin.command("createBackup", backupDir=str(tmp_path / "a"))
        assert refused.value.code == 115, refused.value


def test_a_server_killed_during_a_backup(tmp_path):
    """The original has everything; the incomplete backup is refused as such, by a start and by --verify, and never opens with less data."""
    print(f"SHEAF_BACKUP_SEED={SEED}")
    halves = 0
    s = Server(tmp_path / "data", *FLAGS)
    copy = tmp_path / "copy"
    for round_ in range(ROUNDS):
        rng = random.Random(SEED + round_)
        shutil.rmtree(copy, ignore_errors=True)
        with running(s):
            with s.client() as client:
                if round_ == 0:
                    prepare(client)
                    client.bank.more.insert_many([{"pad": os.urandom(3000)} for _ in range(10_000)])
                known = one_moment(client)
            with working(s, rng, known) as clients:
                backup = threading.Thread(target=backup_until_killed, args=(s, copy), daemon=True)
                backup.start()
                until = time.monotonic() + 30
                while not (copy / "sheaf").exists() and time.monotonic() < until:
                    time.sleep(0.001)
                time.sleep(rng.random() * 0.2)
                s.kill()
                backup.join(20)
        left = os.listdir(copy / "sheaf") if (copy / "sheaf").exists() else []
        if "backup.unfinished" in left:
            halves += 1
            for words in ((), ("--verify",), ("--repair",)):
                status, log = ended_by_itself(copy, *words)
                assert status == 100, (status, log)
                said = [e["attr"]["error"] for e in log if e["msg"] == "The server cannot start"]
                assert said and "contains an incomplete backup" in said[0] and str(copy) in said[0], log
            # It is not overwritten either.
            assert "backup.unfinished" in os.listdir(copy / "sheaf")
        elif left:
            opens_whole(copy)
        with running(s), s.client() as client:
            assert one_moment(client) >= clients[2].done
    assert halves or ROUNDS < 4, "no kill met a backup"
    print(f"{halves} halves of {ROUNDS}")


def backup_until_killed(s, folder):
    with contextlib.suppress(ConnectionFailure), s.client() as client:
        client.admin.command("createBackup", backupDir=str(folder))


def test_a_backup_that_is_killed_by_its_operator(tmp_path):
    """killOp and maxTimeMS end it, and leave the folder empty."""
    with server(tmp_path / "data", *FLAGS) as s, s.client() as client:
        prepare(client)
        client.bank.more.insert_many([{"pad": os.urandom(3000)} for _ in range(8_000)])
        codes = []

        def backup():
            try:
                client.admin.command("createBackup", backupDir=str(tmp_path / "copy"))
            except OperationFailure as error:
                codes.append(error.code)

        thread = threading.Thread(target=backup, daemon=True)
        thread.start()
        until = time.monotonic() + 30
        while thread.is_alive() and not codes and time.monotonic() < until:
            for op in client.admin.aggregate([{"$currentOp": {}}]):
                if "createBackup" in op.get("command", {}):
                    client.admin.command("killOp", op=op["opid"])
        thread.join(30)
        assert codes == [11601], codes
        assert os.listdir(tmp_path / "copy") == []
        with pytest.raises(OperationFailure) as ended:
            client.admin.command("createBackup", backupDir=str(tmp_path / "copy"), maxTimeMS=1)
        assert ended.value.code == 50, ended.value
        assert os.listdir(tmp_path / "copy") == []
        client.admin.command("createBackup", backupDir=str(tmp_path / "copy"))
        assert s.process.poll() is None
        client.bank.numbers.insert_one({"_id": 0})
    opens_whole(tmp_path / "copy")


def test_a_backup_onto_a_full_disk(tmp_path):
    """It fails with a clear error and leaves nothing; the server continues, on another disk and on the same."""
    rng = random.Random(SEED)
    with small_disk(tmp_path / "small", 90) as mounted:
        if not mounted:
            return
        with server(tmp_path / "data", *FLAGS) as s, s.client() as client:
            prepare(client)
            client.bank.more.insert_many([{"pad": os.urandom(3000)} for _ in range(8_000)])
            with working(s, rng) as clients:
                with pytest.raises(OperationFailure) as refused:
                    client.admin.command("createBackup", backupDir=str(tmp_path / "small" / "copy"))
                assert refused.value.code == NO_SPACE, refused.value
                assert os.listdir(tmp_path / "small" / "copy") == []
                # So full that even the first file does not fit.
                fill_up(tmp_path / "small")
                with pytest.raises(OperationFailure) as refused:
                    client.admin.command("createBackup", backupDir=str(tmp_path / "small" / "copy"))
                assert refused.value.code == NO_SPACE, refused.value
                done = [c.done for c in clients]
                until = time.monotonic() + 30
                while any(c.done <= d for c, d in zip(clients, done)) and time.monotonic() < until:
                    time.sleep(0.01)
                assert all(c.done > d for c, d in zip(clients, done))
                assert not any(c.codes for c in clients), [c.codes for c in clients]
            one_moment(client)
    with small_disk(tmp_path / "same", 170) as mounted:
        assert mounted
        with server(tmp_path / "same" / "data", *FLAGS) as s, s.client() as client:
            prepare(client)
            client.bank.more.insert_many([{"pad": os.urandom(3000)} for _ in range(8_000)])
            client.admin.command("fsync")
            with pytest.raises(OperationFailure) as refused:
                client.admin.command("createBackup", backupDir=str(tmp_path / "same" / "copy"))
            assert refused.value.code == NO_SPACE, refused.value
            assert os.listdir(tmp_path / "same" / "copy") == []
            until = time.monotonic() + 30
            while True:
                try:
                    client.bank.get_collection("numbers", write_concern=JOURNALED).insert_one({"_id": 0})
                    break
                except OperationFailure as error:
                    assert error.code == NO_SPACE, error
                    assert time.monotonic() < until, "the space is free again, and writes are still refused"
                    time.sleep(0.1)
            one_moment(client)
