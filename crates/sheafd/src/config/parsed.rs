//! The options as `getCmdLineOpts` reports them: those that were given, nested
//! and named as in a configuration file.

use std::collections::BTreeMap;

use sheaf_bson::{DocBuf, DocBuilder};

use super::Given;
use super::options::{self, Kind, Value};

/// A document under construction. Keys are sorted, as in MongoDB's reply.
#[derive(Default)]
struct Tree(BTreeMap<String, Node>);

enum Node {
    Value(Value),
    Tree(Tree),
}

pub(super) fn document(given: &[Given], config: Option<&str>) -> DocBuf {
    let mut tree = Tree::default();
    if let Some(path) = config {
        tree.put(&["config"], Value::Text(path.to_string()));
    }
    for item in given {
        match (item.option.key, item.option.kind) {
            // An option without a key is reported as the parameter that it sets.
            ("", _) => tree.put(&["setParameter", item.option.flag], item.value.clone()),
            (key, Kind::Parameters) => tree.put(&[key, &item.name], item.value.clone()),
            (key, _) => {
                let key = key.replace('*', &item.name);
                let path: Vec<&str> = key.split('.').collect();
                tree.put(&path, shown(item));
            }
        }
        if item.option.key == "systemLog.path" {
            tree.put(&["systemLog", "destination"], Value::Text("file".into()));
        }
    }
    let mut out = DocBuilder::new();
    tree.append(&mut out);
    out.finish()
}

/// What is shown in place of a password, as in MongoDB.
const HIDDEN: &str = "<password>";

/// The command line with passwords replaced.
pub(super) fn without_secrets(arguments: &[String]) -> Vec<String> {
    let mut hide_next = false;
    let mut shown = Vec::with_capacity(arguments.len());
    for argument in arguments {
        let (flag, value) = match argument.split_once('=') {
            Some((flag, value)) => (flag, Some(value)),
            None => (argument.as_str(), None),
        };
        let named = flag.strip_prefix("--").and_then(options::by_flag);
        let is_secret = named.is_some_and(|option| option.secret);
        shown.push(match (hide_next, is_secret, value) {
            (true, ..) => HIDDEN.to_owned(),
            (false, true, Some(_)) => format!("{flag}={HIDDEN}"),
            _ => argument.clone(),
        });
        hide_next = !hide_next && is_secret && value.is_none();
    }
    shown
}

/// The value in the file's spelling, where the command line spells it differently.
fn shown(item: &Given) -> Value {
    if item.option.secret {
        return Value::Text(HIDDEN.to_owned());
    }
    match (&item.value, item.option.flag_means) {
        (Value::Text(word), Some("false")) if word == "false" => Value::Boolean(false),
        (Value::Text(level), _) if item.option.key == "operationProfiling.mode" => {
            let mode = match level.as_str() {
                "0" => "off",
                "1" => "slowOp",
                "2" => "all",
                other => other,
            };
            Value::Text(mode.to_string())
        }
        (value, _) => value.clone(),
    }
}

impl Tree {
    fn put(&mut self, path: &[&str], value: Value) {
        match path {
            [] => {}
            [last] => {
                self.0.insert((*last).to_string(), Node::Value(value));
            }
            [first, rest @ ..] => {
                let below = self
                    .0
                    .entry((*first).to_string())
                    .or_insert_with(|| Node::Tree(Tree::default()));
                if let Node::Tree(below) = below {
                    below.put(rest, value);
                }
            }
        }
    }

    fn append(&self, out: &mut DocBuilder) {
        for (key, node) in &self.0 {
            match node {
                Node::Tree(tree) => {
                    out.begin_document(key);
                    tree.append(out);
                    out.end();
                }
                Node::Value(value) => append_value(out, key, value),
            }
        }
    }
}

fn append_value(out: &mut DocBuilder, key: &str, value: &Value) {
    match value {
        Value::Boolean(b) => out.append(key, *b),
        Value::Integer(n) => match i32::try_from(*n) {
            Ok(n) => out.append(key, n),
            Err(_) => out.append(key, *n),
        },
        Value::Number(x) => out.append(key, *x),
        Value::Text(s) => out.append(key, s.as_str()),
    };
}
