//! `min()` and `max()`: one range between two whole keys of the hinted index.
//!
//! ```text
//!   index {a: 1, b: -1}   min {a: 1, b: 9}  max {a: 5, b: 0}     [1, 9] .. [5, 0)
//! ```

use std::cmp::Ordering;
use std::sync::Arc;

use sheaf_bson::{DocBuf, Error, ErrorCode, compare_values};

use super::bounds::IndexBounds;
use super::hint::Hinted;
use super::index_entry::{IndexEntry, IndexKind};
use super::solution::{IndexScanNode, SolutionNode};
use crate::canonical::CanonicalQuery;

/// The scan for a query with `min` or `max`.
///
/// Errors: 51173 without a hint, 51174 for fields that are not the index's,
/// 51175 for an empty range.
pub(super) fn key_range(query: &CanonicalQuery, hinted: &Hinted) -> Result<SolutionNode, Error> {
    let index = match hinted {
        Hinted::Index(index) => index,
        Hinted::No => {
            return Err(Error::new(
                ErrorCode(51173),
                "When using min()/max() a hint of which index to use must be provided",
            ));
        }
        Hinted::Natural(_) => {
            return Err(Error::bad_value(
                "min and max are incompatible with $natural",
            ));
        }
    };
    for key in [&query.min, &query.max].into_iter().flatten() {
        if !fits(index, key) {
            return Err(Error::new(
                ErrorCode(51174),
                format!(
                    "The index chosen is not compatible with min/max: {} does not name the \
                     fields of index '{}' in their order",
                    sheaf_bson::json::shell_doc(key.as_raw()),
                    index.name
                ),
            ));
        }
    }
    if let (Some(min), Some(max)) = (&query.min, &query.max)
        && compare_keys(index, min, max).is_ge()
    {
        return Err(Error::new(
            ErrorCode(51175),
            format!(
                "The value provided for min() does not come before the value provided for \
                 max() in the hinted index '{}'",
                index.name
            ),
        ));
    }
    Ok(SolutionNode::IndexScan(IndexScanNode {
        index: index.clone(),
        bounds: IndexBounds::KeyRange {
            start: query.min.clone(),
            end: query.max.clone(),
            start_inclusive: true,
            end_inclusive: query.max.is_none(),
        },
        direction: 1,
        filter: None,
        dedup: index.multikey,
        skips: 0,
    }))
}

fn fits(index: &Arc<IndexEntry>, key: &DocBuf) -> bool {
    if let IndexKind::Wildcard(_) = index.kind {
        return false;
    }
    index
        .fields
        .iter()
        .map(|field| field.path.dotted())
        .eq(key.iter().map(|element| element.key()))
}

/// In the order of the index.
fn compare_keys(index: &IndexEntry, a: &DocBuf, b: &DocBuf) -> Ordering {
    a.iter()
        .zip(b.iter())
        .zip(&index.fields)
        .map(|((x, y), field)| {
            let order = compare_values(x.value(), y.value());
            if field.direction < 0 {
                order.reverse()
            } else {
                order
            }
        })
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}
