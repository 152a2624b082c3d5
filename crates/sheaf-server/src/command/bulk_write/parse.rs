//! The arguments of a bulkWrite: ops, the namespaces that they refer to by index, options.

use sheaf_bson::{Error, ErrorCode, RawDoc, RawElement};
use sheaf_db::modify::{DeleteStatement, UpdateStatement};
use sheaf_db::{Namespace, Uuid};
use sheaf_query::canonical::{FindSpec, Hint};

use super::super::context::CommandContext;
use super::super::fields::{self, unknown_field};
use super::super::generic_arguments::uuid;
use super::super::list_collections::cursor_batch_size;
use super::super::update::{UpdateParts, finish_update};
use super::super::write_reply::{sequence_documents, statements};

const NAME: &str = "bulkWrite";
const OPS: &str = "bulkWrite.ops";

/// A bulkWrite command, parsed.
pub struct Request<'a> {
    /// The ops, in order.
    pub ops: Vec<Entry<'a>>,
    /// `nsInfo`.
    pub namespaces: Vec<Namespace>,
    /// `collectionUUID` of each of them.
    pub uuids: Vec<Option<Uuid>>,
    /// Whether the first error ends the command.
    pub ordered: bool,
    /// Whether only failed ops have a document in the cursor.
    pub errors_only: bool,
    /// `cursor.batchSize`.
    pub batch_size: Option<u64>,
}

/// One op.
pub struct Entry<'a> {
    /// Index into [`Request::namespaces`].
    pub namespace: usize,
    /// The operation.
    pub op: Op<'a>,
    /// The op as received.
    pub doc: RawDoc<'a>,
}

/// The operation of an op.
pub enum Op<'a> {
    /// Stores this document.
    Insert(RawDoc<'a>),
    /// Changes documents.
    Update(Box<UpdateStatement<'a>>),
    /// Removes documents.
    Delete(Box<DeleteStatement<'a>>),
}

impl Op<'_> {
    /// Whether it may change more than one document.
    pub fn is_multi(&self) -> bool {
        match self {
            Op::Insert(_) => false,
            Op::Update(statement) => statement.multi,
            Op::Delete(statement) => statement.multi,
        }
    }
}

impl Request<'_> {
    /// The end of the run of inserts into one collection that begins at index `at`.
    pub fn inserts_from(&self, at: usize) -> usize {
        let namespace = self.ops[at].namespace;
        let more = self.ops[at..]
            .iter()
            .take_while(|entry| entry.namespace == namespace && matches!(entry.op, Op::Insert(_)));
        at + more.count()
    }
}

/// Parses the whole command.
/// Errors: an invalid option or op; an op whose namespace index is not in `nsInfo`.
pub fn parse<'a>(cx: &CommandContext<'a>) -> Result<Request<'a>, Error> {
    let (mut ordered, mut errors_only) = (true, false);
    let (mut let_vars, mut batch_size) = (None, None);
    for element in cx.arguments() {
        match element.key() {
            "ops" | "nsInfo" => {}
            "ordered" => ordered = fields::strict_boolean(NAME, &element)?,
            "errorsOnly" => errors_only = fields::strict_boolean(NAME, &element)?,
            "let" => let_vars = Some(fields::document(NAME, &element)?),
            "cursor" => {
                batch_size = cursor_batch_size(NAME, fields::document(NAME, &element)?)?;
            }
            "bypassEmptyTsReplacement" => drop(fields::boolean(NAME, &element)?),
            "bypassDocumentValidation" => {
                fields::boolean(NAME, &element)?;
            }
            _ => cx.unknown_field(&element)?,
        }
    }
    let infos = sequence_documents(cx, "nsInfo")?
        .into_iter()
        .map(namespace)
        .collect::<Result<Vec<_>, _>>()?;
    let (namespaces, uuids): (Vec<_>, Vec<_>) = infos.into_iter().unzip();
    let ops = statements(cx, "ops")?
        .into_iter()
        .map(|doc| op(doc, let_vars, namespaces.len()))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Request {
        ops,
        namespaces,
        uuids,
        ordered,
        errors_only,
        batch_size,
    })
}

/// One element of `nsInfo`.
fn namespace(doc: RawDoc<'_>) -> Result<(Namespace, Option<Uuid>), Error> {
    const NS_INFO: &str = "bulkWrite.nsInfo";
    let (mut name, mut collection_uuid) = (None, None);
    for element in fields::given(doc) {
        match element.key() {
            "ns" => name = Some(fields::string(NS_INFO, &element)?),
            "collectionUUID" => collection_uuid = Some(uuid(NS_INFO, &element)?),
            other => return Err(unknown_field(NS_INFO, other)),
        }
    }
    let name = name.ok_or_else(|| fields::missing(NS_INFO, "ns"))?;
    Ok((Namespace::parse(name)?, collection_uuid))
}

/// One element of `ops`.
fn op<'a>(
    doc: RawDoc<'a>,
    let_vars: Option<RawDoc<'a>>,
    namespaces: usize,
) -> Result<Entry<'a>, Error> {
    let Some(first) = doc.first() else {
        return Err(Error::new(
            ErrorCode::FAILED_TO_PARSE,
            "each op of bulkWrite must begin with 'insert', 'update' or 'delete', but one is empty",
        ));
    };
    let op = match first.key() {
        "insert" => insert(doc)?,
        "update" => update(doc, let_vars)?,
        "delete" => delete(doc, let_vars)?,
        other => {
            return Err(Error::new(
                ErrorCode(40415),
                format!(
                    "BSON field '{OPS}.{other}' is an unknown field: an op must begin with \
                     'insert', 'update' or 'delete'."
                ),
            ));
        }
    };
    if fields::is_absent(first.value()) {
        return Err(fields::missing(OPS, first.key()));
    }
    let at = fields::integer(OPS, &first)?;
    match usize::try_from(at) {
        Ok(namespace) if namespace < namespaces => Ok(Entry { namespace, op, doc }),
        _ => Err(Error::bad_value(format!(
            "BulkWrite ops entry {first} has an invalid nsInfo index: there are {namespaces} \
             namespaces, from 0",
            first = format_args!("{}: {at}", first.key()),
        ))),
    }
}

fn rest<'a>(doc: RawDoc<'a>) -> impl Iterator<Item = RawElement<'a>> {
    doc.iter().skip(1).filter(fields::is_given)
}

fn insert<'a>(doc: RawDoc<'a>) -> Result<Op<'a>, Error> {
    let mut document = None;
    for element in rest(doc) {
        match element.key() {
            "document" => document = Some(fields::document(OPS, &element)?),
            other => return Err(unknown_field(OPS, other)),
        }
    }
    document
        .map(Op::Insert)
        .ok_or_else(|| fields::missing(OPS, "document"))
}

fn update<'a>(doc: RawDoc<'a>, let_vars: Option<RawDoc<'a>>) -> Result<Op<'a>, Error> {
    let mut parts = UpdateParts::new(let_vars);
    for element in rest(doc) {
        match element.key() {
            "filter" => parts.filter = Some(fields::document(OPS, &element)?),
            "updateMods" => parts.update = Some(element.value()),
            "constants" => parts.constants = Some(fields::document(OPS, &element)?),
            _ => parts.option(OPS, &element)?,
        }
    }
    finish_update(parts, OPS, ("filter", "updateMods"))
        .map(|statement| Op::Update(Box::new(statement)))
}

fn delete<'a>(doc: RawDoc<'a>, let_vars: Option<RawDoc<'a>>) -> Result<Op<'a>, Error> {
    let mut spec = FindSpec {
        let_vars,
        ..Default::default()
    };
    let mut multi = false;
    for element in rest(doc) {
        match element.key() {
            "filter" => spec.filter = Some(fields::document(OPS, &element)?),
            "multi" => multi = fields::strict_boolean(OPS, &element)?,
            "hint" => spec.hint = Hint::parse(element.value())?,
            "collation" => spec.collation = fields::collation(OPS, &element)?,
            other => return Err(unknown_field(OPS, other)),
        }
    }
    if spec.filter.is_none() {
        return Err(fields::missing(OPS, "filter"));
    }
    Ok(Op::Delete(Box::new(DeleteStatement {
        spec,
        multi,
        return_document: Default::default(),
        projection: None,
    })))
}
