"""The data folder decides which engine opens; --verify reports damage, --repair saves the rest."""

import json
import subprocess

import pytest
from pymongo import WriteConcern
from servers import BINARY, free_port, server

SHEAF = ("--storageEngine", "sheaf")


def run(folder, *words):
    """Runs a server that exits by itself; returns its exit status and its log entries."""
    command = [BINARY, "--dbpath", str(folder), "--port", str(free_port()), *words]
    r = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    return r.returncode, [json.loads(line) for line in r.stdout.splitlines() if line.startswith("{")]


def fill(folder, *flags, documents=3000):
    with server(folder, *flags) as s:
        with s.client() as client:
            client.d.c.create_index("a")
            client.d.c.insert_many([{"_id": n, "a": n % 17, "pad": "x" * 300} for n in range(documents)])
        assert s.stop() == 0, s.log()


@pytest.mark.parametrize("engine", ["sheaf", "redb"])
def test_a_folder_opens_with_the_engine_that_created_it(tmp_path, engine):
    fill(tmp_path / "data", "--storageEngine", engine, documents=10)
    with server(tmp_path / "data") as s, s.client() as client:
        assert client.admin.command("serverStatus")["storageEngine"]["name"] == engine
        assert client.d.c.count_documents({}) == 10
    other = {"sheaf": "redb", "redb": "sheaf"}[engine]
    status, log = run(tmp_path / "data", "--storageEngine", other)
    assert status != 0
    said = json.dumps(log)
    assert f"'{engine}'" in said and f"'{other}'" in said, said


def test_data_only_in_the_log_survives_a_kill(tmp_path):
    with server(tmp_path / "data", *SHEAF) as s:
        with s.client() as client:
            client.d.c.insert_many([{"_id": n} for n in range(500)])
            client.d.get_collection("c").with_options(write_concern=WriteConcern(j=True)).insert_one({"_id": 500})
        s.kill()
    with server(tmp_path / "data") as s, s.client() as client:
        assert client.d.c.count_documents({}) == 501
        assert client.d.command("validate", "c")["valid"]
        read = [json.loads(line) for line in s.log(1000).splitlines() if "Recovered from the log" in line]
        assert read and read[-1]["attr"]["batches"] > 0


def test_intact_files_are_verified(tmp_path):
    fill(tmp_path / "data", *SHEAF)
    for word in ["--verify", "--repair"]:
        status, log = run(tmp_path / "data", word)
        assert status == 0, log
        assert any(entry["msg"] == "The data files are not damaged" for entry in log), log
    with server(tmp_path / "data") as s, s.client() as client:
        assert client.d.c.count_documents({}) == 3000


def test_damage_is_reported_and_the_rest_is_saved(tmp_path):
    fill(tmp_path / "data", *SHEAF)
    path = tmp_path / "data" / "sheaf" / "tree"
    content = bytearray(path.read_bytes())
    for at in range(len(content) // 3, len(content) // 3 + 9000):
        content[at] ^= 0xFF
    path.write_bytes(content)
    status, log = run(tmp_path / "data", "--verify")
    assert status != 0
    damage = [entry["attr"] for entry in log if entry["msg"] == "A data file is damaged"]
    assert damage and all("tree" in attr["file"] and "offset" in attr for attr in damage), log
    status, log = run(tmp_path / "data", "--repair")
    assert status == 0, log
    # The damaged files are kept, and the new ones have all data except for the lost pages.
    assert (tmp_path / "data" / "sheaf.damaged.1" / "tree").read_bytes() == bytes(content)
    status, log = run(tmp_path / "data", "--verify")
    assert status == 0, log
    with server(tmp_path / "data") as s, s.client() as client:
        found = list(client.d.c.find(hint=[("$natural", 1)]))
        assert 2500 < len(found) <= 3000
        assert all(d["pad"] == "x" * 300 for d in found)


def test_an_engine_that_does_not_exist_is_refused_by_name(tmp_path):
    (tmp_path / "data").mkdir()
    status, log = run(tmp_path / "data", "--storageEngine", "frob")
    assert status != 0
    assert "frob" in json.dumps(log) and "sheaf" in json.dumps(log)
