"""AsyncMongoClient: the same server through asyncio."""

import asyncio
import functools

import pytest
from conftest import URI
from pymongo import AsyncMongoClient, InsertOne, UpdateOne
from pymongo.errors import BulkWriteError, CursorNotFound, DuplicateKeyError, OperationFailure
from refusal import refused


def with_client(body):
    """Runs the coroutine with a new client and an empty collection."""

    @functools.wraps(body)
    def run():
        async def main():
            async with AsyncMongoClient(URI, serverSelectionTimeoutMS=5000) as client:
                coll = client.python_async[body.__name__]
                await coll.drop()
                await body(client, coll)

        asyncio.run(main())

    del run.__wrapped__  # otherwise pytest treats the arguments as fixtures
    return run


@with_client
async def test_connect(client, coll):
    hello = await client.admin.command("hello")
    assert hello["isWritablePrimary"] is True
    assert (await client.server_info())["ok"] == 1
    assert (await client.admin.command("ping"))["ok"] == 1


@with_client
async def test_crud(client, coll):
    assert (await coll.insert_one({"_id": 1, "n": 1})).inserted_id == 1
    assert len((await coll.insert_many([{"n": i} for i in range(2, 11)])).inserted_ids) == 9
    assert await coll.find_one({"n": 5}, {"_id": 0}) == {"n": 5}
    assert (await coll.update_many({"n": {"$gt": 5}}, {"$inc": {"n": 100}})).modified_count == 5
    assert (await coll.update_one({"_id": "u"}, {"$set": {"n": 0}}, upsert=True)).upserted_id == "u"
    assert (await coll.replace_one({"_id": 1}, {"r": 1})).modified_count == 1
    assert await coll.find_one_and_delete({"_id": 1}) == {"_id": 1, "r": 1}
    assert (await coll.delete_many({"n": {"$gt": 100}})).deleted_count == 5
    assert await coll.count_documents({}) == 5
    assert await coll.estimated_document_count() == 5
    assert sorted(await coll.distinct("n")) == [0, 2, 3, 4, 5]


@with_client
async def test_cursor_over_batches(client, coll):
    await coll.insert_many({"_id": i} for i in range(1000))
    assert [d["_id"] async for d in coll.find(sort=[("_id", 1)], batch_size=77)] == list(range(1000))
    assert len(await coll.find().to_list()) == 1000
    assert len(await coll.find().to_list(length=10)) == 10
    assert [d["_id"] async for d in coll.find().sort("_id", -1).skip(2).limit(2)] == [997, 996]


@with_client
async def test_lost_cursor(client, coll):
    await coll.insert_many({"_id": i} for i in range(10))
    cursor = coll.find(batch_size=2)
    await cursor.next()
    await coll.database.command("killCursors", coll.name, cursors=[cursor.cursor_id])
    await cursor.next()
    with refused(CursorNotFound, 43):
        await cursor.next()


@with_client
async def test_aggregate(client, coll):
    await coll.insert_many({"k": i % 3, "n": i} for i in range(9))
    cursor = await coll.aggregate([{"$group": {"_id": "$k", "s": {"$sum": "$n"}}}, {"$sort": {"_id": 1}}])
    assert [d async for d in cursor] == [{"_id": 0, "s": 9}, {"_id": 1, "s": 12}, {"_id": 2, "s": 15}]


@with_client
async def test_bulk(client, coll):
    r = await coll.bulk_write([InsertOne({"_id": 1}), UpdateOne({"_id": 1}, {"$set": {"a": 1}}), UpdateOne({"_id": 2}, {"$set": {"a": 1}}, upsert=True)])
    assert (r.inserted_count, r.modified_count, r.upserted_count) == (1, 1, 1)
    with pytest.raises(BulkWriteError) as e:
        await coll.bulk_write([InsertOne({"_id": 1}), InsertOne({"_id": 3}), InsertOne({"_id": 2})], ordered=False)
    assert [w["index"] for w in e.value.details["writeErrors"]] == [0, 2]
    assert await coll.count_documents({}) == 3


@with_client
async def test_indexes_and_errors(client, coll):
    assert await coll.create_index("k", unique=True) == "k_1"
    await coll.insert_one({"k": 1})
    with refused(DuplicateKeyError, 11000) as e:
        await coll.insert_one({"k": 1})
    assert e.value.details["keyPattern"] == {"k": 1} and e.value.details["keyValue"] == {"k": 1}
    assert "k_1" in await coll.index_information()
    await coll.drop_index("k_1")
    await coll.insert_one({"k": 1})
    with refused(OperationFailure, 59):
        await client.admin.command("frobnicate")
    with refused(OperationFailure, 2):
        await coll.find_one({"a": {"$frob": 1}})


@with_client
async def test_fifty_tasks(client, coll):
    await coll.insert_one({"_id": "counter", "n": 0})

    async def work(who):
        for i in range(20):
            await coll.insert_one({"_id": f"{who}-{i}"})
            await coll.update_one({"_id": "counter"}, {"$inc": {"n": 1}})

    await asyncio.gather(*(work(n) for n in range(50)))
    assert (await coll.find_one({"_id": "counter"}))["n"] == 1000
    assert await coll.count_documents({}) == 1001


@with_client
async def test_cancelled_operation_leaves_the_client_usable(client, coll):
    await coll.insert_many({"_id": i} for i in range(1000))
    task = asyncio.ensure_future(coll.find(batch_size=2).to_list())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await coll.count_documents({}) == 1000


@with_client
async def test_collections(client, coll):
    await coll.insert_one({})
    assert coll.name in await coll.database.list_collection_names()
    assert coll.database.name in await client.list_database_names()
    await coll.rename("renamed", dropTarget=True)
    assert await coll.database.renamed.count_documents({}) == 1
    await coll.database.drop_collection("renamed")
    assert "renamed" not in await coll.database.list_collection_names()


@with_client
async def test_session_and_explain(client, coll):
    async with client.start_session() as session:
        await coll.insert_one({"_id": 1}, session=session)
    plan = await coll.find({"_id": 1}).explain()
    assert plan["executionStats"]["nReturned"] == 1
