"""Query settings, set, listed, applied and removed through the driver; statistics of queries."""

import base64
import hashlib
import hmac

import pytest
from bson import Binary
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


def test_query_stats(client, coll):
    admin = client.admin
    admin.command("setParameter", 1, internalQueryStatsRateLimit=-1)
    try:
        coll.insert_many([{"_id": n, "kind": n % 2} for n in range(300)])
        for kind in (0, 1):
            assert len(list(coll.find({"kind": kind}, batch_size=50))) == 150
        own = {"$match": {"key.queryShape.cmdNs.coll": coll.name}}
        (entry,) = admin.aggregate([{"$queryStats": {}}, own])
        assert entry["key"]["queryShape"]["filter"] == {"kind": {"$eq": "?number"}}
        assert entry["key"]["batchSize"] == "?number"
        assert entry["key"]["client"]["driver"]["name"].startswith("PyMongo")
        metrics = entry["metrics"]
        assert (metrics["execCount"], metrics["docsReturned"]["sum"], metrics["docsExamined"]["max"]) == (2, 300, 300)
        # Names as HMACs.
        key = b"0123456789abcdef0123456789abcdef"
        name = base64.b64encode(hmac.new(key, coll.name.encode(), hashlib.sha256).digest()).decode()
        transform = {"algorithm": "hmac-sha-256", "hmacKey": Binary(key, 8)}
        hidden = list(admin.aggregate([{"$queryStats": {"transformIdentifiers": transform}}]))
        assert name in [entry["key"]["queryShape"]["cmdNs"]["coll"] for entry in hidden]
        assert coll.name not in str(hidden)
    finally:
        admin.command("setParameter", 1, internalQueryStatsRateLimit=0)


def test_list_of_stages(client):
    names = [entry["name"] for entry in client.admin.aggregate([{"$listMqlEntities": {"entityType": "aggregationStages"}}])]
    assert {"$match", "$group", "$queryStats"} < set(names)
    assert names == sorted(names)
