"""Indexes: created, listed, compared, refused, dropped."""

import pytest
from pymongo import ASCENDING, DESCENDING, IndexModel
from pymongo.errors import DuplicateKeyError, OperationFailure, WriteError
from refusal import refused


def test_create_list_drop(coll):
    assert coll.create_index("a") == "a_1"
    assert coll.create_index("a") == "a_1"
    assert coll.create_index([("b", DESCENDING), ("c.d", ASCENDING)], name="mine") == "mine"
    assert coll.create_indexes([IndexModel("x", sparse=True), IndexModel([("y", -1)], unique=True)]) == ["x_1", "y_-1"]
    info = coll.index_information()
    assert info["mine"]["key"] == [("b", -1), ("c.d", 1)]
    assert info["x_1"]["sparse"] is True and info["y_-1"]["unique"] is True
    assert list(info) == ["_id_", "a_1", "mine", "x_1", "y_-1"]
    coll.drop_index([("a", 1)])
    coll.drop_index("mine")
    assert list(coll.index_information()) == ["_id_", "x_1", "y_-1"]
    coll.drop_indexes()
    assert [i["name"] for i in coll.list_indexes()] == ["_id_"]


def test_conflicts(coll):
    coll.create_index("a")
    with refused(OperationFailure, 85) as e:
        coll.create_index("a", name="other")
    assert e.value.details["codeName"] == "IndexOptionsConflict"
    with refused(OperationFailure, 86) as e:
        coll.create_index("b", name="a_1")
    assert e.value.details["codeName"] == "IndexKeySpecsConflict"
    with refused(OperationFailure, 86):
        coll.create_index("a", unique=True)


def test_refusals(coll):
    coll.insert_one({})
    for keys, code in (([("a", 0)], 67), ([("a", "nonsense")], 67)):
        with refused(OperationFailure, code):
            coll.create_index(keys)
    with refused(OperationFailure, 27):
        coll.drop_index("none")
    with refused(OperationFailure, 72):
        coll.drop_index("_id_")


def test_duplicate_key(coll):
    coll.create_index([("a", 1), ("b", 1)], unique=True)
    coll.insert_one({"_id": 1, "a": 1, "b": "x"})
    with refused(DuplicateKeyError, 11000, "E11000 duplicate key error collection: .* index: a_1_b_1 dup key") as e:
        coll.insert_one({"_id": 2, "a": 1, "b": "x"})
    assert e.value.details["keyPattern"] == {"a": 1, "b": 1}
    assert e.value.details["keyValue"] == {"a": 1, "b": "x"}
    coll.insert_one({"_id": 3, "a": 1, "b": "y"})
    with refused(DuplicateKeyError, 11000):
        coll.update_one({"_id": 3}, {"$set": {"b": "x"}})
    with refused(DuplicateKeyError, 11000):
        coll.replace_one({"_id": 3}, {"a": 1, "b": "x"})
    with refused(DuplicateKeyError, 11000):
        coll.find_one_and_update({"_id": 3}, {"$set": {"b": "x"}})
    with refused(DuplicateKeyError, 11000):
        coll.insert_one({"_id": 3})
    assert coll.find_one(3) == {"_id": 3, "a": 1, "b": "y"}


def test_unique_over_existing_duplicates(coll):
    coll.insert_many([{"k": 1}, {"k": 1}])
    with refused(DuplicateKeyError, 11000):
        coll.create_index("k", unique=True)
    assert list(coll.index_information()) == ["_id_"]


def test_unique_swap_through_a_third_value(coll):
    coll.create_index("k", unique=True)
    coll.insert_many([{"_id": 1, "k": "a"}, {"_id": 2, "k": "b"}])
    for id_, k in ((1, "tmp"), (2, "a"), (1, "b")):
        coll.update_one({"_id": id_}, {"$set": {"k": k}})
    assert [coll.find_one({"k": k})["_id"] for k in "ab"] == [2, 1]


def test_partial(coll):
    coll.create_index("n", unique=True, partialFilterExpression={"kind": "u"})
    coll.insert_many([{"kind": "v", "n": 1}, {"kind": "v", "n": 1}, {"kind": "u", "n": 1}])
    with refused(DuplicateKeyError, 11000):
        coll.insert_one({"kind": "u", "n": 1})
    with refused(DuplicateKeyError, 11000):
        coll.update_one({"kind": "v"}, {"$set": {"kind": "u"}})
    assert coll.count_documents({"n": 1}) == 3


def test_parallel_arrays(coll):
    coll.create_index([("a", 1), ("b", 1)])
    coll.insert_one({"a": [1, 2], "b": 1})
    with refused(WriteError, 171):
        coll.insert_one({"a": [1], "b": [1]})


def test_multikey_results_do_not_repeat(coll):
    coll.insert_many({"_id": i, "t": [i, i + 1, i + 2]} for i in range(100))
    coll.create_index("t")
    found = [d["_id"] for d in coll.find({"t": {"$gte": 10, "$lte": 20}}).hint("t_1")]
    assert sorted(found) == sorted(set(found)) == [d["_id"] for d in coll.find({"t": {"$gte": 10, "$lte": 20}}).hint([("$natural", 1)])]


def test_sixty_four_indexes_are_the_limit(coll):
    for i in range(63):
        coll.create_index(f"f{i}")
    with refused(OperationFailure, 67):
        coll.create_index("one_too_many")
    assert len(coll.index_information()) == 64


@pytest.mark.parametrize("fields", [32, 33])
def test_thirty_two_fields_are_the_limit(coll, fields):
    keys = [(f"f{i}", 1) for i in range(fields)]
    if fields == 32:
        assert coll.create_index(keys, name="wide") == "wide"
    else:
        with refused(OperationFailure, 67):
            coll.create_index(keys, name="wide")
