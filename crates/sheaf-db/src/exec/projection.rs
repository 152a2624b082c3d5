//! PROJECTION_COVERED, PROJECTION_SIMPLE, PROJECTION_DEFAULT: the document as
//! the user wants it.
//!
//! Covered builds it from the index key; the others copy elements of the
//! document's bytes.

use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode};
use sheaf_bson::{DocBuilder, doc};
use sheaf_query::matcher::{MatchDetails, MatchExpression};
use sheaf_query::planner::solution::ProjectionKind;
use sheaf_query::projection::Projection;

use super::{Doc, Node, PlanStage, StageDescription, StageState, WorkContext, WorkCounts};
use super::key_document::KeyDocument;

/// See the module.
pub struct ProjectionStage {
    kind: ProjectionKind,
    projection: Arc<Projection>,
    /// The query's filter, for projections that ask which element matched.
    filter: Option<Arc<MatchExpression>>,
    key_document: KeyDocument,
    child: Node,
}

impl ProjectionStage {
    /// `filter` is the whole query's; it is used only by positional projections.
    pub fn new(
        kind: ProjectionKind,
        projection: Arc<Projection>,
        filter: Arc<MatchExpression>,
        child: Node,
    ) -> Self {
        let filter = projection.needs_match_details().then_some(filter);
        ProjectionStage {
            kind,
            projection,
            filter,
            key_document: KeyDocument::default(),
            child,
        }
    }
}

impl PlanStage for ProjectionStage {
    fn work(&mut self, cx: &mut WorkContext<'_>) -> Result<StageState, Error> {
        let mut member = match self.child.work(cx)? {
            StageState::Advanced(member) => member,
            other => return Ok(other),
        };
        let record_id = member.record_id.map(|id| id.0);
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
        let mut out = DocBuilder::with_vec(Vec::with_capacity(doc.len_bytes().min(1024)));
        self.projection.apply(doc, details, record_id, &mut out)?;
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
            children: vec![self.child.stats()],
            ..Default::default()
        }
    }

    fn add_counts(&self, counts: &mut WorkCounts) {
        self.child.add_counts(counts);
    }
}
