"""MongoClient.bulk_write: one bulkWrite command over several collections and databases."""

import os

import pytest
from monitor import Sent
from pymongo import DeleteMany, DeleteOne, InsertOne, MongoClient, ReplaceOne, UpdateMany, UpdateOne
from pymongo.errors import ClientBulkWriteException, InvalidOperation, OperationFailure
from pymongo.write_concern import WriteConcern

URI = os.environ["SHEAF_URI"]


@pytest.fixture
def two(client, db, coll):
    """The names of an empty collection here, and of another in a second database."""
    other = client[db.name + "_other"][coll.name]
    other.drop()
    return coll, other


def names(two):
    return [f"{c.database.name}.{c.name}" for c in two]


def mixed(a, b):
    return [
        InsertOne({"_id": 1, "n": 1}, namespace=a),
        InsertOne({"_id": 2, "n": 2}, namespace=a),
        InsertOne({"_id": 1}, namespace=b),
        UpdateOne({"_id": 1}, {"$inc": {"n": 10}}, namespace=a),
        UpdateMany({"n": {"$gt": 1}}, {"$set": {"big": True}}, namespace=a),
        ReplaceOne({"_id": 3}, {"n": 3}, upsert=True, namespace=b),
        UpdateOne({"_id": 9}, {"$set": {"n": 1}}, namespace=b),
        DeleteOne({"_id": 2}, namespace=a),
        DeleteMany({}, namespace=b),
    ]


def test_summary_and_details(client, two):
    a, b = names(two)
    r = client.bulk_write(mixed(a, b))
    assert r.acknowledged and not r.has_verbose_results
    counts = (r.inserted_count, r.upserted_count, r.matched_count, r.modified_count, r.deleted_count)
    assert counts == (3, 1, 3, 3, 3)
    assert list(two[0].find()) == [{"_id": 1, "n": 11, "big": True}]
    assert two[1].count_documents({}) == 0
    two[0].drop()
    r = client.bulk_write(mixed(a, b), verbose_results=True)
    assert r.has_verbose_results
    assert {i: x.inserted_id for i, x in r.insert_results.items()} == {0: 1, 1: 2, 2: 1}
    assert {i: (x.matched_count, x.modified_count, x.upserted_id) for i, x in r.update_results.items()} == {
        3: (1, 1, None), 4: (2, 2, None), 5: (1, 0, 3), 6: (0, 0, None),
    }
    assert {i: x.deleted_count for i, x in r.delete_results.items()} == {7: 1, 8: 2}


def test_errors(client, two):
    a, b = names(two)
    models = [
        InsertOne({"_id": 1}, namespace=a),
        InsertOne({"_id": 1}, namespace=a),
        UpdateOne({"_id": 1}, {"$inc": {"_id": 1}}, namespace=a),
        InsertOne({"_id": 1}, namespace=b),
    ]
    with pytest.raises(ClientBulkWriteException) as e:
        client.bulk_write(models, verbose_results=True)
    assert [(w["idx"], w["code"]) for w in e.value.write_errors] == [(1, 11000)]
    assert e.value.partial_result.inserted_count == 1
    assert list(e.value.partial_result.insert_results) == [0]
    two[0].drop()
    with pytest.raises(ClientBulkWriteException) as e:
        client.bulk_write(models, ordered=False)
    assert sorted((w["idx"], w["code"]) for w in e.value.write_errors) == [(1, 11000), (2, 66)]
    assert e.value.partial_result.inserted_count == 2
    # Nothing was written, so there is no partial result.
    with pytest.raises(ClientBulkWriteException) as e:
        client.bulk_write(models[:1])
    assert e.value.partial_result is None
    with pytest.raises(InvalidOperation):
        client.bulk_write([])


def test_options(client, two):
    a, _ = names(two)
    two[0].insert_many([{"_id": 1, "s": "x", "l": [1, 5]}, {"_id": 2, "s": "X", "l": [7]}, {"_id": 3, "s": "z"}])
    two[0].create_index("s")
    r = client.bulk_write(
        [
            UpdateMany({"s": "x"}, {"$set": {"l.$[big]": 0}}, array_filters=[{"big": {"$gt": 4}}], collation={"locale": "en", "strength": 2}, namespace=a),
            UpdateOne({"$expr": {"$eq": ["$_id", "$$which"]}}, [{"$set": {"w": "$$which"}}], namespace=a),
            UpdateOne({"s": "z"}, {"$set": {"h": 1}}, hint="s_1", namespace=a),
            UpdateOne({}, {"$set": {"last": True}}, sort={"_id": -1}, namespace=a),
            DeleteOne({"s": "x"}, hint={"s": 1}, namespace=a),
        ],
        let={"which": 3}, comment={"of": "the test"}, bypass_document_validation=True, write_concern=WriteConcern(w="majority"),
    )
    assert (r.matched_count, r.modified_count, r.deleted_count) == (5, 5, 1)
    assert list(two[0].find(sort=[("_id", 1)])) == [{"_id": 2, "s": "X", "l": [0]}, {"_id": 3, "s": "z", "w": 3, "h": 1, "last": True}]
    with pytest.raises(OperationFailure) as e:
        client.admin.command("bulkWrite", 1, ops=[{"insert": 0, "document": {}}], nsInfo=[{"ns": a}], nosuch=1)
    assert e.value.code == 40415


def test_more_than_one_batch_of_results(client, two):
    a, b = names(two)
    models = [InsertOne({"_id": i, "pad": "x" * 100}, namespace=(a, b)[i % 2]) for i in range(20_000)]
    r = client.bulk_write(models, verbose_results=True)
    assert r.inserted_count == 20_000 and len(r.insert_results) == 20_000
    # Ids so large that their results take several replies.
    large = ["x" * 1_000_000 + str(i) for i in range(40)]
    r = client.bulk_write([UpdateOne({"_id": i}, {"$set": {"n": 1}}, upsert=True, namespace=a) for i in large], verbose_results=True)
    assert [u.upserted_id for u in r.update_results.values()] == large


def test_more_than_one_command_holds(client, two):
    sent = Sent()
    with MongoClient(URI, event_listeners=[sent]) as c:
        r = c.bulk_write([InsertOne({"_id": i}, namespace=names(two)[0]) for i in range(100_001)])
    assert r.inserted_count == 100_001
    assert len(sent.named("bulkWrite")) == 2


def test_in_a_transaction(client, two):
    a, b = names(two)
    two[0].insert_one({"_id": 0, "n": 0})
    with client.start_session() as s:
        with s.start_transaction():
            client.bulk_write([InsertOne({"_id": 1}, namespace=a), InsertOne({"_id": 1}, namespace=b)], session=s)
            assert two[1].count_documents({}) == 0
            s.abort_transaction()
        assert two[0].count_documents({}) == 1

        def both(s):
            r = client.bulk_write([UpdateOne({"_id": 0}, {"$inc": {"n": 1}}, namespace=a), InsertOne({"_id": 1}, namespace=b)], session=s, verbose_results=True)
            return r.modified_count + r.inserted_count

        assert s.with_transaction(both) == 2
        s.start_transaction()
        with pytest.raises(ClientBulkWriteException):
            client.bulk_write([InsertOne({"_id": 5}, namespace=a), InsertOne({"_id": 1}, namespace=b)], session=s)
        with pytest.raises(OperationFailure) as e:
            s.commit_transaction()
        assert e.value.has_error_label("TransientTransactionError")
    assert (two[0].find_one({"_id": 0})["n"], two[0].count_documents({}), two[1].count_documents({})) == (1, 1, 1)

