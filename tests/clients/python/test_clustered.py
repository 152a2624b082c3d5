"""Clustered collections: created, described, written, read by ranges, joined, in a transaction."""

import datetime

import pytest
from bson import ObjectId
from pymongo import ASCENDING, DESCENDING, InsertOne, ReplaceOne, UpdateOne
from pymongo.errors import BulkWriteError, CollectionInvalid, DuplicateKeyError, OperationFailure
from refusal import refused

INDEX = {"key": {"_id": 1}, "unique": True, "name": "by id"}


@pytest.fixture
def clustered(db, coll):
    return db.create_collection(coll.name, clusteredIndex=INDEX)


def test_described(db, clustered):
    info = clustered.index_information()
    assert info == {"by id": {"v": 2, "key": [("_id", 1)], "unique": True, "clustered": True}}
    assert clustered.options() == {"clusteredIndex": {"v": 2, "key": {"_id": 1}, "name": "by id", "unique": True}}
    with pytest.raises(CollectionInvalid):
        db.create_collection(clustered.name, clusteredIndex=INDEX)
    clustered.create_index([("a", DESCENDING)])
    with refused(OperationFailure, 72) as e:
        clustered.drop_index("by id")
    assert e.value.details["codeName"] == "InvalidOptions"
    clustered.drop_indexes()
    assert list(clustered.index_information()) == ["by id"]


def test_order_and_ranges(clustered):
    ids = [ObjectId() for _ in range(50)]
    clustered.insert_many([{"_id": i, "n": n} for n, i in reversed(list(enumerate(ids)))])
    assert [d["_id"] for d in clustered.find()] == ids
    assert [d["_id"] for d in clustered.find(batch_size=7)] == ids
    assert [d["n"] for d in clustered.find({"_id": {"$gt": ids[46]}})] == [47, 48, 49]
    assert [d["n"] for d in clustered.find().sort("_id", DESCENDING).limit(2)] == [49, 48]
    stats = clustered.find({"_id": {"$gte": ids[3], "$lt": ids[5]}}).explain()["executionStats"]
    assert (stats["nReturned"], stats["totalKeysExamined"], stats["totalDocsExamined"]) == (2, 0, 2)
    assert clustered.count_documents({"_id": {"$in": ids[:3]}}) == 3
    assert clustered.delete_many({"_id": {"$lt": ids[10]}}).deleted_count == 10
    assert clustered.find_one()["n"] == 10


def test_duplicates(clustered):
    clustered.insert_one({"_id": 1})
    with pytest.raises(DuplicateKeyError) as e:
        clustered.insert_one({"_id": 1.0})
    assert e.value.details["keyPattern"] == {"_id": 1} and e.value.details["keyValue"] == {"_id": 1.0}
    with pytest.raises(BulkWriteError) as e:
        clustered.bulk_write(
            [InsertOne({"_id": 2}), InsertOne({"_id": 1}), InsertOne({"_id": 3}), UpdateOne({"_id": 3}, {"$set": {"a": 1}})],
            ordered=False,
        )
    assert (e.value.details["nInserted"], e.value.details["nModified"]) == (2, 1)
    assert [w["index"] for w in e.value.details["writeErrors"]] == [1]
    done = clustered.bulk_write([ReplaceOne({"_id": 9}, {"b": 1}, upsert=True)])
    assert done.upserted_ids == {0: 9}


def test_types_of_ids(clustered):
    ids = [None, -1.5, 3, 2**40, "", "x", {"a": 1}, b"\x00", ObjectId(), True, datetime.datetime(2020, 1, 1)]
    clustered.insert_many([{"_id": i} for i in reversed(ids)])
    assert [d["_id"] for d in clustered.find().sort("_id", ASCENDING)] == ids
    for i in ids:
        assert clustered.find_one(i if isinstance(i, dict) else {"_id": i}) is not None or isinstance(i, dict)
        assert clustered.find_one({"_id": i})["_id"] == i
    for i in ids:
        assert clustered.update_one({"_id": i}, {"$set": {"seen": True}}).modified_count == 1
    assert clustered.count_documents({"seen": True}) == len(ids)


def test_joined(db, clustered):
    clustered.insert_many([{"_id": n, "name": str(n)} for n in range(5)])
    pipeline = [
        {"$match": {"_id": {"$gte": 3}}},
        {"$lookup": {"from": clustered.name, "localField": "_id", "foreignField": "_id", "as": "same"}},
    ]
    assert [d["same"][0]["name"] for d in clustered.aggregate(pipeline)] == ["3", "4"]


def test_in_a_session(client, clustered):
    with client.start_session() as session:
        clustered.insert_one({"_id": 1}, session=session)
        assert clustered.find_one({"_id": 1}, session=session) == {"_id": 1}


def test_validated(db, clustered):
    clustered.create_index("n")
    clustered.insert_many([{"_id": n, "n": n % 3} for n in range(100)])
    report = db.validate_collection(clustered.name, full=True)
    assert report["valid"] and report["nrecords"] == 100
    assert report["keysPerIndex"] == {"n_1": 100}
