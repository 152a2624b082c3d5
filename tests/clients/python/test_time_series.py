"""Time-series collections: reads return what a plain collection with the same documents returns."""

import random
from datetime import datetime, timedelta, timezone

import pytest
from pymongo import ASCENDING, DESCENDING, InsertOne
from pymongo.errors import BulkWriteError, OperationFailure, WriteError

START = datetime(2024, 5, 1, tzinfo=timezone.utc)


def at(seconds):
    return START + timedelta(seconds=seconds)


@pytest.fixture
def series(db, request):
    name = "ts_" + request.node.name
    db.drop_collection(name)
    return db.create_collection(name, timeseries={"timeField": "t", "metaField": "m", "granularity": "seconds"})


def measurements(count, rng):
    return [
        {"_id": n, "t": at(rng.randrange(20_000)), "m": {"id": rng.randrange(4)}, "x": rng.choice([rng.randrange(100), rng.random(), None, "s"])}
        for n in range(count)
    ]


def by_id(docs):
    return sorted(docs, key=lambda d: d["_id"])


def test_as_a_plain_collection(series, coll):
    rng = random.Random(5)
    docs = measurements(3000, rng)
    for first in range(0, 3000, 700):
        series.insert_many(docs[first : first + 700], ordered=rng.random() < 0.5)
    coll.insert_many(docs)
    assert by_id(series.find()) == by_id(coll.find())
    for _ in range(25):
        low = rng.randrange(20_000)
        for query in [
            {"m.id": rng.randrange(5), "t": {"$gte": at(low), "$lt": at(low + 1000)}},
            {"x": {"$gt": rng.randrange(100)}},
            {"$or": [{"x": "s"}, {"t": {"$lt": at(low)}, "m": {"id": 1}}]},
            {"x": {"$ne": None}, "m.id": {"$in": [0, 3]}},
        ]:
            assert by_id(series.find(query)) == by_id(coll.find(query)), query
            assert series.count_documents(query) == coll.count_documents(query)
        for order in (ASCENDING, DESCENDING):
            found = list(series.find({"m.id": 2}).sort("t", order).limit(50))
            assert [d["t"] for d in found] == [d["t"] for d in coll.find({"m.id": 2}).sort("t", order).limit(50)]
    group = [{"$group": {"_id": "$m.id", "n": {"$sum": 1}, "first": {"$min": "$t"}, "x": {"$max": "$x"}}}, {"$sort": {"_id": 1}}]
    assert list(series.aggregate(group)) == list(coll.aggregate(group))


def test_errors_have_indexes(series):
    docs = [{"t": at(0)}, {"t": 5}, {"t": at(1)}, {"x": 1}]
    with pytest.raises(BulkWriteError) as e:
        series.insert_many(docs, ordered=False)
    assert e.value.details["nInserted"] == 2
    assert [(w["index"], w["code"]) for w in e.value.details["writeErrors"]] == [(1, 2), (3, 2)]
    with pytest.raises(BulkWriteError) as e:
        series.bulk_write([InsertOne({"t": at(0)}), InsertOne({}), InsertOne({"t": at(0)})])
    assert e.value.details["nInserted"] == 1
    with pytest.raises(WriteError) as e:
        series.update_one({"m": 1}, {"$set": {"m": 2}})
    assert e.value.code == 72


def test_a_cursor_continues_over_batches(series):
    series.insert_many([{"_id": n, "t": at(n), "m": 1} for n in range(2500)])
    assert len({d["_id"] for d in series.find(batch_size=100)}) == 2500


def test_the_collection_type_is_reported(series, db):
    infos = {info["name"]: info["type"] for info in db.list_collections()}
    assert infos[series.name] == "timeseries"
    assert infos["system.buckets." + series.name] == "collection"
    assert series.index_information().keys() == {"m_1_t_1"}
    with pytest.raises(OperationFailure) as e:
        db["system.buckets." + series.name].insert_one({"a": 1})
    assert e.value.code == 121
