"""Collations through the driver's type, option by option."""

import pytest
from pymongo import UpdateOne
from pymongo.collation import Collation, CollationAlternate, CollationCaseFirst, CollationMaxVariable, CollationStrength
from pymongo.errors import DuplicateKeyError, OperationFailure
from refusal import refused

INSENSITIVE = Collation("en", strength=CollationStrength.SECONDARY)


def ordered(coll, words, collation):
    coll.delete_many({})
    coll.insert_many([{"s": word} for word in words])
    return [d["s"] for d in coll.find().sort("s", 1).collation(collation)]


@pytest.mark.parametrize(
    "collation, words",
    [
        (Collation("en"), ["a", "A", "á", "b"]),
        (Collation("en", caseFirst=CollationCaseFirst.UPPER), ["A", "a", "á", "b"]),
        (Collation("fr"), ["cote", "coté", "côte", "côté"]),
        (Collation("fr_CA"), ["cote", "côte", "coté", "côté"]),
        (Collation("fr", backwards=True), ["cote", "côte", "coté", "côté"]),
        (Collation("en", numericOrdering=True), ["2", "10", "x9", "x10"]),
        (Collation("sv"), ["a", "z", "å", "ä", "ö"]),
        (Collation("de@collation=phonebook"), ["ad", "ae", "ä", "af"]),
        (
            Collation(
                "en",
                alternate=CollationAlternate.SHIFTED,
                maxVariable=CollationMaxVariable.SPACE,
                strength=CollationStrength.QUATERNARY,
            ),
            ["a b", "ab", "abc"],
        ),
    ],
)
def test_orders(coll, collation, words):
    assert ordered(coll, list(reversed(words)), collation) == words


def test_every_operation(coll):
    coll.insert_many([{"_id": 1, "s": "x"}, {"_id": 2, "s": "X"}, {"_id": 3, "s": "y"}])
    assert coll.count_documents({"s": "X"}, collation=INSENSITIVE) == 2
    assert coll.distinct("s", collation=INSENSITIVE) == ["x", "y"]
    assert coll.update_many({"s": "x"}, {"$set": {"n": 1}}, collation=INSENSITIVE).matched_count == 2
    assert coll.find_one({"s": "Y"}, collation=INSENSITIVE)["_id"] == 3
    groups = coll.aggregate([{"$group": {"_id": "$s"}}, {"$sort": {"_id": 1}}], collation=INSENSITIVE)
    assert [g["_id"] for g in groups] == ["x", "y"]
    assert coll.find_one_and_replace({"s": "Y"}, {"s": "z"}, collation=INSENSITIVE)["_id"] == 3
    done = coll.bulk_write([UpdateOne({"s": "Z"}, {"$set": {"n": 2}}, collation=INSENSITIVE), UpdateOne({"s": "Z"}, {"$set": {"n": 3}})])
    assert done.modified_count == 1
    assert coll.delete_many({"s": "X"}, collation=INSENSITIVE).deleted_count == 2


def test_unique_index(coll):
    coll.create_index("s", unique=True, collation=INSENSITIVE)
    assert coll.index_information()["s_1"]["collation"]["strength"] == 2
    coll.insert_one({"s": "x"})
    with refused(DuplicateKeyError, 11000, "collation: "):
        coll.insert_one({"s": "X"})


def test_collection_default(db):
    db.drop_collection("words")
    words = db.create_collection("words", collation=INSENSITIVE)
    assert words.options()["collation"]["locale"] == "en"
    words.insert_one({"_id": "a"})
    assert words.find_one({"_id": "A"}) == {"_id": "a"}
    assert words.find_one({"_id": "A"}, collation=Collation("simple")) is None
    words.drop()


def test_refusals(coll):
    with refused(OperationFailure, 2):
        coll.find_one({}, collation=Collation("nowhere"))
    with refused(OperationFailure, 2):
        coll.create_index("s", collation={"locale": "en", "strength": 7})
