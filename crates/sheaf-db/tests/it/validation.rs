//! Validators: which documents are accepted at which level, and what the error reports.

use parking_lot::Mutex;
use sheaf_bson::json::{parse_doc, shell_doc};
use sheaf_bson::{DocBuf, doc};
use sheaf_db::ddl::coll_mod::CollMod;
use sheaf_db::{CollectionOptions, DbEvent, Events, StatementContext};
use std::sync::Arc;

use crate::support::{EngineKind, TestDb, code, ns, on_every_engine, with_field};

fn create(t: &TestDb, name: &str, options: &str) {
    let options = parse_doc(options).unwrap();
    let options = CollectionOptions::parse(options.as_raw()).unwrap();
    t.db.create_collection(&t.op, &ns(name), options).unwrap();
}

fn coll_mod(t: &TestDb, name: &str, request: &str) -> sheaf_bson::Result<()> {
    let request = parse_doc(request).unwrap();
    let parsed = CollMod::parse(request.as_raw())?;
    t.db.coll_mod(&t.op, &ns(name), &parsed).map(|_| ())
}

fn set_a(t: &TestDb, name: &str, id: i32, a: i32) -> i32 {
    let own = |doc: sheaf_bson::RawDoc<'_>| {
        doc.get("_id").and_then(|v| v.as_i64_exact()) == Some(id.into())
    };
    match t.update(name, own, |doc| with_field(doc, "a", a), false).1 {
        Ok(_) => 0,
        Err(error) => error.code().0,
    }
}

#[test]
fn inserts_and_updates() {
    on_every_engine(|t| {
        create(&t, "c", "{validator: {a: {$gte: 3}}}");
        assert_eq!(code(t.insert("c", doc! {"_id": 1, "a": 2})), 121);
        assert_eq!(code(t.insert("c", doc! {"_id": 1})), 121);
        t.insert("c", doc! {"_id": 1, "a": 3}).unwrap();
        assert_eq!(set_a(&t, "c", 1, 2), 121);
        assert_eq!(set_a(&t, "c", 1, 4), 0);
        assert_eq!(t.documents("c"), [doc! {"_id": 1, "a": 4}]);
        // Bypassing validation.
        let bypassing = StatementContext::new().with_validation_bypassed();
        let around = doc! {"_id": 2, "a": 0};
        t.db.insert_one(&bypassing, &ns("c"), around.as_raw())
            .unwrap();
        // strict: a document that fails already must pass after an update.
        assert_eq!(set_a(&t, "c", 2, 1), 121);
        assert_eq!(set_a(&t, "c", 2, 3), 0);
        t.assert_valid("c");
    });
}

#[test]
fn levels_and_actions() {
    on_every_engine(|t| {
        t.insert_all("c", &[doc! {"_id": 1, "a": 0}, doc! {"_id": 2, "a": 9}]);
        coll_mod(
            &t,
            "c",
            "{validator: {a: {$gte: 3}}, validationLevel: 'moderate'}",
        )
        .unwrap();
        assert_eq!(code(t.insert("c", doc! {"_id": 3, "a": 0})), 121);
        assert_eq!(set_a(&t, "c", 1, 1), 0, "it failed before");
        assert_eq!(set_a(&t, "c", 2, 1), 121, "it passed before");
        coll_mod(&t, "c", "{validationLevel: 'strict'}").unwrap();
        assert_eq!(set_a(&t, "c", 1, 2), 121);
        coll_mod(&t, "c", "{validationLevel: 'off'}").unwrap();
        assert_eq!(set_a(&t, "c", 1, 2), 0);
        coll_mod(
            &t,
            "c",
            "{validationLevel: 'strict', validationAction: 'warn'}",
        )
        .unwrap();
        t.insert("c", doc! {"_id": 3, "a": 0}).unwrap();
        coll_mod(&t, "c", "{validationAction: 'error'}").unwrap();
        assert_eq!(code(t.insert("c", doc! {"_id": 4, "a": 0})), 121);
        coll_mod(&t, "c", "{validator: {}}").unwrap();
        t.insert("c", doc! {"_id": 4, "a": 0}).unwrap();
    });
}

#[test]
fn failures_are_logged() {
    let logged: Arc<Mutex<Vec<(bool, DocBuf)>>> = Arc::default();
    let listener = logged.clone();
    let events = Events::to(move |event| {
        if let DbEvent::ValidationFailed { info, refused, .. } = event {
            listener.lock().push((*refused, info.clone()));
        }
    });
    let t = TestDb::new(EngineKind::Memory, events);
    create(
        &t,
        "c",
        "{validator: {a: {$gte: 3}}, validationAction: 'warn'}",
    );
    t.insert("c", doc! {"_id": 1, "a": 5}).unwrap();
    t.insert("c", doc! {"_id": 2, "a": 1}).unwrap();
    coll_mod(&t, "c", "{validationAction: 'errorAndLog'}").unwrap();
    assert_eq!(code(t.insert("c", doc! {"_id": 3, "a": 1})), 121);
    coll_mod(&t, "c", "{validationAction: 'error'}").unwrap();
    assert_eq!(code(t.insert("c", doc! {"_id": 3, "a": 1})), 121);
    let logged = logged.lock();
    let refused: Vec<bool> = logged.iter().map(|(refused, _)| *refused).collect();
    assert_eq!(refused, [false, true]);
    assert_eq!(logged[0].1.get("failingDocumentId"), Some(2.into()));
}

/// With action `warn` a document is stored even if its validator cannot be evaluated.
#[test]
fn a_warning_includes_validators_that_fail() {
    let reasons: Arc<Mutex<Vec<String>>> = Arc::default();
    let listener = reasons.clone();
    let events = Events::to(move |event| {
        if let DbEvent::ValidationFailed { info, .. } = event {
            listener.lock().push(info.to_string());
        }
    });
    let t = TestDb::new(EngineKind::Memory, events);
    create(
        &t,
        "c",
        "{validator: {$expr: {$divide: [1, '$a']}}, validationAction: 'warn'}",
    );
    t.insert("c", doc! {"_id": 1, "a": 0}).unwrap();
    let logged = reasons.lock().clone();
    assert_eq!(logged.len(), 1);
    assert!(logged[0].contains("divide by zero"), "{logged:?}");
    coll_mod(&t, "c", "{validationAction: 'error'}").unwrap();
    assert_eq!(code(t.insert("c", doc! {"_id": 2, "a": 0})), 2);
}

#[test]
fn a_validator_survives_a_restart() {
    let mut t = TestDb::new(EngineKind::Redb, Events::default());
    create(
        &t,
        "c",
        "{validator: {$jsonSchema: {required: ['a']}}, validationLevel: 'strict', collation: {locale: 'en', strength: 2}}",
    );
    let before = t.collection("c").options().to_doc();
    t.reopen();
    assert_eq!(t.collection("c").options().to_doc(), before);
    assert_eq!(code(t.insert("c", doc! {"_id": 1})), 121);
}

#[test]
fn text_compares_by_the_collections_collation() {
    on_every_engine(|t| {
        create(
            &t,
            "c",
            "{validator: {s: {$in: ['Yes', 'No']}}, collation: {locale: 'en', strength: 2}}",
        );
        t.insert("c", doc! {"_id": 1, "s": "yes"}).unwrap();
        assert_eq!(code(t.insert("c", doc! {"_id": 2, "s": "maybe"})), 121);
    });
}

#[test]
fn which_collections_have_none() {
    let t = TestDb::new(EngineKind::Memory, Events::default());
    let options = doc! {"validator": {"a": 1}};
    for name in [
        "admin.c",
        "config.c",
        "local.c",
        "test.system.views",
        "test.system.profile",
    ] {
        let options = CollectionOptions::parse(options.as_raw()).unwrap();
        let name = sheaf_db::Namespace::parse(name).unwrap();
        let refused = t.db.create_collection(&t.op, &name, options);
        assert!(matches!(code(refused), 72 | 73), "{name}");
    }
    let images = doc! {"changeStreamPreAndPostImages": {"enabled": true}};
    let images = CollectionOptions::parse(images.as_raw()).unwrap();
    let name = sheaf_db::Namespace::parse("admin.c").unwrap();
    assert_eq!(code(t.db.create_collection(&t.op, &name, images)), 72);
    t.insert("c", doc! {"_id": 1}).unwrap();
    assert_eq!(code(coll_mod(&t, "c", "{validator: {$where: '1'}}")), 2);
    assert_eq!(code(coll_mod(&t, "none", "{validator: {a: 1}}")), 26);
    assert!(t.collection("c").options().to_doc().is_empty());
}

/// The whole of `errInfo`, as the manual's page on validation failures shows it.
#[test]
fn what_a_refusal_reports() {
    let cases = [
        (
            "{a: {$gt: 3}}",
            "{_id: 1, a: 1}",
            "{failingDocumentId: 1, details: {operatorName: '$gt', specifiedAs: {a: {$gt: 3}}, reason: 'comparison failed', consideredValue: 1}}",
        ),
        (
            "{a: {$gt: 3}}",
            "{_id: 1}",
            "{failingDocumentId: 1, details: {operatorName: '$gt', specifiedAs: {a: {$gt: 3}}, reason: 'field was missing'}}",
        ),
        (
            "{a: {$gt: 3}, b: 'x'}",
            "{_id: 1, a: 5, b: [1, 2]}",
            "{failingDocumentId: 1, details: {operatorName: '$and', clausesNotSatisfied: [{index: 1, details: {operatorName: '$eq', specifiedAs: {b: 'x'}, reason: 'comparison failed', consideredValues: [1, 2, [1, 2]]}}]}}",
        ),
        (
            "{a: {$gt: 3, $lt: 5}}",
            "{_id: 1, a: 5}",
            "{failingDocumentId: 1, details: {operatorName: '$and', clausesNotSatisfied: [{index: 1, details: {operatorName: '$lt', specifiedAs: {a: {$lt: 5}}, reason: 'comparison failed', consideredValue: 5}}]}}",
        ),
        (
            "{$or: [{a: 1}, {b: {$exists: true}}]}",
            "{_id: 1, a: 2}",
            "{failingDocumentId: 1, details: {operatorName: '$or', clausesNotSatisfied: [{index: 0, details: {operatorName: '$eq', specifiedAs: {a: 1}, reason: 'comparison failed', consideredValue: 2}}, {index: 1, details: {operatorName: '$exists', specifiedAs: {b: {$exists: true}}, reason: 'path does not exist'}}]}}",
        ),
        (
            "{$nor: [{a: 1}, {b: 1}]}",
            "{_id: 1, a: 1}",
            "{failingDocumentId: 1, details: {operatorName: '$nor', clausesSatisfied: [{index: 0, details: {operatorName: '$eq', specifiedAs: {a: 1}, reason: 'comparison succeeded', consideredValue: 1}}]}}",
        ),
        (
            "{a: {$not: {$type: 'string'}}}",
            "{_id: 1, a: 'x'}",
            "{failingDocumentId: 1, details: {operatorName: '$not', details: {operatorName: '$type', specifiedAs: {a: {$type: 'string'}}, reason: 'type did match', consideredValue: 'x', consideredType: 'string'}}}",
        ),
        (
            "{$expr: {$eq: ['$total', {$multiply: ['$a', '$b']}]}}",
            "{_id: 1, total: 7, a: 2, b: 3}",
            "{failingDocumentId: 1, details: {operatorName: '$expr', specifiedAs: {$expr: {$eq: ['$total', {$multiply: ['$a', '$b']}]}}, reason: 'expression did not match', expressionResult: false}}",
        ),
        (
            "{$jsonSchema: {title: 't', required: ['a', 'b'], properties: {c: {bsonType: 'int', description: 'd'}}}}",
            "{_id: 1, a: 1, c: 'x'}",
            "{failingDocumentId: 1, details: {operatorName: '$jsonSchema', title: 't', schemaRulesNotSatisfied: [{operatorName: 'properties', propertiesNotSatisfied: [{propertyName: 'c', description: 'd', details: [{operatorName: 'bsonType', specifiedAs: {bsonType: 'int'}, reason: 'type did not match', consideredValue: 'x', consideredType: 'string'}]}]}, {operatorName: 'required', specifiedAs: {required: ['a', 'b']}, missingProperties: ['b']}]}}",
        ),
        (
            "{$jsonSchema: {properties: {_id: {}, a: {minimum: 3, exclusiveMinimum: true}}, additionalProperties: false}}",
            "{_id: 1, a: 3, x: 1}",
            "{failingDocumentId: 1, details: {operatorName: '$jsonSchema', schemaRulesNotSatisfied: [{operatorName: 'properties', propertiesNotSatisfied: [{propertyName: 'a', details: [{operatorName: 'minimum', specifiedAs: {minimum: 3, exclusiveMinimum: true}, reason: 'comparison failed', consideredValue: 3}]}]}, {operatorName: 'additionalProperties', specifiedAs: {additionalProperties: false}, additionalProperties: ['x']}]}}",
        ),
        (
            "{$jsonSchema: {properties: {a: {items: {minLength: 2}, uniqueItems: true}}}}",
            "{_id: 1, a: ['xx', 'y', 'xx']}",
            "{failingDocumentId: 1, details: {operatorName: '$jsonSchema', schemaRulesNotSatisfied: [{operatorName: 'properties', propertiesNotSatisfied: [{propertyName: 'a', details: [{operatorName: 'uniqueItems', specifiedAs: {uniqueItems: true}, reason: 'found a duplicate item', consideredValue: ['xx', 'y', 'xx'], duplicatedValue: 'xx'}, {operatorName: 'items', reason: 'At least one item did not match the sub-schema', itemIndex: 1, details: [{operatorName: 'minLength', specifiedAs: {minLength: 2}, reason: 'specified string length was not satisfied', consideredValue: 'y'}]}]}]}]}}",
        ),
        (
            "{$jsonSchema: {anyOf: [{required: ['a']}, {title: 'second', required: ['b']}]}}",
            "{_id: 1}",
            "{failingDocumentId: 1, details: {operatorName: '$jsonSchema', schemaRulesNotSatisfied: [{operatorName: 'anyOf', schemasNotSatisfied: [{index: 0, details: [{operatorName: 'required', specifiedAs: {required: ['a']}, missingProperties: ['a']}]}, {index: 1, title: 'second', details: [{operatorName: 'required', specifiedAs: {required: ['b']}, missingProperties: ['b']}]}]}]}}",
        ),
        (
            "{$jsonSchema: {properties: {a: {oneOf: [{multipleOf: 2}, {multipleOf: 3}], not: {enum: [6]}}}, dependencies: {a: ['b']}}}",
            "{_id: 1, a: 6}",
            "{failingDocumentId: 1, details: {operatorName: '$jsonSchema', schemaRulesNotSatisfied: [{operatorName: 'properties', propertiesNotSatisfied: [{propertyName: 'a', details: [{operatorName: 'oneOf', reason: 'more than one subschema matched', matchingSchemaIndexes: [0, 1]}, {operatorName: 'not', reason: 'child expression matched'}]}]}, {operatorName: 'dependencies', failingDependencies: [{conditionalProperty: 'a', missingProperties: ['b']}]}]}}",
        ),
    ];
    for (validator, document, info) in cases {
        let t = TestDb::new(EngineKind::Memory, Events::default());
        create(&t, "c", &format!("{{validator: {validator}}}"));
        let error = t.insert("c", parse_doc(document).unwrap()).unwrap_err();
        assert_eq!(error.message(), "Document failed validation");
        let details = error.extra().unwrap().get("errInfo").unwrap();
        let details = details.as_document().unwrap();
        let want = parse_doc(info).unwrap();
        assert_eq!(
            shell_doc(details),
            shell_doc(want.as_raw()),
            "{validator} {document}"
        );
    }
}
