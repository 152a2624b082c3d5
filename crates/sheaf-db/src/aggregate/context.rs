//! State shared by a pipeline and its sub-pipelines.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::{DocBuf, RawDoc};
use sheaf_query::matcher::ParseContext;

use super::environment::DbEnvironment;
use crate::catalog::{Namespace, ReadView};
use crate::database::Db;
use crate::exec::WorkCounts;
use crate::op_context::OpContext;
use crate::planning::QueryOptions;
use crate::txn::Transaction;

/// The environment of a pipeline: the database, the variables it was parsed with, query options.
#[derive(Clone)]
pub struct AggregateContext {
    shared: Arc<Shared>,
    parse: Arc<ParseContext>,
}

struct Shared {
    db: Arc<Db>,
    /// Default database of collection names.
    database: Box<str>,
    options: QueryOptions,
    /// The transaction to read in.
    transaction: Option<Arc<Transaction>>,
    /// Collections read so far: all parts of a pipeline see each at one snapshot.
    views: Mutex<Vec<(Namespace, ReadView)>>,
    foreign_keys_examined: AtomicU64,
    foreign_docs_examined: AtomicU64,
    first_stages: OnceLock<Arc<dyn FirstStages>>,
}

/// Generates the documents of the first stages that describe a collection or the server, such as
/// `$collStats`, also for pipelines within stages.
pub trait FirstStages: Send + Sync {
    /// The documents of the stage `name` over `namespace`, which `view` reads. The operand has
    /// passed the checks of parsing.
    /// Errors: those of the stage; `InvalidNamespace` if it does not run over a collection.
    fn documents(
        &self,
        name: &str,
        namespace: &Namespace,
        view: &ReadView,
        spec: RawDoc<'_>,
    ) -> Result<Vec<DocBuf>>;
}

impl AggregateContext {
    /// Creates a context for pipelines over collections of `database`, which read in `transaction`
    /// if given.
    pub fn new(
        db: &Arc<Db>,
        database: &str,
        parse: ParseContext,
        options: QueryOptions,
        transaction: Option<&Arc<Transaction>>,
    ) -> AggregateContext {
        AggregateContext {
            shared: Arc::new(Shared {
                db: db.clone(),
                database: database.into(),
                options,
                transaction: transaction.cloned(),
                views: Mutex::default(),
                foreign_keys_examined: AtomicU64::new(0),
                foreign_docs_examined: AtomicU64::new(0),
                first_stages: OnceLock::new(),
            }),
            parse: Arc::new(parse),
        }
    }

    /// The environment for stages that run under this operation.
    pub(crate) fn environment<'c>(&'c self, op: &'c OpContext) -> DbEnvironment<'c> {
        DbEnvironment { op, cx: self }
    }

    /// Uses `view` as the pipeline's view of the collection.
    pub fn with_view(self, ns: &Namespace, view: ReadView) -> AggregateContext {
        self.shared.views.lock().push((ns.clone(), view));
        self
    }

    /// Uses `first_stages` for this pipeline and those within its stages.
    pub fn with_first_stages(self, first_stages: Arc<dyn FirstStages>) -> AggregateContext {
        // Set once, where the pipeline is prepared.
        let _ = self.shared.first_stages.set(first_stages);
        self
    }

    /// The documents of a first stage over `namespace`.
    /// Errors: those of [`FirstStages::documents`].
    pub fn generate(
        &self,
        name: &str,
        namespace: &Namespace,
        view: &ReadView,
        spec: RawDoc<'_>,
    ) -> Result<Vec<DocBuf>> {
        match self.shared.first_stages.get() {
            Some(stages) => stages.documents(name, namespace, view, spec),
            None => Err(Error::new(
                ErrorCode::NOT_IMPLEMENTED,
                format!("{name} is not supported here"),
            )),
        }
    }

    /// The same context with other variables.
    pub(super) fn with_parse(&self, parse: &ParseContext) -> AggregateContext {
        self.with_own_parse(parse.clone())
    }

    /// The same context with other variables.
    pub(super) fn with_own_parse(&self, parse: ParseContext) -> AggregateContext {
        AggregateContext {
            shared: self.shared.clone(),
            parse: Arc::new(parse),
        }
    }

    /// The server's data.
    pub fn db(&self) -> &Arc<Db> {
        &self.shared.db
    }

    /// Default database of collection names.
    pub fn database(&self) -> &str {
        &self.shared.database
    }

    /// Options of queries.
    pub fn options(&self) -> &QueryOptions {
        &self.shared.options
    }

    /// The context the pipeline was parsed with.
    pub fn parse(&self) -> &ParseContext {
        &self.parse
    }

    /// The pipeline's view of a collection: that of its first read.
    pub fn view(&self, op: &OpContext, ns: &Namespace) -> Result<ReadView> {
        if let Some((_, view)) = self.shared.views.lock().iter().find(|(own, _)| own == ns) {
            return Ok(view.clone());
        }
        let view = match &self.shared.transaction {
            Some(transaction) => transaction.read_view(op, ns)?,
            None => self.shared.db.read_view(ns)?,
        };
        self.shared.views.lock().push((ns.clone(), view.clone()));
        Ok(view)
    }

    /// Work done on collections other than the pipeline's own.
    pub(super) fn foreign_counts(&self) -> WorkCounts {
        WorkCounts {
            keys_examined: self.shared.foreign_keys_examined.load(Relaxed),
            docs_examined: self.shared.foreign_docs_examined.load(Relaxed),
        }
    }

    pub(super) fn add_foreign_counts(&self, counts: WorkCounts) {
        let shared = &self.shared;
        shared
            .foreign_keys_examined
            .fetch_add(counts.keys_examined, Relaxed);
        shared
            .foreign_docs_examined
            .fetch_add(counts.docs_examined, Relaxed);
    }
}
