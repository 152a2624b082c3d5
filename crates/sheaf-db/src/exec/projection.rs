//! PROJECTION_COVERED, PROJECTION_SIMPLE, PROJECTION_DEFAULT: builds the result document.
//!
//! Covered builds it from the index key; the others copy elements of the document's bytes. A null
//! in a key may represent a missing field: if the projection keeps that field, the stage reads the
//! document after all, so that the result does not depend on the index.

use std::sync::Arc;

use bytes::Bytes;
use sheaf_bson::error_code::{Error, ErrorCode};
use sheaf_bson::keystring::{self, KeyStringBuilder};
use sheaf_bson::{ArrayBuf, DocBuf, DocBuilder, RawValue, doc};
use sheaf_query::matcher::{MatchDetails, MatchExpression};
use sheaf_query::planner::index_entry::IndexEntry;
use sheaf_query::planner::solution::ProjectionKind;
use sheaf_query::projection::{MetaField, Metadata, Projection};
use sheaf_query::sort::{SortKeyGenerator, SortPattern};

use super::key_document::{KeyDocument, append_flat_key, directions_of};
use super::{Doc, Member, Node, PlanStage, StageDescription, StageState, WorkContext, WorkCounts};

use crate::records::RecordReader;

/// KeyString of null per index field; `None` for fields that the projection drops.
type Nulls = Vec<Option<Vec<u8>>>;

/// See the module.
pub struct ProjectionStage {
    kind: ProjectionKind,
    projection: Arc<Projection>,
    /// The query's filter, for projections that depend on which array element matched.
    filter: Option<Arc<MatchExpression>>,
    key_document: KeyDocument,
    /// Reads documents whose key is ambiguous (null or missing).
    records: Option<RecordReader>,
    /// Encoded nulls of the index that the last key belonged to.
    nulls: Option<(Arc<IndexEntry>, Nulls)>,
    docs_examined: u64,
    /// For projections that return the sort key.
    sort_key: Option<SortKeyGenerator>,
    child: Node,
}

impl ProjectionStage {
    /// `filter` is the whole query's; only positional projections use it. `records` is needed where
    /// members come without documents.
    pub fn new(
        kind: ProjectionKind,
        projection: Arc<Projection>,
        filter: Arc<MatchExpression>,
        records: Option<RecordReader>,
        sort: Option<&SortPattern>,
        child: Node,
    ) -> Self {
        let filter = projection.needs_match_details().then_some(filter);
        let sort_key = sort
            .filter(|_| projection.needs(MetaField::SortKey))
            .map(SortKeyGenerator::new);
        ProjectionStage {
            kind,
            projection,
            filter,
            key_document: KeyDocument::default(),
            records,
            nulls: None,
            docs_examined: 0,
            sort_key,
            child,
        }
    }

    /// Reads the document if the key has a null in a field that the projection keeps.
    fn read_where_null(&mut self, member: &Member) -> Result<Option<Bytes>, Error> {
        let (Some(key), Some(id), Some(records)) = (&member.key, &member.record_id, &self.records)
        else {
            return Ok(None);
        };
        if !matches!(&self.nulls, Some((index, _)) if Arc::ptr_eq(index, &key.index)) {
            let nulls = nulls_of(&self.projection, &key.index);
            self.nulls = Some((key.index.clone(), nulls));
        }
        let Some((_, nulls)) = &self.nulls else {
            return Ok(None);
        };
        let has_null = keystring::fields(&key.key, directions_of(&key.index))
            .zip(nulls)
            .any(|(field, null)| null.as_deref() == Some(field));
        if !has_null {
            return Ok(None);
        }
        self.docs_examined += 1;
        let index = || self.child.stats().plan_summary();
        records.get_indexed(id, index).map(Some)
    }
}

fn nulls_of(projection: &Projection, index: &IndexEntry) -> Nulls {
    let null = |at: usize| {
        let mut builder = KeyStringBuilder::new(directions_of(index).starting_at(at));
        builder.append(RawValue::Null);
        builder.as_bytes().to_vec()
    };
    index
        .fields
        .iter()
        .enumerate()
        .map(|(at, field)| projection.keeps_path(field.path.dotted()).then(|| null(at)))
        .collect()
}

impl PlanStage for ProjectionStage {
    fn work(&mut self, cx: &mut WorkContext<'_>) -> Result<StageState, Error> {
        let mut member = match self.child.work(cx)? {
            StageState::Advanced(member) => member,
            other => return Ok(other),
        };
        let record_id = member.record_id.as_ref();
        if member.doc.is_none()
            && let Some(bytes) = self.read_where_null(&member)?
        {
            member.doc = Some(Doc::Shared(bytes));
        }
        let doc = match (&member.doc, &member.key) {
            (Some(doc), _) => doc.as_raw(),
            (None, Some(key)) => self.key_document.decode(key)?,
            (None, None) => {
                return Err(Error::new(
                    ErrorCode::INTERNAL_ERROR,
                    "a projection needs a document or an index key",
                ));
            }
        };
        let mut details = MatchDetails::default();
        let details = match &self.filter {
            Some(filter) => {
                filter.matches_with_details(doc, &mut details)?;
                Some(&details)
            }
            None => None,
        };
        let mut index_key = DocBuilder::new();
        if self.projection.needs(MetaField::IndexKey)
            && let Some(key) = &member.key
        {
            append_flat_key(key, &mut index_key)?;
        }
        let index_key = member.key.as_ref().map(|_| index_key.finish());
        let sort_key = match &self.sort_key {
            Some(keys) => Some(ArrayBuf::from_values(keys.values(doc)?)),
            None => None,
        };
        let meta = Metadata {
            record_id,
            index_key: index_key.as_ref().map(DocBuf::as_raw),
            sort_key: sort_key.as_ref().map(ArrayBuf::as_raw),
        };
        let mut out = DocBuilder::with_vec(Vec::with_capacity(doc.len_bytes().min(1024)));
        self.projection.apply(doc, details, meta, &mut out)?;
        member.doc = Some(Doc::Owned(out.finish_into()));
        member.key = None;
        Ok(StageState::Advanced(member))
    }

    fn is_eof(&self) -> bool {
        self.child.is_eof()
    }

    fn describe(&self) -> StageDescription {
        StageDescription {
            stage: match self.kind {
                ProjectionKind::Covered => "PROJECTION_COVERED",
                ProjectionKind::Simple => "PROJECTION_SIMPLE",
                ProjectionKind::Default => "PROJECTION_DEFAULT",
            },
            plan_fields: doc! {"transformBy": self.projection.transform_by().as_raw()},
            exec_fields: match self.docs_examined {
                0 => doc! {},
                read => doc! {"docsExamined": read as i64},
            },
            docs_examined: self.docs_examined,
            children: vec![self.child.stats()],
            ..Default::default()
        }
    }

    fn add_counts(&self, counts: &mut WorkCounts) {
        counts.docs_examined += self.docs_examined;
        self.child.add_counts(counts);
    }

    fn suspend(&mut self) {
        self.child.suspend();
    }
}
