//! The paths an update may have changed, and the indexes that depend on them.

use sheaf_bson::path::FieldPath;
use sheaf_query::update::ModifiedPaths;

use crate::index::Index;

/// The extent of an update.
#[derive(Clone, Copy)]
pub enum Modified<'a> {
    /// Only values at paths for which this returns true.
    Paths(&'a dyn Fn(&FieldPath) -> bool),
    /// Only these paths, changed by update operators.
    Operators(&'a ModifiedPaths),
    /// Only these paths, changed by a pipeline.
    Pipeline(&'a ModifiedPaths),
    /// Anything: a replacement, which the oplog stores as a whole.
    Everything,
}

impl Modified<'_> {
    pub(crate) fn touches(&self, index: &Index) -> bool {
        match self {
            Modified::Paths(may_affect) => index.depends_on(may_affect),
            Modified::Operators(paths) | Modified::Pipeline(paths) => {
                index.depends_on(&|path: &FieldPath| paths.may_affect(path))
            }
            Modified::Everything => true,
        }
    }
}
