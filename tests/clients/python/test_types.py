"""Round trips of BSON types through PyMongo."""

import datetime
import re
import uuid

import pytest
from bson import SON, Binary, Code, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument

VALUES = {
    "double": 1.5,
    "inf": float("inf"),
    "int": -7,
    "long": Int64(2**53 + 1),
    "decimal": Decimal128("0.1000"),
    "decimal_inf": Decimal128("-Infinity"),
    "string": "grüße 🐿",
    "nul": "a\0b",
    "empty": "",
    "object": {"a": {"b": {}}},
    "array": [1, [2, [3]], {}, None],
    "binary": b"\x00\x01\xff",
    "user_binary": Binary(b"\x09", 128),
    "uuid": uuid.UUID("01234567-89ab-4def-8123-456789abcdef"),
    "oid": ObjectId("0123456789abcdef01234567"),
    "true": True,
    "date": datetime.datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=datetime.timezone.utc),
    "null": None,
    "regex": Regex("a.*b", "im"),
    "code": Code("function () {}"),
    "scope": Code("f(x)", {"x": 1}),
    "ts": Timestamp(4000000000, 7),
    "min": MinKey(),
    "max": MaxKey(),
    "ref": DBRef("c", 5),
}
OPTIONS = CodecOptions(uuid_representation=UuidRepresentation.STANDARD, tz_aware=True)


@pytest.fixture
def typed(coll):
    return coll.with_options(codec_options=OPTIONS)


def test_round_trip(typed):
    typed.insert_one({"_id": 1, **VALUES})
    found = typed.find_one()
    assert list(found) == ["_id", *VALUES]
    for name, value in VALUES.items():
        assert found[name] == value, name
        assert type(found[name]) is type(value) or name == "int", name


@pytest.mark.parametrize("name", VALUES)
def test_each_is_found_by_equality(typed, name):
    typed.insert_one({"_id": name, "v": VALUES[name]})
    for _ in range(2):
        assert [d["_id"] for d in typed.find({"v": {"$eq": VALUES[name]}})] == [name]
        typed.create_index("v")


def test_sort_order_of_types(typed):
    names = ["min", "null", "int", "double", "empty", "string", "object", "array", "oid", "true", "date", "ts", "regex", "max"]
    values = {n: VALUES[n] for n in names} | {"array": [Binary(b"x")]}
    typed.insert_many({"_id": n, "v": v} for n, v in reversed(values.items()))
    expected = [n for n in names if n != "array"]
    # An array sorts by its lowest element, here a binary, which is between objects and ids.
    expected.insert(expected.index("oid"), "array")
    for _ in range(2):
        assert [d["_id"] for d in typed.find(sort=[("v", 1)])] == expected
        typed.create_index("v")


def test_python_regular_expressions(coll):
    coll.insert_many([{"_id": 1, "s": "Alpha"}, {"_id": 2, "s": "beta"}])
    assert [d["_id"] for d in coll.find({"s": re.compile("^al", re.I)})] == [1]
    assert [d["_id"] for d in coll.find({"s": {"$in": [re.compile("ta$")]}})] == [2]
    assert [d["_id"] for d in coll.find({"s": {"$not": re.compile("ta$")}})] == [1]


def test_raw_documents_round_trip_byte_for_byte(coll):
    coll.insert_one(SON([("_id", 1), ("a", [1, {"b": 2.0}]), ("z", Int64(3))]))
    raw = coll.with_options(codec_options=CodecOptions(document_class=RawBSONDocument))
    document = raw.find_one()
    copy = coll.database[coll.name + "_copy"]
    copy.drop()
    copy.insert_one(document)
    again = copy.with_options(codec_options=CodecOptions(document_class=RawBSONDocument)).find_one()
    assert again.raw == document.raw


def test_numbers_compare_across_types(coll):
    coll.insert_many({"_id": i, "n": n} for i, n in enumerate([3, Int64(3), 3.0, Decimal128("3.00"), Decimal128("3.1"), 2.9]))
    for _ in range(2):
        assert sorted(d["_id"] for d in coll.find({"n": 3})) == [0, 1, 2, 3]
        assert sorted(d["_id"] for d in coll.find({"n": {"$gt": 3}})) == [4]
        assert sorted(d["_id"] for d in coll.find({"n": {"$lte": Decimal128("3")}})) == [0, 1, 2, 3, 5]
        coll.create_index("n")


def test_large_document(coll):
    doc = {"_id": 1, "s": "x" * (16 * 1024 * 1024 - 40)}
    coll.insert_one(doc)
    assert coll.find_one() == doc
