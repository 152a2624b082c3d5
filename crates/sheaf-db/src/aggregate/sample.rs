//! A leading `$sample`, answered without reading the whole collection.
//!
//! ```text
//!   records   1 2 3 . 5 6 . 8 ...  n        draw a number in 1..=n; take the record if it exists
//! ```
//!
//! Record ids are assigned sequentially, so a number drawn from their range picks every record with
//! equal probability. The stage reads the whole collection instead where most numbers no longer
//! have a record, where record ids are not numbers (clustered collections), and for samples of more
//! than a twentieth of the collection.
//!
//! Source: the manual's page on `$sample`, "Behavior": a random cursor for fewer than 5 % of more
//! than 100 documents.

use std::collections::{HashSet, VecDeque};

use sheaf_bson::RecordId;
use sheaf_bson::error_code::Result;
use sheaf_query::expression::random_number;
use sheaf_query::pipeline::{CursorPrefix, OptimizedPipeline, Stage};

use crate::catalog::ReadView;
use crate::exec::{Doc, WorkCounts};
use crate::op_context::OpContext;
use crate::records::{RecordCursor, RecordReader};

/// Minimum number of documents; smaller collections are read whole.
const DOCUMENTS_MIN: u64 = 101;
/// A sample larger than 1/`ONE_OF` of the collection reads the whole collection.
const ONE_OF: u64 = 20;
/// Maximum ratio of the id range to the number of records for drawing ids at random.
const NUMBERS_A_RECORD_MAX: u64 = 8;

/// Documents drawn at random, and the work it took.
pub(super) struct Sampled {
    pub found: VecDeque<Doc>,
    pub counts: WorkCounts,
}

/// Size of the `$sample` that the pipeline begins with, if it does.
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

/// Draws documents at random; `None` if reading the whole collection is the better plan.
/// Errors: those of the storage engine, an interruption.
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
    // Some numbers repeat and at least one in eight or so has a record, so running out of this many
    // tries is practically impossible.
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
