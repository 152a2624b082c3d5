//! Decisions about indexes that depend on constants: two queries of one shape may have different
//! plans, and the plan cache must distinguish them.
//!
//! ```text
//!   partial {b: {$gt: 5}}     {a: 1, b: 7} may use the index, {a: 1, b: 3} not
//!   sparse  {a: 1}            {a: 5} may, {a: null} not
//!   multikey {a: 1}           {a: {$ne: 5}} may, {a: {$ne: null}} not
//!   another collation         {a: 5} may, {a: "x"} not
//! ```

use std::sync::Arc;

use sheaf_bson::Collator;

use super::assignment::{some_field_is_present, traits_of};
use super::implication::Implied;
use super::index_entry::{IndexEntry, IndexKind};
use super::predicate::{Base, Conjunction};
use super::wildcard::value_bounds;
use crate::canonical::CanonicalQuery;
use crate::matcher::MatchExpression;

/// Appends to `out` a mark for each index that is not hidden, and a letter for each such decision,
/// in an order that depends only on the shape of the filter and on the indexes. Takes time linear
/// in the size of the filter.
pub fn write_discriminators(query: &CanonicalQuery, indexes: &[Arc<IndexEntry>], out: &mut String) {
    let visible: Vec<&Arc<IndexEntry>> = indexes.iter().filter(|i| !i.hidden).collect();
    out.extend(visible.iter().map(|_| '/'));
    let decided = |index: &&Arc<IndexEntry>| {
        index.sparse
            || index.multikey
            || !matches!(index.kind, IndexKind::Btree)
            || index.partial_filter.is_some()
            || index.collator != query.collator
            || (0..index.fields.len()).any(|field| traits_of(index, field).positional)
    };
    if visible.iter().any(decided) {
        let implied = Implied::nothing(&visible);
        let collator = query.collator.as_ref();
        write_level(
            &query.filter,
            &Base::default(),
            &implied,
            &visible,
            collator,
            out,
        );
    }
}

/// Appends the decisions for a conjunction, then those for each alternative of its disjunctions.
fn write_level(
    expr: &MatchExpression,
    base: &Base,
    around: &Implied,
    indexes: &[&Arc<IndexEntry>],
    collator: Option<&Arc<Collator>>,
    out: &mut String,
) {
    let implied = match base.element {
        // Paths inside an element are not paths of the document.
        Some(_) => around.clone(),
        None => around.with(expr, indexes),
    };
    let all = Conjunction::new(expr, base, &[]);
    for (at, index) in indexes.iter().enumerate() {
        if index.partial_filter.is_some() {
            out.push(if implied.holds_for(at) { 'p' } else { 'q' });
        }
        if index.sparse {
            out.push(if some_field_is_present(index, &all) {
                's'
            } else {
                't'
            });
        }
        for (field, f) in index.fields.iter().enumerate() {
            let traits = traits_of(index, field);
            for predicate in all.over(f.path.dotted()) {
                let negation = matches!(predicate.expr, MatchExpression::Not(_));
                let keys = index.collator.as_ref();
                let in_wildcard = index.wildcard().is_some_and(|w| field == w.path_field + 1);
                if in_wildcard {
                    let bounds = predicate.bounds(traits, keys);
                    let served = bounds
                        .is_some_and(|b| value_bounds(predicate, &b, traits.multikey).is_some());
                    out.push(if served { 'v' } else { 'w' });
                } else if traits.hashed
                    || traits.positional
                    || traits.multikey && negation
                    || keys != collator
                {
                    let served = predicate.bounds(traits, keys).is_some();
                    out.push(if served { 'v' } else { 'w' });
                }
            }
        }
    }
    for disjunction in &all.disjunctions {
        for child in disjunction.children {
            write_level(child, &disjunction.base, &implied, indexes, collator, out);
        }
    }
}
