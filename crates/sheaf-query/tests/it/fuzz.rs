//! Runs the body of the query fuzz target on damaged examples.

use sheaf_bson::{DocBuf, doc};
use sheaf_query::matcher::{ParseContext, parse};
use sheaf_testkit::fuzz::{Random, mutate, query};

fn examples() -> Vec<(DocBuf, DocBuf)> {
    vec![
        (
            doc! {
                "filter": {"a": {"$gt": 1, "$lt": 9}, "$or": [{"b": 1}, {"c": {"$in": [1, null]}}]},
                "sort": {"a": 1, "b.c": -1},
                "projection": {"a": 1, "b": {"$slice": 1}},
            },
            doc! {"a": [1, 5], "b": [{"c": 1}, {"c": 2}]},
        ),
        (
            doc! {
                "filter": {"a": {"$elemMatch": {"b": {"$regex": "^x", "$options": "i"}, "c": {"$ne": 2}}}},
                "projection": {"a.$": 1, "d.e": 1},
            },
            doc! {"a": [{"b": "Xy", "c": 3}], "d": {"e": [1], "f": 2}},
        ),
        (
            doc! {
                "filter": {"a": {"$all": [1, 2], "$size": 3}, "b": {"$type": ["int", 2]},
                    "c": {"$mod": [4, 1]}, "d": {"$bitsAllSet": [1, 5]}, "e": {"$exists": false},
                    "f": {"$not": {"$nin": [1]}}, "$nor": [{"g": {"$elemMatch": {"$gte": 3}}}]},
                "projection": {"a": 0, "b.c": 0},
            },
            doc! {"a": [1, 2, 3], "b": "x", "c": 5, "d": 34, "f": 1, "g": [1, 2]},
        ),
        (
            doc! {
                "filter": {"$expr": {"$gt": ["$a", {"$add": ["$b", 1]}]}, "$comment": "x"},
                "projection": {"x": {"$concat": ["$s", "y"]}, "e": {"$elemMatch": {"$gt": 1}}},
                "sort": {"$natural": 1},
            },
            doc! {"a": 5, "b": 1, "s": "t", "e": [1, 2]},
        ),
    ]
}

#[test]
fn damaged_queries_do_no_harm() {
    let mut random = Random::new(7);
    for (asked, doc) in examples() {
        let bytes = [asked.as_bytes(), doc.as_bytes()].concat();
        query(&bytes);
        for _ in 0..1000 {
            let mut damaged = bytes.clone();
            mutate(&mut damaged, &mut random);
            // With a wrong length, nearly all damaged documents would be rejected.
            if random.below(2) == 0 && damaged.len() > 4 {
                let len = (asked.len_bytes().min(damaged.len()) as i32).to_le_bytes();
                damaged[..4].copy_from_slice(&len);
            }
            query(&damaged);
        }
    }
}

/// Unvalidated bytes are rejected or interpreted, but never cause a panic.
#[test]
fn unvalidated_bytes_do_no_harm() {
    let mut random = Random::new(11);
    for (asked, doc) in examples() {
        for _ in 0..700 {
            let mut damaged = asked.as_bytes().to_vec();
            mutate(&mut damaged, &mut random);
            let len = damaged.len();
            if len < 5 {
                continue;
            }
            damaged[..4].copy_from_slice(&(len as i32).to_le_bytes());
            damaged[len - 1] = 0;
            let damaged = DocBuf::from_vec_unchecked(damaged);
            if let Ok(filter) = parse(damaged.as_raw(), &ParseContext::default()) {
                let _ = filter.matches(doc.as_raw());
                let _ = filter.normalize().serialize();
            }
        }
    }
}

#[test]
fn depth_bombs_are_refused() {
    for operator in ["$and", "$or", "$nor"] {
        let mut filter = doc! {"a": 1};
        for _ in 0..5000 {
            filter = doc! {operator: [filter]};
        }
        assert!(parse(filter.as_raw(), &ParseContext::default()).is_err());
    }
    let mut operators = doc! {"$gt": 1};
    for _ in 0..5000 {
        operators = doc! {"$not": operators};
    }
    assert!(parse(doc! {"a": operators}.as_raw(), &ParseContext::default()).is_err());
    let mut filter = doc! {"$gt": 1};
    for _ in 0..5000 {
        filter = doc! {"$elemMatch": {"a": filter}};
    }
    assert!(parse(doc! {"a": filter}.as_raw(), &ParseContext::default()).is_err());
}
