"""Cursors over several batches, closed, lost and killed."""

import pytest
from bson import Int64
from pymongo.cursor import CursorType
from pymongo.errors import CursorNotFound, ExecutionTimeout, OperationFailure
from refusal import refused


@pytest.fixture(scope="module")
def thousand(db):
    db.thousand.insert_many({"_id": i, "g": i % 10} for i in range(1000))
    return db.thousand


@pytest.mark.parametrize("size", [2, 100, 333, 1000, 5000])
def test_batch_sizes(thousand, size):
    assert [d["_id"] for d in thousand.find(batch_size=size, sort=[("_id", 1)])] == list(range(1000))


def test_limit_skip_negative_limit(thousand):
    assert [d["_id"] for d in thousand.find(sort=[("_id", 1)], skip=10, limit=250, batch_size=100)] == list(range(10, 260))
    single = thousand.find(sort=[("_id", 1)], limit=-5)
    assert [d["_id"] for d in single] == [0, 1, 2, 3, 4]
    assert single.cursor_id == 0


def test_close_early(db, thousand):
    cursor = thousand.find(batch_size=10)
    next(cursor)
    assert cursor.alive and cursor.cursor_id != 0
    lost = cursor.cursor_id
    cursor.close()
    with refused(CursorNotFound, 43):
        db.command("getMore", Int64(lost), collection="thousand")


def test_lost(db, thousand):
    cursor = thousand.find(batch_size=2)
    next(cursor)
    db.command("killCursors", "thousand", cursors=[cursor.cursor_id])
    next(cursor)
    with refused(CursorNotFound, 43):
        next(cursor)


def test_clone_and_rewind(thousand):
    cursor = thousand.find({"g": 1}, batch_size=30)
    first = [d["_id"] for d in cursor]
    cursor.rewind()
    assert [d["_id"] for d in cursor] == first == [d["_id"] for d in cursor.clone()]


def test_no_cursor_timeout(thousand):
    assert len(list(thousand.find(no_cursor_timeout=True, batch_size=100))) == 1000


def test_tailable_needs_a_capped_collection(thousand):
    with refused(OperationFailure, 2):
        list(thousand.find(cursor_type=CursorType.TAILABLE))


def test_max_time(coll):
    coll.insert_many({"_id": i, "t": "a" * 40 + str(i)} for i in range(20_000))
    slow = {"$or": [{"t": {"$regex": f"[xyz]+{i}$"}} for i in range(40)]}
    with refused(ExecutionTimeout, 50):
        list(coll.find(slow).max_time_ms(1))


def test_many_cursors_at_once(thousand):
    cursors = [thousand.find(batch_size=7, sort=[("_id", 1)]) for _ in range(50)]
    for i in range(100):
        assert {next(c)["_id"] for c in cursors} == {i}
    for c in cursors:
        c.close()


def test_raw_batches(thousand):
    batches = list(thousand.find_raw_batches(batch_size=400))
    assert len(batches) == 3


def test_list_collections_and_indexes_are_cursors(db):
    for i in range(150):
        db[f"many_{i:03}"].insert_one({})
    names = [c["name"] for c in db.list_collections(filter={"name": {"$regex": "^many_"}})]
    assert sorted(names) == [f"many_{i:03}" for i in range(150)]
    for name in names:
        db[name].drop()
