//! Compression counters: bytes before and after, for each compressor.
//!
//! Each connection has its own counters. They are allocated when the connection
//! first uses a compressor.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use sheaf_server::traffic::CompressionStats;
use sheaf_wire::Compressor;

/// The counters of one connection. Only its thread writes them.
#[derive(Default)]
pub(super) struct CompressionCounters(OnceLock<Box<[[AtomicU64; 4]; 3]>>);

impl CompressionCounters {
    /// Counts a compressed request.
    pub fn unpacked(&self, compressor: Compressor, bytes_in: usize, bytes_out: usize) {
        self.add(compressor, 2, bytes_in, bytes_out);
    }

    /// Counts a compressed reply.
    pub fn packed(&self, compressor: Compressor, bytes_in: usize, bytes_out: usize) {
        self.add(compressor, 0, bytes_in, bytes_out);
    }

    fn add(&self, compressor: Compressor, at: usize, bytes_in: usize, bytes_out: usize) {
        let place = Compressor::NEGOTIABLE.iter().position(|c| *c == compressor);
        // The noop compressor is not counted.
        let Some(place) = place else { return };
        let counters = &self.0.get_or_init(Box::default)[place];
        counters[at].fetch_add(bytes_in as u64, Ordering::Relaxed);
        counters[at + 1].fetch_add(bytes_out as u64, Ordering::Relaxed);
    }

    /// Adds the counts to `sum`.
    pub fn add_to(&self, sum: &mut CompressionStats) {
        let Some(all) = self.0.get() else { return };
        for (sum, counters) in sum.iter_mut().zip(all.iter()) {
            let [a, b, c, d] = counters.each_ref().map(|n| n.load(Ordering::Relaxed));
            sum.compressed.bytes_in += a;
            sum.compressed.bytes_out += b;
            sum.decompressed.bytes_in += c;
            sum.decompressed.bytes_out += d;
        }
    }
}
