"""Change streams on the plain standalone server."""

import pytest
from pymongo.errors import OperationFailure
from refusal import refused

AWAIT_MS = 2000


def take(stream, n):
    """The next n events, in order."""
    return [stream.next() for _ in range(n)]


def test_every_write_of_a_collection(coll):
    with coll.watch(max_await_time_ms=AWAIT_MS) as stream:
        coll.insert_one({"_id": 1, "a": 1, "b": 2})
        coll.update_one({"_id": 1}, {"$set": {"a": 5}, "$unset": {"b": ""}})
        coll.replace_one({"_id": 1}, {"c": 3})
        coll.delete_one({"_id": 1})
        insert, update, replace, delete = take(stream, 4)
    assert [e["operationType"] for e in (insert, update, replace, delete)] == ["insert", "update", "replace", "delete"]
    for e in (insert, update, replace, delete):
        assert e["ns"] == {"db": coll.database.name, "coll": coll.name}
        assert e["documentKey"] == {"_id": 1}
        assert e["clusterTime"] and e["wallTime"]
    assert insert["fullDocument"] == {"_id": 1, "a": 1, "b": 2}
    assert update["updateDescription"] == {"updatedFields": {"a": 5}, "removedFields": ["b"], "truncatedArrays": []}
    assert "fullDocument" not in update
    assert replace["fullDocument"] == {"_id": 1, "c": 3}
    assert "fullDocument" not in delete


def test_a_database(db, coll):
    with db.watch(max_await_time_ms=AWAIT_MS) as stream:
        coll.insert_one({"_id": 1})
        db.other.insert_one({"_id": 2})
        assert [(e["ns"]["coll"], e["documentKey"]["_id"]) for e in take(stream, 2)] == [(coll.name, 1), ("other", 2)]


def test_the_deployment(client, coll):
    with client.watch([{"$match": {"ns.coll": coll.name}}], max_await_time_ms=AWAIT_MS) as stream:
        coll.insert_one({"_id": 1})
        assert stream.next()["ns"]["db"] == coll.database.name


def test_resume_after_an_event(coll):
    with coll.watch(max_await_time_ms=AWAIT_MS) as stream:
        coll.insert_many({"_id": i} for i in range(5))
        tokens = [e["_id"] for e in take(stream, 2)]
        assert stream.resume_token == tokens[-1]
    for option in ("resume_after", "start_after"):
        with coll.watch(max_await_time_ms=AWAIT_MS, **{option: tokens[0]}) as stream:
            assert [e["documentKey"]["_id"] for e in take(stream, 4)] == [1, 2, 3, 4]


def test_the_driver_resumes_when_its_cursor_is_lost(client, coll):
    with coll.watch(max_await_time_ms=AWAIT_MS) as stream:
        coll.insert_one({"_id": 1})
        assert stream.next()["documentKey"]["_id"] == 1
        coll.insert_one({"_id": 2})
        coll.database.command("killCursors", coll.name, cursors=[stream._cursor.cursor_id])
        assert stream.next()["documentKey"]["_id"] == 2


def test_a_pipeline(coll):
    pipeline = [{"$match": {"operationType": "insert", "fullDocument.n": {"$gte": 2}}}, {"$set": {"twice": {"$multiply": ["$fullDocument.n", 2]}}}]
    with coll.watch(pipeline, max_await_time_ms=AWAIT_MS) as stream:
        coll.insert_many({"_id": i, "n": i} for i in range(4))
        assert [(e["documentKey"]["_id"], e["twice"]) for e in take(stream, 2)] == [(2, 4), (3, 6)]


def test_update_lookup(coll):
    coll.insert_one({"_id": 1, "a": 1})
    with coll.watch(full_document="updateLookup", max_await_time_ms=AWAIT_MS) as stream:
        coll.update_one({"_id": 1}, {"$set": {"b": 2}})
        event = stream.next()
    assert event["updateDescription"]["updatedFields"] == {"b": 2}
    assert event["fullDocument"] == {"_id": 1, "a": 1, "b": 2}


def test_a_transaction_arrives_as_one_when_it_commits(client, coll):
    with coll.watch(max_await_time_ms=200) as stream, client.start_session() as s:
        s.start_transaction()
        coll.insert_one({"_id": 1}, session=s)
        coll.insert_one({"_id": 2}, session=s)
        assert stream.try_next() is None
        s.commit_transaction()
        one, two = take(stream, 2)
    assert [one["documentKey"]["_id"], two["documentKey"]["_id"]] == [1, 2]
    assert one["lsid"] == two["lsid"] and one["txnNumber"] == two["txnNumber"]
    assert one["clusterTime"] == two["clusterTime"]


def test_dropping_the_collection_invalidates(coll):
    coll.insert_one({"_id": 1})
    with coll.watch(max_await_time_ms=AWAIT_MS) as stream:
        coll.drop()
        assert [e["operationType"] for e in take(stream, 2)] == ["drop", "invalidate"]
        with pytest.raises(StopIteration):
            stream.next()
        assert stream.alive is False


def test_an_invalid_token(coll):
    with refused(OperationFailure, 9):
        coll.watch(resume_after={"_data": "no token"})


def test_descriptions_of_updates(coll):
    """Operators are described by their paths, pipelines by comparison."""
    coll.insert_one({"_id": 1, "a": {"b": 1, "c": 1}, "s": [], "long": "x" * 200})
    rows = [
        ({"$set": {"a.b": 2}}, {"a.b": 2}, [], []),
        ({"$set": {"a": {"b": 3, "c": 1}}}, {"a": {"b": 3, "c": 1}}, [], []),
        ({"$unset": {"a.c": ""}}, {}, ["a.c"], []),
        ({"$push": {"s": 1}}, {"s": [1]}, [], []),
        ({"$push": {"s": 2}}, {"s.1": 2}, [], []),
        ({"$addToSet": {"s": {"$each": [2, 3, 4]}}}, {"s.2": 3, "s.3": 4}, [], []),
        ({"$pull": {"s": 4}}, {"s": [1, 2, 3]}, [], []),
        ([{"$set": {"s": ["a long text " * 9, 2, 3]}}], {"s.0": "a long text " * 9}, [], []),
        ([{"$set": {"s": {"$slice": ["$s", 2]}}}], {}, [], [{"field": "s", "newSize": 2}]),
        ([{"$set": {"a.b": 9}}, {"$unset": "s"}], {"a": {"b": 9}}, ["s"], []),
    ]
    with coll.watch(max_await_time_ms=AWAIT_MS) as stream:
        for update, updated, removed, truncated in rows:
            coll.update_one({"_id": 1}, update)
            event = stream.next()
            assert event["operationType"] == "update", update
            assert event["updateDescription"] == {"updatedFields": updated, "removedFields": removed, "truncatedArrays": truncated}, update
        # The whole document is shorter than a description of the difference.
        coll.update_one({"_id": 1}, [{"$replaceWith": {"_id": 1, "x": 1}}])
        event = stream.next()
        assert (event["operationType"], event["fullDocument"]) == ("replace", {"_id": 1, "x": 1})


def test_ambiguous_paths(coll):
    coll.insert_one({"_id": 1, "home.town": "Oxford", "residences": [{"0": "Oxford"}, {"1": "Dublin"}], "o": {"0": {"a": 1}, "01": 1}, "0": {"n": 1}})
    rows = [
        ([{"$replaceWith": {"$setField": {"field": "home.town", "input": "$$ROOT", "value": "London"}}}], {"home.town": ["home.town"]}),
        ({"$set": {"residences.0.0": "London"}}, {"residences.0.0": ["residences", 0, "0"]}),
        ({"$set": {"o.0.a": 2}}, {"o.0.a": ["o", "0", "a"]}),
        ({"$unset": {"o.0": ""}}, {"o.0": ["o", "0"]}),
        # A final array position is not ambiguous; '01' and a leading '0' are not positions.
        ({"$set": {"residences.1": 5}}, {}),
        ({"$set": {"o.01": 2}}, {}),
        ({"$set": {"0.n": 2}}, {}),
    ]
    with coll.watch(show_expanded_events=True, max_await_time_ms=AWAIT_MS) as stream, coll.watch(max_await_time_ms=AWAIT_MS) as plain:
        for update, paths in rows:
            coll.update_one({"_id": 1}, update)
            assert stream.next()["updateDescription"]["disambiguatedPaths"] == paths, update
            assert "disambiguatedPaths" not in plain.next()["updateDescription"]


def test_large_events_are_split(db, coll):
    coll.drop()
    db.create_collection(coll.name, changeStreamPreAndPostImages={"enabled": True})
    coll.insert_one({"_id": 1, "text": "a" * (16 * 1024 * 1024 - 1024)})
    options = {"full_document": "required", "full_document_before_change": "required", "max_await_time_ms": AWAIT_MS}
    split = [{"$changeStreamSplitLargeEvent": {}}]
    with coll.watch(split, **options) as stream, coll.watch(**options) as whole:
        coll.update_one({"_id": 1}, {"$set": {"b": 1}})
        coll.insert_one({"_id": 2})
        first, second, after = take(stream, 3)
        assert (first["splitEvent"], second["splitEvent"]) == ({"fragment": 1, "of": 2}, {"fragment": 2, "of": 2})
        assert "splitEvent" not in after and after["documentKey"] == {"_id": 2}
        # As many fields as fit come first; no field comes twice.
        assert first["operationType"] == "update" and first["documentKey"] == {"_id": 1}
        assert set(first) & set(second) == {"_id", "splitEvent"}
        images = {**first, **second}
        assert len(images["fullDocument"]["text"]) == len(images["fullDocumentBeforeChange"]["text"]) == 16 * 1024 * 1024 - 1024
        assert images["fullDocument"]["b"] == 1 and "b" not in images["fullDocumentBeforeChange"]
        with refused(OperationFailure, 10334):
            whole.next()
    with coll.watch(split, resume_after=first["_id"], **options) as stream:
        assert [e["_id"] for e in take(stream, 2)] == [second["_id"], after["_id"]]
    with coll.watch(split, resume_after=second["_id"], **options) as stream:
        assert stream.next()["_id"] == after["_id"]
    # The same event with fewer fields is not split, so the fragment cannot be resumed.
    with refused(OperationFailure, 280):
        coll.watch([{"$unset": "fullDocument"}], resume_after=first["_id"], **options)
    for bad in ([split[0], {"$match": {}}], [{"$changeStreamSplitLargeEvent": {"x": 1}}], [split[0], split[0]]):
        with refused(OperationFailure, 9):
            coll.watch(bad)


def test_what_cannot_be_watched(client, db, coll):
    db.command("create", "a_view", viewOn=coll.name, pipeline=[])
    for name, code in [("a_view", 166), ("system.profile", 73)]:
        with refused(OperationFailure, code):
            db[name].watch()
    for internal in ("admin", "config", "local"):
        with refused(OperationFailure, 73):
            client[internal].watch()
        with refused(OperationFailure, 73):
            client[internal].c.watch()
    for stream, code in [({"resumeAfter": {}}, 40647), ({"resumeAfter": {"_data": "82"}}, 260), ({"startAfter": 5}, 14), ({"allChangesForCluster": True}, 72), ({"other": 1}, 40415)]:
        with refused(OperationFailure, code):
            coll.aggregate([{"$changeStream": stream}])
    with refused(OperationFailure, 40324):
        coll.aggregate([{"$changeStreamSplitLargeEvent": {}}])
    db.drop_collection("a_view")


def test_a_token_without_an_event(coll):
    with coll.watch(max_await_time_ms=AWAIT_MS) as stream:
        coll.insert_one({"_id": 1})
        token = stream.next()["_id"]["_data"]
    # A position of the oplog without an entry.
    other = token[:2] + f"{int(token[2:18], 16) + (1 << 32):016X}" + token[18:]
    with refused(OperationFailure, 280) as e:
        coll.watch(resume_after={"_data": other})
    assert e.value.has_error_label("NonResumableChangeStreamError")
