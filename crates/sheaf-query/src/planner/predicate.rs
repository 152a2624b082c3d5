//! The predicates of one conjunction, each with the full path of its field.
//!
//! ```text
//!   {x: 1, a: {$elemMatch: {b: 2, c: {$elemMatch: {d: 3}}}}, $or: [...]}
//!
//!   path     predicate   conjunct   within elements of
//!   x        $eq 1       0, whole
//!   a.b      $eq 2       1, part    a
//!   a.c.d    $eq 3       1, part    a, a.c
//!   $or      (a separate access path)
//! ```
//!
//! A predicate that is a conjunct by itself ("whole") needs no check if its bounds are exact. A
//! predicate inside `$elemMatch` only narrows the scan: whether the same element satisfies all of
//! them is checked on the document.

use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use sheaf_bson::Collator;

use super::bounds_builder::{FieldBounds, FieldTraits, bounds_of};
use super::collation::KeyCollator;
use crate::matcher::MatchExpression;

/// An `$elemMatch` over documents, with the enclosing ones.
#[derive(Debug)]
pub(super) struct Element {
    /// Identifies the `$elemMatch`.
    id: *const MatchExpression,
    /// Number of path parts from the document's root to the array.
    parts: usize,
    parent: Option<Rc<Element>>,
}

/// Number of path parts of the deepest array of which both refer to the same element; 0 if there is
/// no such array.
pub(super) fn shared_element_parts(a: Option<&Rc<Element>>, b: Option<&Rc<Element>>) -> usize {
    let mut x = a;
    while let Some(outer) = x {
        let mut y = b;
        while let Some(other) = y {
            if std::ptr::eq(outer.id, other.id) {
                return outer.parts;
            }
            y = other.parent.as_ref();
        }
        x = outer.parent.as_ref();
    }
    0
}

/// One predicate over one field.
#[derive(Debug, Clone)]
pub(super) struct Predicate<'q> {
    /// Path from the document's root.
    pub path: Cow<'q, str>,
    /// A leaf, or the negation of one.
    pub expr: &'q MatchExpression,
    /// Position of its conjunct; `None` if it belongs to an enclosing conjunction.
    pub conjunct: Option<usize>,
    /// Whether it is the whole conjunct, not a part of it.
    pub whole: bool,
    /// The innermost enclosing `$elemMatch`.
    pub element: Option<Rc<Element>>,
    /// Bounds built so far: most indexes have the same traits for a field, and a long `$in` should
    /// not be copied for each index.
    bounds: RefCell<Vec<Known>>,
}

/// Cached bounds for a field with these traits in an index with this collation.
#[derive(Debug, Clone)]
struct Known {
    traits: FieldTraits,
    keys: Option<Arc<Collator>>,
    bounds: Option<Rc<FieldBounds>>,
}

impl<'q> Predicate<'q> {
    /// The bounds for a field with these traits in an index with this collation; `None` if it
    /// cannot serve the predicate.
    pub fn bounds(&self, traits: FieldTraits, keys: KeyCollator<'_>) -> Option<Rc<FieldBounds>> {
        let mut known = self.bounds.borrow_mut();
        let same = |k: &&Known| k.traits == traits && k.keys.as_ref() == keys;
        if let Some(known) = known.iter().find(same) {
            return known.bounds.clone();
        }
        let bounds = bounds_of(self.expr, traits, keys).map(Rc::new);
        known.push(Known {
            traits,
            keys: keys.cloned(),
            bounds: bounds.clone(),
        });
        bounds
    }
}

/// A `$or` among the conjuncts or inside one.
#[derive(Debug)]
pub(super) struct Disjunction<'q> {
    /// The alternatives.
    pub children: &'q [MatchExpression],
    /// Position of its conjunct.
    pub conjunct: usize,
    /// Whether it is the whole conjunct, not a part of it.
    pub whole: bool,
    /// The base of its paths.
    pub base: Base,
}

/// The path prefix of an expression.
#[derive(Debug, Clone, Default)]
pub(super) struct Base {
    /// Empty at the document's root.
    prefix: String,
    /// Number of parts of `prefix`.
    parts: usize,
    /// The innermost enclosing `$elemMatch`.
    pub element: Option<Rc<Element>>,
}

impl Base {
    fn join<'q>(&self, path: &'q str) -> Cow<'q, str> {
        if self.prefix.is_empty() {
            Cow::Borrowed(path)
        } else {
            Cow::Owned(format!("{}.{path}", self.prefix))
        }
    }
}

/// A conjunction, split into predicates and disjunctions.
#[derive(Debug)]
pub(super) struct Conjunction<'q> {
    /// The conjuncts, in normalised order.
    pub conjuncts: Vec<&'q MatchExpression>,
    /// Sorted by path, then in normalised order; those of enclosing conjunctions are last within a
    /// path.
    pub predicates: Vec<Predicate<'q>>,
    /// In normalised order.
    pub disjunctions: Vec<Disjunction<'q>>,
}

impl<'q> Conjunction<'q> {
    /// Splits `expr`; an expression other than `And` is a conjunction of one. The predicates in
    /// `outer` apply to the same documents and may be used as well.
    pub fn new(expr: &'q MatchExpression, base: &Base, outer: &[Predicate<'q>]) -> Conjunction<'q> {
        let mut all = Conjunction {
            conjuncts: Vec::new(),
            predicates: Vec::new(),
            disjunctions: Vec::new(),
        };
        all.flatten(expr);
        for conjunct in 0..all.conjuncts.len() {
            all.collect(all.conjuncts[conjunct], conjunct, true, base);
        }
        all.predicates.extend(outer.iter().map(|p| Predicate {
            conjunct: None,
            ..p.clone()
        }));
        all.predicates.sort_by(|a, b| a.path.cmp(&b.path));
        all
    }

    fn flatten(&mut self, expr: &'q MatchExpression) {
        match expr {
            MatchExpression::And(children) => children.iter().for_each(|c| self.flatten(c)),
            other => self.conjuncts.push(other),
        }
    }

    fn collect(&mut self, expr: &'q MatchExpression, conjunct: usize, whole: bool, base: &Base) {
        let leaf = match expr {
            MatchExpression::And(children) => {
                for child in children {
                    self.collect(child, conjunct, false, base);
                }
                return;
            }
            MatchExpression::Or(children) => {
                self.disjunctions.push(Disjunction {
                    children,
                    conjunct,
                    whole,
                    base: base.clone(),
                });
                return;
            }
            MatchExpression::ElemMatchObject { path, child } => {
                let parts = base.parts + path.len();
                let inner = Base {
                    prefix: base.join(path.dotted()).into_owned(),
                    parts,
                    element: Some(Rc::new(Element {
                        id: &raw const **child,
                        parts,
                        parent: base.element.clone(),
                    })),
                };
                self.collect(child, conjunct, false, &inner);
                return;
            }
            MatchExpression::Not(child) => child,
            other => other,
        };
        if let Some(path) = leaf.path() {
            self.predicates.push(Predicate {
                path: base.join(path.dotted()),
                expr,
                conjunct: Some(conjunct),
                whole,
                element: base.element.clone(),
                bounds: RefCell::default(),
            });
        }
    }

    /// The predicates on exactly this path.
    pub fn over(&self, path: &str) -> &[Predicate<'q>] {
        let from = self.predicates.partition_point(|p| *p.path < *path);
        let len = self.predicates[from..].partition_point(|p| *p.path == *path);
        &self.predicates[from..from + len]
    }
}
