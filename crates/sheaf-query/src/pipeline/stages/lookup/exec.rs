//! Runs a `$lookup`.

use std::sync::Arc;

use sheaf_bson::error_code::Result;
use sheaf_bson::{ArrayBuf, ArrayBuilder, DocBuf, DocBuilder, RawDoc, RawValue};

use crate::expression::location;
use crate::matcher::{self, MatchExpression};
use crate::pipeline::environment::{
    Environment, ForeignCounts, ForeignCursor, ForeignRequest, JoinRequest, PreparedRequest,
};
use crate::pipeline::stage::{Pushed, StageExec};
use crate::pipeline::stages::sub_pipeline::SubPipeline;
use crate::pipeline::unwind::with_value;
use crate::pipeline::{Pipeline, Stage};

use super::{Equality, Lookup, equality_filter, local_values, without_matches};

/// Maximum size of the cached results of an uncorrelated pipeline, in bytes.
const CACHE_BYTES_MAX: usize = 100 * 1024 * 1024;
/// Maximum size of the matches of one document, in bytes.
const JOINED_BYTES_MAX: usize = 100 * 1024 * 1024;

/// A running `$lookup`.
pub(super) struct LookupExec {
    lookup: Arc<Lookup>,
    cursor: Cursor,
    cached: Cache,
    /// Whether the environment does not prepare this pipeline.
    unprepared: bool,
    pending: Option<Pending>,
    counts: ForeignCounts,
    no_filter: DocBuf,
    /// A filter on the results of the pipeline.
    filter: Option<Arc<MatchExpression>>,
}

enum Cursor {
    None,
    /// A join, probed for each document.
    Join(ForeignCursor),
    /// A prepared pipeline, rerun for each document.
    Prepared(ForeignCursor),
    /// A pipeline for one document.
    Once(ForeignCursor),
    /// The results of an uncorrelated pipeline, and the offset of the next element.
    Cached(Arc<ArrayBuf>, usize),
}

/// The cached results of an uncorrelated pipeline.
enum Cache {
    /// Not run yet.
    Open,
    Kept(Arc<ArrayBuf>),
    /// The results exceed the size limit.
    TooLarge,
}

/// A document whose matches are being unwound.
struct Pending {
    doc: DocBuf,
    given: i64,
}

impl LookupExec {
    /// `filter` selects results of the pipeline.
    pub(super) fn new(lookup: Arc<Lookup>, filter: Option<Arc<MatchExpression>>) -> LookupExec {
        LookupExec {
            lookup,
            cursor: Cursor::None,
            cached: Cache::Open,
            unprepared: false,
            pending: None,
            counts: ForeignCounts::default(),
            no_filter: DocBuf::new(),
            filter,
        }
    }

    /// Starts reading the matches of a document.
    fn begin(&mut self, doc: RawDoc<'_>, env: &dyn Environment) -> Result<()> {
        self.finish_once(env);
        let lookup = self.lookup.clone();
        let Some(sub) = &lookup.pipeline else {
            return match &lookup.equality {
                Some(equality) => self.probe(doc, equality, env),
                None => Ok(()),
            };
        };
        if !sub.is_correlated() {
            // Unused variables are evaluated for their errors.
            sub.bind_variables(doc)?;
        }
        if let Some(equality) = &lookup.equality
            && !sub.is_correlated()
            && !sub.makes_documents()
        {
            return self.probe(doc, equality, env);
        }
        if let Cache::Kept(array) = &self.cached {
            self.cursor = Cursor::Cached(array.clone(), 4);
            return Ok(());
        }
        if self.rerun(doc, sub, env)? {
            return Ok(());
        }
        self.open(doc, sub, env)
    }

    /// Probes the join of the equality with the values of a document.
    fn probe(&mut self, doc: RawDoc<'_>, equality: &Equality, env: &dyn Environment) -> Result<()> {
        let lookup = &self.lookup;
        if !matches!(self.cursor, Cursor::Join(_)) {
            let pipeline = lookup.pipeline.as_ref().map(|p| p.declared());
            let request = JoinRequest {
                from: &lookup.from,
                path: &equality.foreign,
                filter: if pipeline.is_some() {
                    // The filter applies to the results of the pipeline.
                    &self.no_filter
                } else {
                    &lookup.filter
                },
                pipeline,
                context: &lookup.context,
            };
            self.cursor = Cursor::Join(env.open_join(&request)?);
        }
        let Cursor::Join(cursor) = &mut self.cursor else {
            return Ok(());
        };
        env.probe(cursor, &local_values(doc, &equality.local))
    }

    /// Reruns the prepared pipeline; false if it cannot be prepared.
    fn rerun(&mut self, doc: RawDoc<'_>, sub: &SubPipeline, env: &dyn Environment) -> Result<bool> {
        let Some(prepared) = sub.prepared().filter(|_| !self.unprepared) else {
            return Ok(false);
        };
        if !matches!(self.cursor, Cursor::Prepared(_)) {
            let request = PreparedRequest {
                from: &self.lookup.from,
                pipeline: prepared,
                context: sub.context(),
            };
            match env.open_prepared(&request)? {
                Some(cursor) => self.cursor = Cursor::Prepared(cursor),
                None => self.unprepared = true,
            }
        }
        let Cursor::Prepared(cursor) = &mut self.cursor else {
            return Ok(false);
        };
        let equality = self.lookup.equality.as_ref();
        let equality = equality.map(|equality| {
            equality_filter(&equality.foreign, &local_values(doc, &equality.local))
        });
        env.rerun(cursor, equality.as_ref(), sub.bind_variables(doc)?)?;
        Ok(true)
    }

    /// Opens the pipeline of one document; keeps its results if all documents have the same.
    fn open(&mut self, doc: RawDoc<'_>, sub: &SubPipeline, env: &dyn Environment) -> Result<()> {
        let lookup = self.lookup.clone();
        let (bound, context) = sub.bind(doc)?;
        let pipeline = match &lookup.equality {
            None => bound,
            Some(equality) => {
                let values = local_values(doc, &equality.local);
                let spec = equality_filter(&equality.foreign, &values);
                let filter = matcher::parse(spec.as_raw(), &Default::default())?.normalize();
                let mut pipeline = Pipeline::clone(&bound);
                let first = Stage::Match {
                    spec,
                    filter: Arc::new(filter),
                };
                pipeline.stages.insert(0, first);
                Arc::new(pipeline)
            }
        };
        let request = ForeignRequest {
            from: &lookup.from,
            pipeline: &pipeline,
            context: &context,
        };
        let cursor = env.open(&request)?;
        let differs = sub.is_correlated() || lookup.equality.is_some();
        if differs || matches!(self.cached, Cache::TooLarge) {
            self.cursor = Cursor::Once(cursor);
            return Ok(());
        }
        self.keep(cursor, &request, env)
    }

    /// Reads the results of a pipeline that are the same for all documents.
    fn keep(
        &mut self,
        mut cursor: ForeignCursor,
        request: &ForeignRequest<'_>,
        env: &dyn Environment,
    ) -> Result<()> {
        let mut kept = ArrayBuilder::new();
        while let Some(doc) = env.advance(&mut cursor)? {
            env.check_interrupt()?;
            kept.push_document_bytes(doc.as_bytes());
            if kept.current_len() > CACHE_BYTES_MAX {
                self.counts.add(&env.foreign_counts(&cursor));
                self.cached = Cache::TooLarge;
                self.cursor = Cursor::Once(env.open(request)?);
                return Ok(());
            }
        }
        self.counts.add(&env.foreign_counts(&cursor));
        let kept = Arc::new(kept.finish());
        self.cached = Cache::Kept(kept.clone());
        self.cursor = Cursor::Cached(kept, 4);
        Ok(())
    }

    /// Records the counts of an exhausted cursor and drops it.
    fn finish_once(&mut self, env: &dyn Environment) {
        if let Cursor::Once(cursor) = &self.cursor {
            self.counts.add(&env.foreign_counts(cursor));
            self.cursor = Cursor::None;
        }
    }

    /// The next match of the current document.
    fn next_match(&mut self, env: &dyn Environment) -> Result<Option<RawDoc<'_>>> {
        match &mut self.cursor {
            Cursor::None => Ok(None),
            Cursor::Join(cursor) | Cursor::Prepared(cursor) | Cursor::Once(cursor) => {
                env.check_interrupt()?;
                env.advance(cursor)
            }
            Cursor::Cached(array, at) => {
                let rest = array.as_bytes().get(*at..).unwrap_or(&[]);
                let Some(element) = sheaf_bson::RawElement::parse_prefix(rest) else {
                    return Ok(None);
                };
                *at += element.as_bytes().len();
                Ok(element.value().as_document())
            }
        }
    }

    /// All matches as an array, the value of `as`.
    fn collect(&mut self, env: &dyn Environment) -> Result<ArrayBuf> {
        let mut found = ArrayBuilder::new();
        while let Some(doc) = self.next_match(env)? {
            found.push_document_bytes(doc.as_bytes());
            if found.current_len() > JOINED_BYTES_MAX {
                return Err(location(
                    4568,
                    format!(
                        "the documents of '{}' that match in a $lookup exceed {JOINED_BYTES_MAX} bytes; add an $unwind directly after the $lookup, or join fewer documents",
                        self.lookup.from.collection
                    ),
                ));
            }
        }
        Ok(found.finish())
    }

    /// The next output of the document whose matches are unwound.
    fn step(&mut self, env: &dyn Environment) -> Result<Option<DocBuf>> {
        let Some(mut pending) = self.pending.take() else {
            return Ok(None);
        };
        let lookup = self.lookup.clone();
        let Some(unwind) = &lookup.unwind else {
            return Ok(None);
        };
        let as_path = &lookup.as_path;
        let filter = self.filter.clone();
        let index = unwind.index_parts();
        while let Some(found) = self.next_match(env)? {
            if let Some(filter) = &filter
                && !filter.matches(found)?
            {
                continue;
            }
            let value = Some(RawValue::Document(found));
            let mut out = with_value(pending.doc.as_raw(), as_path, value);
            if let Some(index) = index {
                let at = Some(RawValue::Int64(pending.given));
                out = with_value(out.as_raw(), index, at);
            }
            pending.given += 1;
            self.pending = Some(pending);
            return Ok(Some(out));
        }
        if pending.given > 0 || !unwind.preserves() {
            return Ok(None);
        }
        let mut out = without_matches(pending.doc.as_raw(), as_path);
        if let Some(index) = index {
            out = with_value(out.as_raw(), index, Some(RawValue::Null));
        }
        Ok(Some(out))
    }
}

impl StageExec for LookupExec {
    fn push(&mut self, doc: RawDoc<'_>, env: &dyn Environment) -> Result<Pushed> {
        self.begin(doc, env)?;
        if self.lookup.unwind.is_some() {
            self.pending = Some(Pending {
                doc: doc.to_buf(),
                given: 0,
            });
            return Ok(Pushed::Pending);
        }
        let found = self.collect(env)?;
        let value = RawValue::Array(found.as_raw());
        Ok(Pushed::One(with_value(
            doc,
            &self.lookup.as_path,
            Some(value),
        )))
    }

    fn next(&mut self, env: &dyn Environment) -> Result<Option<DocBuf>> {
        self.step(env)
    }

    fn end(&mut self, env: &dyn Environment) -> Result<()> {
        self.finish_once(env);
        if let Cursor::Join(cursor) | Cursor::Prepared(cursor) = &self.cursor {
            let counts = env.foreign_counts(cursor);
            self.counts.add(&counts);
            self.cursor = Cursor::None;
        }
        Ok(())
    }

    fn suspend(&mut self) {
        if let Cursor::Join(cursor) | Cursor::Prepared(cursor) | Cursor::Once(cursor) =
            &mut self.cursor
        {
            cursor.suspend();
        }
    }

    fn append_stats(&self, out: &mut DocBuilder) {
        self.counts.append(out);
    }
}
