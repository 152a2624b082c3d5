//! `--keyFile`: the secret that the members of a cluster share.
//!
//! The server is its only member, so that nothing is compared with the key. The file is checked all
//! the same: a configuration that MongoDB refuses would fail with the second member.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::ConfigError;

/// Checks the file: access for its owner only, 6 to 1024 base64 characters apart from white space.
/// Errors: what is wrong with it.
pub(super) fn check(path: &str) -> Result<(), ConfigError> {
    let wrong = |what: &str| ConfigError::new(format!("--keyFile {path}: {what}"));
    let metadata = Path::new(path).metadata();
    let metadata = metadata.map_err(|e| wrong(&format!("cannot be read: {e}")))?;
    if metadata.mode() & 0o077 != 0 {
        return Err(wrong(
            "others than its owner have access to it: set its permissions to 0600",
        ));
    }
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|e| wrong(&format!("cannot be read: {e}")))?;
    let key: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let is_base64 = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=');
    match (6..=1024).contains(&key.len()) && key.iter().all(is_base64) {
        true => Ok(()),
        false => Err(wrong("must hold a key of 6 to 1024 base64 characters")),
    }
}
