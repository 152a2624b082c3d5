"""A start on a failing disk, at each of its calls in turn. It fails with a reason or serves, and damages nothing."""

import shutil
import time

import pytest
from fault_clients import FLAGS, JOURNALED, all_valid, checked, faulty, prepare
from faults import EIO, ENOSPC, ERROR, FOLDER, LENGTH, LOG, OPEN, OTHER, READ, RENAME, SPARE, SYNC, TORN, TREE, WRITE, Faults
from servers import Server


def started(s):
    """Whether the server starts; otherwise it has exited with a status and a reason."""
    s.log_path = f"{s.folder}.{time.monotonic_ns()}.log"
    try:
        s.start()
        return True
    except AssertionError:
        with open(s.log_path) as log:
            text = log.read()
        assert s.process.poll() == 100, (s.process.poll(), text[-2000:])
        assert "The server cannot start" in text and '"Panic"' not in text, text[-2000:]
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
    """Each call of a start that replays the log fails in turn: it refuses or serves, and damages nothing."""
    ops, action, error = STARTS[what]
    original = tmp_path / "original"
    documents = {}
    # More log than the memory of the starts holds: part of it goes into the tree during the replay.
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
                # Only the start is tested.
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
