"""applyOps: entries of an oplog, as mongorestore --oplogReplay sends them."""

import pytest
from bson import SON, Binary, Timestamp
from pymongo.errors import OperationFailure
from refusal import refused


def apply(client, *operations, **arguments):
    return client.admin.command("applyOps", list(operations), **arguments)


def op(kind, coll, o, **more):
    ns = coll.database.name + ".$cmd" if kind == "c" else coll.full_name
    return {"op": kind, "ns": ns, "o": o, **more}


def test_documents(client, coll):
    # An insert creates no collection.
    with refused(OperationFailure, 26):
        apply(client, op("i", coll, {"_id": 1}))
    coll.database.create_collection(coll.name)
    r = apply(
        client,
        op("i", coll, {"_id": 1, "a": 1, "b": [1, 2, 3]}),
        op("i", coll, {"_id": 2}),
        op("u", coll, {"$v": 2, "diff": {"u": {"a": 2}, "sb": {"a": True, "l": 2}}}, o2={"_id": 1}),
        op("u", coll, {"_id": 3, "new": True}, o2={"_id": 3}),
        op("d", coll, {"_id": 2}),
        op("d", coll, {"_id": 99}),
        op("n", coll, {"msg": "nothing"}, ts=Timestamp(1, 1), v=2),
        alwaysUpsert=True,
    )
    assert (r["applied"], r["results"]) == (7, [True] * 7)
    assert list(coll.find().sort("_id", 1)) == [{"_id": 1, "a": 2, "b": [1, 2]}, {"_id": 3, "new": True}]
    # Applied again, an insert replaces the document with its _id.
    apply(client, op("i", coll, {"_id": 1, "a": 1}))
    assert coll.find_one(1) == {"_id": 1, "a": 1}


def test_commands(client, coll):
    name = coll.name
    apply(
        client,
        op("c", coll, SON([("create", name), ("capped", True), ("size", 8192)])),
        op("c", coll, SON([("createIndexes", name), ("v", 2), ("key", {"a": 1}), ("name", "a_1")])),
        op("c", coll, SON([("collMod", name), ("index", {"name": "a_1", "hidden": True})])),
    )
    assert coll.options()["capped"] is True
    assert coll.index_information()["a_1"]["hidden"] is True
    apply(client, op("c", coll, SON([("dropIndexes", name), ("index", "a_1")])))
    assert list(coll.index_information()) == ["_id_"]
    other = coll.database[name + "_2"]
    apply(client, op("c", coll, SON([("renameCollection", coll.full_name), ("to", other.full_name)])))
    assert other.name in coll.database.list_collection_names()
    apply(client, op("c", other, {"drop": other.name}))
    assert other.name not in coll.database.list_collection_names()


def test_uuids(client, coll):
    uuid = Binary(bytes(range(6)) + b"\x46\x07\x88" + bytes(range(9, 16)), 4)
    apply(client, op("c", coll, {"create": coll.name}, ui=uuid))
    (info,) = coll.database.list_collections(filter={"name": coll.name})
    assert bytes(info["info"]["uuid"]) == bytes(uuid)
    # The name is the one at the time when the entry was written.
    apply(client, op("i", coll.database["another_name"], {"_id": 1}, ui=uuid))
    assert coll.find_one() == {"_id": 1}
    with refused(OperationFailure, 26):
        apply(client, op("i", coll, {"_id": 2}, ui=Binary(bytes(16), 4)))


def test_transaction_entry(client, coll):
    coll.insert_one({"_id": 0})
    inner = [op("i", coll, {"_id": 1}), op("d", coll, {"_id": 0})]
    apply(client, {"op": "c", "ns": "admin.$cmd", "o": {"applyOps": inner}})
    assert list(coll.find()) == [{"_id": 1}]


def test_refusals(client, coll):
    coll.insert_one({"_id": 1})
    missing = op("u", coll, {"$v": 2, "diff": {"u": {"a": 2}}}, o2={"_id": 9})
    with pytest.raises(OperationFailure) as failed:
        apply(client, missing, op("d", coll, {"_id": 1}))
    assert failed.value.code == 8
    assert failed.value.details["results"] == [False, True]
    assert coll.find_one() is None
    replacement = op("u", coll, {"_id": 9}, o2={"_id": 9})
    with refused(OperationFailure, 8):
        apply(client, replacement)
    with refused(OperationFailure, 6711600):
        apply(client, preCondition=[])
    for operation, code in [
        ({"op": "x", "ns": coll.full_name, "o": {}}, 2),
        ({"ns": coll.full_name, "o": {}}, 4),
        ({"op": "i", "ns": coll.full_name}, 40414),
        ({"op": "i", "ns": coll.full_name, "o": {"a": 1}}, 4),
        (op("u", coll, {"$v": 1, "$set": {"a": 1}}, o2={"_id": 1}), 4772600),
        (op("c", coll, {"nosuch": 1}), 2),
        (op("c", coll, {"drop": "absent"}, ui=Binary(bytes(16), 4)), 26),
        (1, 14),
    ]:
        with refused(OperationFailure, code):
            apply(client, operation)
    with refused(OperationFailure, 14):
        client.admin.command("applyOps", 1)
    with refused(OperationFailure, 40415):
        apply(client, nosuch=1)


def test_rules_of_the_collection(client, coll):
    coll.database.create_collection(coll.name, validator={"a": {"$exists": True}})
    coll.create_index("u", unique=True)
    document = op("i", coll, {"_id": 1, "u": 1})
    with refused(OperationFailure, 121):
        apply(client, document)
    apply(client, document, bypassDocumentValidation=True, allowAtomic=False, comment="kept")
    with refused(OperationFailure, 11000):
        apply(client, op("i", coll, {"_id": 2, "u": 1, "a": 1}))
