"""Databases, collections and server information."""

from pymongo.errors import OperationFailure
from refusal import refused


def test_collections(db):
    db.create_collection("made")
    db.filled.insert_one({})
    assert sorted(db.list_collection_names()) == ["filled", "made"]
    (info,) = db.list_collections(filter={"name": "made"})
    assert info["type"] == "collection" and info["options"] == {} and info["info"]["readOnly"] is False
    db.made.rename("renamed")
    assert sorted(db.list_collection_names()) == ["filled", "renamed"]
    db.drop_collection("renamed")
    db.drop_collection("absent")
    assert db.list_collection_names() == ["filled"]


def test_databases(client):
    client.python_other.c.insert_one({})
    assert "python_other" in client.list_database_names()
    (entry,) = [d for d in client.list_databases() if d["name"] == "python_other"]
    assert entry["empty"] is False
    client.drop_database("python_other")
    assert "python_other" not in client.list_database_names()


def test_stats(db):
    db.sized.insert_many({"_id": i, "pad": "x" * 100} for i in range(100))
    stats = db.command("collStats", "sized")
    assert (stats["count"], stats["nindexes"], stats["ns"]) == (100, 1, db.name + ".sized")
    assert stats["size"] > 10_000
    assert db.command("dbStats")["objects"] >= 100
    (row,) = db.sized.aggregate([{"$collStats": {"storageStats": {}}}])
    assert row["storageStats"]["count"] == 100


def test_coll_mod(db):
    db.modified.create_index("a")
    r = db.command("collMod", "modified", index={"name": "a_1", "hidden": True})
    assert r["hidden_new"] is True
    assert db.modified.index_information()["a_1"]["hidden"] is True
    with refused(OperationFailure, 26):
        db.command("collMod", "absent", index={"name": "a_1", "hidden": True})


def test_server_status(client):
    s = client.admin.command("serverStatus")
    for section in ("connections", "opcounters", "network", "mem", "metrics"):
        assert section in s, section
    before = s["opcounters"]["query"]
    client.python_admin.x.find_one()
    assert client.admin.command("serverStatus")["opcounters"]["query"] == before + 1


def test_current_op(client):
    ops = client.admin.command("currentOp")["inprog"]
    assert any(op.get("command", {}).get("currentOp") for op in ops)


def test_get_log(client):
    assert "global" in client.admin.command("getLog", "*")["names"]
    assert client.admin.command("getLog", "global")["totalLinesWritten"] > 0


def test_admin_commands_belong_to_admin(db):
    with refused(OperationFailure, 13, "may only be run against the admin database"):
        db.command("listDatabases")
