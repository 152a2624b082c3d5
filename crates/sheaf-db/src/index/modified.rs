//! Which paths of a document an update may have changed, and which indexes depend on them.

use sheaf_bson::path::FieldPath;
use sheaf_query::update::ModifiedPaths;

use crate::index::Index;

/// What an update changed.
#[derive(Clone, Copy)]
pub enum Modified<'a> {
    /// Only values at paths for which this says that they may be others now.
    Paths(&'a dyn Fn(&FieldPath) -> bool),
    /// Only what is at these paths: operators did it.
    Operators(&'a ModifiedPaths),
    /// Only what is at these paths: a pipeline did it.
    Pipeline(&'a ModifiedPaths),
    /// Anything: a replacement, which the oplog tells as a whole.
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
