"""Data files damaged at random: a server that starts on them has the right data or reports where it is damaged.

    a folder with collections of every kind ── one to three damages ──> start, --verify, --repair, start
        start      refuses with file and position; or serves, and each reply is right or an error
        --verify   reports the damage, or that the files are intact, and then they are
        --repair   saves what can be read: no document that never existed, indexes consistent with the documents

SHEAF_DAMAGE_ROUNDS (12) rounds; SHEAF_DAMAGE_SEED repeats a run.
"""

import datetime
import hashlib
import json
import os
import random
import shutil
import subprocess

from bson import encode
from pymongo import WriteConcern
from pymongo.errors import OperationFailure
from servers import BINARY, Server, free_port, server

ROUNDS = int(os.environ.get("SHEAF_DAMAGE_ROUNDS", "12"))
SEED = int(os.environ.get("SHEAF_DAMAGE_SEED", str(random.randrange(1 << 30))))
JOURNALED = WriteConcern(w=1, j=True)
WHEN = datetime.datetime(2024, 1, 1)
# Errors that report damaged or unreadable data.
DAMAGED = {"DataCorruptionDetected", "UnrecoverableStorageError", "InternalError", "FileStreamFailed"}


def checked(n, version=0):
    """A document that shows whether it is one of ours."""
    body = f"{n}/{version}/" + "x" * (n * 37 % 900)
    return {"n": n, "k": n % 17, "version": version, "body": body, "sum": hashlib.md5(body.encode()).hexdigest()}


def fill(folder, crash):
    """Collections of each kind; part of them in the tree, the newest only in the log if the server `crash`es."""
    with server(folder) as s:
        with s.client() as client:
            # A change stream enables the oplog.
            client.hurt.plain.watch().close()
            db = client.get_database("hurt", write_concern=JOURNALED)
            db.create_collection("clustered", clusteredIndex={"key": {"_id": 1}, "unique": True})
            db.create_collection("capped", capped=True, size=1 << 20)
            db.create_collection("measured", timeseries={"timeField": "t", "metaField": "m"})
            db.create_collection("view", viewOn="plain", pipeline=[{"$match": {"k": 1}}])
            db.create_collection("ruled", validator={"n": {"$gte": 0}})
            db.expiring.create_index("at", expireAfterSeconds=10**9)
            db.plain.create_index([("k", 1), ("n", -1)])
            db.plain.create_index("sum", unique=True)
            for name in ("plain", "clustered", "capped", "ruled", "expiring"):
                db[name].insert_many([{"_id": n} | checked(n) for n in range(400)])
            db.measured.insert_many([{"_id": n, "t": WHEN + datetime.timedelta(seconds=n), "m": n % 3, "v": n} for n in range(400)])
            db.large.insert_one({"_id": 0} | checked(0) | {"large": "y" * 3_000_000})
            client.admin.command("fsync")
            for name in ("plain", "clustered", "ruled"):
                for n in range(400, 440):
                    db[name].insert_one({"_id": n} | checked(n))
                for n in range(0, 40):
                    db[name].replace_one({"_id": n}, checked(n, 1))
                db[name].delete_many({"_id": {"$gte": 300, "$lt": 320}})
        if crash:
            s.kill()
        else:
            assert s.stop() == 0, s.log()


NUMBERS = {"plain": set(range(440)) - set(range(300, 320)), "capped": set(range(400)), "expiring": set(range(400)), "large": {0}, "measured": set(range(400))}
NUMBERS["clustered"] = NUMBERS["ruled"] = NUMBERS["plain"]


def files(folder):
    """The non-empty files of the data folder, by their path in it."""
    found = []
    for base, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(base, name)
            if os.path.isfile(path):
                found.append(os.path.relpath(path, folder))
    return sorted(found)


def damage(folder, rng):
    """Damages the folder in one way; returns a description."""
    name = rng.choice([f for f in files(folder) if rng.random() < 0.7] or files(folder))
    path = os.path.join(folder, name)
    size = os.path.getsize(path)
    content = bytearray(open(path, "rb").read())
    what = rng.choice(["bit", "bit", "bit", "bits", "zeros", "noise", "cut", "remove", "longer", "move", "double", "empty"])
    # Most of a file may be unused zero bytes: damage used bytes.
    used = max(1, len(content.rstrip(b"\0")))
    at = rng.randrange(used)
    if rng.random() < 0.2:
        at = rng.randrange(min(used, 9000))
    length = min(used - at, rng.choice([1, 8, 100, 4096, 20_000]))
    if what == "bit":
        if size:
            content[at] ^= 1 << rng.randrange(8)
    elif what == "bits":
        for _ in range(20):
            if size:
                content[rng.randrange(used)] ^= 1 << rng.randrange(8)
    elif what == "zeros":
        content[at : at + length] = bytes(length)
    elif what == "noise":
        content[at : at + length] = rng.randbytes(length)
    elif what == "cut":
        del content[at:]
    elif what == "remove":
        os.unlink(path)
        return f"{name} removed"
    elif what == "longer":
        content += rng.randbytes(length)
    elif what == "move":
        content[at:at] = content[max(0, at - length) : at]
    elif what == "double":
        twin = os.path.join(folder, os.path.dirname(name), rng.choice([os.path.basename(name) + ".1", "log.0000000000000099", "0", "tree2"]))
        shutil.copy(path, twin)
        return f"{name} copied to {twin}"
    elif what == "empty":
        content = bytearray()
    with open(path, "wb") as f:
        f.write(content)
    return f"{name} of {size}: {what} at {at}, {length}"


def run(folder, *words):
    """Runs a server that exits by itself; returns its exit status and its log entries."""
    r = subprocess.run([BINARY, "--dbpath", str(folder), "--port", str(free_port()), "--nounixsocket", *words], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert r.returncode >= 0, f"ended by signal {-r.returncode}: {r.stdout[-2000:]} {r.stderr[-2000:]}"
    log = [json.loads(line) for line in r.stdout.splitlines() if line.startswith("{")]
    no_panic(log, r.stderr)
    return r.returncode, log


def no_panic(log, more=""):
    panics = [entry for entry in log if entry["msg"] == "Panic"]
    assert not panics and "panicked" not in more, (panics, more)


def read(db, name):
    """A collection's documents, checked one by one; or the error of the read."""
    try:
        docs = list(db[name].find())
    except OperationFailure as error:
        assert error.details["codeName"] in DAMAGED, error
        return error
    for d in docs:
        if name == "measured":
            assert d == {"_id": d["_id"], "t": WHEN + datetime.timedelta(seconds=d["_id"]), "m": d["_id"] % 3, "v": d["_id"]}, d
        else:
            d.pop("large", None)
            assert any(encode(d) == encode({"_id": d["_id"]} | checked(d["_id"], v)) for v in (0, 1)), (name, d)
    return docs


def look(s, log_lost=False):
    """Reads everything; returns whether it is complete. Each reply must be correct or a clear error.

    `log_lost`: the log's end may have been cut as a torn tail is; then what only the log contained may be missing.
    """
    whole = True
    with s.client() as client:
        db = client.hurt
        for name, numbers in NUMBERS.items():
            docs = read(db, name)
            if isinstance(docs, OperationFailure):
                whole = False
                continue
            if {d["_id"] for d in docs} != numbers or len(docs) != len(numbers):
                whole = False
            elif name in ("plain", "clustered", "ruled") and any(d["version"] != (d["_id"] < 40) for d in docs):
                whole = False
            try:
                valid = db.command("validate", name)
                whole &= valid["valid"]
            except OperationFailure as error:
                assert error.details["codeName"] in {*DAMAGED, "NamespaceNotFound"}, error
                whole = False
    assert s.process.poll() is None, s.log()
    return whole


def started(folder):
    """Starts on the folder: None if it refuses, otherwise whether everything exists. A refusal names what is damaged."""
    s = Server(folder)
    s.log_path = str(folder) + f".{random.random()}.log"
    try:
        s.start()
    except AssertionError:
        assert s.process.poll() == 100, (s.process.poll(), s.log())
        entries = [json.loads(line) for line in open(s.log_path) if line.startswith("{")]
        no_panic(entries, open(s.log_path).read())
        why = [e["attr"]["error"] for e in entries if e["msg"] == "The server cannot start"]
        assert why, s.log()
        return None, why[0], entries
    try:
        whole = look(s)
    finally:
        s.kill()
        entries = [json.loads(line) for line in open(s.log_path, errors="replace") if line.startswith("{")]
        no_panic(entries)
    return whole, None, entries


def one_round(original, folder, rng, tally):
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(original, folder)
    done = [damage(folder, rng) for _ in range(rng.choice([1, 1, 1, 2, 3]))]
    damaged = folder.with_name("damaged")
    shutil.rmtree(damaged, ignore_errors=True)
    shutil.copytree(folder, damaged)
    try:
        status, log = run(folder, "--verify")
        findings = [e for e in log if e["msg"] == "A data file is damaged"]
        assert status in (0, 100), log
        verified = status == 0
        if not verified:
            assert findings or any(e["msg"] == "The server cannot start" for e in log), log
        whole, why, entries = started(folder)
        said = [e["msg"] for e in entries if e["s"] in "WEF"]
        if verified:
            # If the files are intact, only what a torn end of the log contained may be missing.
            assert whole is not None, f"verified, then refused: {why}"
        tally[(verified, whole)] = tally.get((verified, whole), 0) + 1
        if whole is False and verified:
            torn = any("torn" in json.dumps(e).lower() or "cut" in e["msg"] for e in entries)
            assert torn, ("data is missing without an error", said)
        # Data that the damaged files still contain is saved.
        status, log = run(damaged, "--repair")
        if status == 0:
            status, log = run(damaged, "--verify")
            assert status == 0, log
            repaired, why, _ = started(damaged)
            assert repaired is not None, why
            tally["repaired"] = tally.get("repaired", 0) + 1
        else:
            assert any(e["msg"] == "The server cannot start" for e in log), log
            tally["beyond repair"] = tally.get("beyond repair", 0) + 1
    except AssertionError as error:
        raise AssertionError(f"after {done}: {error}") from error


def test_random_damage(tmp_path):
    print(f"SHEAF_DAMAGE_SEED={SEED}")
    originals = [tmp_path / "crashed", tmp_path / "stopped"]
    fill(originals[0], True)
    fill(originals[1], False)
    for original in originals:
        copy = tmp_path / "whole"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(original, copy)
        whole, why, _ = started(copy)
        assert whole is True, why
    tally = {}
    for round_ in range(ROUNDS):
        rng = random.Random(SEED + round_)
        try:
            one_round(rng.choice(originals), tmp_path / "data", rng, tally)
        except AssertionError as error:
            raise AssertionError(f"round {round_} of seed {SEED}: {error}") from error
    print(tally)
