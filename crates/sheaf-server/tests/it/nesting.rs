//! How deep commands and documents may be nested: 200 levels below a command, 180 in a stored
//! document, 100 in a filter.

use sheaf_bson::{DocBuf, DocBuilder, Value, doc};

use crate::client::Client;
use crate::server::Server;

fn nested(levels: usize, inner: Value, wrap: impl Fn(Value) -> Value) -> Value {
    (0..levels).fold(inner, |value, _| wrap(value))
}

fn fields(levels: usize) -> Value {
    nested(levels, Value::Int32(1), |value| {
        Value::Document(doc! {"a": value})
    })
}

fn of_test(command: DocBuf) -> DocBuf {
    let mut out = DocBuilder::from_doc(command.as_raw());
    out.append("$db", "test");
    out.finish()
}

fn write_code(client: &mut Client, document: Value) -> i64 {
    let command = doc! {"insert": "c", "documents": [document]};
    let reply = client.run(&of_test(command)).body;
    let errors = reply
        .get("writeErrors")
        .and_then(|errors| errors.as_array());
    let code = errors.and_then(|errors| errors.get(0)?.as_document()?.get("code")?.as_i64_exact());
    code.unwrap_or(0)
}

#[test]
fn stored_documents_have_180_levels() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(
        write_code(&mut client, doc! {"_id": 1, "d": fields(179)}.into()),
        0
    );
    assert_eq!(
        write_code(&mut client, doc! {"_id": 2, "d": fields(180)}.into()),
        15
    );
    let deepest = ["a"; 179].join(".");
    let found = doc! {"find": "c", "filter": {format!("d.{deepest}"): 1}};
    let reply = client.ok(&of_test(found));
    assert!(crate::explained::at(&reply, "cursor.firstBatch.0._id").is_some());
    client.ok(&of_test(doc! {"validate": "c", "full": true}));
}

/// The deepest filters and expressions fit the stack of a connection, with and without indexes.
#[test]
fn filters_and_expressions_at_the_limits() {
    let server = Server::start();
    let mut client = server.client();
    client.ok(&of_test(
        doc! {"insert": "c", "documents": [{"_id": 1, "x": 1}]},
    ));
    client.ok(&of_test(doc! {
        "createIndexes": "c", "indexes": [{"key": {"x": 1}, "name": "x"}, {"key": {"$**": 1}, "name": "w"}],
    }));
    for name in ["$and", "$or", "$nor"] {
        let filter = |levels| {
            let inner = Value::Document(doc! {"x": {"$exists": true}});
            nested(levels, inner, |value| Value::Document(doc! {name: [value]}))
        };
        let find = doc! {"find": "c", "filter": filter(98)};
        client.ok(&of_test(find.clone()));
        client.ok(&of_test(doc! {"explain": find}));
        client.ok(&of_test(
            doc! {"create": format!("v{name}").replace('$', ""), "validator": filter(99)},
        ));
        let mut query = doc! {"q": filter(96), "u": {"$set": {"y": 1}}};
        query = doc! {"update": "c", "updates": [query]};
        client.ok(&of_test(query));
        let deeper = of_test(doc! {"find": "c", "filter": filter(101)});
        assert_eq!(client.run(&deeper).code(), 2);
    }
    for name in ["$not", "$and", "$setUnion", "$concatArrays"] {
        let levels = 96;
        let inner = match name {
            "$setUnion" | "$concatArrays" => Value::from(vec![Value::from("$x")]),
            _ => Value::from("$x"),
        };
        let expression = nested(levels, inner, |value| Value::Document(doc! {name: [value]}));
        let pipeline = doc! {"$project": {"r": expression.clone()}};
        let reply = client.run(&of_test(
            doc! {"aggregate": "c", "pipeline": [pipeline], "cursor": {}},
        ));
        assert!(
            reply.is_ok() || reply.code() == 28664 || reply.code() == 17043,
            "{reply:?}"
        );
        client.run(&of_test(
            doc! {"find": "c", "filter": {"$expr": expression}},
        ));
    }
    let literal = doc! {"$replaceWith": fields(190)};
    let reply = client.ok(&of_test(
        doc! {"aggregate": "c", "pipeline": [literal], "cursor": {}},
    ));
    assert!(crate::explained::at(&reply, "cursor.firstBatch.0.a.a.a").is_some());
    let schema = nested(90, Value::Document(doc! {"bsonType": "object"}), |value| {
        Value::Document(doc! {"properties": {"a": value}})
    });
    client.ok(&of_test(
        doc! {"find": "c", "filter": {"$jsonSchema": schema}},
    ));
}
