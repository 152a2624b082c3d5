//! `find`: reads documents of a collection.

use std::sync::Arc;

use sheaf_bson::{ArrayBuf, DocBuilder, Error, ErrorCode, RawDoc, RawElement};
use sheaf_db::aggregate::view_reads;
use sheaf_db::{Namespace, ResultSource, tailable};
use sheaf_query::canonical::{FindSpec, Hint};

use super::batch::{self, CursorSettings};
use super::context::CommandContext;
use super::{aggregate, fields};

/// A find command, parsed.
#[derive(Default)]
pub struct FindRequest<'a> {
    /// The query itself.
    pub spec: FindSpec<'a>,
    /// `batchSize`.
    pub batch_size: Option<u64>,
    /// `singleBatch`.
    pub single_batch: bool,
    /// `noCursorTimeout`.
    pub no_cursor_timeout: bool,
    /// `tailable`.
    pub tailable: bool,
    /// `awaitData`.
    pub await_data: bool,
    /// `allowDiskUse`; `None` means the server's default.
    pub allow_disk_use: Option<bool>,
}

impl<'a> FindRequest<'a> {
    /// Parses the command's arguments, without the generic ones.
    pub fn parse(arguments: impl Iterator<Item = RawElement<'a>>) -> Result<Self, Error> {
        const NAME: &str = "find";
        let mut request = FindRequest::default();
        let spec = &mut request.spec;
        for element in arguments {
            match element.key() {
                "filter" => spec.filter = Some(fields::document(NAME, &element)?),
                "sort" => spec.sort = Some(fields::document(NAME, &element)?),
                "projection" => spec.projection = Some(fields::document(NAME, &element)?),
                "hint" => spec.hint = Hint::parse(element.value())?,
                "skip" => spec.skip = fields::non_negative(NAME, &element)?,
                "limit" => {
                    let limit = fields::non_negative(NAME, &element)?;
                    spec.limit = (limit > 0).then_some(limit);
                }
                "min" => spec.min = non_empty(fields::document(NAME, &element)?),
                "max" => spec.max = non_empty(fields::document(NAME, &element)?),
                "returnKey" => spec.return_key = fields::strict_boolean(NAME, &element)?,
                "showRecordId" => spec.show_record_id = fields::strict_boolean(NAME, &element)?,
                "let" => spec.let_vars = Some(fields::document(NAME, &element)?),
                "batchSize" => request.batch_size = Some(fields::non_negative(NAME, &element)?),
                "singleBatch" => request.single_batch = fields::strict_boolean(NAME, &element)?,
                "noCursorTimeout" => {
                    request.no_cursor_timeout = fields::strict_boolean(NAME, &element)?;
                }
                "allowDiskUse" => {
                    request.allow_disk_use = Some(fields::strict_boolean(NAME, &element)?);
                }
                // Concern sharding, mirrored reads and caches, which this server does not have;
                // ignored.
                "allowPartialResults" | "oplogReplay" | "mirrored" | "readOnce" => {
                    fields::strict_boolean(NAME, &element)?;
                }
                "tailable" => request.tailable = fields::strict_boolean(NAME, &element)?,
                "awaitData" => request.await_data = fields::strict_boolean(NAME, &element)?,
                "collation" => spec.collation = fields::collation(NAME, &element)?,
                "term" => drop(fields::integer(NAME, &element)?),
                other => return Err(fields::unknown_field(NAME, other)),
            }
        }
        request.check_tailable()?;
        Ok(request)
    }
}

impl FindRequest<'_> {
    /// The request as a pipeline over a view.
    pub fn on_view<'s>(&'s self, stages: &'s ArrayBuf) -> aggregate::ViewRequest<'s> {
        aggregate::ViewRequest {
            pipeline: stages.as_raw(),
            hint: self.spec.hint.clone(),
            let_vars: self.spec.let_vars,
            collation: self.spec.collation.clone(),
            batch_size: self.batch_size,
            allow_disk_use: self.allow_disk_use,
        }
    }
}

fn non_empty(doc: RawDoc<'_>) -> Option<RawDoc<'_>> {
    (!doc.is_empty()).then_some(doc)
}

impl FindRequest<'_> {
    /// Errors: `FailedToParse` for options that contradict each other.
    fn check_tailable(&self) -> Result<(), Error> {
        let refuse = |message: &str| Err(Error::new(ErrorCode::FAILED_TO_PARSE, message));
        if self.await_data && !self.tailable {
            return refuse("Cannot set 'awaitData' without also setting 'tailable'");
        }
        if self.tailable && self.single_batch {
            return refuse("Cannot use tailable option with the 'singleBatch' option");
        }
        Ok(())
    }
}

/// Opens a tailable cursor. If the collection does not exist, the reply has a closed cursor.
fn run_tailable(
    cx: &mut CommandContext<'_>,
    namespace: Namespace,
    request: FindRequest<'_>,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let db = cx.server.db.clone();
    let found = tailable::find(&db, &cx.op, &namespace, request.spec, request.await_data)?;
    let source: Box<dyn ResultSource> = match found {
        Some(source) => Box::new(source),
        None => batch::Listing::of(Vec::new()),
    };
    let settings = CursorSettings {
        reply_namespace: namespace.as_str().to_owned(),
        namespace,
        batch_size: request.batch_size,
        single_batch: false,
        no_timeout: request.no_cursor_timeout,
    };
    batch::reply_with_cursor(cx, source, settings, out)
}

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    let namespace = cx.collection()?;
    let request = FindRequest::parse(cx.arguments())?;
    cx.begin_query()?;
    if cx.server.db.catalog().view(&namespace).is_some() {
        if request.tailable {
            return Err(Error::new(
                ErrorCode::INVALID_PIPELINE_OPERATOR,
                "Tailable cursors are not supported on views: {tailable: true} reads a capped collection",
            ));
        }
        let stages = view_reads::find_stages(&request.spec)?;
        return aggregate::run_on_view(cx, &namespace, request.on_view(&stages), out);
    }
    if request.tailable {
        return run_tailable(cx, namespace, request, out);
    }
    let view = cx.view(&namespace)?;
    let query = Arc::new(sheaf_db::find::canonicalize(&view, request.spec)?);
    let options = cx.query_options(request.allow_disk_use);
    let source = sheaf_db::find::find(&view, &cx.op, query, &options)?;
    let reply_namespace = namespace.as_str().to_owned();
    batch::reply_with_cursor(
        cx,
        Box::new(source),
        CursorSettings {
            namespace,
            reply_namespace,
            batch_size: request.batch_size,
            single_batch: request.single_batch,
            no_timeout: request.no_cursor_timeout,
        },
        out,
    )
}
