"""A replica set of one member: retryable writes are on, and a lost reply causes no duplicate write."""

import socket
import threading
import time

import pytest
from bson import Timestamp
from monitor import Sent
from pymongo import DeleteOne, InsertOne, MongoClient, UpdateOne
from pymongo.errors import OperationFailure
from refusal import refused


class Proxy:
    """A proxy between a driver and the server that can drop the reply to a message.

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
        # Writes to many documents are not retryable: the driver sends no number.
        c.update_many({}, {"$set": {"m": 1}})
        assert list(c.find(sort=[("_id", 1)])) == [{"_id": 1, "n": 2, "m": 1}, {"_id": 4, "b": 1, "m": 1}]
    assert numbered(sent, "insert") == [True, True, True]
    assert numbered(sent, "update") == [True, True, False]
    assert numbered(sent, "findAndModify") == [True, True, True]
    assert numbered(sent, "delete") == [True]


def test_a_lost_reply_causes_no_duplicate_write(member):
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


def test_a_lost_reply_to_a_client_bulk_write(member):
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


def test_a_lost_reply_to_a_commit(member):
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


def test_reads_in_the_past(member):
    """Once a client has read a snapshot, the time of a write can be read after later writes."""
    with MongoClient("127.0.0.1", member, directConnection=True) as c:
        c.drop_database("past")
        coll = c.past.c

        def read(at):
            concern = {"level": "snapshot", "atClusterTime": at}
            found = c.past.command("find", "c", sort={"_id": 1}, readConcern=concern)
            return [doc["_id"] for doc in found["cursor"]["firstBatch"]]

        with c.start_session(snapshot=True) as session:
            assert list(coll.find(session=session)) == []
        times = []
        with c.start_session() as session:
            for i in range(5):
                coll.insert_one({"_id": i}, session=session)
                times.append(session.operation_time)
                time.sleep(0.02)
        coll.drop()
        assert [read(at) for at in times] == [list(range(i + 1)) for i in range(5)]
        with refused(OperationFailure, 239):
            read(Timestamp(times[0].time - 1000, 1))
        status = c.admin.command("serverStatus")
        history = status[status["storageEngine"]["name"]]["snapshotHistory"]
        assert history["isActive"] is True and history["kept"] >= 5
        assert history["windowSeconds"] == 300 and history["snapshotTooOldErrors"] >= 1


def test_oplog_replays(member):
    """What mongorestore --oplogReplay does with the oplog of a dump: one operation per command."""
    with MongoClient("127.0.0.1", member, directConnection=True) as c:
        c.drop_database("replayed")
        begin = c.local["oplog.rs"].find().sort("$natural", -1).next()["ts"]
        db = c.replayed
        db.create_collection("capped", capped=True, size=4096, max=2)
        db.capped.insert_many([{"_id": i} for i in range(4)])
        db.c.insert_many([{"_id": i, "n": i, "list": [1, 2, 3]} for i in range(10)])
        db.c.create_index([("n", -1)], unique=True, name="by_n")
        db.c.update_many({"_id": {"$lt": 5}}, {"$inc": {"n": 100}, "$push": {"list": 4}})
        db.c.update_one({"_id": 50}, {"$set": {"n": 1}}, upsert=True)
        db.c.replace_one({"_id": 6}, {"other": True})
        db.c.delete_many({"_id": {"$in": [7, 8]}})
        db.command("collMod", "c", index={"name": "by_n", "hidden": True})
        db.command("create", "view", viewOn="c", pipeline=[{"$match": {"n": {"$gt": 100}}}])
        db.gone.insert_one({"_id": 1})
        db.gone.rename("renamed")
        with c.start_session() as session:
            with session.start_transaction():
                db.c.insert_one({"_id": 60, "n": -1}, session=session)
                db.renamed.delete_one({"_id": 1}, session=session)
        entries = list(c.local["oplog.rs"].find({"ts": {"$gt": begin}}))

        def state():
            return {
                info["name"]: (
                    info["options"],
                    sorted(db[info["name"]].find(), key=lambda doc: doc["_id"]),
                    None if info["type"] == "view" else db[info["name"]].index_information(),
                )
                for info in db.list_collections()
            }

        expected = state()
        assert set(expected) == {"capped", "c", "view", "renamed", "system.views"}
        c.drop_database("replayed")
        for entry in entries:
            about = entry["o"].get("applyOps", [entry])
            if all(op["ns"].startswith("replayed.") for op in about):
                for op in about:
                    op.pop("ui", None)
                entry.pop("ui", None)
                entry.pop("lsid", None)
                entry.pop("txnNumber", None)
                c.admin.command("applyOps", [entry])
        assert state() == expected
