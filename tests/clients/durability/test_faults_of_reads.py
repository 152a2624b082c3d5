"""Failing reads of data files and temporary files: an error of the reader only."""

import os
import random

import pytest
from fault_clients import FAILED, FLAGS, NO_SPACE, SEED, accepted, after_all, all_valid, clients_of, faulty, prepare, refused, run_until, run_until_read_only, stop
from faults import EIO, ENOSPC, ERROR, HALF, LOG, OPEN, READ, SYNC, TEMPORARY, TORN, TREE, WRITE
from pymongo.errors import OperationFailure
from servers import Server


def test_reads_that_fail(shim, tmp_path):
    """More data than memory, on a disk with unreadable parts: the affected queries fail, the others are correct."""
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
                        assert not faults.hits(), f"{name}: a read failed without an error"
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
            # All reads fail: queries on cached data succeed, and later everything does again.
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


def test_reads_that_fail_of_a_mapped_file(shim, tmp_path):
    """Less data than memory: pages are read through the mapping, and an unreadable page is an error of its reader."""
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
                # After a restart no page has been accessed.
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


def test_temporary_files_that_fail(shim, tmp_path):
    """Sorts, groups and index builds that spill: the operation fails with a clear error, leaves no file, and affects no other."""
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
                            assert not faults.hits(), f"{name}: a temporary file failed without an error"
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


def test_backups_of_a_failing_disk(shim, tmp_path):
    """A backup that cannot read fails and leaves nothing; that of a read-only server is complete."""
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
