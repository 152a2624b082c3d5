//! Runs `$vectorSearch`: the search at the start, the documents one by one on demand.
//!
//! ```text
//!   named index ─ search (keys only) ─> [(score, record id)] ──next──> record ─> document with score
//! ```
//!
//! Search and records use one snapshot, so every hit has its record.

use std::sync::Arc;
use std::time::Instant;

use sheaf_bson::error_code::{Error, Result};
use sheaf_bson::{DocBuilder, RawDoc};
use sheaf_query::pipeline::score;
use sheaf_query::pipeline::stages::vector_search::{NAME, VectorSearch};
use sheaf_query::vector::Similarity;

use crate::catalog::ReadView;
use crate::exec::{Doc, WorkCounts};
use crate::index::vector::search::{Hit, Search, SearchStats};
use crate::op_context::OpContext;
use crate::records::RecordReader;

/// The hits of a search, read document by document.
pub(super) struct VectorSource {
    hits: std::vec::IntoIter<Hit>,
    records: Option<RecordReader>,
    with_score: bool,
    /// Name of the index; `None` if no index has the requested name.
    pub(super) index: Option<Arc<str>>,
    stats: SearchStats,
    docs_examined: u64,
    elapsed: std::time::Duration,
}

/// Runs the search. An index that does not exist yields no results, as in MongoDB.
/// Errors: `BadValue` if the index lacks the path or a filter path, or if the query vector does not
/// suit the field (dimensions, all zeros under cosine); those of the storage engine; an
/// interruption.
pub(super) fn start(
    view: &ReadView,
    op: &OpContext,
    search: &VectorSearch,
    with_score: bool,
) -> Result<VectorSource> {
    let begun = Instant::now();
    let mut source = VectorSource {
        hits: Vec::new().into_iter(),
        records: None,
        with_score,
        index: None,
        stats: SearchStats::default(),
        docs_examined: 0,
        elapsed: Default::default(),
    };
    let Some(collection) = &view.collection else {
        return Ok(source);
    };
    let Some(index) = collection.vector_index(&search.index) else {
        return Ok(source);
    };
    let Some(spec) = &index.spec().vector else {
        return Ok(source);
    };
    let Some((number, field)) = spec.definition.vector_at(&search.path) else {
        return Err(Error::bad_value(format!(
            "the index '{}' has no field of type 'vector' at '{}'",
            search.index, search.path
        )));
    };
    if search.query.dimensions() != field.dimensions {
        return Err(Error::bad_value(format!(
            "'{NAME}.queryVector' has {} dimensions, the vectors of '{}' in the index '{}' have {}",
            search.query.dimensions(),
            search.path,
            search.index,
            field.dimensions
        )));
    }
    if field.similarity == Similarity::Cosine && search.query.norm() == 0.0 {
        return Err(Error::bad_value(format!(
            "'{NAME}.queryVector' must not be all zeros: the index '{}' compares by cosine",
            search.index
        )));
    }
    for path in search.filter_paths() {
        if !spec.definition.filters().contains(&path) {
            return Err(Error::bad_value(format!(
                "'{NAME}.filter' uses '{}', which is not a field of type 'filter' in the index \
                 '{}'",
                path.dotted(),
                search.index
            )));
        }
    }
    index.usage().count();
    let filter = search.filter.as_deref().filter(|f| !f.is_trivially_true());
    let (hits, stats) = Search {
        index,
        number,
        field,
        query: &search.query,
        filter,
        candidates: search.candidates,
        limit: search.limit,
    }
    .run(&*view.snapshot, op)
    .map_err(|e| collection.report_damage(e))?;
    source.hits = hits.into_iter();
    source.records = Some(RecordReader::new(view.snapshot.clone(), collection.clone()));
    source.index = Some(index.name().into());
    source.stats = stats;
    source.elapsed = begun.elapsed();
    Ok(source)
}

impl VectorSource {
    pub(super) fn next(&mut self, op: &OpContext) -> Result<Option<Doc>> {
        let Some(records) = &self.records else {
            return Ok(None);
        };
        let Some(hit) = self.hits.next() else {
            return Ok(None);
        };
        op.check_interrupt()?;
        let index = || self.index.as_deref().unwrap_or_default().to_owned();
        let bytes = records.get_indexed(&hit.id, index)?;
        self.docs_examined += 1;
        if !self.with_score {
            return Ok(Some(Doc::Shared(bytes)));
        }
        let doc = RawDoc::from_bytes_unchecked(&bytes);
        let scored = score::with_score(doc, hit.score);
        Ok(Some(Doc::Owned(scored.into_vec())))
    }

    pub(super) fn is_exhausted(&self) -> bool {
        self.hits.as_slice().is_empty()
    }

    pub(super) fn counts(&self) -> WorkCounts {
        WorkCounts {
            keys_examined: self.stats.keys_examined,
            docs_examined: self.docs_examined,
        }
    }

    /// Appends the search statistics for explain.
    pub(super) fn append_stats(&self, out: &mut DocBuilder) {
        let stats = &self.stats;
        out.append("indexFound", self.index.is_some());
        out.append("exact", stats.is_exact());
        out.append("lists", stats.lists as i64);
        out.append("listsExamined", stats.lists_read as i64);
        out.append("totalKeysExamined", stats.keys_examined as i64);
        out.append("vectorsCompared", stats.vectors_compared as i64);
        out.append("totalDocsExamined", self.docs_examined as i64);
    }

    pub(super) fn elapsed(&self) -> std::time::Duration {
        self.elapsed
    }
}
