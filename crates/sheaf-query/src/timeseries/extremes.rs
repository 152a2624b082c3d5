//! Minimum and maximum of each field in a bucket: `control.min`, `control.max`.
//!
//! ```text
//!   {a: 3, b: {x: 5, y: 2}}    min {a: 1, b: {x: 1, y: 2}}
//!   {a: 1, b: {x: 1, y: 7}}    max {a: 3, b: {x: 5, y: 7}}
//! ```
//!
//! Documents are compared field by field, arrays element by element, and everything else by the
//! order of all values. A document or array and a value of another type compare by the rank of
//! their types.
//!
//! Invariant: no value of a field is below its minimum or above its maximum in that order. If
//! minimum and maximum are both documents, all values of the field are; the same holds for arrays.

use std::cmp::Ordering;

use sheaf_bson::{DocBuilder, ElementType, RawDoc, RawValue, Value, compare_values};

/// The minima or the maxima of a bucket.
#[derive(Debug, Clone)]
pub struct Extremes {
    fields: Vec<(Box<str>, Node)>,
    side: Ordering,
}

#[derive(Debug, Clone)]
enum Node {
    Value(Value),
    Document(Vec<(Box<str>, Node)>),
    Array(Vec<Node>),
}

impl Extremes {
    /// Empty minima.
    pub fn least() -> Extremes {
        Extremes {
            fields: Vec::new(),
            side: Ordering::Less,
        }
    }

    /// Empty maxima.
    pub fn greatest() -> Extremes {
        Extremes {
            side: Ordering::Greater,
            ..Extremes::least()
        }
    }

    /// Adds the content of `control.min` or `control.max`.
    pub fn with(mut self, doc: RawDoc<'_>) -> Extremes {
        for element in doc {
            let node = Node::of(element.value());
            self.fields.push((element.key().into(), node));
        }
        self
    }

    /// Includes a field's value. `hint` is the field's position in the previous measurement.
    pub fn add(&mut self, key: &str, value: RawValue<'_>, hint: usize) {
        let at = match self.fields.get(hint) {
            Some((name, _)) if **name == *key => Some(hint),
            _ => self.fields.iter().position(|(name, _)| **name == *key),
        };
        match at {
            Some(at) => self.fields[at].1.add(value, self.side),
            None => self.fields.push((key.into(), Node::of(value))),
        }
    }

    /// The value of a field, unless it is a document or an array.
    pub fn get(&self, key: &str) -> Option<RawValue<'_>> {
        let (_, node) = self.fields.iter().find(|(name, _)| **name == *key)?;
        match node {
            Node::Value(value) => Some(value.as_raw()),
            _ => None,
        }
    }

    /// Sets the value of a field.
    pub fn set(&mut self, key: &str, value: Value) {
        match self.fields.iter_mut().find(|(name, _)| **name == *key) {
            Some((_, node)) => *node = Node::Value(value),
            None => self.fields.push((key.into(), Node::Value(value))),
        }
    }

    /// Appends the fields to an open document.
    pub fn write(&self, out: &mut DocBuilder) {
        for (name, node) in &self.fields {
            node.write(name, out);
        }
    }
}

impl Node {
    fn of(value: RawValue<'_>) -> Node {
        match value {
            RawValue::Document(doc) => Node::Document(
                doc.iter()
                    .map(|e| (e.key().into(), Node::of(e.value())))
                    .collect(),
            ),
            RawValue::Array(array) => Node::Array(array.iter().map(Node::of).collect()),
            value => Node::Value(value.to_value()),
        }
    }

    fn add(&mut self, value: RawValue<'_>, side: Ordering) {
        match (&mut *self, value) {
            (Node::Document(fields), RawValue::Document(doc)) => {
                for element in doc {
                    let key = element.key();
                    match fields.iter_mut().find(|(name, _)| **name == *key) {
                        Some((_, node)) => node.add(element.value(), side),
                        None => fields.push((key.into(), Node::of(element.value()))),
                    }
                }
            }
            (Node::Array(nodes), RawValue::Array(array)) => {
                let mut nodes_left = nodes.len();
                for (at, value) in array.iter().enumerate() {
                    match nodes_left {
                        0 => nodes.push(Node::of(value)),
                        _ => {
                            nodes[at].add(value, side);
                            nodes_left -= 1;
                        }
                    }
                }
            }
            (Node::Value(have), value) if compare_values(value, have.as_raw()) == side => {
                *self = Node::of(value);
            }
            (Node::Value(_), _) => {}
            (Node::Document(_), value) => self.meet(ElementType::Document, value, side),
            (Node::Array(_), value) => self.meet(ElementType::Array, value, side),
        }
    }

    /// Compares with a value of another type than this node's, by the rank of the types.
    fn meet(&mut self, own: ElementType, value: RawValue<'_>, side: Ordering) {
        let rank = value.element_type().canonical_rank();
        if rank.cmp(&own.canonical_rank()) == side {
            *self = Node::of(value);
        }
    }

    fn write(&self, key: &str, out: &mut DocBuilder) {
        match self {
            Node::Value(value) => {
                out.append_value(key, value);
            }
            Node::Document(fields) => {
                out.begin_document(key);
                for (name, node) in fields {
                    node.write(name, out);
                }
                out.end();
            }
            Node::Array(nodes) => {
                out.begin_array(key);
                for (at, node) in nodes.iter().enumerate() {
                    node.write(&at.to_string(), out);
                }
                out.end();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sheaf_bson::json::shell_doc;
    use sheaf_bson::{DocBuf, doc};

    use super::*;

    fn extremes(docs: &[DocBuf]) -> (String, String) {
        let (mut min, mut max) = (Extremes::least(), Extremes::greatest());
        for doc in docs {
            for (at, element) in doc.iter().enumerate() {
                min.add(element.key(), element.value(), at);
                max.add(element.key(), element.value(), at);
            }
        }
        let text = |side: &Extremes| {
            let mut out = DocBuilder::new();
            side.write(&mut out);
            shell_doc(out.finish().as_raw()).to_string()
        };
        (text(&min), text(&max))
    }

    #[test]
    fn by_field_by_element_and_by_type() {
        for (docs, min, max) in [
            (
                vec![doc! {"a": 1}, doc! {"a": 3, "b": 2}],
                "{ a: 1, b: 2 }",
                "{ a: 3, b: 2 }",
            ),
            (
                vec![
                    doc! {"a": {"x": 5, "y": 2}},
                    doc! {"a": {"x": 1, "y": 7, "z": 0}},
                ],
                "{ a: { x: 1, y: 2, z: 0 } }",
                "{ a: { x: 5, y: 7, z: 0 } }",
            ),
            (
                vec![doc! {"a": [5, 2]}, doc! {"a": [1, 7, 3]}],
                "{ a: [ 1, 2, 3 ] }",
                "{ a: [ 5, 7, 3 ] }",
            ),
            // Numbers sort before text, text before documents, documents before arrays.
            (
                vec![doc! {"a": "x"}, doc! {"a": 9}, doc! {"a": {"b": 1}}],
                "{ a: 9 }",
                "{ a: { b: 1 } }",
            ),
            (
                vec![doc! {"a": [1]}, doc! {"a": {"b": 1}}],
                "{ a: { b: 1 } }",
                "{ a: [ 1 ] }",
            ),
            (
                vec![doc! {"a": {"b": 1}}, doc! {"a": true}, doc! {"a": null}],
                "{ a: null }",
                "{ a: true }",
            ),
        ] {
            assert_eq!(extremes(&docs), (min.into(), max.into()), "{docs:?}");
        }
    }
}
