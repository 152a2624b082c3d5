//! `min()` and `max()`: one range between two whole keys of the hinted index.
//!
//! ```text
//!   index {a: 1, b: -1}   min {a: 1, b: 9}  max {a: 5, b: 0}     [1, 9] .. [5, 0)
//! ```

use std::cmp::Ordering;
use std::sync::Arc;

use sheaf_bson::collation::is_collatable;
use sheaf_bson::{DocBuf, Error, ErrorCode, Value, compare_values};

use super::bounds::IndexBounds;
use super::hint::Hinted;
use super::index_entry::{IndexEntry, IndexKind};
use super::plan_builder::scan_stage;
use super::solution::{IndexScanNode, SolutionNode};
use crate::canonical::CanonicalQuery;

/// The scan for a query with `min` or `max`.
///
/// Errors: 51173 without a hint, 51174 if the fields differ from those of the index or text has
/// another collation, 51175 for an empty range, BadValue for a `$natural` hint.
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
    let key_of = |key: &Option<DocBuf>| match key {
        Some(key) => key_values(query, index, key).map(Some),
        None => Ok(None),
    };
    let (min, max) = (key_of(&query.min)?, key_of(&query.max)?);
    if let (Some(min), Some(max)) = (&min, &max)
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
    Ok(scan_stage(IndexScanNode {
        index: index.clone(),
        bounds: IndexBounds::KeyRange {
            end_inclusive: max.is_none(),
            start: min,
            end: max,
            start_inclusive: true,
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

/// The key in the form of the index: text as sort keys if the index has a collation.
///
/// Errors: 51174 for text if the collations of the query and the index differ.
fn key_values(
    query: &CanonicalQuery,
    index: &Arc<IndexEntry>,
    key: &DocBuf,
) -> Result<DocBuf, Error> {
    let has_text = key.iter().any(|e| is_collatable(e.element_type()));
    if has_text && index.collator != query.collator {
        return Err(Error::new(
            ErrorCode(51174),
            format!(
                "The index chosen is not compatible with min/max: index '{}' has another \
                 collation than the query, and {} contains text",
                index.name,
                sheaf_bson::json::shell_doc(key.as_raw())
            ),
        ));
    }
    Ok(match &index.collator {
        Some(collator) => match collator.key_value(key.as_raw().into()) {
            Value::Document(doc) => doc,
            _ => key.clone(),
        },
        None => key.clone(),
    })
}

/// Compares two keys in the order of the index.
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
