//! explain of update, delete and findAndModify.

use std::sync::Arc;

use sheaf_bson::error_code::Error;
use sheaf_bson::path::FieldPath;
use sheaf_bson::{DateTime, DocBuf, DocBuilder, RawDoc, RecordId, doc};
use sheaf_query::canonical::CanonicalQuery;
use sheaf_query::matcher::MatchDetails;
use sheaf_query::update::{ApplyContext, Outcome, UpdateDriver, UpdateKind};
use sheaf_storage::StorageEngine;

use super::would_write::WouldWrite;
use super::{DeleteStatement, ReturnDocument, UpdateStatement, parse_context, parse_query};
use crate::catalog::ReadView;
use crate::explain::Verbosity;
use crate::explain::query::{Explained, TopStage, with_top};
use crate::index::modified::Modified;
use crate::op_context::OpContext;
use crate::planning::QueryOptions;

/// The context of an explain.
pub struct Target<'a> {
    /// The collection at the operation's snapshot.
    pub view: &'a ReadView,
    /// Deadline and kill flag.
    pub op: &'a OpContext,
    /// Options of queries.
    pub options: &'a QueryOptions,
    /// `db.collection`.
    pub namespace: &'a str,
    /// Level of detail.
    pub verbosity: Verbosity,
    /// The engine that predicts the size of the log records.
    pub engine: &'a dyn StorageEngine,
}

impl Target<'_> {
    fn would_write(&self) -> WouldWrite<'_> {
        WouldWrite::new(self.engine, self.view.collection.as_ref())
    }
}

/// explain of an update statement.
pub fn explain_update(
    target: &Target<'_>,
    statement: &UpdateStatement<'_>,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let now = DateTime::now();
    let constants = (now, target.view.cluster_time);
    let context = parse_context(&statement.spec, constants, target.view)?;
    let driver = UpdateDriver::parse(
        statement.update,
        statement.array_filters,
        &context.variables,
    )?;
    let query = parse_query(&statement.spec, statement.multi, &context)?;
    let mut stage = UpdateStage {
        query: &query,
        driver: &driver,
        now,
        multi: statement.multi,
        upsert: statement.upsert,
        returns: statement.return_document,
        matched: 0,
        modified: 0,
        would_write: target.would_write(),
    };
    // Without a collection there is nothing to update; an upsert creates it.
    let has_work = target.view.collection.is_some() || statement.upsert;
    explain(target, &query, has_work.then_some(&mut stage), out)
}

/// explain of a delete statement.
pub fn explain_delete(
    target: &Target<'_>,
    statement: &DeleteStatement<'_>,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let constants = (DateTime::now(), target.view.cluster_time);
    let context = parse_context(&statement.spec, constants, target.view)?;
    let query = parse_query(&statement.spec, statement.multi, &context)?;
    let mut stage = DeleteStage {
        multi: statement.multi,
        returns: statement.return_document,
        deleted: 0,
        would_write: target.would_write(),
    };
    let has_work = target.view.collection.is_some();
    explain(target, &query, has_work.then_some(&mut stage), out)
}

fn explain(
    target: &Target<'_>,
    query: &Arc<CanonicalQuery>,
    stage: Option<&mut dyn TopStage>,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let explained = Explained {
        view: target.view,
        op: target.op,
        query,
        options: target.options,
        namespace: target.namespace,
        verbosity: target.verbosity,
        is_pipeline: false,
    };
    with_top(&explained, stage, out)
}

struct UpdateStage<'s> {
    query: &'s CanonicalQuery,
    driver: &'s UpdateDriver<'s>,
    now: DateTime,
    multi: bool,
    upsert: bool,
    returns: ReturnDocument,
    matched: i64,
    modified: i64,
    would_write: WouldWrite<'s>,
}

impl TopStage for UpdateStage<'_> {
    fn result(&mut self, doc: Option<RawDoc<'_>>, id: Option<&RecordId>) -> Result<bool, Error> {
        let Some(doc) = doc else {
            return Ok(true);
        };
        self.matched += 1;
        let mut context = ApplyContext {
            now: self.now,
            ..Default::default()
        };
        if self.driver.needs_matched_array_index() {
            let mut details = MatchDetails::default();
            self.query.filter.matches_with_details(doc, &mut details)?;
            context.matched_array_index = details.array_index.map(|at| at as usize);
        }
        if let Outcome::Changed { doc: new, modified } = self.driver.apply(doc, &context)? {
            self.modified += 1;
            if let Some(id) = id {
                let may_affect = |path: &FieldPath| modified.may_affect(path);
                let modified = match self.driver.kind() {
                    UpdateKind::Replacement => Modified::Everything,
                    _ => Modified::Paths(&may_affect),
                };
                self.would_write
                    .write(id, doc, Some(new.as_raw()), modified)?;
            }
        }
        Ok(self.multi)
    }

    fn name(&self) -> &'static str {
        "UPDATE"
    }

    fn fields(&self) -> DocBuf {
        doc! {
            "nMatched": self.matched,
            "nWouldModify": self.modified,
            "nWouldUpsert": i64::from(self.upsert && self.matched == 0),
            "keysInserted": self.would_write.keys_inserted,
            "keysDeleted": self.would_write.keys_deleted,
            "bytesLogged": self.would_write.bytes_logged(),
        }
    }

    fn n_returned(&self) -> u64 {
        let returned = match self.returns {
            ReturnDocument::None => false,
            ReturnDocument::Before => self.matched > 0,
            ReturnDocument::After => self.matched > 0 || self.upsert,
        };
        u64::from(returned)
    }
}

struct DeleteStage<'s> {
    multi: bool,
    returns: ReturnDocument,
    deleted: i64,
    would_write: WouldWrite<'s>,
}

impl TopStage for DeleteStage<'_> {
    fn result(&mut self, doc: Option<RawDoc<'_>>, id: Option<&RecordId>) -> Result<bool, Error> {
        self.deleted += 1;
        if let (Some(doc), Some(id)) = (doc, id) {
            self.would_write
                .write(id, doc, None, Modified::Everything)?;
        }
        Ok(self.multi)
    }

    fn name(&self) -> &'static str {
        "DELETE"
    }

    fn fields(&self) -> DocBuf {
        doc! {
            "nWouldDelete": self.deleted,
            "keysDeleted": self.would_write.keys_deleted,
            "bytesLogged": self.would_write.bytes_logged(),
        }
    }

    fn n_returned(&self) -> u64 {
        u64::from(self.returns != ReturnDocument::None && self.deleted > 0)
    }
}
