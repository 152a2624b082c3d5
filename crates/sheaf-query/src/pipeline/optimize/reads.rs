//! The paths of its input that a list of stages reads.

use crate::matcher::Dependencies;
use crate::pipeline::Stage;
use crate::pipeline::stage::Passes;
use crate::pipeline::unwind::add_written;

/// The paths that the stages read; `None` if their output has whole input documents.
pub(in crate::pipeline) fn dependencies(stages: &[Stage]) -> Option<Dependencies> {
    let mut found = Dependencies::default();
    for stage in stages {
        let closed = match stage {
            Stage::Match { filter, .. } => {
                filter.add_dependencies(&mut found);
                false
            }
            Stage::Sort { pattern, .. } => {
                pattern.paths().for_each(|path| found.insert(path));
                false
            }
            Stage::Skip(_) | Stage::Limit(_) => false,
            Stage::Unwind(unwind) => {
                found.insert(&unwind.path());
                if let Some(index) = unwind.index_parts() {
                    add_written(&mut found, index);
                }
                false
            }
            Stage::Project { projection, .. } => projection.add_dependencies(&mut found),
            Stage::ReplaceRoot { expression, .. } => {
                expression.add_dependencies(&mut found);
                true
            }
            Stage::Group(group) => {
                group.add_dependencies(&mut found);
                true
            }
            Stage::Other(stage) => stage.add_dependencies(&mut found) == Passes::Computed,
        };
        if found.whole_document {
            return None;
        }
        if closed {
            return Some(found);
        }
    }
    None
}
