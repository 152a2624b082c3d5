"""Capped collections, tailable cursors, and the details of a failed validation in WriteError."""

import threading

import pytest
from pymongo import CursorType
from pymongo.errors import BulkWriteError, CollectionInvalid, OperationFailure, WriteError
from refusal import refused


@pytest.fixture
def capped(db, coll):
    return db.create_collection(coll.name, capped=True, size=4096, max=3)


def test_the_oldest_are_removed(db, capped):
    capped.insert_many([{"_id": n} for n in range(5)])
    assert [d["_id"] for d in capped.find()] == [2, 3, 4]
    assert [d["_id"] for d in capped.find().sort("$natural", -1)] == [4, 3, 2]
    assert capped.options() == {"capped": True, "size": 4096, "max": 3}
    with pytest.raises(CollectionInvalid):
        db.create_collection(capped.name)


def test_tailable(capped):
    capped.insert_many([{"_id": 0}, {"_id": 1}])
    cursor = capped.find(cursor_type=CursorType.TAILABLE)
    assert [d["_id"] for d in cursor] == [0, 1]
    assert cursor.alive
    capped.insert_one({"_id": 2})
    assert [d["_id"] for d in cursor] == [2]
    capped.insert_many([{"_id": n} for n in range(3, 9)])
    # PyMongo ends the cursor when its position is lost.
    assert list(cursor) == []
    assert not cursor.alive


def test_tailable_await(capped):
    capped.insert_one({"_id": 0})
    cursor = capped.find(cursor_type=CursorType.TAILABLE_AWAIT).max_await_time_ms(20_000)
    assert cursor.next() == {"_id": 0}
    writer = threading.Timer(0.2, lambda: capped.insert_one({"_id": 1}))
    writer.start()
    # Woken by the insert: one reply, which contains the document.
    assert cursor.next() == {"_id": 1}
    writer.join()
    cursor.close()


def test_no_tail(db, coll):
    coll.insert_one({"_id": 0})
    with refused(OperationFailure, 2, "capped"):
        list(coll.find(cursor_type=CursorType.TAILABLE))
    empty = db.create_collection("never_filled", capped=True, size=4096)
    cursor = empty.find(cursor_type=CursorType.TAILABLE)
    assert list(cursor) == []
    assert not cursor.alive


def test_no_transaction(client, capped):
    with client.start_session() as session:
        session.start_transaction()
        with refused(OperationFailure, 263):
            capped.insert_one({"_id": 0}, session=session)


def test_validation_errors(db, coll):
    schema = {"required": ["a"], "properties": {"a": {"bsonType": "int", "minimum": 3}}}
    c = db.create_collection(coll.name, validator={"$jsonSchema": schema})
    with refused(WriteError, 121) as e:
        c.insert_one({"_id": 1, "a": 1})
    info = e.value.details["errInfo"]
    assert info["failingDocumentId"] == 1
    rule = info["details"]["schemaRulesNotSatisfied"][0]["propertiesNotSatisfied"][0]["details"][0]
    assert rule == {
        "operatorName": "minimum",
        "specifiedAs": {"minimum": 3},
        "reason": "comparison failed",
        "consideredValue": 1,
    }
    with pytest.raises(BulkWriteError) as many:
        c.insert_many([{"_id": 2, "a": 3}, {"_id": 3}, {"_id": 4, "a": 4}], ordered=False)
    errors = many.value.details["writeErrors"]
    assert [(w["index"], w["code"], w["errInfo"]["failingDocumentId"]) for w in errors] == [(1, 121, 3)]
    assert many.value.details["nInserted"] == 2
    c.insert_one({"_id": 3}, bypass_document_validation=True)
    assert c.find_one_and_update({"_id": 3}, {"$set": {"x": 1}}, bypassDocumentValidation=True) == {"_id": 3}
    with refused(OperationFailure, 121):
        c.find_one_and_update({"_id": 3}, {"$set": {"x": 2}})
    assert sorted(d["_id"] for d in c.find({"$jsonSchema": schema})) == [2, 4]
