"""Exceptions of the right class, with MongoDB's code and message."""

import pytest
from bson import Int64
from pymongo import WriteConcern
from pymongo.errors import CollectionInvalid, DocumentTooLarge, OperationFailure, WriteError
from refusal import refused


def test_unknown_command(db):
    with refused(OperationFailure, 59, "no such command: 'frobnicate'") as e:
        db.command("frobnicate")
    assert e.value.details["codeName"] == "CommandNotFound"
    assert e.value.details["ok"] == 0


def test_unknown_operator(coll):
    coll.insert_one({"a": 1})
    with refused(OperationFailure, 2, r"unknown operator: \$frob"):
        coll.find_one({"a": {"$frob": 1}})
    with refused(OperationFailure, 2, r"unknown top level operator: \$frob"):
        coll.find_one({"$frob": 1})
    with refused(WriteError, 9, r"(?i)unknown modifier: \$frob"):
        coll.update_one({}, {"$frob": {"a": 1}})
    with refused(OperationFailure, 40324, r"Unrecognized pipeline stage name: '\$frob'"):
        list(coll.aggregate([{"$frob": 1}]))
    with refused(OperationFailure, 40415, "frob"):
        coll.database.command("find", coll.name, frob=1)


def test_invalid_updates(coll):
    coll.insert_one({"_id": 1, "n": 1, "s": "x", "a": [1]})
    for update, code in (
        ({"$set": {"n": 1}, "$inc": {"n": 1}}, 40),
        ({"$set": {"n": 1}, "$unset": {"n.x": 1}}, 40),
        ({"$set": {"n.x": 1}}, 28),
        ({"$inc": {"s": 1}}, 14),
        ({"$push": {"n": 1}}, 2),
        ({"$addToSet": {"n": 1}}, 2),
        ({"$pull": {"n": 1}}, 2),
        ({"$set": {"_id": 2}}, 66),
        ({"$set": {"a.x": 1}}, 28),
    ):
        with refused(WriteError, code):
            coll.update_one({"_id": 1}, update)
    assert coll.find_one() == {"_id": 1, "n": 1, "s": "x", "a": [1]}


def test_overflow(coll):
    coll.insert_one({"_id": 1, "n": Int64(2**63 - 1)})
    with refused(WriteError, 2):
        coll.update_one({"_id": 1}, {"$inc": {"n": 1}})
    coll.update_one({"_id": 1}, {"$set": {"n": 2**31 - 1}})
    coll.update_one({"_id": 1}, {"$inc": {"n": 1}})  # an int grows into a long
    found = coll.find_one()["n"]
    assert found == 2**31 and isinstance(found, Int64)


def test_namespaces(db):
    db.create_collection("here")
    with pytest.raises(CollectionInvalid):  # PyMongo checks for the collection first
        db.create_collection("here")
    with refused(OperationFailure, 26):
        db.absent.rename("elsewhere")
    with refused(OperationFailure, 73):
        db.command("create", "a$b")


def test_too_large(coll):
    with pytest.raises((DocumentTooLarge, WriteError)):
        coll.insert_one({"_id": 1, "s": "x" * (16 * 1024 * 1024)})
    assert coll.count_documents({}) == 0


def test_unsatisfiable_write_concern(coll):
    with refused(OperationFailure, 2):
        coll.with_options(write_concern=WriteConcern(w=3)).insert_one({})


def test_bad_queries(coll):
    coll.insert_one({"a": 1})
    for query, code in (
        ({"a": {"$in": 1}}, 2),
        ({"$or": []}, 2),
        ({"a": {"$regex": "("}}, 51091),
        ({"a": {"$elemMatch": 1}}, 2),
        ({"a": {"$type": 99}}, 2),
        ({"a": {"$exists": True, "b": 1}}, 2),
    ):
        with pytest.raises(OperationFailure) as e:
            list(coll.find(query))
        assert e.value.code == code, (query, e.value)


def test_an_error_leaves_the_connection_usable(client):
    for _ in range(50):
        with refused(OperationFailure, 59):
            client.admin.command("frobnicate")
    assert client.admin.command("ping")["ok"] == 1
