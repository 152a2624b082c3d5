"""Change streams on the plain standalone server."""

import pytest
from pymongo.errors import OperationFailure
from refusal import refused

AWAIT_MS = 2000


def take(stream, n):
    """The next n events, in order."""
    return [stream.next() for _ in range(n)]


def test_every_write_of_a_collection(coll):
    with coll.watch(max_await_time_ms=AWAIT_MS) as stream:
        coll.insert_one({"_id": 1, "a": 1, "b": 2})
        coll.update_one({"_id": 1}, {"$set": {"a": 5}, "$unset": {"b": ""}})
        coll.replace_one({"_id": 1}, {"c": 3})
        coll.delete_one({"_id": 1})
        insert, update, replace, delete = take(stream, 4)
    assert [e["operationType"] for e in (insert, update, replace, delete)] == ["insert", "update", "replace", "delete"]
    for e in (insert, update, replace, delete):
        assert e["ns"] == {"db": coll.database.name, "coll": coll.name}
        assert e["documentKey"] == {"_id": 1}
        assert e["clusterTime"] and e["wallTime"]
    assert insert["fullDocument"] == {"_id": 1, "a": 1, "b": 2}
    assert update["updateDescription"] == {"updatedFields": {"a": 5}, "removedFields": ["b"], "truncatedArrays": []}
    assert "fullDocument" not in update
    assert replace["fullDocument"] == {"_id": 1, "c": 3}
    assert "fullDocument" not in delete


def test_a_database(db, coll):
    with db.watch(max_await_time_ms=AWAIT_MS) as stream:
        coll.insert_one({"_id": 1})
        db.other.insert_one({"_id": 2})
        assert [(e["ns"]["coll"], e["documentKey"]["_id"]) for e in take(stream, 2)] == [(coll.name, 1), ("other", 2)]


def test_the_deployment(client, coll):
    with client.watch([{"$match": {"ns.coll": coll.name}}], max_await_time_ms=AWAIT_MS) as stream:
        coll.insert_one({"_id": 1})
        assert stream.next()["ns"]["db"] == coll.database.name


def test_resume_behind_an_event(coll):
    with coll.watch(max_await_time_ms=AWAIT_MS) as stream:
        coll.insert_many({"_id": i} for i in range(5))
        tokens = [e["_id"] for e in take(stream, 2)]
        assert stream.resume_token == tokens[-1]
    for option in ("resume_after", "start_after"):
        with coll.watch(max_await_time_ms=AWAIT_MS, **{option: tokens[0]}) as stream:
            assert [e["documentKey"]["_id"] for e in take(stream, 4)] == [1, 2, 3, 4]


def test_the_driver_resumes_when_its_cursor_is_lost(client, coll):
    with coll.watch(max_await_time_ms=AWAIT_MS) as stream:
        coll.insert_one({"_id": 1})
        assert stream.next()["documentKey"]["_id"] == 1
        coll.insert_one({"_id": 2})
        coll.database.command("killCursors", coll.name, cursors=[stream._cursor.cursor_id])
        assert stream.next()["documentKey"]["_id"] == 2


def test_a_pipeline(coll):
    pipeline = [{"$match": {"operationType": "insert", "fullDocument.n": {"$gte": 2}}}, {"$set": {"twice": {"$multiply": ["$fullDocument.n", 2]}}}]
    with coll.watch(pipeline, max_await_time_ms=AWAIT_MS) as stream:
        coll.insert_many({"_id": i, "n": i} for i in range(4))
        assert [(e["documentKey"]["_id"], e["twice"]) for e in take(stream, 2)] == [(2, 4), (3, 6)]


def test_update_lookup(coll):
    coll.insert_one({"_id": 1, "a": 1})
    with coll.watch(full_document="updateLookup", max_await_time_ms=AWAIT_MS) as stream:
        coll.update_one({"_id": 1}, {"$set": {"b": 2}})
        event = stream.next()
    assert event["updateDescription"]["updatedFields"] == {"b": 2}
    assert event["fullDocument"] == {"_id": 1, "a": 1, "b": 2}


def test_a_transaction_arrives_as_one_when_it_commits(client, coll):
    with coll.watch(max_await_time_ms=200) as stream, client.start_session() as s:
        s.start_transaction()
        coll.insert_one({"_id": 1}, session=s)
        coll.insert_one({"_id": 2}, session=s)
        assert stream.try_next() is None
        s.commit_transaction()
        one, two = take(stream, 2)
    assert [one["documentKey"]["_id"], two["documentKey"]["_id"]] == [1, 2]
    assert one["lsid"] == two["lsid"] and one["txnNumber"] == two["txnNumber"]
    assert one["clusterTime"] == two["clusterTime"]


def test_dropping_the_collection_invalidates(coll):
    coll.insert_one({"_id": 1})
    with coll.watch(max_await_time_ms=AWAIT_MS) as stream:
        coll.drop()
        assert [e["operationType"] for e in take(stream, 2)] == ["drop", "invalidate"]
        with pytest.raises(StopIteration):
            stream.next()
        assert stream.alive is False


def test_a_token_that_is_none(coll):
    with refused(OperationFailure, 260):
        coll.watch(resume_after={"_data": "no token"})
