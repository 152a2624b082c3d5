"""Query settings: set, listed, applied and removed through the driver."""

import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure
from refusal import refused


@pytest.fixture
def orders(member):
    """A collection with two indexes that serve {kind, total}, on a replica set."""
    with MongoClient("127.0.0.1", member, directConnection=True) as client:
        client.drop_database("python_settings")
        orders = client.python_settings.orders
        orders.insert_many([{"_id": n, "kind": "a", "total": n} for n in range(50)])
        orders.create_index("kind")
        orders.create_index("total")
        yield orders


def shape(orders):
    return {"find": orders.name, "filter": {"kind": "", "total": 0}, "$db": orders.database.name}


def index_of(cursor):
    return cursor.explain()["queryPlanner"]["winningPlan"]["inputStage"]["indexName"]


def listed(client):
    return list(client.admin.aggregate([{"$querySettings": {}}]))


def test_index_hints(orders):
    admin = orders.database.client.admin
    found = orders.find({"kind": "a", "total": 7})
    assert index_of(found.clone()) == "total_1"
    hints = {"ns": {"db": orders.database.name, "coll": orders.name}, "allowedIndexes": ["kind_1"]}
    settings = {"indexHints": [hints], "comment": "kind_1 is smaller"}
    reply = admin.command("setQuerySettings", shape(orders), settings=settings)
    assert reply["settings"] == settings
    assert reply["representativeQuery"] == shape(orders)
    assert index_of(found.clone()) == "kind_1"
    # Even against a hint.
    assert index_of(found.clone().hint("total_1")) == "kind_1"
    assert found.clone().explain()["queryPlanner"]["querySettings"] == settings
    assert [doc["_id"] for doc in found] == [7]
    digest = reply["queryShapeHash"]
    assert [entry["queryShapeHash"] for entry in listed(orders.database.client)] == [digest]
    admin.command("removeQuerySettings", digest)
    assert index_of(orders.find({"kind": "a", "total": 7})) == "total_1"
    assert listed(orders.database.client) == []


def test_rejected(orders):
    admin = orders.database.client.admin
    admin.command("setQuerySettings", shape(orders), settings={"reject": True})
    with refused(OperationFailure, 411, "rejected"):
        list(orders.find({"kind": "b", "total": 1}))
    assert len(list(orders.find({"kind": "a"}))) == 50
    admin.command("removeQuerySettings", shape(orders))
    assert list(orders.find({"kind": "b", "total": 1})) == []


def test_not_on_a_server_without_a_replica_set(client):
    query = {"find": "c", "filter": {"a": 1}, "$db": "d"}
    with refused(OperationFailure, 20):
        client.admin.command("setQuerySettings", query, settings={"reject": True})
    assert listed(client) == []
