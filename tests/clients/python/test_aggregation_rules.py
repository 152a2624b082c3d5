"""Rules of aggregations that frameworks rely on."""

import pytest


@pytest.fixture
def people(db, coll):
    coll.insert_many(
        [
            {"_id": 1, "a": 1, "author": {"$ref": "people", "$id": 7}},
            {"_id": 2, "a": None},
            {"_id": 3},
        ]
    )
    return coll


def test_a_group_by_one_field_treats_missing_as_null(people):
    groups = people.aggregate([{"$group": {"_id": {"a": "$a"}, "n": {"$sum": 1}}}])
    assert sorted((g["_id"]["a"] or 0, g["n"]) for g in groups) == [(0, 2), (1, 1)]


def test_the_fields_of_a_dbref(db, people):
    db.authors.drop()
    db.authors.insert_one({"_id": 7, "name": "x"})
    found = people.aggregate(
        [
            {"$match": {"_id": 1}},
            {
                "$lookup": {
                    "from": "authors",
                    "localField": "author.$id",
                    "foreignField": "_id",
                    "as": "found",
                }
            },
            {"$project": {"id": "$author.$id", "found": 1}},
        ]
    )
    assert list(found) == [{"_id": 1, "found": [{"_id": 7, "name": "x"}], "id": 7}]


def test_variables_of_the_command_in_the_pipeline_of_a_merge(db, people):
    db.merged.drop()
    db.merged.insert_one({"_id": 1})
    people.aggregate(
        [
            {"$project": {"_id": 1, "a": 1}},
            {
                "$merge": {
                    "into": "merged",
                    "let": {"own": "$a"},
                    "whenMatched": [{"$set": {"own": "$$own", "who": "$$who", "new": "$$new.a"}}],
                }
            },
        ],
        let={"who": "me", "own": "hidden"},
    )
    assert db.merged.find_one({"_id": 1}) == {"_id": 1, "own": 1, "who": "me", "new": 1}


def test_a_filter_without_fields_applies_to_union_documents(db, people):
    db.others.drop()
    db.others.insert_one({"_id": 9})
    for false in ({"$expr": False}, {"a": {"$in": []}}, {"$expr": {"$eq": ["$$who", "admin"]}}):
        united = people.aggregate([{"$unionWith": "others"}, {"$match": false}], let={"who": "me"})
        assert list(united) == []
