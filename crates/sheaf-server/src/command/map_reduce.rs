//! `mapReduce`: a pipeline around the user's functions.
//!
//! ```text
//!   query, sort, limit   $match, $sort, $limit
//!   map                  $replaceWith {emits: [{k, v}, ...]}, $unwind
//!   reduce               $group by k
//!   finalize             $project {value: finalize(_id, value)}
//!   out                  inline: the reply; replace: $out; merge, reduce: $merge
//! ```

use sheaf_bson::{
    ArrayBuf, CollationChoice, DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawElement, RawValue,
    Value, doc,
};
use sheaf_db::Namespace;
use sheaf_db::explain::Verbosity;
use sheaf_query::javascript::{self, Script};

use super::context::CommandContext;
use super::write_reply::append_write_concern;
use super::{aggregate, fields};

const NAME: &str = "mapReduce";

struct Request<'a> {
    map: &'a str,
    reduce: &'a str,
    finalize: Option<&'a str>,
    query: Option<RawDoc<'a>>,
    sort: Option<RawDoc<'a>>,
    limit: u64,
    scope: Option<RawDoc<'a>>,
    collation: CollationChoice,
    out: Target<'a>,
}

/// Where the results go.
enum Target<'a> {
    Inline,
    Collection {
        mode: Mode,
        db: Option<&'a str>,
        name: &'a str,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Replace,
    Merge,
    Reduce,
}

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    let namespace = cx.collection()?;
    let request = parse(cx.arguments())?;
    let scripts = javascript::current().ok_or_else(javascript::no_engine)?;
    if let Some(scope) = request.scope {
        scripts.set_globals(scope)?;
    }
    let stages = stages(&request);
    let found = aggregate::collect(cx, &namespace, stages.as_raw(), request.collation)?;
    match request.out {
        Target::Inline => {
            out.begin_array("results");
            for doc in &found {
                out.push(RawValue::Document(doc.as_raw()));
                check_size(out)?;
            }
            out.end();
            return Ok(());
        }
        Target::Collection { db: None, name, .. } => {
            out.append("result", name);
        }
        Target::Collection {
            db: Some(db), name, ..
        } => {
            out.begin_document("result");
            out.append("db", db).append("collection", name);
            out.end();
        }
    }
    append_write_concern(cx, out);
    Ok(())
}

fn check_size(out: &DocBuilder) -> Result<(), Error> {
    match out.current_len() > super::hello::BSON_BYTES_MAX as usize {
        true => Err(Error::new(
            ErrorCode::BSON_OBJECT_TOO_LARGE,
            "the inline results of mapReduce exceed 16MB; write them to a collection (out)",
        )),
        false => Ok(()),
    }
}

/// Explains the pipeline of a mapReduce. `arguments` are its fields without the generic ones.
/// Errors: those of the arguments; those of the pipeline.
pub fn explain<'a>(
    cx: &CommandContext<'_>,
    namespace: &Namespace,
    arguments: impl Iterator<Item = RawElement<'a>>,
    verbosity: Verbosity,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let request = parse(arguments)?;
    let scripts = javascript::current().ok_or_else(javascript::no_engine)?;
    if let Some(scope) = request.scope {
        scripts.set_globals(scope)?;
    }
    let stages = stages(&request);
    let pipeline = aggregate::ViewRequest {
        pipeline: stages.as_raw(),
        hint: None,
        let_vars: None,
        collation: request.collation,
        batch_size: None,
        allow_disk_use: None,
    };
    aggregate::explain_on_view(cx, namespace, pipeline, verbosity, out)
}

/// The parsed arguments.
fn parse<'a>(arguments: impl Iterator<Item = RawElement<'a>>) -> Result<Request<'a>, Error> {
    let (mut map, mut reduce, mut out) = (None, None, None);
    let (mut finalize, mut query, mut sort, mut scope) = (None, None, None, None);
    let (mut limit, mut collation) = (0, CollationChoice::default());
    for element in arguments {
        match element.key() {
            "map" => map = Some(function(&element)?),
            "reduce" => reduce = Some(function(&element)?),
            "finalize" if element.value() == RawValue::Null => {}
            "finalize" => finalize = Some(function(&element)?),
            "query" => query = Some(fields::document(NAME, &element)?),
            "sort" => sort = Some(fields::document(NAME, &element)?),
            "scope" => scope = Some(fields::document(NAME, &element)?),
            "limit" => limit = fields::non_negative(NAME, &element)?,
            "collation" => collation = fields::collation(NAME, &element)?,
            // Neither changes the results.
            "jsMode" | "verbose" => {
                fields::boolean(NAME, &element)?;
            }
            "out" => out = Some(target(&element)?),
            other => return Err(fields::unknown_field(NAME, other)),
        }
    }
    Ok(Request {
        map: fields::required(NAME, "map", map)?,
        reduce: fields::required(NAME, "reduce", reduce)?,
        out: fields::required(NAME, "out", out)?,
        finalize,
        query,
        sort,
        limit,
        scope,
        collation,
    })
}

fn function<'a>(element: &RawElement<'a>) -> Result<&'a str, Error> {
    Script::source_of(element.value()).ok_or_else(|| {
        let expected = "[string, javascript]";
        fields::wrong_type(NAME, element, expected)
    })
}

fn target<'a>(element: &RawElement<'a>) -> Result<Target<'a>, Error> {
    let spec = match element.value() {
        RawValue::String(name) => {
            return Ok(Target::Collection {
                mode: Mode::Replace,
                db: None,
                name,
            });
        }
        _ => fields::document(NAME, element)?,
    };
    let (mut found, mut db) = (None, None);
    for option in spec.iter() {
        let mode = match option.key() {
            "inline" => {
                found = Some(Target::Inline);
                continue;
            }
            "replace" => Mode::Replace,
            "merge" => Mode::Merge,
            "reduce" => Mode::Reduce,
            "db" => {
                db = Some(fields::string("mapReduce.out", &option)?);
                continue;
            }
            "sharded" => {
                fields::boolean("mapReduce.out", &option)?;
                continue;
            }
            "nonAtomic" => {
                if !fields::boolean("mapReduce.out", &option)? {
                    return Err(Error::bad_value(
                        "mapReduce.out: nonAtomic: false is not supported; leave it out",
                    ));
                }
                continue;
            }
            other => return Err(fields::unknown_field("mapReduce.out", other)),
        };
        let name = fields::string("mapReduce.out", &option)?;
        if found.is_some() {
            return Err(Error::bad_value(
                "mapReduce.out has one of inline, replace, merge and reduce",
            ));
        }
        found = Some(Target::Collection {
            mode,
            db: None,
            name,
        });
    }
    match found {
        Some(Target::Collection { mode, name, .. }) => Ok(Target::Collection { mode, db, name }),
        Some(Target::Inline) if db.is_some() => Err(Error::bad_value(
            "mapReduce.out: 'db' is not allowed with inline",
        )),
        Some(inline) => Ok(inline),
        None => Err(Error::bad_value(
            "mapReduce.out has one of inline, replace, merge and reduce",
        )),
    }
}

fn code(source: &str) -> Value {
    Value::JavaScript(source.into())
}

/// `{value: function(_id, second)}`, and `_id`.
fn computed(function: &str, second: Value) -> Value {
    let args = vec![Value::from("$_id"), second];
    let call = doc! {"body": code(function), "args": args, "lang": "js"};
    let value = doc! {"$function": call};
    Value::Document(doc! {"$project": doc! {"value": value}})
}

fn stages(request: &Request<'_>) -> ArrayBuf {
    let document = |doc: RawDoc<'_>| Value::Document(doc.to_buf());
    let mut stages: Vec<Value> = Vec::new();
    let mut push = |stage: DocBuf| stages.push(Value::Document(stage));
    if let Some(query) = request.query {
        push(doc! {"$match": document(query)});
    }
    if let Some(sort) = request.sort.filter(|sort| !sort.is_empty()) {
        push(doc! {"$sort": document(sort)});
    }
    if let Ok(limit @ 1..) = i64::try_from(request.limit) {
        push(doc! {"$limit": limit});
    }
    let emit = doc! {"eval": code(request.map), "this": "$$ROOT"};
    let emits = doc! {"$_internalJsEmit": emit};
    push(doc! {"$replaceWith": doc! {"emits": emits}});
    push(doc! {"$unwind": "$emits"});
    let reduce = doc! {"data": "$emits", "eval": code(request.reduce)};
    let value = doc! {"$_internalJsReduce": reduce};
    push(doc! {"$group": doc! {"_id": "$emits.k", "value": value}});
    if let Some(finalize) = request.finalize {
        stages.push(computed(finalize, Value::from("$value")));
    }
    if let Target::Collection { mode, db, name } = request.out {
        stages.push(sink(request, mode, db, name));
    }
    ArrayBuf::from_values(stages.iter().map(Value::as_raw))
}

fn sink(request: &Request<'_>, mode: Mode, db: Option<&str>, name: &str) -> Value {
    let into = match db {
        Some(db) => Value::Document(doc! {"db": db, "coll": name}),
        None => Value::from(name),
    };
    let matched = match mode {
        Mode::Replace => return Value::Document(doc! {"$out": into}),
        Mode::Merge => Value::from("replace"),
        Mode::Reduce => {
            let both = vec![Value::from("$value"), Value::from("$$new.value")];
            let both = ArrayBuf::from_values(both.iter().map(Value::as_raw));
            let mut pipeline = vec![computed(request.reduce, Value::Array(both))];
            if let Some(finalize) = request.finalize {
                pipeline.push(computed(finalize, Value::from("$value")));
            }
            Value::Array(ArrayBuf::from_values(pipeline.iter().map(Value::as_raw)))
        }
    };
    let merge =
        doc! {"into": into, "on": "_id", "whenMatched": matched, "whenNotMatched": "insert"};
    Value::Document(doc! {"$merge": merge})
}
