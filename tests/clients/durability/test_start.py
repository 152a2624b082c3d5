"""Starting: the data folder, the command line and the configuration file."""

import os
import signal
import subprocess

import pytest
from servers import BINARY, Server, free_port, server


def run(*words, **options):
    """Runs a server that exits by itself."""
    return subprocess.run([BINARY, *map(str, words)], capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL, **options)


def test_version():
    r = run("--version")
    assert r.returncode == 0
    assert r.stdout.startswith("sheafd version ")


def test_a_second_server_on_the_same_folder_is_refused(tmp_path):
    with server(tmp_path / "data") as first:
        with first.client() as client:
            client.d.c.insert_one({"_id": 1})
            r = run("--dbpath", tmp_path / "data", "--port", free_port())
            assert r.returncode == 100  # MongoDB's exit status
            assert str(tmp_path / "data") in r.stdout + r.stderr
            assert "DBPathInUse" in r.stdout + r.stderr
            # The first server continues.
            client.d.c.insert_one({"_id": 2})
            assert client.d.c.count_documents({}) == 2


def test_the_lock_of_a_killed_server_is_free(tmp_path):
    with server(tmp_path / "data") as first:
        first.kill()
    with server(tmp_path / "data") as second, second.client() as client:
        assert client.admin.command("ping")["ok"] == 1


def test_a_newer_data_format_is_refused_and_left_unchanged(tmp_path):
    with server(tmp_path / "data", "--storageEngine", "redb") as s:
        with s.client() as client:
            client.d.c.insert_one({"_id": 1})
        assert s.stop() == 0
    # The catalog's row {format: 1}, see docs/format/catalog.md.
    path = tmp_path / "data" / "sheaf.redb"
    ours, newer = (b"\x12format\0" + n.to_bytes(8, "little") for n in (1, 2))
    content = path.read_bytes()
    assert ours in content
    path.write_bytes(content.replace(ours, newer))
    r = run("--dbpath", tmp_path / "data", "--port", free_port())
    assert r.returncode != 0
    said = r.stdout + r.stderr
    assert "format" in said and "newer" in said, said
    # The newer program's data is unchanged.
    path.write_bytes(path.read_bytes().replace(newer, ours))
    with server(tmp_path / "data") as s, s.client() as client:
        assert client.d.c.find_one() == {"_id": 1}


@pytest.mark.parametrize("content", [b"not a database", b"x" * 5_000_000])
def test_a_file_that_is_not_ours_is_refused(tmp_path, content):
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / "sheaf.redb"
    path.write_bytes(content)
    r = run("--dbpath", tmp_path / "data", "--port", free_port())
    assert r.returncode != 0
    assert "sheaf.redb" in r.stdout + r.stderr
    assert path.read_bytes() == content


def test_a_port_in_use_is_refused(tmp_path):
    with server(tmp_path / "one") as first:
        r = run("--dbpath", tmp_path / "two", "--port", first.port)
        assert r.returncode != 0
        assert str(first.port) in r.stdout + r.stderr


def test_a_missing_folder_is_refused_with_its_name(tmp_path):
    r = run("--dbpath", tmp_path / "absent", "--port", free_port())
    assert r.returncode == 100
    assert "absent" in r.stdout + r.stderr


def test_unknown_flags_are_refused_by_name(tmp_path):
    r = run("--dbpath", tmp_path, "--frobnicate")
    assert r.returncode != 0
    assert "--frobnicate" in r.stdout + r.stderr


def test_configuration_file(tmp_path):
    (tmp_path / "data").mkdir()
    port = free_port()
    config = tmp_path / "sheafd.conf"
    config.write_text(f"storage:\n  dbPath: {tmp_path / 'data'}\nnet:\n  port: {port}\n  bindIp: 127.0.0.1\n  unixDomainSocket:\n    enabled: false\n")
    s = Server(tmp_path / "data")
    s.port = port
    s.process = subprocess.Popen([BINARY, "--config", str(config)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        with s.client(serverSelectionTimeoutMS=20_000) as client:
            assert client.admin.command("getCmdLineOpts")["parsed"]["net"]["port"] == port
    finally:
        s.kill()


def test_unknown_keys_of_the_file_are_refused_with_their_line(tmp_path):
    config = tmp_path / "sheafd.conf"
    config.write_text("storage:\n  dbPath: /nowhere\nnet:\n  prot: 5\n")
    r = run("--config", config)
    assert r.returncode != 0
    said = r.stdout + r.stderr
    assert "prot" in said and "4" in said


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_cleanly(tmp_path, sign):
    with server(tmp_path / "data") as s:
        with s.client() as client:
            client.d.c.insert_one({"_id": 1})
            s.process.send_signal(sign)
            assert s.process.wait(timeout=30) == 0, s.log()


def test_every_log_line_is_one_json_object(tmp_path):
    import json

    with server(tmp_path / "data") as s:
        with s.client() as client:
            client.d.c.insert_one({"_id": 1})
        s.stop()
        with open(s.log_path) as f:
            for line in f:
                entry = json.loads(line)
                assert {"t", "s", "c", "id", "ctx", "msg"} <= set(entry), line
        assert "Waiting for connections" in s.log(1000)


def test_a_server_with_defaults(tmp_path):
    """An empty folder, nothing configured but the port: the server serves and its files are private."""
    with server(tmp_path / "data") as s, s.client() as client:
        assert client.admin.command("hello")["isWritablePrimary"] is True
        for name in os.listdir(tmp_path / "data"):
            assert os.stat(tmp_path / "data" / name).st_mode & 0o007 == 0, name
