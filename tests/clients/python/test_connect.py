"""The handshake, compression, sockets, sessions, pools and many clients."""

import threading
from urllib.parse import quote_plus

import pytest
from conftest import SOCKET, URI
from pymongo import MongoClient, ReadPreference, WriteConcern, monitoring
from pymongo.errors import InvalidOperation
from pymongo.read_concern import ReadConcern


def test_hello(client):
    hello = client.admin.command("hello")
    assert hello["isWritablePrimary"] is True
    assert hello["maxBsonObjectSize"] == 16 * 1024 * 1024
    assert hello["maxMessageSizeBytes"] == 48_000_000
    assert hello["maxWriteBatchSize"] == 100_000
    assert hello["readOnly"] is False
    assert "setName" not in hello


def test_server_info(client):
    info = client.server_info()
    assert info["version"].count(".") == 2
    assert info["versionArray"][:3] == [int(n) for n in info["version"].split("-")[0].split(".")]
    assert info["ok"] == 1.0


def test_topology_is_single(client):
    client.admin.command("ping")
    assert client.topology_description.topology_type_name == "Single"
    assert client.is_primary
    assert client.is_mongos is False


class Recorder(monitoring.CommandListener):
    """Records the commands that a client sends."""

    def __init__(self):
        self.commands = []

    def started(self, event):
        self.commands.append(event)

    def succeeded(self, event):
        pass

    def failed(self, event):
        pass

    def names(self):
        return [e.command_name for e in self.commands]


def test_sessions_are_sent_only_if_announced(client):
    recorder = Recorder()
    announced = "logicalSessionTimeoutMinutes" in client.admin.command("hello")
    with MongoClient(URI, event_listeners=[recorder]) as c:
        c.python_connect.x.find_one()
        (find,) = [e for e in recorder.commands if e.command_name == "find"]
        assert ("lsid" in find.command) == announced


def test_explicit_session(client, coll):
    with client.start_session() as session:
        coll.insert_one({"_id": 1}, session=session)
        assert coll.find_one({"_id": 1}, session=session) == {"_id": 1}
    with pytest.raises(InvalidOperation):
        coll.find_one({}, session=session)


def test_end_sessions_on_close():
    recorder = Recorder()
    with MongoClient(URI, event_listeners=[recorder]) as c:
        c.admin.command("ping")
        announced = "logicalSessionTimeoutMinutes" in c.admin.command("hello")
    assert ("endSessions" in recorder.names()) == announced


@pytest.mark.parametrize("name", ["snappy", "zlib", "zstd"])
def test_compression(name):
    with MongoClient(URI, compressors=name) as c:
        coll = c.python_connect["compressed_" + name]
        coll.drop()

        def counters():
            section = c.admin.command("serverStatus")["network"]["compression"][name]
            return section["decompressor"]["bytesIn"], section["decompressor"]["bytesOut"]

        packed, unpacked = counters()
        text = "compressible " * 20_000
        coll.insert_one({"_id": 1, "text": text})
        assert coll.find_one()["text"] == text
        now_packed, now_unpacked = counters()
        assert now_unpacked - unpacked > len(text)
        assert (now_packed - packed) * 5 < now_unpacked - unpacked


def test_unix_socket():
    with MongoClient("mongodb://" + quote_plus(SOCKET)) as c:
        coll = c.python_connect.socket
        coll.drop()
        coll.insert_many({"_id": i} for i in range(300))
        assert len(list(coll.find(batch_size=50))) == 300


def test_eight_threads_of_one_client(coll):
    errors = []

    def work(who):
        try:
            for i in range(100):
                coll.insert_one({"_id": f"{who}-{i}", "who": who})
                coll.update_one({"_id": "counter"}, {"$inc": {"n": 1}})
            assert coll.count_documents({"who": who}) == 100
        except Exception as e:  # a thread's error must reach the test
            errors.append(e)

    coll.insert_one({"_id": "counter", "n": 0})
    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert errors == []
    assert coll.count_documents({}) == 801
    assert coll.find_one({"_id": "counter"})["n"] == 800


def test_eight_clients(coll):
    clients = [MongoClient(URI) for _ in range(8)]
    try:
        for n, c in enumerate(clients):
            c[coll.database.name][coll.name].insert_one({"_id": n})
        for c in clients:
            assert c[coll.database.name][coll.name].count_documents({}) == 8
    finally:
        for c in clients:
            c.close()


def test_write_concerns(coll):
    coll.with_options(write_concern=WriteConcern(w=1, j=True)).insert_one({"_id": 1})
    coll.with_options(write_concern=WriteConcern(w="majority")).insert_one({"_id": 2})
    r = coll.with_options(write_concern=WriteConcern(w=0)).insert_one({"_id": 3})
    assert r.acknowledged is False


def test_read_concern_and_preference(coll):
    coll.insert_one({"_id": 1})
    for level in ("local", "available", "majority"):
        assert coll.with_options(read_concern=ReadConcern(level)).find_one() == {"_id": 1}
    assert coll.with_options(read_preference=ReadPreference.SECONDARY_PREFERRED).find_one() == {"_id": 1}


def test_connections_are_counted(client):
    before = client.admin.command("serverStatus")["connections"]["totalCreated"]
    with MongoClient(URI) as c:
        c.admin.command("ping")
        assert c.admin.command("serverStatus")["connections"]["totalCreated"] > before
