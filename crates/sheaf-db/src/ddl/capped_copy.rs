//! convertToCapped and cloneCollectionAsCapped: copy the newest documents into a new capped
//! collection.
//!
//! ```text
//!   convertToCapped   writers wait ─ newest documents ─> temporary ─ renamed over the old one
//!   clone             a snapshot   ─ newest documents ─> the new collection
//! ```
//!
//! Only the index on `_id`, as in MongoDB, and search indexes are rebuilt. Documents that the limit
//! would immediately evict are not copied.

use std::sync::Arc;

use bytes::Bytes;
use sheaf_bson::{Error, ErrorCode, ObjectId, RawDoc, Result};
use sheaf_storage::Snapshot;

use crate::catalog::kind::NamespaceKind;
use crate::catalog::namespace::Namespace;
use crate::catalog::options::{Capped, CollectionOptions};
use crate::catalog::views::not_on_view;
use crate::collection::Collection;
use crate::database::Db;
use crate::ddl::drop::BuildsMeet;
use crate::ddl::indexes::ns_not_found;
use crate::ddl::rename::RenameWith;
use crate::op_context::OpContext;
use crate::records::RecordCursor;
use crate::statement::StatementContext;
use crate::storage_error::IntoClientError;
use crate::system_names::TEMPORARY_PREFIX;

/// Maximum number of documents per batch.
const BATCH_DOCUMENTS_MAX: usize = 1000;
const BATCH_BYTES_MAX: usize = 4 << 20;

impl Db {
    /// Converts a collection to a capped one with this limit.
    ///
    /// Of a clustered collection the newest documents are those with the greatest `_id`; the
    /// capped collection is not clustered.
    ///
    /// Errors: `NamespaceNotFound`, `CommandNotSupportedOnView`,
    /// `BackgroundOperationInProgressForNamespace`.
    pub fn convert_to_capped(
        self: &Arc<Self>,
        op: &StatementContext,
        ns: &Namespace,
        limit: Capped,
    ) -> Result<()> {
        let source = self.source_of_copy(ns)?;
        let name = format!("{TEMPORARY_PREFIX}{}", ObjectId::new().to_hex());
        let temporary = Namespace::new(ns.db(), &name)?;
        let converted = self.convert_over(op, &source, &temporary, limit);
        if converted.is_err() {
            // A failed conversion must not leave its temporary collection.
            let _ = self.drop_collection(&OpContext::new(), &temporary);
        }
        converted
    }

    fn convert_over(
        self: &Arc<Self>,
        op: &StatementContext,
        source: &Arc<Collection>,
        temporary: &Namespace,
        limit: Capped,
    ) -> Result<()> {
        let ns = source.ns();
        self.create_collection(op, temporary, capped_options(source, limit))?;
        // Search indexes are kept: MongoDB stores them apart from the collection.
        let specs: Vec<_> = source
            .vector_indexes()
            .map(|index| index.spec().clone())
            .collect();
        if !specs.is_empty() {
            self.create_indexes(op, temporary, &specs)?;
        }
        let writer = self.catalog_writer();
        let _database = writer.lock_database(op, ns.db())?;
        let (_intent, source) = self.exclusive_on(op, source, BuildsMeet::Refuse)?;
        let snapshot = self.storage().snapshot().into_client_error()?;
        self.copy_newest(op, &snapshot, &source, temporary, limit)?;
        let current = writer.current();
        let Some(copy) = current.collection(temporary) else {
            return Err(ns_not_found(temporary));
        };
        let (_copy_intent, copy) = self.exclusive_on(op, copy, BuildsMeet::Refuse)?;
        self.commit_rename(&copy, ns, Some(&source), RenameWith::default())
    }

    /// Copies the newest documents of a collection into a new capped one.
    ///
    /// Errors: `NamespaceNotFound`, `CommandNotSupportedOnView`, `NamespaceExists`, those of
    /// creating a collection.
    pub fn clone_as_capped(
        self: &Arc<Self>,
        op: &StatementContext,
        from: &Namespace,
        to: &Namespace,
        limit: Capped,
    ) -> Result<()> {
        let source = self.source_of_copy(from)?;
        let catalog = self.catalog();
        if catalog.kind(to).exists() {
            return Err(Error::new(
                ErrorCode::NAMESPACE_EXISTS,
                format!(
                    "cloneCollectionAsCapped failed - destination collection {to} already exists"
                ),
            ));
        }
        self.create_collection(op, to, capped_options(&source, limit))?;
        let view = self.read_view(from)?;
        let Some(source) = &view.collection else {
            return Err(ns_not_found(from));
        };
        let copied = self.copy_newest(op, &view.snapshot, source, to, limit);
        if copied.is_err() {
            let _ = self.drop_collection(&OpContext::new(), to);
        }
        copied
    }

    fn source_of_copy(&self, ns: &Namespace) -> Result<Arc<Collection>> {
        let catalog = self.catalog();
        let collection = match catalog.kind(ns) {
            NamespaceKind::Collection(collection) => collection,
            NamespaceKind::View(_) | NamespaceKind::TimeSeries(..) => return Err(not_on_view(ns)),
            NamespaceKind::Missing => {
                return Err(Error::new(
                    ErrorCode::NAMESPACE_NOT_FOUND,
                    format!("source collection {ns} does not exist"),
                ));
            }
        };
        if ns.is_system() || ns.is_oplog() {
            return Err(Error::new(
                ErrorCode::ILLEGAL_OPERATION,
                format!("{ns} is an internal collection and cannot be made capped or copied"),
            ));
        }
        Ok(collection.clone())
    }

    /// Copies the newest documents that fit within the limit, in order.
    fn copy_newest(
        self: &Arc<Self>,
        op: &OpContext,
        snapshot: &Arc<dyn Snapshot>,
        source: &Arc<Collection>,
        to: &Namespace,
        limit: Capped,
    ) -> Result<()> {
        let mut cursor = RecordCursor::new(snapshot, source)?;
        let mut bytes = 0;
        let mut first = None;
        let mut on = cursor.last()?;
        while on {
            op.check_interrupt()?;
            bytes += cursor.value_len() as u64;
            if bytes > limit.bytes {
                break;
            }
            first = Some(cursor.record_id()?);
            on = cursor.prev()?;
        }
        let Some(first) = first else {
            return Ok(());
        };
        // The documents are stored already, so the current validator does not apply.
        let own = StatementContext::new().with_validation_bypassed();
        let mut batch: Vec<Bytes> = Vec::new();
        let mut batch_bytes = 0;
        let mut on = cursor.seek(&first)?;
        while on {
            op.check_interrupt()?;
            batch_bytes += cursor.document()?.len_bytes();
            batch.push(cursor.value_bytes());
            on = cursor.next()?;
            if !on || batch.len() >= BATCH_DOCUMENTS_MAX || batch_bytes >= BATCH_BYTES_MAX {
                let docs: Vec<RawDoc<'_>> = batch
                    .iter()
                    .map(|bytes| RawDoc::from_bytes_unchecked(bytes))
                    .collect();
                let mut result = self.insert(&own, to, &docs, true)?;
                if let Some(refused) = result.errors.pop() {
                    return Err(refused.error);
                }
                batch.clear();
                batch_bytes = 0;
            }
        }
        Ok(())
    }
}

/// The options of the capped copy: a capped collection is not clustered and nothing expires in it.
fn capped_options(source: &Collection, limit: Capped) -> CollectionOptions {
    let options = source.options().clone().with_capped(Some(limit));
    match source.clustered() {
        Some(_) => options.with_clustered(None).with_expiry(None),
        None => options,
    }
}
