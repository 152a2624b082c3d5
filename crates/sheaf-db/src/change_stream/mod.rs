//! Change streams: report the oplog as events on a collection, a database or the deployment.
//!
//! ```text
//!   oplog ── entries after `seen`, up to the visible end ──> operations ──> of watched objects ──> events
//!                                                                               pipeline ─┘        │
//!   getMore waits until new entries are visible                           resume token of each <──┘
//! ```
//!
//! A stream holds no snapshot between two batches, and waiting uses no processor time: commits wake
//! it.

pub mod event;
mod split;
pub mod token;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use sheaf_bson::error_code::label;
use sheaf_bson::{DocBuf, Error, ErrorCode, RawDoc, RawValue, RecordId, Result, Timestamp};
use sheaf_query::pipeline::{Documents, PipelineExec, Stage};
use sheaf_query::update::diff;

use self::event::{EventKind, Images, Operation, Watched};
use self::token::{ResumeToken, TokenKind};
use crate::aggregate::AggregateContext;
use crate::catalog::namespace::Namespace;
use crate::database::Db;
use crate::exec::Doc;
use crate::op_context::OpContext;
use crate::record_key::{record_id_of, record_key};
use crate::result_source::ResultSource;
use crate::storage_error::IntoClientError;

/// Maximum number of entries read from one snapshot.
const ENTRIES_MAX: usize = 1000;

/// `fullDocument`: which documents an event includes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FullDocument {
    /// Only those of inserts and replacements.
    #[default]
    Default,
    /// For updates, the current document when the event is read.
    UpdateLookup,
    /// The document after the change, if its image was stored.
    WhenAvailable,
    /// Like `WhenAvailable`, but an error if the image was not stored.
    Required,
}

/// `fullDocumentBeforeChange`: whether an event includes the document before the change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BeforeChange {
    /// Never.
    #[default]
    Off,
    /// If its image was stored.
    WhenAvailable,
    /// Always; an error if the image was not stored.
    Required,
}

/// Start position of a stream.
#[derive(Debug, Clone, Copy, Default)]
pub enum Start {
    /// The current time.
    #[default]
    Now,
    /// The operations at this time.
    AtTime(Timestamp),
    /// After this token. If `true`, the token may be the end of an earlier stream (`startAfter`).
    After(ResumeToken, bool),
}

/// Options of a stream.
#[derive(Debug, Clone)]
pub struct StreamOptions {
    /// The scope.
    pub watched: Watched,
    /// The start position.
    pub start: Start,
    /// `fullDocument`.
    pub full_document: FullDocument,
    /// `fullDocumentBeforeChange`.
    pub before_change: BeforeChange,
    /// `showExpandedEvents`.
    pub expanded: bool,
    /// Whether `$changeStreamSplitLargeEvent` is the last stage.
    pub split: bool,
}

/// An open stream.
pub struct ChangeStream {
    db: Arc<Db>,
    options: StreamOptions,
    /// Stages after `$changeStream`.
    stages: Vec<Stage>,
    context: AggregateContext,
    /// Everything up to this position has been read.
    seen: ResumeToken,
    /// Events found and not yet returned.
    ready: VecDeque<(ResumeToken, DocBuf)>,
    /// Position of the last event returned.
    given: ResumeToken,
    /// The stream ends once `ready` is empty.
    invalidated: bool,
}

impl ChangeStream {
    /// Opens a stream; turns on the oplog if it is off.
    ///
    /// Errors: `ChangeStreamHistoryLost` if the oplog does not reach back to the start position,
    /// `InvalidResumeToken`, those of the engine.
    pub fn open(
        db: &Arc<Db>,
        op: &OpContext,
        options: StreamOptions,
        stages: Vec<Stage>,
        context: AggregateContext,
    ) -> Result<ChangeStream> {
        db.turn_oplog_on(op)?;
        let visible = db.oplog().visible();
        let seen = match options.start {
            Start::Now => ResumeToken::high_water(visible),
            Start::AtTime(time) => {
                ResumeToken::high_water(Timestamp::from_u64(time.as_u64().saturating_sub(1)))
            }
            Start::After(token, after_end) => {
                if token.kind == TokenKind::Invalidate {
                    if !after_end {
                        return Err(Error::new(
                            ErrorCode::INVALID_RESUME_TOKEN,
                            "Attempting to resume a change stream using 'resumeAfter' is not allowed from an \
                             invalidate notification; use 'startAfter'",
                        ));
                    }
                    ResumeToken::high_water(token.time)
                } else {
                    token
                }
            }
        };
        let stream = ChangeStream {
            db: db.clone(),
            options,
            stages,
            context,
            seen,
            given: seen,
            ready: VecDeque::new(),
            invalidated: false,
        };
        stream.check_history()?;
        Ok(stream)
    }

    /// Checks that the oplog still holds everything the stream has not seen.
    fn check_history(&self) -> Result<()> {
        let snapshot = self.db.storage().snapshot().into_client_error()?;
        let mut cursor = snapshot
            .cursor(self.db.oplog().table())
            .into_client_error()?;
        let oldest = match cursor.seek_first().into_client_error()? {
            true => time_of(cursor.key())?,
            false => 0,
        };
        // There is nothing before the first entry ever written.
        let first_ever = cursor.valid()
            && RawDoc::parse(cursor.value()).is_ok_and(|entry| {
                matches!(entry.get("o"), Some(RawValue::Document(o)) if o.get("msg")
                    == Some(RawValue::String("initiating the oplog")))
            });
        let needed = self.seen.time.as_u64();
        let resumed = matches!(self.options.start, Start::After(token, _) if token.kind != TokenKind::HighWater);
        if resumed && needed >= oldest {
            let key = record_key(&RecordId::new(needed as i64));
            let there = cursor.seek(&key).into_client_error()? && cursor.key() == &key[..];
            if !there {
                return Err(Error::new(
                    ErrorCode::CHANGE_STREAM_FATAL_ERROR,
                    "cannot resume stream; the resume token was not found",
                )
                .with_label(label::NON_RESUMABLE_CHANGE_STREAM));
            }
        }
        if needed + 1 < oldest && !(first_ever && matches!(self.options.start, Start::AtTime(_))) {
            return Err(Error::new(
                ErrorCode::CHANGE_STREAM_HISTORY_LOST,
                "Resume of change stream was not possible, as the resume point may no longer be in the oplog.",
            )
            .with_label(label::NON_RESUMABLE_CHANGE_STREAM));
        }
        Ok(())
    }

    /// Reads new entries until there is an event or no more entries.
    fn advance(&mut self, op: &OpContext) -> Result<()> {
        while self.ready.is_empty() && !self.invalidated {
            op.check_interrupt()?;
            let visible = self.db.oplog().visible();
            if visible <= self.seen.time && self.seen.kind == TokenKind::HighWater {
                return Ok(());
            }
            let before = self.seen;
            self.read_entries(op, visible)?;
            if self.seen == before {
                return Ok(());
            }
        }
        // Events are returned only once a crash cannot undo them.
        if !self.ready.is_empty() {
            self.db.sync()?;
        }
        Ok(())
    }

    /// Reads the next entries up to `visible`.
    fn read_entries(&mut self, op: &OpContext, visible: Timestamp) -> Result<()> {
        let snapshot = self.db.storage().snapshot().into_client_error()?;
        let mut cursor = snapshot
            .cursor(self.db.oplog().table())
            .into_client_error()?;
        // The entry of an event's token is read again: more of its operations may follow.
        let from = match self.seen.kind {
            TokenKind::HighWater => self.seen.time.as_u64() + 1,
            TokenKind::Event | TokenKind::Invalidate => self.seen.time.as_u64(),
        };
        let mut on = cursor
            .seek(&record_key(&RecordId::new(from as i64)))
            .into_client_error()?;
        for _ in 0..ENTRIES_MAX {
            op.check_interrupt()?;
            let time = match on {
                true => time_of(cursor.key())?,
                false => u64::MAX,
            };
            if time > visible.as_u64() {
                self.seen = self.seen.max(ResumeToken::high_water(visible));
                return Ok(());
            }
            let time = Timestamp::from_u64(time);
            let entry = RawDoc::parse(cursor.value()).map_err(|e| {
                Error::new(
                    ErrorCode::DATA_CORRUPTION_DETECTED,
                    format!("an entry of the oplog is damaged: {e}"),
                )
            })?;
            debug_assert!(time.as_u64() >= from, "entries ascend");
            self.take_entry(op, entry, time)?;
            self.seen = ResumeToken::high_water(time);
            if self.invalidated || !self.ready.is_empty() {
                return Ok(());
            }
            on = cursor.next().into_client_error()?;
        }
        Ok(())
    }

    fn take_entry(&mut self, op: &OpContext, entry: RawDoc<'_>, time: Timestamp) -> Result<()> {
        let mut operations = Vec::new();
        event::operations(entry, time, |operation| operations.push(operation));
        for operation in operations {
            // After a fragment, the later fragments of the same event follow.
            let rest = self.seen.fragment > 0 && operation.token == self.seen.whole();
            if self.invalidated || (operation.token <= self.seen && !rest) {
                continue;
            }
            let Some((kind, db, name)) = event::classify(operation.doc) else {
                continue;
            };
            let watched = &self.options.watched;
            let renamed_to_us = kind == EventKind::Rename
                && matches!(operation.doc.get("o"), Some(RawValue::Document(o))
                    if matches!(o.get("to"), Some(RawValue::String(to)) if watched.sees_target(to)));
            if !watched.sees(kind, db, name) && !renamed_to_us {
                continue;
            }
            let ends = watched.ends_with(kind);
            // When a database is dropped, the stream of a collection only reports its own end.
            let silent =
                kind == EventKind::DropDatabase && matches!(watched, Watched::Collection { .. });
            if !silent && (!kind.is_expanded() || self.options.expanded) {
                let images = self.images(op, &operation, kind, db, name)?;
                let event =
                    event::event(&operation, kind, (db, name), &images, self.options.expanded);
                self.pass(op, operation.token, event)?;
            }
            if ends {
                let token = ResumeToken {
                    kind: TokenKind::Invalidate,
                    ..operation.token
                };
                self.pass(op, token, event::invalidate(&operation))?;
                self.invalidated = true;
            }
        }
        Ok(())
    }

    /// Runs an event through the stages.
    fn pass(&mut self, op: &OpContext, token: ResumeToken, event: DocBuf) -> Result<()> {
        if self.stages.is_empty() {
            return self.queue_event(token, event);
        }
        let mut exec = PipelineExec::new(&self.stages);
        let mut documents = Documents::from(vec![event]);
        let env = self.context.environment(op);
        let mut passed = Vec::new();
        while let Some(doc) = exec.next(&mut documents, &env)? {
            if doc.get("_id") != Some(RawValue::Document(token.to_doc().as_raw())) {
                return Err(Error::new(
                    ErrorCode::CHANGE_STREAM_FATAL_ERROR,
                    "Encountered an event whose _id field, which contains the resume token, was modified by the \
                     pipeline. Modifying the _id field of an event makes it impossible to resume the stream \
                     from that point. Only transformations that retain the unmodified _id field are allowed.",
                )
                .with_label(label::NON_RESUMABLE_CHANGE_STREAM));
            }
            passed.push(doc);
        }
        drop(exec);
        for doc in passed {
            self.queue_event(token, doc)?;
        }
        Ok(())
    }

    /// Queues the event for the client, in fragments if necessary.
    fn queue_event(&mut self, token: ResumeToken, event: DocBuf) -> Result<()> {
        // Number of fragments that the client already has.
        let had = match self.seen.whole() == token {
            true => self.seen.fragment as usize,
            false => 0,
        };
        if self.options.split && split::is_too_large(event.as_raw()) {
            let fragments = split::split(event.as_raw(), token)?;
            if had <= fragments.len() {
                self.ready.extend(fragments.into_iter().skip(had));
                return Ok(());
            }
        } else if had == 0 {
            if split::is_too_large(event.as_raw()) {
                return Err(split::too_large(event.as_raw().len_bytes()));
            }
            self.ready.push_back((token, event));
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::CHANGE_STREAM_FATAL_ERROR,
            "the resume token is that of a fragment of an event, which this pipeline does not split the same way; \
             resume with the same stages, $changeStreamSplitLargeEvent last",
        )
        .with_label(label::NON_RESUMABLE_CHANGE_STREAM))
    }

    fn images(
        &self,
        op: &OpContext,
        operation: &Operation<'_>,
        kind: EventKind,
        db: &str,
        name: &str,
    ) -> Result<Images> {
        let mut images = Images::default();
        let o = match operation.doc.get("o") {
            Some(RawValue::Document(o)) => o,
            _ => return Ok(images),
        };
        let before = match operation.doc.get("preImage") {
            Some(RawValue::Document(before)) => Some(before),
            _ => None,
        };
        match kind {
            EventKind::Insert | EventKind::Replace => images.full = Some(Some(o.to_buf())),
            EventKind::Update => {
                images.full = match self.options.full_document {
                    FullDocument::Default => None,
                    FullDocument::UpdateLookup => Some(self.look_up(op, operation, db, name)?),
                    FullDocument::WhenAvailable | FullDocument::Required => {
                        let after = match (before, o.get("diff")) {
                            (Some(before), Some(RawValue::Document(diff))) => {
                                Some(diff::apply(before, diff)?)
                            }
                            _ => None,
                        };
                        if after.is_none() && self.options.full_document == FullDocument::Required {
                            return Err(no_image("fullDocument", "post"));
                        }
                        Some(after)
                    }
                };
            }
            _ => {}
        }
        if matches!(
            kind,
            EventKind::Update | EventKind::Replace | EventKind::Delete
        ) {
            images.before = match (self.options.before_change, before) {
                (BeforeChange::Off, _) => None,
                (_, Some(before)) => Some(Some(before.to_buf())),
                (BeforeChange::WhenAvailable, None) => Some(None),
                (BeforeChange::Required, None) => {
                    return Err(no_image("fullDocumentBeforeChange", "pre"));
                }
            };
        }
        Ok(images)
    }

    /// The current document; `None` if it no longer exists.
    fn look_up(
        &self,
        op: &OpContext,
        operation: &Operation<'_>,
        db: &str,
        name: &str,
    ) -> Result<Option<DocBuf>> {
        let Some(RawValue::Document(key)) = operation.doc.get("o2") else {
            return Ok(None);
        };
        let ns = Namespace::new(db, name)?;
        let view = self.db.read_view(&ns)?;
        let spec = sheaf_query::canonical::FindSpec {
            filter: Some(key),
            ..Default::default()
        };
        let query = Arc::new(sheaf_query::canonical::CanonicalQuery::new(
            sheaf_bson::DateTime::now(),
            spec,
        )?);
        let mut found = crate::find::find(&view, op, query, self.context.options())?;
        Ok(found.next(op)?.map(|doc| doc.as_raw().to_buf()))
    }
}

fn no_image(option: &str, what: &str) -> Error {
    Error::new(
        ErrorCode::NO_MATCHING_DOCUMENT,
        format!(
            "Change stream was configured to require a {what}-image for all events ({option}: 'required'), but \
             the {what}-image was not found for an event; set changeStreamPreAndPostImages on the collection"
        ),
    )
    .with_label(label::NON_RESUMABLE_CHANGE_STREAM)
}

impl ResultSource for ChangeStream {
    fn next(&mut self, op: &OpContext) -> Result<Option<Doc>> {
        self.advance(op)?;
        Ok(self.ready.pop_front().map(|(token, event)| {
            self.given = token;
            Doc::Owned(event.into_vec())
        }))
    }

    fn is_exhausted(&self) -> bool {
        self.invalidated && self.ready.is_empty()
    }

    fn await_more(&mut self, op: &OpContext, limit: Duration) -> Result<bool> {
        if !self.ready.is_empty() || self.invalidated {
            return Ok(true);
        }
        self.db.oplog().wait_after(op, self.seen.time, limit)
    }

    fn is_tailable(&self) -> bool {
        true
    }

    fn reads_collection(&self) -> bool {
        false
    }

    fn post_batch_resume_token(&self) -> Option<DocBuf> {
        // With events pending, the stream's position is that of the last one returned; otherwise
        // that of the last entry read.
        let token = match self.ready.is_empty() && !self.invalidated {
            true => self.given.max(self.seen),
            false => self.given,
        };
        Some(token.to_doc())
    }
}

/// Time of the oplog entry under `key`.
/// Errors: `DataCorruptionDetected` for a malformed key.
fn time_of(key: &[u8]) -> Result<u64> {
    match record_id_of(key).and_then(|id| id.number()) {
        Some(number) => Ok(number as u64),
        None => Err(crate::damage::not_a_record_id(key)),
    }
}
