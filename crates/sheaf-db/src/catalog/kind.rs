//! What a name resolves to: nothing, a collection, a view or a time-series collection.
//!
//! An operation asks once ([`CatalogSnapshot::kind`]) and matches all kinds, so that a new kind
//! shows where it is not yet considered.

use std::sync::Arc;

use sheaf_query::timeseries::TimeseriesOptions;

use crate::catalog::namespace::Namespace;
use crate::catalog::snapshot::CatalogSnapshot;
use crate::catalog::views::ViewDefinition;
use crate::collection::Collection;

/// What a namespace names in a catalog snapshot.
#[derive(Debug, Clone)]
pub enum NamespaceKind<'c> {
    /// Nothing.
    Missing,
    /// A collection that holds its documents.
    Collection(&'c Arc<Collection>),
    /// A view that a user defined.
    View(&'c Arc<ViewDefinition>),
    /// A time-series collection: a view on a collection of buckets.
    TimeSeries(Timeseries, &'c Arc<ViewDefinition>),
}

impl NamespaceKind<'_> {
    /// Whether reads go through a pipeline: a view or a time-series collection.
    pub fn is_view_like(&self) -> bool {
        matches!(self, NamespaceKind::View(_) | NamespaceKind::TimeSeries(..))
    }

    /// Whether it is a view that a user defined.
    pub fn is_view(&self) -> bool {
        matches!(self, NamespaceKind::View(_))
    }

    /// Whether the name is taken.
    pub fn exists(&self) -> bool {
        !matches!(self, NamespaceKind::Missing)
    }
}

/// A time-series collection in a catalog snapshot.
#[derive(Debug, Clone)]
pub struct Timeseries {
    /// The collection of buckets, `system.buckets.<name>`.
    pub buckets: Arc<Collection>,
    /// Options of the time-series collection, such as `timeField`.
    pub options: Arc<TimeseriesOptions>,
}

impl CatalogSnapshot {
    /// What the name resolves to.
    pub fn kind(&self, ns: &Namespace) -> NamespaceKind<'_> {
        match (self.view(ns), self.collection(ns)) {
            (Some(view), _) => match self.buckets_below(ns) {
                Some(timeseries) => NamespaceKind::TimeSeries(timeseries, view),
                None => NamespaceKind::View(view),
            },
            (None, Some(collection)) => NamespaceKind::Collection(collection),
            (None, None) => NamespaceKind::Missing,
        }
    }

    /// The time-series collection `ns`; `None` if the name is anything else.
    pub fn timeseries(&self, ns: &Namespace) -> Option<Timeseries> {
        // Every time-series collection has a view: for most names the lookup ends here.
        self.view(ns)?;
        self.buckets_below(ns)
    }

    fn buckets_below(&self, ns: &Namespace) -> Option<Timeseries> {
        let buckets = self.collection(&ns.buckets().ok()?)?;
        Some(Timeseries {
            buckets: buckets.clone(),
            options: buckets.options().timeseries()?.clone(),
        })
    }
}
