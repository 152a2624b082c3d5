//! CRC-32C of a message, the last four bytes when `checksumPresent` is set.

/// Bytes of a checksum.
pub(crate) const CHECKSUM_BYTES: usize = 4;

/// The checksum of a message: header, flags and sections, everything before it.
pub(crate) fn of(message: &[u8]) -> u32 {
    crc32c::crc32c(message)
}

/// True when the last four bytes of `message` are the checksum of the others.
pub(crate) fn holds(message: &[u8]) -> bool {
    match message.split_last_chunk::<CHECKSUM_BYTES>() {
        Some((covered, sum)) => of(covered) == u32::from_le_bytes(*sum),
        None => false,
    }
}
