//! Reads by name: find, count, distinct and aggregate on a collection, view or time-series
//! collection.
//!
//! ```text
//!   name ──> a view (or time-series collection)? ── yes ──> a pipeline: its stages, then the read's
//!                  └── no ──> a plan on the collection, which need not exist
//! ```

use std::sync::Arc;

use sheaf_bson::error_code::Result;
use sheaf_bson::path::FieldPath;
use sheaf_bson::{DocBuf, RawArray};
use sheaf_query::canonical::{FindSpec, Hint};

use crate::aggregate::request::{PipelineRequest, PreparedPipeline};
use crate::aggregate::{Aggregate, view_reads};
use crate::catalog::Namespace;
use crate::count::{self, Counted};
use crate::database::Db;
use crate::distinct::{self, Distinct};
use crate::find::{self, canonicalize};
use crate::planning::QueryOptions;
use crate::result_source::ResultSource;
use crate::statement::StatementContext;

impl Db {
    /// Runs a find on a collection or view.
    /// Errors: those of the query; on a view, `InvalidPipelineOperator` for options that need a
    /// collection's own records.
    pub fn find(
        self: &Arc<Self>,
        op: &StatementContext,
        ns: &Namespace,
        spec: FindSpec<'_>,
        options: &QueryOptions,
    ) -> Result<Box<dyn ResultSource>> {
        if self.catalog().view(ns).is_some() {
            let stages = view_reads::find_stages(&spec)?;
            let source = self.read_of_view(op, ns, stages.as_raw(), spec, options)?;
            return Ok(Box::new(source));
        }
        let view = self.view(op, ns)?;
        let query = Arc::new(canonicalize(&view, spec)?);
        Ok(Box::new(find::find(&view, op, query, options)?))
    }

    /// Counts documents of a collection or view.
    /// Errors: those of the query.
    pub fn count(
        self: &Arc<Self>,
        op: &StatementContext,
        ns: &Namespace,
        spec: FindSpec<'_>,
        options: &QueryOptions,
    ) -> Result<Counted> {
        if self.catalog().view(ns).is_some() {
            let stages = view_reads::count_stages(&spec);
            let mut source = self.read_of_view(op, ns, stages.as_raw(), spec, options)?;
            let counted = source.next(op)?;
            return Ok(Counted {
                count: counted.map_or(0, |doc| view_reads::counted(doc.as_raw())),
                counts: source.counts(),
                plan: source.plan(),
            });
        }
        let view = self.view(op, ns)?;
        let query = Arc::new(canonicalize(&view, spec)?);
        count::count(&view, op, query, options)
    }

    /// Returns the distinct values of a path in a collection or view.
    /// Errors: those of the query; 17217 if the values exceed a reply.
    pub fn distinct(
        self: &Arc<Self>,
        op: &StatementContext,
        ns: &Namespace,
        key: &FieldPath,
        spec: FindSpec<'_>,
        options: &QueryOptions,
    ) -> Result<Distinct> {
        if let Some(resolved) = self.resolve_view(ns)? {
            let stages = view_reads::distinct_stages(key.dotted(), &spec);
            let mut source = self.read_of_view(op, ns, stages.as_raw(), spec, options)?;
            let mut docs: Vec<DocBuf> = Vec::new();
            while let Some(doc) = source.next(op)? {
                op.check_interrupt()?;
                docs.push(doc.as_raw().to_buf());
            }
            let docs = docs.iter().map(DocBuf::as_raw);
            return Ok(Distinct {
                values: distinct::values_of_documents(docs, key, resolved.collator)?,
                counts: source.counts(),
                plan: source.plan(),
            });
        }
        let view = self.view(op, ns)?;
        let query = Arc::new(canonicalize(&view, spec)?);
        distinct::distinct(&view, op, key, query, options)
    }

    /// Starts a pipeline over a collection or view. If it ends in `$out` or `$merge`, pass the
    /// result to [`crate::aggregate::sink::run`].
    /// Errors: those of the stages.
    pub fn aggregate(
        self: &Arc<Self>,
        op: &StatementContext,
        ns: &Namespace,
        request: &PipelineRequest<'_>,
        hint: Option<&Hint>,
    ) -> Result<Aggregate> {
        PreparedPipeline::new(self, op, ns, request, |ns| self.view(op, ns))?.start(op, hint)
    }

    fn read_of_view(
        self: &Arc<Self>,
        op: &StatementContext,
        ns: &Namespace,
        stages: RawArray<'_>,
        spec: FindSpec<'_>,
        options: &QueryOptions,
    ) -> Result<Aggregate> {
        let request = PipelineRequest {
            stages,
            let_vars: spec.let_vars,
            collation: spec.collation,
            options: options.clone(),
        };
        self.aggregate(op, ns, &request, spec.hint.as_ref())
    }
}
