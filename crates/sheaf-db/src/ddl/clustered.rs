//! Changes of clustered collections: their expiry, and commands that name their index.

use std::sync::Arc;

use sheaf_bson::{
    DateTime, DocBuilder, Error, ErrorCode, RawDoc, RawValue, Result, compare_docs, doc,
};

use crate::catalog::clustered::collection_expiry;
use crate::catalog::rows;
use crate::catalog::snapshot::CatalogChange;
use crate::change::DdlChange;
use crate::collection::Collection;
use crate::database::Db;
use crate::storage_error::IntoClientError;

/// Parses `expireAfterSeconds` of collMod: `None` for `"off"`.
/// Errors: `InvalidOptions`.
pub(crate) fn changed_expiry(value: RawValue<'_>) -> Result<Option<i64>> {
    match value {
        RawValue::String("off") => Ok(None),
        RawValue::String(other) => Err(Error::new(
            ErrorCode::INVALID_OPTIONS,
            format!("'expireAfterSeconds' must be a number of seconds or \"off\", got \"{other}\""),
        )),
        value => {
            let seconds = collection_expiry(value)?;
            if seconds > DateTime::now().millis() / 1000 {
                return Err(Error::new(
                    ErrorCode::INVALID_OPTIONS,
                    format!(
                        "'expireAfterSeconds' must be within the time since 1970, got {seconds}"
                    ),
                ));
            }
            Ok(Some(seconds))
        }
    }
}

impl Db {
    /// Changes the expiry of a clustered collection. The caller holds its exclusive intent.
    /// Errors: `InvalidOptions` for any other collection.
    pub(crate) fn set_expiry(
        &self,
        collection: &Arc<Collection>,
        seconds: Option<i64>,
    ) -> Result<Arc<Collection>> {
        if collection.clustered().is_none() {
            return Err(Error::new(
                ErrorCode::INVALID_OPTIONS,
                format!(
                    "'expireAfterSeconds' of a collection is supported only on clustered and \
                     time-series collections; to change a TTL index of {}, use 'index'",
                    collection.ns()
                ),
            ));
        }
        if collection.options().expire_after_seconds() == seconds {
            return Ok(collection.clone());
        }
        let mut changed = Collection::clone(collection);
        changed.options = changed.options.with_expiry(seconds);
        let mut unit = self.storage().begin().into_client_error()?;
        rows::put_collection(&mut unit, &changed);
        let ns = changed.ns().clone();
        let append = |o: &mut DocBuilder| {
            match seconds {
                Some(seconds) => o.append("expireAfterSeconds", seconds),
                None => o.append("expireAfterSeconds", "off"),
            };
        };
        let modified = DdlChange::OptionsModified {
            collection: &changed,
            changes: &append,
            before: collection,
        };
        let ticket = self.observe_ddl(&mut unit, [modified])?;
        let change = CatalogChange {
            added: vec![changed],
            ..CatalogChange::default()
        };
        let catalog = self.catalog_writer();
        ticket.committed(catalog.commit_then_publish(unit, &change)?);
        let published = catalog.current().collection(&ns).cloned();
        Ok(published.unwrap_or_else(|| collection.clone()))
    }
}

/// Whether a command that names an index by name or key, to drop or change it, means the clustered
/// one.
pub(crate) fn means_clustered(
    collection: &Collection,
    name: Option<&str>,
    key: Option<RawDoc<'_>>,
) -> bool {
    collection.clustered().is_some_and(|clustered| {
        let id = doc! {"_id": 1};
        name == Some(clustered.name())
            || key.is_some_and(|key| compare_docs(key, id.as_raw()).is_eq())
    })
}
