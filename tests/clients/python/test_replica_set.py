"""A replica set of one member: retryable writes are on, and a lost answer writes nothing twice."""

import os
import socket
import sys
import threading
import time

import pytest
from monitor import Sent
from pymongo import DeleteOne, InsertOne, MongoClient, UpdateOne

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "durability"))
from servers import server  # noqa: E402


@pytest.fixture(scope="module")
def member(tmp_path_factory):
    """The port of a member that has been initiated."""
    with server(tmp_path_factory.mktemp("set") / "db", "--replSet", "rs0") as s:
        with MongoClient("127.0.0.1", s.port, directConnection=True) as c:
            address = f"127.0.0.1:{s.port}"
            c.admin.command("replSetInitiate", {"_id": "rs0", "members": [{"_id": 0, "host": address}]})
            until = time.monotonic() + 10
            while not c.admin.command("hello")["isWritablePrimary"]:
                assert time.monotonic() < until
                time.sleep(0.02)
            assert c.admin.command("replSetGetStatus")["members"][0]["stateStr"] == "PRIMARY"
        yield s.port


class Proxy:
    """Stands between a driver and the server; an armed one loses the answer to a message.

        driver ──> message with `marker` ──> server
        driver ──X connection closed     <── answer
    """

    def __init__(self, port):
        self.target = port
        self.marker = None
        self.lost = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self.target))
            doomed = threading.Event()
            for args in ((near, far, doomed, True), (far, near, doomed, False)):
                threading.Thread(target=self.pump, args=args, daemon=True).start()

    def pump(self, source, sink, doomed, outward):
        try:
            while data := source.recv(65536):
                if outward and self.marker and self.marker in data:
                    self.marker = None
                    doomed.set()
                elif not outward and doomed.is_set():
                    self.lost += 1
                    break
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def numbered(sent, name):
    return ["txnNumber" in c for c in sent.named(name)]


@pytest.mark.parametrize("how", [{"directConnection": True}, {"replicaSet": "rs0"}])
def test_writes_carry_numbers(member, how):
    sent = Sent()
    with MongoClient("127.0.0.1", member, event_listeners=[sent], **how) as client:
        kind = "Single" if "directConnection" in how else "ReplicaSetWithPrimary"
        c = client.python_set.numbered
        c.drop()
        c.insert_one({"_id": 1, "n": 0})
        assert client.topology_description.topology_type_name == kind
        c.insert_many([{"_id": 2}, {"_id": 3}])
        c.update_one({"_id": 1}, {"$inc": {"n": 1}})
        assert c.find_one_and_update({"_id": 1}, {"$inc": {"n": 1}})["n"] == 1
        assert c.find_one_and_replace({"_id": 2}, {"r": 1}) == {"_id": 2}
        assert c.find_one_and_delete({"_id": 3}) == {"_id": 3}
        c.bulk_write([InsertOne({"_id": 4}), UpdateOne({"_id": 4}, {"$set": {"b": 1}}), DeleteOne({"_id": 2})])
        # Writes to many documents cannot be told from a second try: the driver sends no number.
        c.update_many({}, {"$set": {"m": 1}})
        assert list(c.find(sort=[("_id", 1)])) == [{"_id": 1, "n": 2, "m": 1}, {"_id": 4, "b": 1, "m": 1}]
    assert numbered(sent, "insert") == [True, True, True]
    assert numbered(sent, "update") == [True, True, False]
    assert numbered(sent, "findAndModify") == [True, True, True]
    assert numbered(sent, "delete") == [True]


def test_a_lost_answer_writes_nothing_twice(member):
    proxy, sent = Proxy(member), Sent()
    try:
        with MongoClient("127.0.0.1", proxy.port, directConnection=True, event_listeners=[sent]) as client:
            c = client.python_set.once
            c.drop()
            proxy.marker = b"first-of-all"
            c.insert_one({"_id": "first-of-all", "n": 0})
            proxy.marker = b"inc-by-update"
            assert c.update_one({"_id": "first-of-all"}, {"$inc": {"n": 1}}, comment="inc-by-update").modified_count == 1
            proxy.marker = b"inc-by-modify"
            before = c.find_one_and_update({"_id": "first-of-all"}, {"$inc": {"n": 1}}, comment="inc-by-modify")
            assert before == {"_id": "first-of-all", "n": 1}
            proxy.marker = b"second-delete"
            c.insert_many([{"_id": 2, "k": 1}, {"_id": 3, "k": 1}])
            assert c.delete_one({"k": 1}, comment="second-delete").deleted_count == 1
            assert c.find_one("first-of-all")["n"] == 2
            assert c.count_documents({"k": 1}) == 1
        assert proxy.lost == 4
        for name, times in (("insert", 3), ("update", 2), ("findAndModify", 2), ("delete", 2)):
            assert len(sent.named(name)) == times
            first, second = sent.named(name)[:2]
            assert (first["lsid"], first["txnNumber"]) == (second["lsid"], second["txnNumber"])
    finally:
        proxy.listener.close()


def test_a_lost_answer_to_a_client_bulk_write(member):
    proxy, sent = Proxy(member), Sent()
    try:
        with MongoClient("127.0.0.1", proxy.port, directConnection=True, event_listeners=[sent]) as client:
            a, b = client.python_set.bulk_a, client.python_set_other.bulk_b
            a.drop()
            b.drop()
            b.insert_one({"_id": 1, "n": 0})
            proxy.marker = b"the-bulk"
            r = client.bulk_write(
                [
                    InsertOne({"_id": 1}, namespace="python_set.bulk_a"),
                    UpdateOne({"_id": 1}, {"$inc": {"n": 1}}, namespace="python_set_other.bulk_b"),
                    UpdateOne({"_id": 2}, {"$inc": {"n": 1}}, upsert=True, namespace="python_set_other.bulk_b"),
                    DeleteOne({"_id": 1}, namespace="python_set.bulk_a"),
                ],
                verbose_results=True,
                comment="the-bulk",
            )
            assert (r.inserted_count, r.modified_count, r.upserted_count, r.deleted_count) == (1, 1, 1, 1)
            assert r.update_results[2].upserted_id == 2
            assert list(b.find(sort=[("_id", 1)])) == [{"_id": 1, "n": 1}, {"_id": 2, "n": 1}]
            assert a.count_documents({}) == 0
        assert proxy.lost == 1
        first, second = sent.named("bulkWrite")
        assert (first["lsid"], first["txnNumber"]) == (second["lsid"], second["txnNumber"])
    finally:
        proxy.listener.close()


def test_a_lost_answer_to_a_commit(member):
    proxy, sent = Proxy(member), Sent()
    try:
        with MongoClient("127.0.0.1", proxy.port, directConnection=True, event_listeners=[sent]) as client:
            c = client.python_set.committed
            c.drop()
            c.insert_one({"_id": 1, "n": 0})

            def body(s):
                c.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=s)
                proxy.marker = b"commitTransaction"

            with client.start_session() as s:
                s.with_transaction(body)
            assert c.find_one()["n"] == 1
        assert proxy.lost == 1
        assert len(sent.named("commitTransaction")) == 2
    finally:
        proxy.listener.close()
