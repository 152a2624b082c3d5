//! Checks of the source tree that neither a compiler nor a single crate can make.
//!
//! ```text
//! Markdown ──> links, anchors, named paths, line width
//! manifests ─> licences, pinned versions, the oldest compiler
//! justfile, ./test ─> the suites and crates they name
//! ```

mod dependencies;
mod log_events;
mod markdown;
mod paths;

use std::path::{Path, PathBuf};

/// The root of the checkout.
fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = manifest.ancestors().nth(2);
    root.expect("the crate is two folders below the root")
        .to_path_buf()
}

/// Folders without source files of this project.
const NOT_OURS: &[&str] = &["target", "node_modules", "data", "corpus", "artifacts"];

/// Every file below the root whose name ends in one of `endings`, as paths relative to it, in
/// order. Hidden and generated folders are left out.
fn files(endings: &[&str]) -> Vec<PathBuf> {
    let root = root();
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of the checkout") {
            let entry = entry.expect("an entry of a folder");
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with('.') || NOT_OURS.contains(&name.as_ref()) {
                continue;
            }
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if endings.iter().any(|ending| name.ends_with(ending)) {
                let relative = path.strip_prefix(&root).expect("a path below the root");
                found.push(relative.to_path_buf());
            }
        }
    }
    found.sort();
    found
}

/// The text of a file, by its path from the root.
fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}
