//! Tests which commands have the same shape, and the form of shapes.

use sheaf_bson::json::typed_doc;
use sheaf_bson::{DocBuf, array, doc};

use super::{hash_of_command, identifiers, of_command};

fn shape(command: &DocBuf) -> String {
    typed_doc(of_command(command.as_raw(), "d").unwrap().as_raw())
}

fn find(filter: DocBuf) -> DocBuf {
    doc! {"find": "c", "filter": filter}
}

fn aggregate(stage: DocBuf) -> DocBuf {
    doc! {"aggregate": "c", "pipeline": array![stage], "cursor": {}}
}

fn same(a: &DocBuf, b: &DocBuf) {
    assert_eq!(shape(a), shape(b));
    assert_eq!(
        hash_of_command(a.as_raw(), "d"),
        hash_of_command(b.as_raw(), "d")
    );
}

fn different(a: &DocBuf, b: &DocBuf) {
    assert_ne!(
        hash_of_command(a.as_raw(), "d"),
        hash_of_command(b.as_raw(), "d"),
        "{a:?} {b:?}"
    );
}

#[test]
fn constants_leave_their_types() {
    let expected = find(doc! {"a": 1, "b": {"$in": [1, 2.5]}});
    let expected = of_command(expected.as_raw(), "d").unwrap();
    assert_eq!(
        expected,
        doc! {
            "cmdNs": {"db": "d", "coll": "c"},
            "command": "find",
            "filter": {"$and": [
                {"a": {"$eq": "?number"}},
                {"b": {"$in": "?array<?number>"}},
            ]},
        }
    );
    same(&find(doc! {"a": 1}), &find(doc! {"a": 2.5}));
    different(&find(doc! {"a": 1}), &find(doc! {"a": "x"}));
    same(
        &find(doc! {"a": {"$in": [1]}}),
        &find(doc! {"a": {"$in": [1, 2, 3]}}),
    );
    different(
        &find(doc! {"a": {"$in": [1]}}),
        &find(doc! {"a": {"$in": [1, "x"]}}),
    );
    different(&find(doc! {"a": []}), &find(doc! {"a": [1]}));
}

#[test]
fn ways_to_write_a_filter_have_one_shape() {
    same(&find(doc! {"a": 1}), &find(doc! {"a": {"$eq": 9}}));
    same(
        &find(doc! {"a": {"$gt": 1, "$lt": 2}}),
        &find(doc! {"$and": [{"a": {"$gt": 5}}, {"a": {"$lt": 6}}]}),
    );
    same(&find(doc! {"a": 1}), &find(doc! {"a": 1, "$comment": "x"}));
    same(
        &find(doc! {"a": {"$not": {"$elemMatch": {"b": 1}}}}),
        &find(doc! {"a": {"$not": {"$elemMatch": {"b": 2}}}}),
    );
    different(&find(doc! {"a": {"$gt": 1}}), &find(doc! {"a": {"$lt": 1}}));
    different(&find(doc! {"a": 1}), &find(doc! {"b": 1}));
}

#[test]
fn a_command_and_its_namespace_are_part_of_the_shape() {
    let command = find(doc! {"a": 1});
    assert_ne!(
        hash_of_command(command.as_raw(), "d"),
        hash_of_command(command.as_raw(), "e")
    );
    different(&command, &doc! {"find": "e", "filter": {"a": 1}});
    different(&command, &aggregate(doc! {"$match": {"a": 1}}));
    let hash = hash_of_command(command.as_raw(), "d").unwrap();
    assert_eq!(hash.len(), 64);
    assert!(
        hash.bytes()
            .all(|b| b.is_ascii_hexdigit() && !b.is_ascii_lowercase())
    );
    assert_eq!(of_command(doc! {"count": "c"}.as_raw(), "d"), None);
    assert_eq!(of_command(doc! {}.as_raw(), "d"), None);
}

#[test]
fn options_without_influence_on_results_are_left_out() {
    let plain = find(doc! {"a": 1});
    let with = doc! {
        "find": "c", "filter": {"a": 1}, "batchSize": 3, "comment": "x", "maxTimeMS": 100,
        "hint": {"a": 1}, "sort": null, "tailable": false,
    };
    same(&plain, &with);
    different(&plain, &doc! {"find": "c", "filter": {"a": 1}, "limit": 3});
    same(
        &doc! {"find": "c", "limit": 4, "sort": {"a": 1.0}, "projection": {"a": true}},
        &doc! {"find": "c", "limit": 3, "sort": {"a": 1}, "projection": {"a": 1}},
    );
    different(
        &doc! {"find": "c", "sort": {"a": -1}},
        &doc! {"find": "c", "sort": {"a": 1}},
    );
    different(
        &doc! {"distinct": "c", "key": "a"},
        &doc! {"distinct": "c", "key": "b"},
    );
}

#[test]
fn stages_keep_names_and_drop_constants() {
    let pairs = [
        (doc! {"$limit": 1}, doc! {"$limit": 2}),
        (doc! {"$set": {"a": 1}}, doc! {"$addFields": {"a": 7}}),
        (
            doc! {"$group": {"_id": "$a", "n": {"$sum": 1}}},
            doc! {"$group": {"_id": "$a", "n": {"$sum": 2}}},
        ),
        (
            doc! {"$lookup": {"from": "f", "as": "x", "pipeline": [{"$match": {"a": 1}}]}},
            doc! {"$lookup": {"from": "f", "as": "x", "pipeline": [{"$match": {"a": 2}}]}},
        ),
        (
            doc! {"$project": {"a": {"$in": ["$a", [1, 2]]}}},
            doc! {"$project": {"a": {"$in": ["$a", [1, 2, 3]]}}},
        ),
        (
            doc! {"$bucket": {"groupBy": "$a", "boundaries": [0, 1]}},
            doc! {"$bucket": {"groupBy": "$a", "boundaries": [0, 2, 3]}},
        ),
    ];
    for (a, b) in pairs {
        same(&aggregate(a), &aggregate(b));
    }
    let pairs = [
        (doc! {"$limit": 1}, doc! {"$skip": 1}),
        (doc! {"$set": {"a": 1}}, doc! {"$set": {"b": 1}}),
        (doc! {"$set": {"a": "$x"}}, doc! {"$set": {"a": "$y"}}),
        (doc! {"$set": {"a": "x"}}, doc! {"$set": {"a": "$x"}}),
        (doc! {"$unwind": "$a"}, doc! {"$unwind": "$b"}),
        (doc! {"$out": "a"}, doc! {"$out": "b"}),
        (
            doc! {"$facet": {"x": [{"$limit": 1}]}},
            doc! {"$facet": {"x": [{"$skip": 1}]}},
        ),
        (
            doc! {"$map": 1, "$set": {"a": {"$map": {"input": "$x", "as": "v", "in": 1}}}},
            doc! {"$map": 1, "$set": {"a": {"$map": {"input": "$x", "as": "w", "in": 1}}}},
        ),
    ];
    for (a, b) in pairs {
        different(&aggregate(a), &aggregate(b));
    }
}

/// The shape with identifiers in capital letters.
fn replaced(command: &DocBuf) -> String {
    let shape = of_command(command.as_raw(), "d").unwrap();
    typed_doc(identifiers::replaced(shape.as_raw(), &|name| name.to_uppercase()).as_raw())
}

fn expected(stage: DocBuf) -> String {
    typed_doc(
        doc! {"cmdNs": {"db": "D", "coll": "C"}, "command": "aggregate", "pipeline": array![stage]}
            .as_raw(),
    )
}

#[test]
fn identifiers_are_replaced_and_keywords_are_not() {
    let command = doc! {
        "find": "c",
        "filter": {"a.b": 1, "$or": [{"x": {"$type": "string"}}, {"$expr": {"$eq": ["$y.z", "$$v"]}}]},
        "sort": {"s.t": -1},
        "projection": {"p": 1, "q": {"$concat": ["$r", "x"]}},
        "limit": 3,
        "let": {"v": 1},
    };
    let shape = doc! {
        "cmdNs": {"db": "D", "coll": "C"},
        "let": {"V": "?number"},
        "command": "find",
        "filter": {"$and": [
            {"A.B": {"$eq": "?number"}},
            {"$or": [{"X": {"$type": "string"}}, {"$expr": {"$eq": ["$Y.Z", "$$V"]}}]},
        ]},
        "sort": {"S.T": -1},
        "projection": {"P": true, "Q": {"$concat": ["$R", "?string"]}},
        "limit": "?number",
    };
    assert_eq!(replaced(&command), typed_doc(shape.as_raw()));
    let distinct = doc! {"distinct": "c", "key": "a.b"};
    let shape = doc! {"cmdNs": {"db": "D", "coll": "C"}, "command": "distinct", "key": "A.B"};
    assert_eq!(replaced(&distinct), typed_doc(shape.as_raw()));
    for (stage, shown) in [
        (
            doc! {"$group": {"_id": "$a", "n": {"$sum": "$b.c"}}},
            doc! {"$group": {"_id": "$A", "N": {"$sum": "$B.C"}}},
        ),
        (
            doc! {"$lookup": {"from": "o", "localField": "l", "foreignField": "f", "as": "x",
            "let": {"v": "$a"}, "pipeline": [{"$match": {"m": 1}}]}},
            doc! {"$lookup": {"from": "O", "localField": "L", "foreignField": "F", "as": "X",
            "let": {"V": "$A"}, "pipeline": [{"$match": {"M": {"$eq": "?number"}}}]}},
        ),
        (doc! {"$unwind": "$a.b"}, doc! {"$unwind": "$A.B"}),
        (doc! {"$unset": ["a", "b"]}, doc! {"$unset": ["A", "B"]}),
        (
            doc! {"$merge": {"into": {"db": "e", "coll": "o"}, "whenNotMatched": "discard"}},
            doc! {"$merge": {"into": {"db": "E", "coll": "O"}, "whenNotMatched": "discard"}},
        ),
        (
            doc! {"$setWindowFields": {"partitionBy": "$p", "sortBy": {"s": 1},
            "output": {"o": {"$sum": "$x"}}}},
            doc! {"$setWindowFields": {"partitionBy": "$P", "sortBy": {"S": 1},
            "output": {"O": {"$sum": "$X"}}}},
        ),
        (
            doc! {"$addFields": {"a": {"$filter": {"input": "$l", "as": "e", "cond": {"$gt": ["$$e.q", 1]}}}}},
            doc! {"$addFields": {"A": {"$filter": {"input": "$L", "as": "E", "cond": {"$gt": ["$$E.Q", "?number"]}}}}},
        ),
        (
            doc! {"$replaceRoot": {"newRoot": {"$mergeObjects": ["$$ROOT", {"k": "$v"}]}}},
            doc! {"$replaceRoot": {"newRoot": {"$mergeObjects": ["$$ROOT", {"K": "$V"}]}}},
        ),
        (
            doc! {"$facet": {"one": [{"$sort": {"a": 1}}]}},
            doc! {"$facet": {"ONE": [{"$sort": {"A": 1}}]}},
        ),
    ] {
        assert_eq!(replaced(&aggregate(stage)), expected(shown));
    }
}
