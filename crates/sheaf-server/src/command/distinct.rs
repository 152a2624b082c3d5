//! `distinct`: the distinct values of a path.

use std::sync::Arc;

use sheaf_bson::path::FieldPath;
use sheaf_bson::{DocBuilder, Error, ErrorCode, RawElement, RawValue};
use sheaf_db::aggregate::view_reads;
use sheaf_query::canonical::{FindSpec, Hint};

use super::context::CommandContext;
use super::fields::unknown_field;
use super::{aggregate, fields};

/// The path and the query of a distinct command.
pub fn parse<'a>(
    arguments: impl Iterator<Item = RawElement<'a>>,
) -> Result<(FieldPath, FindSpec<'a>), Error> {
    const NAME: &str = "distinct";
    let mut spec = FindSpec::default();
    let mut key = None;
    for element in arguments {
        match element.key() {
            "key" => {
                let name = fields::string(NAME, &element)?;
                if name.contains('\0') {
                    let why = "Key field cannot contain an embedded null byte";
                    return Err(Error::new(ErrorCode(31032), why));
                }
                // Fields may have empty names: "x." is the field "" of x.
                let path = FieldPath::parse_lenient(name)
                    .map_err(|e| Error::bad_value(format!("distinct.key: {e}")))?;
                key = Some(path);
            }
            // About mirrored reads, which there are not.
            "mirrored" => drop(fields::strict_boolean(NAME, &element)?),
            "query" => spec.filter = Some(fields::document(NAME, &element)?),
            "hint" => spec.hint = Hint::parse(element.value())?,
            "collation" => spec.collation = fields::collation(NAME, &element)?,
            other => return Err(unknown_field(NAME, other)),
        }
    }
    let key = fields::required(NAME, "key", key)?;
    Ok((key, spec))
}

/// Runs it.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    let namespace = cx.collection()?;
    let (key, spec) = parse(cx.arguments())?;
    cx.begin_query()?;
    if cx.server.db.catalog().view(&namespace).is_some() {
        let stages = view_reads::distinct_stages(key.dotted(), &spec);
        let view = cx.server.db.resolve_view(&namespace)?;
        let collator = view.and_then(|view| view.collator);
        let docs = aggregate::collect(cx, &namespace, stages.as_raw(), spec.collation)?;
        let docs = docs.iter().map(|doc| doc.as_raw());
        out.append_bson(
            "values",
            &sheaf_db::distinct::values_of_documents(docs, &key, collator)?,
        );
        cx.ok = RawValue::Int32(1);
        return Ok(());
    }
    let view = cx.view(&namespace)?;
    let query = Arc::new(sheaf_db::find::canonicalize(&view, spec)?);
    let options = cx.query_options(None);
    let found = sheaf_db::distinct::distinct(&view, &cx.op, &key, query, &options)?;
    let counters = cx.op.counters();
    counters.keys_examined.add(found.counts.keys_examined);
    counters.docs_examined.add(found.counts.docs_examined);
    cx.report.plan = found.plan;
    out.append_bson("values", &found.values);
    if let Some(time) = cx.snapshot_time.get() {
        out.append("atClusterTime", time);
    }
    Ok(())
}
