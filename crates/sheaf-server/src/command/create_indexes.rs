//! `createIndexes`: builds indexes.

use sheaf_bson::{DocBuilder, Error, ErrorCode, RawValue};
use sheaf_db::index::definition::IndexSpec;

use super::context::CommandContext;
use super::fields;

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "createIndexes";
    let namespace = cx.collection()?;
    let mut given = Vec::new();
    let mut has_indexes = false;
    let mut ignores_unknown = false;
    for element in cx.arguments() {
        match element.key() {
            "indexes" => {
                has_indexes = true;
                for spec in fields::array(NAME, &element)?.iter() {
                    let RawValue::Document(spec) = spec else {
                        return Err(fields::wrong_type(NAME, &element, "array of objects"));
                    };
                    given.push(spec);
                }
            }
            // The only voting member is this node, which votes by building the index.
            "commitQuorum" => check_commit_quorum(element.value())?,
            // The version of each index is its own.
            "v" => drop(fields::integer(NAME, &element)?),
            "ignoreUnknownIndexOptions" => ignores_unknown = fields::boolean(NAME, &element)?,
            _ => cx.unknown_field(&element)?,
        }
    }
    if !has_indexes {
        return Err(fields::missing(NAME, "indexes"));
    }
    let parse = match ignores_unknown {
        true => IndexSpec::parse_ignoring_unknown,
        false => IndexSpec::parse,
    };
    let specs = given
        .into_iter()
        .map(parse)
        .collect::<Result<Vec<_>, _>>()?;
    if specs.is_empty() {
        return Err(Error::bad_value(
            "Must specify at least one index to create",
        ));
    }
    let db = cx.server.db.clone();
    let result = db.create_indexes(&cx.op, &namespace, &specs)?;
    out.append("numIndexesBefore", result.indexes_before as i32);
    out.append("numIndexesAfter", result.indexes_after as i32);
    out.append("createdCollectionAutomatically", result.created_collection);
    if let Some(note) = result.note {
        out.append("note", note);
    }
    Ok(())
}

fn check_commit_quorum(value: RawValue<'_>) -> Result<(), Error> {
    let fits = match value {
        RawValue::String(mode) => matches!(mode, "votingMembers" | "majority"),
        value => value.as_i64_exact().is_some_and(|n| (0..=1).contains(&n)),
    };
    if fits {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::UNSATISFIABLE_COMMIT_QUORUM,
        "commitQuorum must be \"votingMembers\", \"majority\", 0 or 1: the server is not a member \
         of a replica set",
    ))
}
