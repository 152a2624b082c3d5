//! `getClusterParameter` and `setClusterParameter`.

use sheaf_bson::{DocBuilder, Error, ErrorCode, RawValue};

use super::context::CommandContext;
use super::fields;
use crate::cluster_parameters::ClusterParameter;

/// Runs `getClusterParameter`. As in MongoDB, further fields are ignored.
pub fn get(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "getClusterParameter";
    let first = cx.first()?;
    let mut wanted = Vec::new();
    match first.value() {
        RawValue::String("*") => {}
        RawValue::String(name) => wanted.push(named(name)?),
        RawValue::Array(names) => {
            for name in names.iter() {
                let RawValue::String(name) = name else {
                    return Err(fields::wrong_type(NAME, &first, "string"));
                };
                wanted.push(named(name)?);
            }
            if wanted.is_empty() {
                return Err(Error::bad_value(
                    "Must supply at least one cluster server parameter name to getClusterParameter",
                ));
            }
        }
        _ => return Err(fields::wrong_type(NAME, &first, "[string, array]")),
    }
    out.begin_array("clusterParameters");
    cx.server.cluster_parameters.push(&wanted, out);
    out.end();
    Ok(())
}

/// Runs `setClusterParameter`.
pub fn set(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "setClusterParameter";
    let given = fields::document(NAME, &cx.first_given()?)?;
    cx.no_arguments()?;
    let mut elements = given.iter();
    let Some(element) = elements.next() else {
        return Err(unknown(""));
    };
    if elements.next().is_some() {
        return Err(Error::new(
            ErrorCode::INVALID_OPTIONS,
            "setClusterParameter only supports setting exactly one parameter",
        ));
    }
    let parameter = named(element.key())?;
    let RawValue::Document(value) = element.value() else {
        return Err(Error::bad_value(format!(
            "the value of the cluster parameter {} must be a document",
            element.key()
        )));
    };
    let server = cx.server;
    server
        .cluster_parameters
        .set(&server.db, &cx.op, parameter, value)
}

fn named(name: &str) -> Result<ClusterParameter, Error> {
    ClusterParameter::named(name).ok_or_else(|| unknown(name))
}

fn unknown(name: &str) -> Error {
    Error::new(
        ErrorCode::NO_SUCH_KEY,
        format!("Unknown server parameter: {name}"),
    )
}
