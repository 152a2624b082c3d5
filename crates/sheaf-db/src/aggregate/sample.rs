//! `$sample` at the head of a pipeline, without reading the collection.
//!
//! ```text
//!   records   1 2 3 . 5 6 . 8 ...  n        a number from 1 to n; is there such a record? take it
//! ```
//!
//! Records are counted, so a number drawn from the range of their ids is as likely to be one as
//! another. Where most numbers have no record any more, where records are not counted (clustered
//! collections), and for more than a twentieth of a collection the stage reads all.
//!
//! Source: the manual's page on `$sample`, "Behavior": a random cursor for fewer than 5 % of more than
//! 100 documents.

use std::collections::{HashSet, VecDeque};

use sheaf_bson::RecordId;
use sheaf_bson::error_code::Result;
use sheaf_query::expression::random_number;
use sheaf_query::pipeline::{CursorPrefix, OptimizedPipeline, Stage};

use crate::catalog::ReadView;
use crate::exec::{Doc, WorkCounts};
use crate::op_context::OpContext;
use crate::records::{RecordCursor, RecordReader};

/// Fewer documents are all read.
const DOCUMENTS_MIN: u64 = 101;
/// More than one of so many is not few.
const ONE_OF: u64 = 20;
/// So many numbers a record are too many to draw from.
const NUMBERS_A_RECORD_MAX: u64 = 8;

/// What was drawn.
pub(super) struct Sampled {
    pub found: VecDeque<Doc>,
    pub counts: WorkCounts,
}

/// The size of the `$sample` that a pipeline begins with.
pub(super) fn leading_sample(pipeline: &OptimizedPipeline) -> Option<u64> {
    let CursorPrefix {
        filter,
        sort,
        skip: 0,
        limit: None,
        projection: None,
        ..
    } = &pipeline.prefix
    else {
        return None;
    };
    let Some(Stage::Other(stage)) = pipeline.rest.stages.first() else {
        return None;
    };
    if !filter.is_empty() || sort.is_some() || stage.name() != "$sample" {
        return None;
    }
    let operand = stage.operand();
    let size = operand.as_raw().as_document()?.get("size")?;
    size.as_i64_exact()
        .and_then(|size| u64::try_from(size).ok())
}

/// Draws documents by chance; `None` where the collection is better read.
/// Errors: the engine's, an interruption.
pub(super) fn draw(view: &ReadView, op: &OpContext, size: u64) -> Result<Option<Sampled>> {
    let Some(collection) = &view.collection else {
        return Ok(None);
    };
    let count = view.record_count()?;
    if count < DOCUMENTS_MIN || size > count / ONE_OF {
        return Ok(None);
    }
    let mut cursor = RecordCursor::new(&view.snapshot, collection)?;
    if !cursor.first()? {
        return Ok(None);
    }
    let first = cursor.record_id()?;
    cursor.last()?;
    let last = cursor.record_id()?;
    let (Some(first), Some(last)) = (first.number(), last.number()) else {
        return Ok(None);
    };
    let numbers = last.abs_diff(first).saturating_add(1);
    if numbers / NUMBERS_A_RECORD_MAX > count {
        return Ok(None);
    }
    let records = RecordReader::new(view.snapshot.clone(), collection.clone());
    let mut drawn = HashSet::new();
    let mut sampled = Sampled {
        found: VecDeque::new(),
        counts: WorkCounts::default(),
    };
    // Some numbers are drawn again, most have a record: that many tries fail only by a freak.
    let tries = size.saturating_mul(16 * NUMBERS_A_RECORD_MAX) + 1000;
    for _ in 0..tries {
        op.check_interrupt()?;
        if sampled.found.len() as u64 == size {
            return Ok(Some(sampled));
        }
        let number = first.saturating_add((random_number() * numbers as f64) as i64);
        if !drawn.insert(number) {
            continue;
        }
        if let Some(bytes) = records.get(&RecordId::new(number))? {
            sampled.counts.docs_examined += 1;
            sampled.found.push_back(Doc::Shared(bytes));
        }
    }
    Ok(None)
}
