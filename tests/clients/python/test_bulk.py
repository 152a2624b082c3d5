"""bulk_write and insert_many: what succeeds, what fails, and where."""

import pytest
from pymongo import DeleteMany, DeleteOne, InsertOne, ReplaceOne, UpdateMany, UpdateOne
from pymongo.errors import BulkWriteError


def test_mixed(coll):
    r = coll.bulk_write([
        InsertOne({"_id": 1, "n": 1}),
        InsertOne({"_id": 2, "n": 2}),
        UpdateOne({"_id": 1}, {"$inc": {"n": 10}}),
        UpdateMany({"n": {"$gt": 1}}, {"$set": {"big": True}}),
        ReplaceOne({"_id": 3}, {"n": 3}, upsert=True),
        UpdateOne({"_id": 4}, {"$set": {"n": 4}}, upsert=True),
        DeleteOne({"_id": 2}),
        DeleteMany({"n": 4}),
    ])
    assert (r.inserted_count, r.matched_count, r.modified_count, r.deleted_count, r.upserted_count) == (2, 3, 3, 2, 2)
    assert r.upserted_ids == {4: 3, 5: 4}
    assert list(coll.find(sort=[("_id", 1)])) == [{"_id": 1, "n": 11, "big": True}, {"_id": 3, "n": 3}]


def test_ordered_stops(coll):
    with pytest.raises(BulkWriteError) as e:
        coll.insert_many([{"_id": 1}, {"_id": 1}, {"_id": 2}])
    details = e.value.details
    assert details["nInserted"] == 1
    (error,) = details["writeErrors"]
    assert (error["index"], error["code"], error["keyPattern"], error["keyValue"]) == (1, 11000, {"_id": 1}, {"_id": 1})
    assert error["op"]["_id"] == 1
    assert coll.count_documents({}) == 1


def test_unordered_continues(coll):
    with pytest.raises(BulkWriteError) as e:
        coll.insert_many([{"_id": 1}, {"_id": 1}, {"_id": 2}, {"_id": 2}, {"_id": 3}], ordered=False)
    assert e.value.details["nInserted"] == 3
    assert [(w["index"], w["code"]) for w in e.value.details["writeErrors"]] == [(1, 11000), (3, 11000)]
    assert coll.count_documents({}) == 3


def test_errors_of_several_kinds(coll):
    coll.insert_many([{"_id": 1, "s": "x"}, {"_id": 2, "n": 1}])
    with pytest.raises(BulkWriteError) as e:
        coll.bulk_write(
            [
                UpdateOne({"_id": 1}, {"$inc": {"s": 1}}),
                UpdateOne({"_id": 2}, {"$inc": {"n": 1}}),
                UpdateOne({"_id": 2}, {"$nope": {"n": 1}}),
                DeleteOne({"$nope": 1}),
                InsertOne({"_id": 2}),
            ],
            ordered=False,
        )
    assert sorted((w["index"], w["code"]) for w in e.value.details["writeErrors"]) == [(0, 14), (2, 9), (3, 2), (4, 11000)]
    assert coll.find_one(2)["n"] == 2


def test_a_failed_ordered_batch_keeps_earlier_writes(coll):
    with pytest.raises(BulkWriteError):
        coll.bulk_write([InsertOne({"_id": 1}), DeleteOne({"_id": 1}), InsertOne({"_id": 2}), InsertOne({"_id": 2}), InsertOne({"_id": 3})])
    assert [d["_id"] for d in coll.find()] == [2]


def test_more_than_one_command_holds(coll):
    r = coll.insert_many([{"_id": i} for i in range(100_001)])
    assert len(r.inserted_ids) == 100_001
    assert coll.estimated_document_count() == 100_001


def test_insert_many_splits_by_bytes(coll):
    coll.insert_many([{"_id": i, "pad": "x" * 5_000_000} for i in range(15)])
    assert coll.count_documents({}) == 15
    assert sum(len(d["pad"]) for d in coll.find(batch_size=2)) == 75_000_000
