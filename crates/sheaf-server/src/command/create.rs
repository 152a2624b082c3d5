//! `create`: creates a collection or a view.

use sheaf_bson::{
    CollationChoice, DocBuf, DocBuilder, Error, ErrorCode, RawArray, RawDoc, RawElement,
};
use sheaf_db::catalog::kind::NamespaceKind;
use sheaf_db::system_names::BUCKETS_PREFIX;
use sheaf_db::{CollectionOptions, Namespace};

use super::context::CommandContext;
use super::fields;

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    let namespace = cx.collection()?;
    if cx.arguments().any(|element| element.key() == "viewOn") {
        return create_view(cx, &namespace);
    }
    let mut options = DocBuilder::new();
    for element in cx.arguments() {
        if element.key() == "pipeline" {
            return Err(Error::new(
                ErrorCode::INVALID_OPTIONS,
                "'pipeline' requires 'viewOn' to also be specified",
            ));
        }
        options.append_raw_element(element);
    }
    let options = options.finish();
    let (namespace, options) = match of_buckets(&namespace, options.as_raw())? {
        Some(series) => series,
        None => (namespace, options),
    };
    let options = CollectionOptions::parse(options.as_raw())?;
    if options.has_encrypted_fields() && cx.server.repl.is_none() {
        return Err(Error::new(
            ErrorCode(6346402),
            "Encrypted collections are not supported on standalone; start the server as a replica set",
        ));
    }
    let is_view = matches!(
        cx.server.db.catalog().kind(&namespace),
        NamespaceKind::View(_)
    );
    if is_view {
        return Err(Error::new(
            ErrorCode::NAMESPACE_EXISTS,
            format!("a view already exists. NS: {namespace}"),
        ));
    }
    cx.server
        .db
        .create_collection(&cx.op, &namespace, options)
        .map(drop)
}

/// The time-series collection whose buckets a tool creates by their own name, as it found them
/// listed; its options do not repeat what every bucket collection has.
fn of_buckets(
    namespace: &Namespace,
    options: RawDoc<'_>,
) -> Result<Option<(Namespace, DocBuf)>, Error> {
    let Some(name) = namespace.collection().strip_prefix(BUCKETS_PREFIX) else {
        return Ok(None);
    };
    if options.get("timeseries").is_none() {
        return Ok(None);
    }
    let mut out = DocBuilder::new();
    let is_implied =
        |element: &RawElement<'_>| matches!(element.key(), "clusteredIndex" | "validator");
    for element in options.iter().filter(|element| !is_implied(element)) {
        out.append_raw_element(element);
    }
    Ok(Some((Namespace::new(namespace.db(), name)?, out.finish())))
}

/// Whether `changeStreamPreAndPostImages` asks for images, or is none that a collection could have.
fn keeps_images(element: &RawElement<'_>) -> bool {
    let mut options = DocBuilder::new();
    options.append_raw_element(*element);
    !CollectionOptions::parse(options.finish().as_raw()).is_ok_and(|parsed| !parsed.keeps_images())
}

fn create_view(cx: &CommandContext<'_>, namespace: &Namespace) -> Result<(), Error> {
    const NAME: &str = "create";
    let (mut on, mut pipeline) = ("", RawArray::EMPTY);
    let mut collation = CollationChoice::Unsaid;
    let given = |name: &str| cx.arguments().any(|element| element.key() == name);
    if given("clusteredIndex") {
        return Err(Error::new(
            ErrorCode(6026500),
            "The 'clusteredIndex' option is not supported with views",
        ));
    }
    let is_capped =
        |element: RawElement<'_>| element.key() == "capped" && element.value().is_truthy();
    if cx.arguments().any(is_capped) && !given("size") {
        return Err(Error::new(
            ErrorCode::INVALID_OPTIONS,
            "the 'size' field is required when 'capped' is true",
        ));
    }
    for element in cx.arguments() {
        match element.key() {
            // As in MongoDB, limits and settings of storage are ignored for a view.
            "capped" | "size" | "max" | "storageEngine" => {}
            "viewOn" => on = fields::string(NAME, &element)?,
            "pipeline" => pipeline = fields::array(NAME, &element)?,
            "changeStreamPreAndPostImages" if !keeps_images(&element) => {}
            "collation" => collation = fields::collation(NAME, &element)?,
            other => {
                return Err(Error::new(
                    ErrorCode::INVALID_OPTIONS,
                    format!(
                        "'{other}' cannot be an option of a view; known are viewOn, pipeline and collation"
                    ),
                ));
            }
        }
    }
    if on.is_empty() {
        return Err(Error::bad_value("'viewOn' cannot be empty"));
    }
    let db = &cx.server.db;
    db.create_view(&cx.op, namespace, on, pipeline, &collation)
}
