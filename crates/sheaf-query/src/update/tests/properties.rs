//! Properties of every update on every document, and a simple model of the most common operators
//! for comparison.

use proptest::prelude::*;
use sheaf_bson::{ArrayBuilder, DocBuilder, RawElement};

use super::*;

/// Few names, so that paths often exist in the document.
fn name() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        4 => prop::sample::select(vec!["a", "b", "c"]),
        2 => prop::sample::select(vec!["0", "1", "2", "3"]),
        1 => Just("long-name"),
    ]
}

fn small_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        (-2..3i32).prop_map(Value::Int32),
        (-2..3i64).prop_map(Value::Int64),
        prop::sample::select(vec![0.0, -0.0, 1.5, f64::NAN]).prop_map(Value::Double),
        Just(Value::Null),
        Just(Value::String("x".into())),
        Just(Value::Int64(i64::MAX)),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4)
                .prop_map(|v| Value::Array(v.iter().collect())),
            prop::collection::vec((name(), inner), 0..4)
                .prop_map(|fields| { Value::Document(document(fields)) }),
        ]
    })
}

/// A document with these fields; of fields with the same name, the first.
fn document(fields: Vec<(&'static str, Value)>) -> DocBuf {
    let mut out = DocBuilder::new();
    let mut seen = Vec::new();
    for (name, value) in &fields {
        if !seen.contains(name) {
            seen.push(*name);
            out.append(name, value);
        }
    }
    out.finish()
}

fn stored() -> impl Strategy<Value = DocBuf> {
    prop::collection::vec((name(), small_value()), 0..5).prop_map(|fields| {
        let mut out = DocBuilder::new();
        out.append("_id", 1);
        out.extend(document(fields).as_raw());
        out.finish()
    })
}

fn path(names: impl Strategy<Value = &'static str>) -> impl Strategy<Value = String> {
    (
        prop::sample::select(vec!["a", "b", "c", "1"]),
        prop::collection::vec(names, 0..3),
    )
        .prop_map(|(first, rest)| rest.iter().fold(first.to_owned(), |path, n| path + "." + n))
}

fn plain_path() -> impl Strategy<Value = String> {
    path(name())
}

fn any_path() -> impl Strategy<Value = String> {
    path(prop_oneof![
        4 => name(),
        1 => prop::sample::select(vec!["$", "$[]", "$[x]"]),
    ])
}

/// The name of an operator and an operand.
fn operation() -> impl Strategy<Value = (&'static str, Value)> {
    let of = |name: &'static str| small_value().prop_map(move |v| (name, v));
    let number = || {
        prop_oneof![
            (-2..3i32).prop_map(Value::Int32),
            Just(Value::Int64(i64::MAX)),
            Just(Value::Double(0.5))
        ]
    };
    let each = || {
        (
            prop::collection::vec(small_value(), 0..4),
            -3..4i32,
            -3..4i32,
            any::<bool>(),
        )
            .prop_map(|(values, position, slice, descending)| {
                let mut out = DocBuilder::new();
                out.append("$each", &Value::Array(values.iter().collect()));
                out.append("$position", position);
                if slice != 3 {
                    out.append("$slice", slice);
                }
                if position == 0 {
                    out.append("$sort", if descending { -1 } else { 1 });
                }
                Value::Document(out.finish())
            })
    };
    prop_oneof![
        3 => of("$set"),
        2 => of("$unset"),
        1 => number().prop_map(|v| ("$inc", v)),
        1 => number().prop_map(|v| ("$mul", v)),
        1 => of("$min"),
        1 => of("$max"),
        1 => of("$push"),
        1 => each().prop_map(|v| ("$push", v)),
        1 => of("$addToSet"),
        1 => of("$pull"),
        1 => prop::collection::vec(small_value(), 0..3)
            .prop_map(|v| ("$pullAll", Value::Array(v.iter().collect()))),
        1 => prop::sample::select(vec![1, -1]).prop_map(|n| ("$pop", Value::Int32(n))),
        1 => plain_path().prop_map(|to| ("$rename", Value::String(to))),
        1 => Just(("$currentDate", Value::Boolean(true))),
        1 => of("$setOnInsert"),
    ]
}

fn update_of(operations: &[(String, (&'static str, Value))]) -> DocBuf {
    let mut names: Vec<&str> = operations.iter().map(|(_, (name, _))| *name).collect();
    names.sort_unstable();
    names.dedup();
    let mut out = DocBuilder::new();
    for name in names {
        out.begin_document(name);
        for (path, (_, value)) in operations.iter().filter(|(_, (n, _))| *n == name) {
            out.append(path, value);
        }
        out.end();
    }
    out.finish()
}

fn filters(update: &DocBuf) -> Option<Value> {
    format!("{update:?}")
        .contains("$[x]")
        .then(|| super::value("[{x: {$gt: 0}}]"))
}

fn top_level(doc: &DocBuf) -> Vec<(String, Vec<u8>)> {
    let bytes = |e: RawElement<'_>| (e.key().to_owned(), e.as_bytes().to_vec());
    doc.iter().map(bytes).collect()
}

fn config() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        cases: 2000,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    /// Any update on any document results in an error or a valid document. Fields that no path
    /// names are unchanged, and all differences are reported.
    #[test]
    fn changes_are_valid_and_reported(
        doc in stored(),
        operations in prop::collection::vec((any_path(), operation()), 1..4),
        matched in prop::option::of(0..3usize),
    ) {
        let update = update_of(&operations);
        let filters = filters(&update);
        let filters = filters.as_ref().and_then(|f| f.as_raw().as_array());
        let driver = UpdateDriver::parse((&update).into(), filters, &VariableScope::new(NOW));
        let Ok(driver) = driver else { return Ok(()) };
        let context = ApplyContext { now: NOW, matched_array_index: matched, ..ApplyContext::default() };
        let Ok(Outcome::Changed { doc: new, modified }) = driver.apply(doc.as_raw(), &context) else {
            return Ok(());
        };
        check_outcome(&driver, &doc, &new, &context);

        let named = |field: &str| operations.iter().any(|(path, (operator, value))| {
            let first = |path: &str| path.split('.').next() == Some(field);
            first(path) || (*operator == "$rename" && matches!(value, Value::String(to) if first(to)))
        });
        let keep = |doc: &DocBuf| -> Vec<_> {
            top_level(doc).into_iter().filter(|(name, _)| !named(name)).collect()
        };
        prop_assert_eq!(keep(&doc), keep(&new));

        let (old_fields, new_fields) = (top_level(&doc), top_level(&new));
        for (name, bytes) in old_fields.iter().chain(&new_fields) {
            let same = |fields: &[(String, Vec<u8>)]| fields.iter().any(|f| f.0 == *name && f.1 == *bytes);
            if !(same(&old_fields) && same(&new_fields)) {
                prop_assert!(modified.may_affect_dotted(name), "{name} changed, {modified:?} does not say so");
            }
        }
    }

    /// Applying idempotent operators twice is the same as applying them once.
    #[test]
    fn stating_twice_changes_nothing(
        doc in stored(),
        operations in prop::collection::vec((any_path(), operation()), 1..4),
    ) {
        let stating = ["$set", "$unset", "$min", "$max", "$pull", "$pullAll", "$currentDate", "$setOnInsert"];
        let operations: Vec<_> = operations.into_iter().filter(|(_, (n, _))| stating.contains(n)).collect();
        let update = update_of(&operations);
        let filters = filters(&update);
        // An array filter may accept what the first application wrote.
        prop_assume!(filters.is_none() && !operations.is_empty());
        let Ok(driver) = UpdateDriver::parse((&update).into(), None, &VariableScope::new(NOW)) else { return Ok(()) };
        let context = ApplyContext { now: NOW, matched_array_index: Some(0), ..ApplyContext::default() };
        let Ok(Outcome::Changed { doc: once, .. }) = driver.apply(doc.as_raw(), &context) else { return Ok(()) };
        // Setting the second element of an empty array pads it with a null, which $pull then
        // rejects.
        let Ok(twice) = driver.apply(once.as_raw(), &context) else { return Ok(()) };
        prop_assert_eq!(twice, Outcome::NoChange);
    }

    /// The traversal agrees with a model that applies one path after the other.
    #[test]
    fn agrees_with_the_model(
        doc in stored(),
        operations in prop::collection::vec((plain_path(), operation()), 1..4),
    ) {
        let modelled = ["$set", "$unset", "$inc", "$push", "$min", "$max"];
        let mut operations: Vec<_> = operations.into_iter()
            .filter(|(_, (n, v))| modelled.contains(n) && !has_each(v))
            .collect();
        prop_assume!(!operations.is_empty());
        let update = update_of(&operations);
        let Ok(driver) = UpdateDriver::parse((&update).into(), None, &VariableScope::new(NOW)) else { return Ok(()) };
        let key = |path: &str| -> Vec<_> { path.split('.').map(sort_key).collect() };
        operations.sort_by_key(|(path, _)| key(path));
        let mut model = Tree::from(Value::Document(doc.clone()));
        let expected = operations.iter().try_for_each(|(path, (operator, value))| {
            let parts: Vec<&str> = path.split('.').collect();
            model.apply(&parts, operator, value)
        });
        let outcome = driver.apply(doc.as_raw(), &ApplyContext::default());
        match (expected, outcome) {
            (Err(()), Err(_)) => {}
            (Ok(()), Ok(Outcome::NoChange)) => prop_assert_eq!(model.document(), doc),
            (Ok(()), Ok(Outcome::Changed { doc: new, .. })) => {
                prop_assert_eq!(model.document(), new, "{:?}", update);
            }
            (expected, outcome) => prop_assert!(false, "model {expected:?}, walk {outcome:?}"),
        }
    }

    /// A document that is not an update is rejected without a panic.
    #[test]
    fn any_document_is_parsed_or_refused(update in sheaf_testkit::generate::document(), doc in stored()) {
        if let Ok(driver) = UpdateDriver::parse((&update).into(), None, &VariableScope::new(NOW)) {
            let _ = driver.apply(doc.as_raw(), &ApplyContext::default());
        }
    }
}

fn has_each(value: &Value) -> bool {
    matches!(value, Value::Document(doc) if doc.get("$each").is_some())
}

fn sort_key(part: &str) -> (u8, u64, String) {
    match part.parse() {
        Ok(n) => (0, n, String::new()),
        Err(_) => (1, 0, part.to_owned()),
    }
}

/// A document as a tree.
#[derive(Debug, Clone)]
enum Tree {
    Document(Vec<(String, Tree)>),
    Array(Vec<Tree>),
    Leaf(Value),
}

impl From<Value> for Tree {
    fn from(value: Value) -> Tree {
        match &value {
            Value::Document(doc) => Tree::Document(
                doc.iter()
                    .map(|e| (e.key().to_owned(), Tree::from(e.value().to_value())))
                    .collect(),
            ),
            Value::Array(array) => Tree::Array(
                array
                    .as_raw()
                    .iter()
                    .map(|v| Tree::from(v.to_value()))
                    .collect(),
            ),
            _ => Tree::Leaf(value),
        }
    }
}

impl Tree {
    fn document(&self) -> DocBuf {
        match self.value() {
            Value::Document(doc) => doc,
            other => panic!("{other:?}"),
        }
    }

    fn value(&self) -> Value {
        match self {
            Tree::Document(fields) => {
                let mut out = DocBuilder::new();
                for (name, tree) in fields {
                    out.append(name, &tree.value());
                }
                Value::Document(out.finish())
            }
            Tree::Array(values) => {
                let mut out = ArrayBuilder::new();
                for tree in values {
                    out.push(&tree.value());
                }
                Value::Array(out.finish())
            }
            Tree::Leaf(value) => value.clone(),
        }
    }

    fn apply(&mut self, path: &[&str], operator: &str, operand: &Value) -> Result<(), ()> {
        let Some((name, rest)) = path.split_first() else {
            unreachable!()
        };
        let creates = operator != "$unset";
        let position: Option<usize> = name.parse().ok();
        let slot = match self {
            Tree::Document(fields) => fields.iter().position(|(n, _)| n == name),
            Tree::Array(values) => match position {
                Some(at) => (at < values.len()).then_some(at),
                None if creates => return Err(()),
                None => return Ok(()),
            },
            Tree::Leaf(_) if creates => return Err(()),
            Tree::Leaf(_) => return Ok(()),
        };
        let Some(at) = slot else {
            if creates {
                let new = match rest {
                    [] => created(operator, operand),
                    _ => {
                        let mut new = Tree::Document(Vec::new());
                        new.apply(rest, operator, operand)?;
                        new
                    }
                };
                match self {
                    Tree::Document(fields) => fields.push(((*name).to_owned(), new)),
                    Tree::Array(values) => {
                        values.resize(position.unwrap_or(0), Tree::Leaf(Value::Null));
                        values.push(new);
                    }
                    Tree::Leaf(_) => unreachable!(),
                }
            }
            return Ok(());
        };
        if rest.is_empty() && operator == "$unset" {
            match self {
                Tree::Document(fields) => drop(fields.remove(at)),
                Tree::Array(values) => values[at] = Tree::Leaf(Value::Null),
                Tree::Leaf(_) => unreachable!(),
            }
            return Ok(());
        }
        let inner = match self {
            Tree::Document(fields) => &mut fields[at].1,
            Tree::Array(values) => &mut values[at],
            Tree::Leaf(_) => unreachable!(),
        };
        if rest.is_empty() {
            inner.change(operator, operand)
        } else {
            inner.apply(rest, operator, operand)
        }
    }

    fn change(&mut self, operator: &str, operand: &Value) -> Result<(), ()> {
        let old = self.value();
        let order = sheaf_bson::compare_values(operand.as_raw(), old.as_raw());
        match operator {
            "$set" => *self = operand.clone().into(),
            "$min" if order.is_lt() => *self = operand.clone().into(),
            "$max" if order.is_gt() => *self = operand.clone().into(),
            "$min" | "$max" => {}
            "$push" => match self {
                Tree::Array(values) => values.push(operand.clone().into()),
                _ => return Err(()),
            },
            "$inc" => {
                let number = |v: &Value| crate::arithmetic::Number::from_raw(v.as_raw()).ok_or(());
                let sum = number(&old)?.add_exact(number(operand)?).ok_or(())?;
                *self = Tree::Leaf(sum.into());
            }
            other => panic!("{other}"),
        }
        Ok(())
    }
}

fn created(operator: &str, operand: &Value) -> Tree {
    match operator {
        "$push" => Tree::Array(vec![operand.clone().into()]),
        _ => operand.clone().into(),
    }
}
