//! `bulkWrite`: inserts, updates and deletes over several collections in one command.
//!
//! ```text
//!   ops     {insert: 0, document} {insert: 0, document} {update: 1, filter, updateMods} {delete: 0, filter}
//!   nsInfo  [{ns: "shop.orders"}, {ns: "shop.stock"}]
//!               └── one insert of two ──┘                └ as one of update ┘            └ as one of delete
//!                        │                                      │                             │
//!   cursor  {idx: 0, ok: 1, n: 1} {idx: 1, ..}       {idx: 2, n, nModified}            {idx: 3, n}
//! ```
//!
//! The whole command is parsed before anything is written: one malformed op fails the command. An
//! error while an op is executed is the result of that op; it ends the command only if the command
//! is ordered.

mod parse;
mod results;

use sheaf_bson::{DocBuilder, Error, ErrorCode};
use sheaf_db::Namespace;
use sheaf_db::catalog::views::not_on_view;
use sheaf_db::modify::{DeleteReport, UpdateReport};
use sheaf_db::system_names::is_internal_database;
use sheaf_db::write::document_rules::DOCUMENT_BYTES_MAX;
use sheaf_db::write::ends_operation;

use self::parse::{Op, Request};
use self::results::Results;
use super::batch::{self, CursorSettings, Listing};
use super::context::{CommandContext, uuid_mismatch};
use super::retry::Retry;
use super::write_reply::append_write_concern;
use super::{delete, insert, update};

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    let request = parse::parse(cx)?;
    if cx.op.transaction().is_some() {
        check_databases(&request.namespaces)?;
    }
    let retry = Retry::begin(cx, request.ops.len())?;
    retry.refuse_multi(request.ops.iter().any(|entry| entry.op.is_multi()))?;
    let mut results = Results::new(request.errors_only);
    // An error aborts the transaction, so no op can follow.
    let ordered = request.ordered || cx.op.transaction().is_some();
    let mut at = 0;
    while at < request.ops.len() && !(ordered && results.errors > 0) {
        let end = match request.ops[at].op {
            Op::Insert(_) => request.inserts_from(at),
            _ => at + 1,
        };
        if let Some(error) = refused(cx, &request, request.ops[at].namespace) {
            let last = if ordered { at + 1 } else { end };
            for place in at..last {
                results.failed(place, &request.ops[place].op, &error);
            }
        } else {
            match &request.ops[at].op {
                Op::Insert(_) => {
                    run_inserts(cx, &request, at..end, ordered, &retry, &mut results)?;
                }
                _ => run_one(cx, &request, at, &retry, &mut results)?,
            }
        }
        at = end;
    }
    if results.errors > 0 {
        cx.write_refused();
    }
    cx.report.plan = Default::default();
    reply(cx, &request, results, &retry, out)
}

/// The error of every op on this namespace, if it is a view or not the collection that the client
/// means.
fn refused(cx: &CommandContext<'_>, request: &Request<'_>, index: usize) -> Option<Error> {
    let namespace = &request.namespaces[index];
    if cx.server.db.catalog().kind(namespace).is_view() {
        return Some(not_on_view(namespace));
    }
    uuid_mismatch(cx.server, namespace, request.uuids[index]?)
}

/// Rejects databases that a transaction may not write to.
fn check_databases(namespaces: &[Namespace]) -> Result<(), Error> {
    match namespaces
        .iter()
        .find(|namespace| is_internal_database(namespace.db()))
    {
        None => Ok(()),
        Some(namespace) => Err(Error::new(
            ErrorCode::OPERATION_NOT_SUPPORTED_IN_TRANSACTION,
            format!(
                "Cannot run command against the '{}' database in a transaction.",
                namespace.db()
            ),
        )),
    }
}

/// Inserts the documents of consecutive inserts into one collection together.
fn run_inserts(
    cx: &mut CommandContext<'_>,
    request: &Request<'_>,
    places: std::ops::Range<usize>,
    ordered: bool,
    retry: &Retry,
    results: &mut Results,
) -> Result<(), Error> {
    let namespace = &request.namespaces[request.ops[places.start].namespace];
    let mut left = Vec::new();
    let mut docs = Vec::new();
    for place in places {
        match (retry.is_done(place), &request.ops[place].op) {
            (true, _) => results.inserted(place),
            (false, Op::Insert(doc)) => {
                left.push(place);
                docs.push(*doc);
            }
            (false, _) => {}
        }
    }
    if docs.is_empty() {
        return Ok(());
    }
    retry.set_current(cx, left.iter().copied())?;
    let mut refused = match insert::run_docs(cx, namespace, &docs, ordered) {
        Ok(result) => result.errors.into_iter().peekable(),
        Err(error) if cx.is_of_transaction(&error) || ends_operation(&error) => return Err(error),
        // No document could be stored.
        Err(error) => {
            let failed = if ordered { &left[..1] } else { &left[..] };
            for place in failed {
                results.failed(*place, &request.ops[*place].op, &error);
            }
            return Ok(());
        }
    };
    for (index, place) in left.iter().enumerate() {
        match refused.next_if(|refused| refused.index == index) {
            None => results.inserted(*place),
            Some(refused) => {
                let op = &request.ops[*place].op;
                results.failed(*place, op, &of_bulk_write(op, refused.error));
                if ordered {
                    break;
                }
            }
        }
    }
    Ok(())
}

/// The error of an insert as bulkWrite reports it. A document that is too large has another code
/// than in the insert command.
fn of_bulk_write(op: &Op<'_>, error: Error) -> Error {
    match op {
        Op::Insert(doc) if doc.len_bytes() > DOCUMENT_BYTES_MAX => {
            Error::new(ErrorCode::BSON_OBJECT_TOO_LARGE, error.message())
        }
        _ => error,
    }
}

/// Executes one update or delete.
fn run_one(
    cx: &mut CommandContext<'_>,
    request: &Request<'_>,
    place: usize,
    retry: &Retry,
    results: &mut Results,
) -> Result<(), Error> {
    let entry = &request.ops[place];
    let namespace = &request.namespaces[entry.namespace];
    let before = retry.outcome(place);
    if before.is_none() {
        retry.set_current(cx, [place])?;
    }
    let result = match (&entry.op, before) {
        (Op::Insert(_), _) => return Ok(()),
        (Op::Update(_), Some(outcome)) => {
            results.updated(place, 1, outcome.modified(), outcome.upserted().as_ref());
            return Ok(());
        }
        (Op::Delete(_), Some(_)) => {
            results.deleted(place, 1);
            return Ok(());
        }
        (Op::Update(statement), None) => {
            let mut report = UpdateReport::default();
            let result = update::run_one(cx, namespace, statement, entry.doc, &mut report);
            if result.is_ok() {
                let (matched, modified) = (report.result.matched, report.result.modified);
                results.updated(place, matched, modified, report.upserted.as_ref());
            }
            result
        }
        (Op::Delete(statement), None) => {
            let mut report = DeleteReport::default();
            let result = delete::run_one(cx, namespace, statement, entry.doc, &mut report);
            if result.is_ok() {
                results.deleted(place, report.result.deleted);
            }
            result
        }
    };
    match result {
        Ok(()) => Ok(()),
        Err(error) if cx.is_of_transaction(&error) || ends_operation(&error) => Err(error),
        Err(error) => {
            results.failed(place, &entry.op, &error);
            Ok(())
        }
    }
}

fn reply(
    cx: &mut CommandContext<'_>,
    request: &Request<'_>,
    results: Results,
    retry: &Retry,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let counts = results.counts();
    batch::reply_with_cursor(
        cx,
        Listing::of(results.into_documents()),
        CursorSettings {
            namespace: Namespace::new("admin", "system.listing")?,
            reply_namespace: batch::command_namespace("admin", "bulkWrite"),
            // By default as many as fit in a reply.
            batch_size: Some(request.batch_size.unwrap_or(u64::MAX)),
            single_batch: false,
            no_timeout: false,
        },
        out,
    )?;
    cx.report.n_returned = None;
    for (name, n) in counts {
        out.append(name, n as i32);
    }
    retry.append(out);
    append_write_concern(cx, out);
    Ok(())
}
