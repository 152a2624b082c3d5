"""findAndModify: what it returns, and that an error leaves the collection unchanged."""

import pytest
from pymongo import ReturnDocument
from pymongo.errors import OperationFailure

STORED = {"_id": 1, "a": [{"k": 1, "v": 1}, {"k": 2, "v": 2}], "b": 7, "z": 0}


@pytest.fixture
def stored(coll):
    coll.insert_one(STORED)
    return coll


@pytest.mark.parametrize(
    "which, value", [(ReturnDocument.BEFORE, 2), (ReturnDocument.AFTER, 9)]
)
def test_positional_projection_of_an_update(stored, which, value):
    found = stored.find_one_and_update(
        {"a.k": 2}, {"$set": {"a.$.v": 9}}, projection={"a.$": 1}, return_document=which
    )
    assert found == {"_id": 1, "a": [{"k": 2, "v": value}]}
    assert stored.find_one()["a"] == [{"k": 1, "v": 1}, {"k": 2, "v": 9}]


def test_positional_projection_of_a_removal(stored):
    found = stored.find_one_and_delete({"a.k": 2}, projection={"a.$": 1})
    assert found == {"_id": 1, "a": [{"k": 2, "v": 2}]}
    assert stored.count_documents({}) == 0


@pytest.mark.parametrize(
    "fields, code",
    [
        ({"a.$": 1}, 51246),
        ({"q": {"$divide": [1, "$z"]}}, 2),
        ({"q": {"$meta": "sortKey"}}, 2),
        ({"a": 1, "b": 0}, 31254),
    ],
)
def test_an_error_of_the_projection_comes_before_the_write(stored, fields, code):
    for call in (
        lambda: stored.find_one_and_update({"b": 7}, {"$set": {"b": 8}}, projection=fields),
        lambda: stored.find_one_and_replace({"b": 7}, {"b": 8}, projection=fields),
        lambda: stored.find_one_and_delete({"b": 7}, projection=fields),
    ):
        with pytest.raises(OperationFailure) as error:
            call()
        assert error.value.code == code
        assert stored.find_one() == STORED
