//! The CRC-32C of a message: its last four bytes if `checksumPresent` is set.

/// Length of a checksum in bytes.
pub(crate) const CHECKSUM_BYTES: usize = 4;

/// The checksum of a message without its last four bytes: header, flags and sections.
pub(crate) fn of(message: &[u8]) -> u32 {
    crc32c::crc32c(message)
}

/// Whether the last four bytes of `message` are the checksum of the bytes before them.
pub(crate) fn holds(message: &[u8]) -> bool {
    match message.split_last_chunk::<CHECKSUM_BYTES>() {
        Some((covered, sum)) => of(covered) == u32::from_le_bytes(*sum),
        None => false,
    }
}
