"""A disk that fills: clear errors, reads that continue, no acknowledged write lost, and writes again once there is space.

    a small separate file system (tmpfs) ── writers, builds, spills, oplog ──> OutOfDiskSpace (14031)
        └─ a file fills the rest, and is deleted ──> writes again, without a restart

Where mounting is not permitted, a limit on the file size (RLIMIT_FSIZE) replaces the full disk: a write beyond it fails
too.
"""

import contextlib
import itertools
import os
import resource
import subprocess
import threading
import time

import pytest
from pymongo import WriteConcern
from pymongo.errors import ConnectionFailure, OperationFailure
from servers import Server, server

JOURNALED = WriteConcern(w=1, j=True)
IDS = itertools.count()
NO_SPACE = 14031
MB = 1 << 20
# Little memory, so that writes soon reach the tree file; and an oplog that does not keep all of
# them.
FLAGS = ("--wiredTigerCacheSizeGB", "0.05")
SET = (*FLAGS, "--replSet", "rs0", "--oplogSize", "10", "--syncdelay", "1")


@contextlib.contextmanager
def small_disk(folder, megabytes):
    """A file system of this size in the folder; yields False if mounting it is not permitted."""
    os.makedirs(folder, exist_ok=True)
    r = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)], capture_output=True, text=True)
    if r.returncode:
        yield False
        return
    try:
        yield True
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


class Writer(threading.Thread):
    """Inserts until it is refused; records the acknowledged inserts."""

    def __init__(self, s, number, pad):
        super().__init__(daemon=True)
        self.s, self.number, self.pad = s, number, pad
        self.acknowledged, self.doubt, self.codes = [], None, []
        self.stopped = False

    def run(self):
        with self.s.client() as client:
            coll = client.full.get_collection("written", write_concern=JOURNALED)
            n = 0
            while not self.stopped:
                n += 1
                _id = next(IDS)
                try:
                    coll.insert_one({"_id": _id, "n": n, "pad": os.urandom(self.pad)})
                    self.acknowledged.append(_id)
                except OperationFailure as error:
                    self.codes.append(error.code)
                    time.sleep(0.02)
                except ConnectionFailure:
                    return  # killed


def fill_up(path, leave=0):
    """Fills the rest of the disk; returns the file to delete."""
    name = os.path.join(path, "stuffing")
    with open(name, "wb", buffering=0) as f:
        stat = os.statvfs(path)
        left = stat.f_bavail * stat.f_frsize - leave
        with contextlib.suppress(OSError):
            while left > 0:
                left -= f.write(b"s" * min(left, MB))
    return name


def checked(client, acknowledged):
    coll = client.full.written
    found = {d["_id"] for d in coll.find({}, {"_id": 1}, hint=[("$natural", 1)])}
    assert acknowledged <= found, f"lost {sorted(acknowledged - found)[:5]} of {len(acknowledged)}"
    for name in client.full.list_collection_names():
        result = client.full.command("validate", name, full=True)
        assert result["valid"], result


def writing(s, seconds, pad=20_000):
    """Four writers until each was refused, or for this long."""
    writers = [Writer(s, n, pad) for n in range(4)]
    for w in writers:
        w.start()
    until = time.monotonic() + seconds
    while not all(w.codes for w in writers) and time.monotonic() < until:
        time.sleep(0.05)
    return writers


def test_a_full_disk(tmp_path):
    """Filled by the data, then by another file; each time space is freed, the server continues."""
    folder = tmp_path / "disk"
    with small_disk(folder, 160) as mounted:
        if not mounted:
            return beyond_the_limit(tmp_path)
        with server(folder / "data", *SET) as s, s.client(directConnection=True) as client:
            client.admin.command("replSetInitiate", {"_id": "rs0", "members": [{"_id": 0, "host": f"127.0.0.1:{s.port}"}]})
            while not client.admin.command("hello")["isWritablePrimary"]:
                time.sleep(0.02)
            client.full.written.create_index("n")
            client.full.small.insert_many([{"_id": i, "k": str(i) * 20, "pad": "x" * 400} for i in range(5000)])
            acknowledged = set()
            for round_ in range(2):
                if round_:
                    stuffing = fill_up(folder)
                writers = writing(s, 30)
                assert all(w.codes for w in writers), "the disk did not fill"
                with pytest.raises(OperationFailure) as refused:
                    client.full.small.create_index([("k", 1), ("pad", 1)])
                assert refused.value.code == NO_SPACE, refused.value
                # Operations that need no space succeed.
                assert client.full.small.count_documents({}) == 5000
                assert client.full.small.find_one({"_id": 77})["k"] == "77" * 20
                if round_:
                    client.admin.command("setParameter", 1, internalQueryMaxBlockingSortMemoryUsageBytes=100_000)
                    for pipeline in ([{"$sort": {"pad": 1, "k": -1}}], [{"$group": {"_id": "$k", "p": {"$push": "$pad"}}}]):
                        with pytest.raises(OperationFailure) as refused:
                            list(client.full.small.aggregate(pipeline, allowDiskUse=True))
                        assert refused.value.code == NO_SPACE, refused.value
                    client.admin.command("setParameter", 1, internalQueryMaxBlockingSortMemoryUsageBytes=100 * MB)
                for w in writers:
                    w.stopped = True
                for w in writers:
                    w.join(20)
                    assert not w.is_alive()
                    assert set(w.codes) == {NO_SPACE}, set(w.codes)
                    acknowledged |= set(w.acknowledged)
                checked(client, acknowledged)
                assert s.process.poll() is None
                if round_:
                    os.unlink(stuffing)
                # Deletes free space on a full disk too.
                freed = sorted(acknowledged)[: len(acknowledged) * 2 // 3]
                client.full.get_collection("written", write_concern=JOURNALED).delete_many({"_id": {"$in": freed}})
                acknowledged -= set(freed)
                until = time.monotonic() + 30
                while True:
                    try:
                        _id = next(IDS)
                        client.full.get_collection("written", write_concern=JOURNALED).insert_one({"_id": _id})
                        acknowledged.add(_id)
                        break
                    except OperationFailure as error:
                        assert error.code == NO_SPACE, error
                        assert time.monotonic() < until, "space was freed, and writes are still refused"
                        client.full.command("compact", "written", force=True)
                        time.sleep(0.2)
                writers = None
            s.kill()
        with server(folder / "data", *SET) as s, s.client(directConnection=True) as client:
            checked(client, acknowledged)
            assert client.full.small.count_documents({}) == 5000
            temporary = folder / "data" / "_tmp"
            assert not temporary.exists() or os.listdir(temporary) == []
            assert s.stop() == 0, s.log()
        check_log(s)


def test_started_on_a_full_disk(tmp_path):
    """A server killed on a full disk starts on it, or reports why not; with space it has all data."""
    folder = tmp_path / "disk"
    with small_disk(folder, 160) as mounted:
        if not mounted:
            return
        with server(folder / "data") as s:
            writers = writing(s, 1, pad=2000)
            stuffing = fill_up(folder)
            time.sleep(0.5)
            s.kill()
            for w in writers:
                w.stopped = True
            acknowledged = set().union(*(w.acknowledged for w in writers))
        r = Server(folder / "data").spawn()
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                r.process.wait(3)
            if r.process.returncode is None:
                with r.client() as client:
                    checked(client, acknowledged)
                    with pytest.raises(OperationFailure) as refused:
                        client.full.written.insert_one({"_id": "x"})
                    assert refused.value.code == NO_SPACE
            else:
                assert r.process.returncode == 100, r.log()
                assert "space" in r.log(), r.log()
        finally:
            if r.process.poll() is None:
                r.kill()
        check_log(r)
        os.unlink(stuffing)
        with server(folder / "data") as s, s.client() as client:
            checked(client, acknowledged)
            client.full.written.insert_one({"_id": "x"})


def beyond_the_limit(tmp_path):
    """No file may grow beyond the limit: the engine's file does not, and the process keeps running."""
    limit = 80 * MB
    s = Server(tmp_path / "limited", *FLAGS)
    s.preexec = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    s.start()
    try:
        writers = writing(s, 60, pad=200_000)
        for w in writers:
            w.stopped = True
        for w in writers:
            w.join(30)
        acknowledged = set().union(*(w.acknowledged for w in writers))
        assert s.process.poll() is None, s.log()
        assert all(w.codes for w in writers), len(acknowledged)
        print({c for w in writers for c in w.codes})
        with s.client() as client:
            checked(client, acknowledged)
        s.kill()
        s.preexec = None
        s.start()
        with s.client() as client:
            checked(client, acknowledged)
            client.full.written.insert_one({"_id": "x"})
        check_log(s)
    finally:
        if s.process.poll() is None:
            s.kill()


def test_a_limit_on_the_size_of_files(tmp_path):
    beyond_the_limit(tmp_path)


def check_log(s):
    with open(s.log_path) as log:
        panics = [line for line in log if '"Panic"' in line]
    assert not panics, panics
