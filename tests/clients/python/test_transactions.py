"""Sessions and transactions on the plain standalone server, with no set-up step."""

import pytest
from conftest import URI
from monitor import Sent
from pymongo import InsertOne, MongoClient, UpdateOne
from pymongo.errors import OperationFailure
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern
from refusal import refused


@pytest.fixture
def pair(db, request):
    """Two empty collections for this test."""
    both = [db[f"{request.node.name}_{side}"] for side in "ab"]
    for c in both:
        c.drop()
    return both


def test_the_server_is_a_standalone_that_has_sessions(client):
    hello = client.admin.command("hello")
    assert hello["logicalSessionTimeoutMinutes"] == 30
    assert "setName" not in hello and "msg" not in hello
    assert client.topology_description.topology_type_name == "Single"


def test_two_collections_commit_as_one(client, pair):
    a, b = pair
    a.insert_one({"_id": 1, "n": 5})
    b.insert_one({"_id": 1, "n": 0})
    with client.start_session() as s:
        with s.start_transaction(read_concern=ReadConcern("snapshot"), write_concern=WriteConcern("majority")):
            a.update_one({"_id": 1}, {"$inc": {"n": -5}}, session=s)
            b.bulk_write([UpdateOne({"_id": 1}, {"$inc": {"n": 5}}), InsertOne({"_id": 2})], session=s)
            assert b.find_one_and_update({"_id": 2}, {"$set": {"n": 7}}, session=s) == {"_id": 2}
            assert list(b.aggregate([{"$sort": {"_id": 1}}], session=s)) == [{"_id": 1, "n": 5}, {"_id": 2, "n": 7}]
            assert [a.find_one()["n"], b.find_one()["n"], b.count_documents({})] == [5, 0, 1]
        assert s.has_ended is False and s.in_transaction is False
        s.commit_transaction()  # repeated: the transaction stays committed
    assert [a.find_one()["n"], b.find_one({"_id": 1})["n"], b.count_documents({})] == [0, 5, 2]


def test_an_exception_aborts(client, pair):
    a, b = pair
    a.insert_one({"_id": 1})
    with client.start_session() as s:
        with pytest.raises(ZeroDivisionError), s.start_transaction():
            a.delete_one({"_id": 1}, session=s)
            b.insert_one({"_id": 1}, session=s)
            assert a.count_documents({}, session=s) == 0
            1 / 0
    assert (a.count_documents({}), b.count_documents({})) == (1, 0)


def test_a_failed_statement_ends_the_transaction(client, coll):
    coll.insert_one({"_id": 1})
    with client.start_session() as s:
        s.start_transaction()
        coll.insert_one({"_id": 2}, session=s)
        with refused(OperationFailure, 11000):
            coll.insert_one({"_id": 1}, session=s)
        with refused(OperationFailure, 251) as e:
            coll.find_one(session=s)
        assert e.value.has_error_label("TransientTransactionError")
        s.abort_transaction()
    assert coll.count_documents({}) == 1


def test_with_transaction_retries_after_a_conflict(client, coll):
    coll.insert_one({"_id": 1, "n": 0})
    failures = []

    def body(s):
        n = coll.find_one({"_id": 1}, session=s)["n"]
        if not failures:
            coll.update_one({"_id": 1}, {"$inc": {"n": 10}})  # another client, after this snapshot
        try:
            coll.update_one({"_id": 1}, {"$set": {"n": n + 1}}, session=s)
        except OperationFailure as e:
            failures.append((e.code, e.details["codeName"], e.has_error_label("TransientTransactionError")))
            raise
        return "done"

    with client.start_session() as s:
        assert s.with_transaction(body) == "done"
    assert failures == [(112, "WriteConflict", True)]
    assert coll.find_one()["n"] == 11


def test_a_cursor_of_several_batches(client, coll):
    coll.insert_many({"_id": i} for i in range(250))
    with client.start_session() as s, s.start_transaction():
        cursor = coll.find(session=s, batch_size=100, sort=[("_id", 1)])
        assert cursor.next() == {"_id": 0}
        coll.delete_many({})  # another client, after the snapshot
        assert [d["_id"] for d in cursor] == list(range(1, 250))
    assert coll.count_documents({}) == 0


def test_causal_consistency(coll):
    sent = Sent()
    with MongoClient(URI, event_listeners=[sent]) as client:
        c = client[coll.database.name][coll.name]
        with client.start_session(causal_consistency=True) as writer, client.start_session(causal_consistency=True) as reader:
            c.insert_one({"_id": 1}, session=writer)
            assert writer.operation_time is not None and writer.cluster_time is not None
            reader.advance_cluster_time(writer.cluster_time)
            reader.advance_operation_time(writer.operation_time)
            assert c.find_one({"_id": 1}, session=reader) == {"_id": 1}
            (find,) = sent.named("find")
            assert find["readConcern"]["afterClusterTime"] == writer.operation_time
            assert reader.operation_time >= writer.operation_time


def test_a_snapshot_session_reads_the_same_twice(client, coll):
    coll.insert_many([{"_id": 1, "n": 1}, {"_id": 2, "n": 2}])
    with client.start_session(snapshot=True) as s:
        first = list(coll.find(session=s, sort=[("_id", 1)]))
        coll.update_one({"_id": 1}, {"$set": {"n": 100}})
        coll.insert_one({"_id": 3, "n": 3})
        assert list(coll.find(session=s, sort=[("_id", 1)])) == first == [{"_id": 1, "n": 1}, {"_id": 2, "n": 2}]
        assert list(coll.aggregate([{"$group": {"_id": None, "n": {"$sum": "$n"}}}], session=s)) == [{"_id": None, "n": 3}]
        assert sorted(coll.distinct("n", session=s)) == [1, 2]
    assert sorted(coll.distinct("n")) == [2, 3, 100]


def test_the_driver_sends_no_number_to_a_standalone(coll):
    """Retryable writes are for replica sets: PyMongo omits txnNumber."""
    sent = Sent()
    with MongoClient(URI, event_listeners=[sent]) as client:
        client[coll.database.name][coll.name].insert_one({"_id": 1})
    assert ["txnNumber" in c for c in sent.named("insert")] == [False]
    assert ["lsid" in c for c in sent.named("insert")] == [True]
