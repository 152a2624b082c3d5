//! A find, parsed and normalised: what the planner, the plan cache and the
//! executor share.

use std::sync::Arc;

use sheaf_bson::{DocBuf, RawDoc};

use crate::matcher::MatchExpression;
use crate::projection::Projection;
use crate::sort::SortPattern;

/// What a find asks, before normalisation; the borrowed parts of the command.
#[derive(Debug, Clone, Default)]
pub struct FindSpec<'a> {
    /// Empty matches everything.
    pub filter: Option<RawDoc<'a>>,
    /// Empty means no order.
    pub sort: Option<RawDoc<'a>>,
    /// Empty keeps whole documents.
    pub projection: Option<RawDoc<'a>>,
    /// Documents passed over first.
    pub skip: u64,
    /// `None` is unlimited.
    pub limit: Option<u64>,
    /// Index name, key pattern or `{$natural: ±1}`.
    pub hint: Option<Hint>,
    /// `min()`: inclusive lower index key.
    pub min: Option<RawDoc<'a>>,
    /// `max()`: exclusive upper index key.
    pub max: Option<RawDoc<'a>>,
    /// Give index keys instead of documents.
    pub return_key: bool,
    /// Add `$recordId`.
    pub show_record_id: bool,
    /// `let` variables, values already evaluated to constants.
    pub let_vars: Option<RawDoc<'a>>,
}

/// Which index the user wants.
#[derive(Debug, Clone)]
pub enum Hint {
    /// By name.
    Name(String),
    /// By key pattern.
    KeyPattern(DocBuf),
    /// `{$natural: 1}` or `-1`: a collection scan in that direction.
    Natural(i8),
}

/// A find in its one form. Immutable, shared by all candidate plans.
#[derive(Debug, Clone)]
pub struct CanonicalQuery {
    /// Normalised.
    pub filter: Arc<MatchExpression>,
    /// `None` means no order; `{$natural: n}` has become a hint.
    pub sort: Option<Arc<SortPattern>>,
    /// The sort as the user gave it (for shapes and messages).
    pub sort_spec: DocBuf,
    /// `None` keeps whole documents.
    pub projection: Option<Arc<Projection>>,
    /// The projection as the user gave it.
    pub projection_spec: DocBuf,
    /// The filter as the user gave it.
    pub filter_spec: DocBuf,
    /// Documents passed over first.
    pub skip: u64,
    /// `None` is unlimited; never `Some(0)`.
    pub limit: Option<u64>,
    /// Which index, if the user said.
    pub hint: Option<Hint>,
    /// `min()`.
    pub min: Option<DocBuf>,
    /// `max()`.
    pub max: Option<DocBuf>,
    /// Give index keys instead of documents.
    pub return_key: bool,
    /// Add `$recordId`.
    pub show_record_id: bool,
}
