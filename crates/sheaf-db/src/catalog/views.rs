//! Views: names for pipelines over a collection or another view.
//!
//! ```text
//!   find on v ─> v: [B] on w ─> w: [A] on c ─> aggregate on c: [A, B, then the stages of the find]
//! ```
//!
//! A view has a row in the catalog and no table. It shares the namespace of collections. Chains of
//! views always end: creating a view that would close a cycle is rejected.

use std::sync::Arc;

use sheaf_bson::{
    ArrayBuf, CollationChoice, Collator, DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawValue,
    Result,
};

use crate::catalog::namespace::Namespace;
use crate::usage::CollectionUsage;

/// A view definition as stored.
#[derive(Debug, Clone)]
pub struct ViewDefinition {
    pub(crate) ns: Namespace,
    pub(crate) on: Box<str>,
    pub(crate) pipeline: ArrayBuf,
    /// Collation of operations on the view; `None` for byte order, whatever the underlying
    /// collection has.
    pub(crate) collator: Option<Arc<Collator>>,
    /// Usage since the server opened or created the view; no part of the definition.
    pub(crate) usage: Arc<CollectionUsage>,
}

impl PartialEq for ViewDefinition {
    fn eq(&self, other: &Self) -> bool {
        self.ns == other.ns
            && self.on == other.on
            && self.pipeline == other.pipeline
            && self.collator == other.collator
    }
}

/// A view resolved down to the underlying collection.
#[derive(Debug, Clone)]
pub struct ResolvedView {
    /// The underlying collection, which need not exist.
    pub on: Namespace,
    /// The stages of all views in the chain, innermost first.
    pub pipeline: ArrayBuf,
    /// Collation; `None` for byte order.
    pub collator: Option<Arc<Collator>>,
}

impl ResolvedView {
    /// Errors: `OptionNotSupportedOnView` for an operation with a different collation.
    pub fn check_collation(&self, ns: &Namespace, collation: &CollationChoice) -> Result<()> {
        if collation.resolve(self.collator.as_ref()) == self.collator {
            return Ok(());
        }
        Err(other_collation(format!(
            "Cannot override the default collation of the view {ns}"
        )))
    }
}

pub(crate) fn other_collation(message: String) -> Error {
    Error::new(ErrorCode::OPTION_NOT_SUPPORTED_ON_VIEW, message)
}

impl ViewDefinition {
    /// Creates a view that compares text in byte order.
    pub(crate) fn new(ns: Namespace, on: &str, pipeline: ArrayBuf) -> ViewDefinition {
        ViewDefinition {
            ns,
            on: on.into(),
            pipeline,
            collator: None,
            usage: Arc::default(),
        }
    }

    /// Usage since the server opened or created the view.
    pub fn usage(&self) -> &CollectionUsage {
        &self.usage
    }

    /// Its name.
    pub fn ns(&self) -> &Namespace {
        &self.ns
    }

    /// `{viewOn, pipeline, collation}`.
    pub fn options(&self) -> DocBuf {
        let mut out = DocBuilder::new();
        out.append("viewOn", &*self.on);
        out.append("pipeline", &self.pipeline);
        if let Some(collator) = &self.collator {
            out.append_bson("collation", &collator.collation().to_doc());
        }
        out.finish()
    }

    /// `{_id, viewOn, pipeline, collation}`, for the oplog: a document of `system.views`.
    pub(crate) fn to_doc(&self) -> DocBuf {
        let mut out = DocBuilder::new();
        out.append("_id", self.ns.as_str());
        out.extend(self.options().as_raw());
        out.finish()
    }

    /// The inverse of [`ViewDefinition::to_doc`].
    /// Errors: `InvalidViewDefinition`, `InvalidNamespace`, those of a collation.
    pub(crate) fn from_doc(doc: RawDoc<'_>) -> Result<ViewDefinition> {
        let (
            Some(RawValue::String(ns)),
            Some(RawValue::String(on)),
            Some(RawValue::Array(pipeline)),
        ) = (doc.get("_id"), doc.get("viewOn"), doc.get("pipeline"))
        else {
            return Err(Error::new(
                ErrorCode::INVALID_VIEW_DEFINITION,
                format!("not the definition of a view: {doc}"),
            ));
        };
        let collation = match doc.get("collation") {
            Some(RawValue::Document(spec)) => CollationChoice::parse(spec)?,
            _ => CollationChoice::Unsaid,
        };
        Ok(ViewDefinition {
            ns: Namespace::parse(ns)?,
            on: on.into(),
            pipeline: pipeline.to_buf(),
            collator: collation.collator().cloned(),
            usage: Arc::default(),
        })
    }

    /// `{name, type: "view", options, info}`, for `listCollections`.
    pub fn to_list_doc(&self) -> DocBuf {
        let mut out = DocBuilder::new();
        out.append("name", self.ns.collection());
        out.append("type", "view");
        out.append("options", &self.options());
        out.begin_document("info");
        out.append("readOnly", true);
        out.end();
        out.finish()
    }
}

/// The error of a command that does not accept a view.
pub fn not_on_view(ns: &Namespace) -> Error {
    Error::new(
        ErrorCode::COMMAND_NOT_SUPPORTED_ON_VIEW,
        format!("Namespace {ns} is a view, not a collection"),
    )
}
