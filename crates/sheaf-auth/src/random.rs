//! Random bytes of the operating system.

use sheaf_bson::{Error, ErrorCode};

/// `N` random bytes.
/// Errors: the operating system has none.
pub fn bytes<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| {
        Error::new(
            ErrorCode::INTERNAL_ERROR,
            format!("the operating system provides no random bytes: {e}"),
        )
    })?;
    Ok(bytes)
}
