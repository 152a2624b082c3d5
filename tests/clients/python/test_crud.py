"""The helpers of a collection and what they return."""

import pytest
from bson import ObjectId, SON
from pymongo import ASCENDING, DESCENDING, ReturnDocument


@pytest.fixture
def numbers(coll):
    coll.insert_many({"_id": i, "a": i % 4, "b": f"v{i}", "t": [i, i + 1]} for i in range(20))
    return coll


def ids(cursor):
    return [d["_id"] for d in cursor]


def test_insert(coll):
    r = coll.insert_one({"x": 1})
    assert r.acknowledged and isinstance(r.inserted_id, ObjectId)
    r = coll.insert_many([{"_id": "a"}, {"_id": 2}, {}])
    assert r.inserted_ids[:2] == ["a", 2] and isinstance(r.inserted_ids[2], ObjectId)
    assert coll.count_documents({}) == 4


def test_find(numbers):
    assert numbers.find_one({"a": 99}) is None
    assert numbers.find_one(3) == {"_id": 3, "a": 3, "b": "v3", "t": [3, 4]}
    assert ids(numbers.find({"a": 1}).sort("_id", DESCENDING).skip(1).limit(2)) == [13, 9]
    assert ids(numbers.find(sort=[("a", ASCENDING), ("_id", DESCENDING)], limit=3)) == [16, 12, 8]
    assert ids(numbers.find({"$nor": [{"a": {"$lt": 3}}, {"_id": {"$gt": 10}}]})) == [3, 7]
    assert ids(numbers.find({"t": {"$all": [4, 5]}})) == [4]
    assert ids(numbers.find({"t": {"$elemMatch": {"$gt": 19}}})) == [19]
    assert ids(numbers.find({"b": {"$regex": "^V1[89]", "$options": "i"}})) == [18, 19]
    assert ids(numbers.find({"_id": {"$mod": [7, 0]}})) == [0, 7, 14]
    assert ids(numbers.find({"_id": {"$bitsAllSet": 0b10010}})) == [18, 19]
    assert ids(numbers.find({"a": {"$not": {"$gte": 1}}})) == [0, 4, 8, 12, 16]
    assert ids(numbers.find({"$expr": {"$eq": ["$_id", 6]}})) == [6]


def test_indexing_a_cursor(numbers):
    assert numbers.find().sort("_id", 1)[5]["_id"] == 5
    assert ids(numbers.find().sort("_id", 1)[2:5]) == [2, 3, 4]


def test_projection(coll):
    coll.insert_one({"_id": 1, "a": 1, "b": {"c": 1, "d": 2}, "e": [1, 2, 3], "f": [{"g": 1}, {"g": 2}]})
    assert coll.find_one({}, ["a"]) == {"_id": 1, "a": 1}
    assert coll.find_one({}, {"_id": 0, "b.d": 1}) == {"b": {"d": 2}}
    assert coll.find_one({}, {"b": 0, "e": 0, "f": 0}) == {"_id": 1, "a": 1}
    assert coll.find_one({}, {"e": {"$slice": [1, 1]}, "a": 1}) == {"_id": 1, "a": 1, "e": [2]}
    assert coll.find_one({}, {"f": {"$elemMatch": {"g": 2}}}) == {"_id": 1, "f": [{"g": 2}]}
    assert coll.find_one({"f.g": 2}, {"f.$": 1}) == {"_id": 1, "f": [{"g": 2}]}


def test_options_of_find(numbers):
    name = numbers.create_index([("a", 1), ("_id", 1)])
    assert ids(numbers.find({"a": 3}).hint(name).comment("why").max_time_ms(10_000)) == [3, 7, 11, 15, 19]
    assert ids(numbers.find().min([("a", 1), ("_id", 9)]).max([("a", 2), ("_id", 6)]).hint(name)) == [9, 13, 17, 2]
    assert ids(numbers.find({"$expr": {"$eq": ["$_id", "$$n"]}}, let={"n": 4})) == [4]
    assert ids(numbers.find({}, hint=[("$natural", -1)], limit=2)) == [19, 18]
    rids = [d["$recordId"] for d in numbers.find(show_record_id=True)]
    assert rids == sorted(set(rids)) and len(rids) == 20
    assert ids(numbers.find({}, allow_disk_use=True).sort("b", 1).limit(2)) == [0, 1]


def test_counting(numbers):
    assert numbers.count_documents({}) == 20
    assert numbers.count_documents({"a": 1}, skip=2, limit=10) == 3
    assert numbers.count_documents({"a": 1}, hint="_id_") == 5
    assert numbers.estimated_document_count() == 20
    assert numbers.distinct("a") == [0, 1, 2, 3]
    assert numbers.distinct("t", {"_id": {"$lt": 2}}) == [0, 1, 2]


def test_update(numbers):
    r = numbers.update_one({"_id": 1}, {"$set": {"a": 1}})
    assert (r.matched_count, r.modified_count, r.upserted_id) == (1, 0, None)
    r = numbers.update_many({"a": 1}, {"$set": {"c": 1}, "$unset": {"b": ""}})
    assert (r.matched_count, r.modified_count) == (5, 5)
    r = numbers.replace_one({"_id": 2}, {"whole": True})
    assert r.modified_count == 1
    assert numbers.find_one(2) == {"_id": 2, "whole": True}
    r = numbers.update_one({"k": 1}, {"$set": {"v": 1}}, upsert=True)
    assert r.matched_count == 0 and isinstance(r.upserted_id, ObjectId)
    r = numbers.update_one({"_id": "made"}, {"$setOnInsert": {"v": 1}}, upsert=True)
    assert r.upserted_id == "made"


def test_update_operators(coll):
    coll.insert_one({"_id": 1, "n": 10, "s": "x", "a": [3, 1, 2]})

    def after(update):
        return coll.find_one_and_update({"_id": 1}, update, return_document=ReturnDocument.AFTER)

    assert after({"$inc": {"n": 1}, "$rename": {"s": "t"}})["t"] == "x"
    assert after({"$mul": {"n": 2.5}})["n"] == 27.5
    assert after({"$min": {"n": 3}, "$max": {"m": 4}}) == {"_id": 1, "n": 3, "a": [3, 1, 2], "t": "x", "m": 4}
    assert after({"$push": {"a": {"$each": [5, 4], "$sort": 1, "$slice": 4}}})["a"] == [1, 2, 3, 4]
    assert after({"$addToSet": {"a": {"$each": [4, 9]}}})["a"] == [1, 2, 3, 4, 9]
    assert after({"$pull": {"a": {"$lt": 3}}})["a"] == [3, 4, 9]
    assert after({"$pop": {"a": -1}})["a"] == [4, 9]
    assert after({"$set": {"d.e.f": 1}, "$unset": {"t": 1}})["d"] == {"e": {"f": 1}}


def test_find_one_and(coll):
    coll.insert_many([{"_id": 1, "n": 3}, {"_id": 2, "n": 1}, {"_id": 3, "n": 2}])
    assert coll.find_one_and_update({}, {"$inc": {"n": 10}}, sort=[("n", 1)]) == {"_id": 2, "n": 1}
    assert coll.find_one_and_replace({"_id": 1}, {"r": 1}, return_document=ReturnDocument.AFTER) == {"_id": 1, "r": 1}
    assert coll.find_one_and_delete({"_id": 3}, projection={"_id": 0}) == {"n": 2}
    assert coll.find_one_and_delete({"_id": 3}) is None
    assert coll.find_one_and_update({"_id": 7}, {"$set": {"x": 1}}, upsert=True, return_document=True) == {"_id": 7, "x": 1}


def test_delete(numbers):
    assert numbers.delete_one({"a": 1}).deleted_count == 1
    assert numbers.delete_many({"a": 1}).deleted_count == 4
    assert numbers.delete_many({}).deleted_count == 15


def test_aggregate(numbers):
    rows = numbers.aggregate([{"$match": {"_id": {"$lt": 8}}}, {"$group": {"_id": "$a", "s": {"$sum": "$_id"}}}, {"$sort": {"_id": -1}}])
    assert list(rows) == [{"_id": 3, "s": 10}, {"_id": 2, "s": 8}, {"_id": 1, "s": 6}, {"_id": 0, "s": 4}]
    assert list(numbers.aggregate([{"$count": "n"}])) == [{"n": 20}]
    assert ids(numbers.aggregate([{"$sort": {"_id": -1}}, {"$skip": 1}, {"$limit": 2}, {"$project": {"_id": 1}}])) == [18, 17]
    assert len(list(numbers.aggregate([{"$match": {}}], batchSize=3))) == 20


def test_order_of_fields_is_kept(coll):
    doc = SON([("_id", 1), ("z", 1), ("a", SON([("y", 1), ("b", 2)])), ("m", 1)])
    coll.insert_one(doc)
    found = coll.find_one()
    assert list(found) == ["_id", "z", "a", "m"]
    assert list(found["a"]) == ["y", "b"]


def test_null_and_missing(coll):
    coll.insert_many([{"_id": 1, "x": None}, {"_id": 2}, {"_id": 3, "x": 5}, {"_id": 4, "x": []}, {"_id": 5, "x": [None]}])
    for index in (False, True):
        if index:
            coll.create_index("x")
        assert sorted(ids(coll.find({"x": None}))) == [1, 2, 5]
        assert sorted(ids(coll.find({"x": {"$exists": True}}))) == [1, 3, 4, 5]
        assert sorted(ids(coll.find({"x": {"$exists": False}}))) == [2]
        assert sorted(ids(coll.find({"x": {"$ne": None}}))) == [3, 4]
        assert sorted(ids(coll.find({"x": {"$in": [None, 5]}}))) == [1, 2, 3, 5]
        assert sorted(ids(coll.find({"x": []}))) == [4]
        assert sorted(ids(coll.find({"x": {"$type": "null"}}))) == [1, 5]


def test_explain(numbers):
    numbers.create_index("a")
    plan = numbers.find({"a": 2}).explain()
    assert plan["queryPlanner"]["winningPlan"]["inputStage"]["indexName"] == "a_1"
    assert plan["executionStats"]["totalKeysExamined"] == 5
    assert plan["executionStats"]["totalDocsExamined"] == 5
