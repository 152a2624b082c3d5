//! `count`: counts matching documents.

use std::sync::Arc;

use sheaf_bson::{DocBuilder, Error, ErrorCode, RawElement, RawValue};
use sheaf_db::aggregate::view_reads;
use sheaf_query::canonical::{FindSpec, Hint};

use super::context::CommandContext;
use super::fields::unknown_field;
use super::{aggregate, fields};

/// The query of a count command. A negative limit counts as its absolute value.
pub fn parse<'a>(arguments: impl Iterator<Item = RawElement<'a>>) -> Result<FindSpec<'a>, Error> {
    const NAME: &str = "count";
    let mut spec = FindSpec::default();
    for element in arguments {
        match element.key() {
            "query" => spec.filter = Some(fields::document(NAME, &element)?),
            "limit" => spec.limit = limit(element.value())?,
            "skip" => spec.skip = fields::non_negative(NAME, &element)?,
            "hint" => spec.hint = Hint::parse(element.value())?,
            "collation" => spec.collation = fields::collation(NAME, &element)?,
            // About mirrored reads, which there are not.
            "mirrored" => drop(fields::strict_boolean(NAME, &element)?),
            "fields" => {}
            other => return Err(unknown_field(NAME, other)),
        }
    }
    Ok(spec)
}

/// `limit` of a count: `None` for 0, which is no limit. Errors: `BadValue` for a value that is not
/// a number or has no absolute value; `FailedToParse` for a number that is not an integer.
fn limit(value: RawValue<'_>) -> Result<Option<u64>, Error> {
    if !value.is_number() {
        return Err(Error::bad_value(format!(
            "BSON field 'count.limit' must be a number, not {}",
            value.type_name()
        )));
    }
    let Some(limit) = value.as_i64_exact() else {
        return Err(Error::new(
            ErrorCode::FAILED_TO_PARSE,
            "BSON field 'count.limit' must be an integer that fits 64 bits",
        ));
    };
    match limit.checked_abs() {
        Some(limit) => Ok((limit > 0).then_some(limit.unsigned_abs())),
        None => Err(Error::bad_value(
            "BSON field 'count.limit' must not be the smallest integer",
        )),
    }
}

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    let namespace = cx.collection()?;
    let spec = parse(cx.arguments())?;
    if cx.server.db.catalog().view(&namespace).is_some() {
        let stages = view_reads::count_stages(&spec);
        let counted = aggregate::collect(cx, &namespace, stages.as_raw(), spec.collation)?;
        let n = counted.first().and_then(|doc| doc.get("count"));
        out.append("n", n.unwrap_or(RawValue::Int32(0)));
        return Ok(());
    }
    let view = cx.view(&namespace)?;
    let query = Arc::new(sheaf_db::find::canonicalize(&view, spec)?);
    let options = cx.server.query_options(None);
    let counted = sheaf_db::count::count(&view, &cx.op, query, &options)?;
    let counters = cx.op.counters();
    counters.keys_examined.add(counted.counts.keys_examined);
    counters.docs_examined.add(counted.counts.docs_examined);
    cx.report.plan = counted.plan;
    out.append("n", RawValue::int_or_long(counted.count as i64));
    Ok(())
}
