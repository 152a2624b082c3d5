"""Vector indexes and $vectorSearch by PyMongo's helpers; the scores are the manual's formulas, in Python."""

import math
import random

import pytest
from bson.binary import Binary, BinaryVectorDtype
from pymongo.errors import OperationFailure
from pymongo.operations import SearchIndexModel
from refusal import refused


@pytest.fixture
def made(coll):
    """An existing empty collection: createSearchIndexes does not create it."""
    with refused(OperationFailure, 26):
        coll.create_search_index(model("cosine"))
    coll.database.create_collection(coll.name)
    return coll


def model(similarity, name="near", dimensions=3, filters=("kind",)):
    fields = [{"type": "vector", "path": "v", "numDimensions": dimensions, "similarity": similarity}]
    fields += [{"type": "filter", "path": path} for path in filters]
    return SearchIndexModel({"fields": fields}, name=name, type="vectorSearch")


def cosine(a, b):
    return (1 + sum(x * y for x, y in zip(a, b)) / math.hypot(*a) / math.hypot(*b)) / 2


def dot(a, b):
    return (1 + sum(x * y for x, y in zip(a, b))) / 2


def euclidean(a, b):
    return 1 / (1 + math.dist(a, b))


FORMULAS = {"cosine": cosine, "dotProduct": dot, "euclidean": euclidean}


def search(coll, query, limit=5, more=(), **options):
    if "exact" not in options:
        options.setdefault("numCandidates", 100)
    stage = {"index": "near", "path": "v", "queryVector": query, "limit": limit, **options}
    return list(coll.aggregate([{"$vectorSearch": stage}, *more]))


@pytest.mark.parametrize("similarity", FORMULAS)
def test_nearest_first_with_the_scores_of_the_manual(coll, similarity):
    rng = random.Random(3)
    # Numbers that 32-bit floats represent exactly.
    vectors = [[rng.randrange(-64, 64) / 64 or 0.5 for _ in range(3)] for _ in range(200)]
    coll.insert_many([{"_id": i, "v": v, "kind": i % 4} for i, v in enumerate(vectors)])
    assert coll.create_search_index(model(similarity)) == "near"
    query = [0.5, -0.25, 1.0]
    score = FORMULAS[similarity]
    project = [{"$project": {"score": {"$meta": "vectorSearchScore"}}}]
    for options, kinds in (({}, {0, 1, 2, 3}), ({"filter": {"kind": {"$in": [1, 2]}}}, {1, 2}), ({"exact": True, "filter": {"kind": 3}}, {3})):
        found = search(coll, query, 7, project, **options)
        expected = sorted((score(query, v) for i, v in enumerate(vectors) if i % 4 in kinds), reverse=True)[:7]
        assert [d["score"] for d in found] == pytest.approx(expected, abs=1e-5)
        assert [score(query, vectors[d["_id"]]) for d in found] == pytest.approx(expected, abs=1e-5)
        assert {d["_id"] % 4 for d in found} <= kinds


def test_writes_are_visible_immediately(made):
    coll = made
    coll.create_search_index(model("euclidean"))
    assert search(coll, [0, 0, 0]) == []
    coll.insert_many([{"_id": i, "v": [i, 0, 0]} for i in range(5)])
    ids = lambda query: [d["_id"] for d in search(coll, query, 2)]
    assert ids([0.1, 0, 0]) == [0, 1]
    coll.update_one({"_id": 4}, {"$set": {"v": [0.1, 0, 0]}})
    assert ids([0.1, 0, 0]) == [4, 0]
    coll.delete_one({"_id": 4})
    coll.update_one({"_id": 0}, {"$unset": {"v": 1}})
    assert ids([0.1, 0, 0]) == [1, 2]
    # Vectors of other dimensions and other values: stored, but not found.
    coll.insert_many([{"_id": "short", "v": [0.1, 0]}, {"_id": "text", "v": "x"}, {"_id": "none"}])
    assert len(search(coll, [0.1, 0, 0], 100)) == 3


def test_binary_vectors_in_documents_and_queries(made):
    coll = made
    coll.create_search_index(model("dotProduct"))
    floats = Binary.from_vector([1.0, 0.5, 0.25], BinaryVectorDtype.FLOAT32)
    coll.insert_one({"_id": 1, "v": floats})
    coll.insert_one({"_id": 2, "v": [-1, 0, 0]})
    found = search(coll, Binary.from_vector([1.0, 1.0, 1.0], BinaryVectorDtype.FLOAT32), more=[{"$set": {"s": {"$meta": "vectorSearchScore"}}}])
    assert [(d["_id"], d["s"]) for d in found] == [(1, 1.375), (2, 0.0)]
    assert found[0]["v"] == floats


def test_indexes_are_listed_updated_and_dropped(coll):
    assert list(coll.list_search_indexes()) == []
    coll.insert_one({"_id": 1, "v": [1, 0], "w": [1, 0, 0]})
    assert coll.create_search_indexes([model("cosine"), model("euclidean", "far", 2)]) == ["near", "far"]
    listed = {d["name"]: d for d in coll.list_search_indexes()}
    assert set(listed) == {"near", "far"}
    near = listed["near"]
    assert (near["type"], near["status"], near["queryable"]) == ("vectorSearch", "READY", True)
    assert near["latestDefinition"]["fields"][0]["numDimensions"] == 3
    assert search(coll, [1, 0, 0]) == []
    coll.update_search_index("near", {"fields": [{"type": "vector", "path": "v", "numDimensions": 2, "similarity": "cosine"}]})
    assert [d["_id"] for d in search(coll, [1, 0])] == [1]
    assert [d["name"] for d in coll.list_search_indexes("far")] == ["far"]
    coll.drop_search_index("near")
    assert [d["name"] for d in coll.list_search_indexes()] == ["far"]
    # A search of an index that does not exist finds nothing.
    assert search(coll, [1, 0]) == []


def test_refusals(made):
    coll = made
    coll.create_search_index(model("cosine"))
    with refused(OperationFailure, 68):
        coll.create_search_index(model("euclidean"))
    with refused(OperationFailure, 238):
        coll.create_search_index({"definition": {"mappings": {"dynamic": True}}, "name": "text"})
    with refused(OperationFailure, 27):
        coll.drop_search_index("nosuch")
    with refused(OperationFailure, 2):
        coll.create_search_index(model("manhattan", "other"))
    with refused(OperationFailure, 2):
        coll.create_search_index(model("cosine", "other", 8193))
    with refused(OperationFailure, 2):
        search(coll, [1, 2])
    with refused(OperationFailure, 2):
        search(coll, [1, 2, 3], filter={"price": 1})
    with refused(OperationFailure, 2):
        search(coll, [1, 2, 3], 10, numCandidates=5)
    with refused(OperationFailure, 238):
        search(coll, [1, 2, 3], filter={"kind": {"$regex": "a"}})
    with refused(OperationFailure, 40602):
        list(coll.aggregate([{"$match": {}}, {"$vectorSearch": {"index": "near", "path": "v", "queryVector": [1, 2, 3], "limit": 1, "exact": True}}]))


def test_explain_reports_what_was_examined(db, made):
    coll = made
    coll.create_search_index(model("euclidean", filters=("kind",)))
    coll.insert_many([{"_id": i, "v": [i, i % 7, 1], "kind": i % 10} for i in range(500)])
    stage = {"index": "near", "path": "v", "queryVector": [3, 3, 3], "limit": 4, "numCandidates": 50, "filter": {"kind": 3}}
    command = {"aggregate": coll.name, "pipeline": [{"$vectorSearch": stage}], "cursor": {}}
    explained = db.command("explain", command, verbosity="executionStats")
    shown = str(explained)
    assert "'$vectorSearch'" in shown and "'vectorsCompared': 50" in shown and "'totalDocsExamined': 4" in shown
