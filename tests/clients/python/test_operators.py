"""The table of operators and commands that the drivers' suites share: each once, through PyMongo."""

import pathlib

import pytest
from bson import json_util

TABLE = json_util.loads((pathlib.Path(__file__).parents[1] / "tables" / "operators.json").read_text())
DOCUMENTS = [{"_id": n, "n": n, "gap": n if n in (1, 4) else None} for n in (1, 2, 3, 4)]


def plain(value):
    """Comparable: order of fields, and int and long as one, doubles apart."""
    return json_util.dumps(value, json_options=json_util.RELAXED_JSON_OPTIONS)


@pytest.fixture(scope="module")
def numbers(db):
    db.numbers.insert_many(DOCUMENTS)
    return db.numbers


def name(row):
    return next(iter(row[0])) if isinstance(row[0], dict) else str(row[0])


@pytest.mark.parametrize("row", TABLE["expressions"], ids=name)
def test_expression(db, row):
    date = json_util.loads('{"t": {"$date": "2024-02-29T12:30:05.250Z"}}')
    documents = {"$documents": [{"a": [1, 2, 3], **date}]}
    (found,) = db.aggregate([documents, {"$replaceWith": {"v": row[0]}}])
    assert plain(found["v"]) == plain(row[1])


@pytest.mark.parametrize("row", TABLE["accumulators"], ids=name)
def test_accumulator(numbers, row):
    (found,) = numbers.aggregate([{"$sort": {"n": 1}}, {"$group": {"_id": None, "v": row[0]}}])
    assert plain(found["v"]) == plain(row[1])


@pytest.mark.parametrize("row", TABLE["windows"], ids=name)
def test_window_operator(numbers, row):
    found = numbers.aggregate([{"$setWindowFields": {"sortBy": {"n": 1}, "output": {"v": row[0]}}}])
    assert plain([doc["v"] for doc in found]) == plain(row[1])


@pytest.mark.parametrize("row", TABLE["queries"], ids=lambda row: str(row[0])[:40])
def test_query(numbers, row):
    assert [doc["n"] for doc in numbers.find(row[0]).sort("n")] == row[1]


@pytest.mark.parametrize("row", TABLE["updates"], ids=name)
def test_update(coll, row):
    coll.insert_one({"_id": 1, "a": [1, 2, 3], "k": 4})
    options = {"array_filters": row[1]["arrayFilters"]} if row[1] else {}
    coll.update_one({}, row[0], **options)
    assert plain(coll.find_one({}, {"_id": 0})) == plain(row[2])


@pytest.mark.parametrize("row", TABLE["stages"], ids=lambda row: str(row[0])[:40])
def test_stage(numbers, row):
    assert plain(list(numbers.aggregate(row[0]))) == plain(row[1])


@pytest.mark.parametrize("row", TABLE["commands"], ids=name)
def test_command(client, row):
    reply = client.admin.command(row[1])
    assert reply["ok"] == 1 and all(field in reply for field in row[2])
