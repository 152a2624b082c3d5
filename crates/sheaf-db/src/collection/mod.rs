//! A collection at one catalog version: name, table, indexes.
//!
//! ```text
//!   Arc<Collection>   immutable: ns, options, indexes, builds    replaced by DDL
//!        └── Arc<CollectionState>: intents, next RecordId        shared through the collection's life
//! ```

pub(crate) mod bucket_counters;
pub(crate) mod capped_state;
mod damage;
pub mod index_build;
pub mod intent;
pub mod stats;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use sheaf_bson::{Collator, DocBuf, Error, ErrorCode, RawDoc, Result};
use sheaf_query::planner::index_entry::IndexEntry;
use sheaf_query::planner::solution::SolutionNode;
use sheaf_query::timeseries::TimeseriesOptions;
use sheaf_storage::TableId;

use crate::catalog::clustered::ClusteredIndex;
use crate::catalog::namespace::Namespace;
use crate::catalog::options::CollectionOptions;
use crate::catalog::uuid::Uuid;
use crate::collection::bucket_counters::BucketCounters;
use crate::collection::capped_state::CappedState;
use crate::collection::index_build::IndexBuild;
use crate::collection::intent::CollectionIntents;
use crate::counters::RecordIdSource;
use crate::damage::DamageReports;
use crate::index::Index;
use crate::index::definition::IndexSpec;
use crate::planning::index_filters::IndexFilters;
use crate::planning::plan_cache::PlanCache;
use crate::usage::CollectionUsage;

/// A collection at one catalog version. A holder can keep reading the tables it names, from a
/// snapshot taken while the catalog had this version.
#[derive(Debug, Clone)]
pub struct Collection {
    pub(crate) ns: Namespace,
    pub(crate) uuid: Uuid,
    pub(crate) ident: Arc<str>,
    pub(crate) table: TableId,
    pub(crate) options: CollectionOptions,
    /// The index on `_id` first unless the collection is clustered, then in order of creation.
    pub(crate) indexes: Indexes,
    /// Index builds in progress, to which writers report their writes.
    pub(crate) builds: Vec<Arc<IndexBuild>>,
    /// Catalog generation in which the collection got its current shape.
    pub(crate) generation: u64,
    /// Plans that won trials with these indexes.
    pub(crate) plan_cache: Arc<PlanCache>,
    pub(crate) state: Arc<CollectionState>,
}

/// State shared by all versions of a collection.
#[derive(Debug, Default)]
pub struct CollectionState {
    pub(crate) intents: Arc<CollectionIntents>,
    pub(crate) record_ids: RecordIdSource,
    /// Usage counters.
    pub(crate) usage: CollectionUsage,
    /// Held while updating the catalog row without the exclusive intent.
    pub(crate) row: Mutex<()>,
    pub(crate) index_filters: IndexFilters,
    /// Activity as a collection of buckets.
    pub(crate) buckets: BucketCounters,
    pub(crate) capped: CappedState,
    pub(crate) damage: DamageReports,
}

impl Collection {
    /// Current name.
    pub fn ns(&self) -> &Namespace {
        &self.ns
    }

    /// UUID, which stays the same through renames.
    pub fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// The stable identifier of its table, `collection-<n>-<hex>`.
    pub fn ident(&self) -> &str {
        &self.ident
    }

    /// The table of its records, keyed by [`crate::record_key::record_key`].
    pub fn table(&self) -> TableId {
        self.table
    }

    /// Catalog generation in which the collection got its current shape.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Options the collection was created with.
    pub fn options(&self) -> &CollectionOptions {
        &self.options
    }

    /// The complete indexes, as the planner sees them, including hidden ones. The index on `_id` is
    /// first; in a clustered collection, the clustered index.
    pub fn indexes(&self) -> &[Arc<IndexEntry>] {
        // The oplog's entries have no `_id`, and no query searches for one.
        if self.ns.is_oplog() {
            return &[];
        }
        &self.indexes.entries
    }

    /// The complete indexes that have separate tables, in the same order: excludes the clustered
    /// index, includes vector indexes, which planners do not see.
    pub fn index_list(&self) -> &[Index] {
        &self.indexes.list
    }

    /// The indexes of [`Self::index_list`] that hold the keys of every record. Empty for the oplog,
    /// whose entries are written to its table alone.
    pub fn kept_indexes(&self) -> &[Index] {
        match self.ns.is_oplog() {
            true => &[],
            false => self.index_list(),
        }
    }

    /// The index builds in progress.
    pub fn builds(&self) -> &[Arc<IndexBuild>] {
        &self.builds
    }

    /// The complete index with this name, excluding vector indexes.
    pub fn index_by_name(&self, name: &str) -> Option<&Index> {
        let named = |index: &&Index| index.name() == name && !index.is_vector();
        self.indexes.list.iter().find(named)
    }

    /// The complete vector indexes.
    pub fn vector_indexes(&self) -> impl Iterator<Item = &Index> {
        self.indexes.list.iter().filter(|index| index.is_vector())
    }

    /// The complete vector index with this name.
    pub fn vector_index(&self, name: &str) -> Option<&Index> {
        self.vector_indexes().find(|index| index.name() == name)
    }

    /// The complete indexes with this key pattern; 1 equals 1.0.
    pub fn indexes_by_key(&self, key: RawDoc<'_>) -> Vec<&Index> {
        let same = |index: &&Index| index.spec().same_key(key) && !index.is_vector();
        self.indexes.list.iter().filter(same).collect()
    }

    /// The index identified by the planner's [`IndexEntry::ident`].
    pub fn index_by_ident(&self, ident: u64) -> Option<&Index> {
        let named = |index: &&Index| index.table().0 == ident;
        self.indexes.list.iter().find(named)
    }

    /// Counts a use of the index identified by the planner's [`IndexEntry::ident`].
    pub fn record_index_use(&self, ident: u64) {
        if let Some(index) = self.index_by_ident(ident) {
            index.usage().count();
        }
    }

    /// Usage counters.
    pub fn usage(&self) -> &CollectionUsage {
        &self.state.usage
    }

    /// Counts a use of every index that a plan scans, and every collection scan.
    pub fn record_plan_use(&self, plan: &SolutionNode) {
        match plan {
            SolutionNode::CollScan { .. } => self.state.usage.count_collection_scan(),
            SolutionNode::ClusteredScan(scan) if scan.is_full() => {
                self.state.usage.count_collection_scan();
            }
            SolutionNode::ClusteredScan(_) => {}
            SolutionNode::IndexScan(scan)
            | SolutionNode::CountScan(scan)
            | SolutionNode::DistinctScan { scan, .. } => self.record_index_use(scan.index.ident),
            // Not built yet, but part of the plan; these never scan the collection.
            SolutionNode::Lazy(lazy) => {
                lazy.for_each_index(&mut |index| self.record_index_use(index.ident));
            }
            node => {
                for child in node.children() {
                    self.record_plan_use(child);
                }
            }
        }
    }

    /// The index on `_id` as the planner sees it; in a clustered collection, the clustered index.
    pub fn id_index(&self) -> &Arc<IndexEntry> {
        &self.indexes.entries[0]
    }

    /// The clustered index, if the collection has one.
    pub fn clustered(&self) -> Option<&ClusteredIndex> {
        self.options.clustered()
    }

    /// Number of indexes as commands count them: the clustered index is the collection itself.
    pub fn index_count(&self) -> usize {
        let own = self.clustered().is_some() && !self.ns.is_views();
        self.indexes.entries.len() - usize::from(own)
    }

    /// The complete indexes as `listIndexes` shows them.
    pub fn list_index_docs(&self) -> Vec<DocBuf> {
        if self.ns.is_views() {
            return vec![IndexSpec::id_index().to_doc()];
        }
        let expires = self.options.expire_after_seconds();
        let collator = self.collator().map(|collator| &**collator);
        // The index on the ids of buckets was not created by a user.
        let clustered = self
            .clustered()
            .filter(|_| self.options.timeseries().is_none());
        let clustered = clustered.map(|c| c.to_index_doc(collator, expires));
        // As in MongoDB, the profiler's collection shows no index on _id.
        let is_shown = |index: &&Index| {
            !index.is_vector() && !(self.ns.is_profile() && index.spec().is_id_index())
        };
        let others = self.indexes.list.iter().filter(is_shown);
        let others = others.map(|index| index.spec().to_doc());
        clustered.into_iter().chain(others).collect()
    }

    /// Default collation of queries and indexes; `None` for byte order. The index on `_id` always
    /// has it.
    pub fn collator(&self) -> Option<&Arc<Collator>> {
        self.options.collator()
    }

    /// Plans that won trials. Emptied whenever an index is created, dropped or becomes multikey.
    pub fn plan_cache(&self) -> &Arc<PlanCache> {
        &self.plan_cache
    }

    /// Index filters set by clients.
    pub fn index_filters(&self) -> &IndexFilters {
        &self.state.index_filters
    }

    /// `{name, type, options, info: {readOnly, uuid}, idIndex}`, for `listCollections`.
    pub fn to_list_doc(&self) -> DocBuf {
        let mut out = sheaf_bson::DocBuilder::new();
        out.append("name", self.ns.collection());
        out.append("type", "collection");
        match (self.ns.is_views(), self.options.timeseries()) {
            (true, _) => out.append_bson("options", &CollectionOptions::default().to_doc()),
            (false, Some(series)) => {
                out.append_bson("options", &listed_options(&self.options, series))
            }
            (false, None) => out.append_bson("options", &self.options.to_doc()),
        };
        out.begin_document("info");
        out.append("readOnly", false);
        out.append("uuid", self.uuid.as_raw());
        out.end();
        match (self.clustered(), self.indexes.list.first()) {
            (None, Some(id_index)) if !self.ns.is_profile() => {
                out.append_bson("idIndex", &id_index.spec().to_doc());
            }
            _ if self.ns.is_views() => {
                out.append_bson("idIndex", &IndexSpec::id_index().to_doc());
            }
            _ => {}
        }
        out.finish()
    }

    /// Whether some index has multikey paths that the catalog row lacks.
    pub(crate) fn multikey_unsaved(&self) -> bool {
        let unsaved = |index: &Index| index.multikey_unsaved().load(Ordering::Acquire);
        self.indexes.list.iter().any(unsaved)
    }

    /// The same collection with other indexes and an empty plan cache.
    pub(crate) fn with_indexes(&self, list: Vec<Index>) -> Result<Collection> {
        let mut changed = self.clone();
        changed.indexes = Indexes::new(list, self.table, &self.options)?;
        changed.plan_cache = Arc::default();
        Ok(changed)
    }
}

/// The options of a bucket collection as `listCollections` shows them: what every bucket is, which
/// is checked where buckets are written, is a validator.
fn listed_options(options: &CollectionOptions, series: &TimeseriesOptions) -> DocBuf {
    let mut out = sheaf_bson::DocBuilder::new();
    out.append_bson("validator", &series.bucket_schema());
    for element in options.to_doc().iter() {
        match element.key() {
            "clusteredIndex" => out.append("clusteredIndex", true),
            _ => out.append_raw_element(element),
        };
    }
    out.finish()
}

/// The complete indexes of a collection, and the planner's view of them.
#[derive(Debug, Clone)]
pub(crate) struct Indexes {
    /// The index on `_id` is first, unless the collection is clustered.
    list: Vec<Index>,
    /// Never empty: the same indexes, preceded by the clustered index, if any.
    entries: Vec<Arc<IndexEntry>>,
}

impl Indexes {
    /// The indexes of the collection whose records are in `records`.
    /// Errors: `DataCorruptionDetected` if the first is not the index on `_id` and the collection
    /// is not clustered.
    pub(crate) fn new(
        list: Vec<Index>,
        records: TableId,
        options: &CollectionOptions,
    ) -> Result<Indexes> {
        let mut entries = Vec::with_capacity(list.len() + 1);
        if let Some(clustered) = options.clustered() {
            entries.push(Arc::new(clustered.entry(records, options.collator())?));
        } else if !list.first().is_some_and(|index| index.spec().is_id_index()) {
            return Err(Error::new(
                ErrorCode::DATA_CORRUPTION_DETECTED,
                "a collection has no index on _id",
            ));
        }
        let planned = list.iter().filter(|index| !index.is_vector());
        entries.extend(planned.map(|index| index.entry().clone()));
        debug_assert!(!entries.is_empty(), "no index on _id");
        debug_assert!(
            entries
                .iter()
                .all(|entry| entry.multikey_paths.len() == entry.fields.len()),
            "multikey paths of every field"
        );
        Ok(Indexes { list, entries })
    }
}
