"""Functions of the user: $where, $function, $accumulator, mapReduce, and the types that cross."""

import datetime
import uuid

import pytest
from bson import SON
from bson.binary import Binary
from bson.code import Code
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp
from pymongo.errors import ExecutionTimeout, OperationFailure
from refusal import refused


@pytest.fixture
def orders(coll):
    coll.insert_many(
        {"_id": n, "customer": f"c{n % 3}", "price": n * 1.5, "items": [{"qty": n}, {"qty": 1}]} for n in range(12)
    )
    return coll


def function(body, *args):
    return {"$function": {"body": body, "args": list(args), "lang": "js"}}


def test_where(orders):
    wanted = [n for n in range(12) if n * 1.5 > 10 and n % 3 == 1]
    for source in (
        "this.price > 10 && this.customer == 'c1'",
        Code("function() { return obj.price > 10 && this.customer === 'c1'; }"),
    ):
        assert [d["_id"] for d in orders.find({"$where": source}).sort("_id")] == wanted
    assert orders.find({"$where": "this.items[0].qty == 7"}).explain()["queryPlanner"]["winningPlan"]
    assert orders.delete_many({"$where": "this._id >= 10"}).deleted_count == 2
    # PyMongo counts by a pipeline, where $where is refused.
    with refused(OperationFailure, 2):
        orders.count_documents({"$where": "true"})


def test_function(orders):
    total = function("function(items) { return items.reduce((sum, i) => sum + i.qty, 0); }", "$items")
    found = orders.aggregate([{"$set": {"total": total}}, {"$sort": {"_id": 1}}])
    assert [d["total"] for d in found] == [n + 1 for n in range(12)]
    with refused(OperationFailure, 139):
        list(orders.aggregate([{"$set": {"x": function("() => nothing.there")}}]))


def test_every_type_crosses(coll):
    doc = {
        "_id": ObjectId(),
        "int": 7,
        "long": Int64(2**60),
        "double": 3.0,
        "decimal": Decimal128("1.50"),
        "text": "a\u00e9\U0001f600",
        "date": datetime.datetime(2020, 1, 2, 3, 4, 5, 6000),
        "uuid": Binary.from_uuid(uuid.UUID(int=5)),
        "bytes": b"\x00\xff",
        "time": Timestamp(4, 5),
        "regex": Regex("^a", "im"),
        "code": Code("f()"),
        "scoped": Code("f()", {"a": 1}),
        "min": MinKey(),
        "max": MaxKey(),
        "none": None,
        "list": [1, 2.0, [Int64(3)]],
        "10": 1,
        "9": {"b": 1, "a": 2, "0": 3},
    }
    coll.insert_one(doc)
    found = coll.aggregate([{"$project": {"_id": 0, "same": function("function(d) { return d; }", "$$ROOT")}}])
    (same,) = [d["same"] for d in found]
    assert list(same.items()) == list(doc.items())
    for field in ("int", "long", "double"):
        assert type(same[field]) is type(doc[field])
    assert list(same["9"]) == ["b", "a", "0"]


def test_accumulator(orders):
    longest = {
        "$accumulator": {
            "init": "function() { return []; }",
            "accumulate": "function(all, price) { all.push(price); return all; }",
            "accumulateArgs": ["$price"],
            "merge": "function(a, b) { return a.concat(b); }",
            "finalize": "function(all) { return Math.max(...all); }",
            "lang": "js",
        }
    }
    found = orders.aggregate([{"$group": {"_id": "$customer", "most": longest}}, {"$sort": {"_id": 1}}])
    assert list(found) == [
        {"_id": f"c{c}", "most": max(n * 1.5 for n in range(12) if n % 3 == c)} for c in range(3)
    ]


def test_map_reduce(db, orders):
    command = SON(
        mapReduce=orders.name,
        map=Code("function() { this.items.forEach(i => emit(this.customer, i.qty)); }"),
        reduce=Code("function(key, values) { return Array.sum(values); }"),
    )
    sums = {f"c{c}": float(sum(n + 1 for n in range(12) if n % 3 == c)) for c in range(3)}
    inline = db.command({**command, "out": {"inline": 1}})["results"]
    assert {d["_id"]: d["value"] for d in inline} == sums
    target = db[orders.name + "_out"]
    target.drop()
    for times in (1, 2):
        db.command({**command, "out": {"reduce": target.name}})
        assert {d["_id"]: d["value"] for d in target.find()} == {k: times * v for k, v in sums.items()}


def test_stored_functions(db, orders):
    db["system.js"].replace_one({"_id": "dear"}, {"value": Code("function(p) { return p > 15; }")}, upsert=True)
    assert len(list(orders.find({"$where": "dear(this.price)"}))) == sum(n * 1.5 > 15 for n in range(12))


def test_time_is_limited(orders):
    with pytest.raises(ExecutionTimeout):
        list(orders.find({"$where": "for (;;);"}).max_time_ms(100))
