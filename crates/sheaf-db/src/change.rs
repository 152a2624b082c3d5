//! Changes as reported to observers ([`crate::write::observer`]): of documents, and of the catalog.

use sheaf_bson::{DocBuilder, RawDoc};

use crate::catalog::namespace::Namespace;
use crate::catalog::views::ViewDefinition;
use crate::collection::Collection;
use crate::index::Index;
use crate::index::modified::Modified;

/// A change of one document.
#[derive(Clone, Copy)]
pub(crate) enum Change<'a> {
    /// The document was inserted.
    Inserted(RawDoc<'a>),
    /// The document was changed; `modified` reports where.
    Updated {
        old: RawDoc<'a>,
        new: RawDoc<'a>,
        modified: Modified<'a>,
    },
    /// The document was deleted.
    Deleted(RawDoc<'a>),
}

/// Appends the fields that a command has changed.
pub(crate) type AppendChanges<'a> = &'a dyn Fn(&mut DocBuilder);

/// A change of the catalog.
#[derive(Clone, Copy)]
pub(crate) enum DdlChange<'a> {
    CollectionCreated(&'a Collection),
    CollectionDropped(&'a Collection),
    /// Its collections have been reported before.
    DatabaseDropped(&'a str),
    CollectionRenamed {
        source: &'a Collection,
        to: &'a Namespace,
        /// The collection that previously had the name.
        dropped: Option<&'a Collection>,
    },
    /// Options of a collection.
    OptionsModified {
        collection: &'a Collection,
        changes: AppendChanges<'a>,
        before: &'a Collection,
    },
    IndexCreated(&'a Collection, &'a Index),
    IndexDropped(&'a Collection, &'a Index),
    IndexModified {
        collection: &'a Collection,
        index: &'a Index,
        changes: AppendChanges<'a>,
        /// The options of the index that had other values, with these.
        before: AppendChanges<'a>,
    },
    ViewCreated(&'a ViewDefinition),
    ViewModified(&'a ViewDefinition),
    ViewDropped(&'a Namespace),
}
