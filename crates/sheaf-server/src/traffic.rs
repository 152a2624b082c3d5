//! Connection and network counters for `serverStatus`.

use sheaf_bson::DateTime;
use sheaf_wire::Compressor;

/// Counts of the connections that reach this server.
pub trait Traffic: Send + Sync {
    /// `serverStatus.connections`.
    fn connections(&self) -> ConnectionStats;

    /// `serverStatus.network`.
    fn network(&self) -> NetworkStats;

    /// TLS of the connections; `None` where they have none.
    fn transport_security(&self) -> Option<TransportSecurity> {
        None
    }
}

/// The traffic of a server without a network.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTraffic;

impl Traffic for NoTraffic {
    fn connections(&self) -> ConnectionStats {
        ConnectionStats::default()
    }

    fn network(&self) -> NetworkStats {
        NetworkStats::default()
    }
}

/// `serverStatus.security` and `serverStatus.transportSecurity`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransportSecurity {
    /// The subject of the server's certificate, in the form of RFC 2253.
    pub subject: String,
    /// When that certificate's validity ends.
    pub expires: DateTime,
    /// Connections made with TLS 1.2.
    pub tls12: u64,
    /// Connections made with TLS 1.3.
    pub tls13: u64,
}

/// `serverStatus.connections`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionStats {
    /// Open now.
    pub current: u64,
    /// How many more are allowed.
    pub available: u64,
    /// Accepted since the start.
    pub total_created: u64,
    /// Refused since the start, because there were too many.
    pub rejected: u64,
    /// Open and handling a request now.
    pub active: u64,
}

/// `serverStatus.network`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkStats {
    /// Bytes received from sockets, before decompression.
    pub bytes_in: u64,
    /// Bytes sent to sockets, after compression.
    pub bytes_out: u64,
    /// Requests read, including refused ones.
    pub requests: u64,
    /// By compressor.
    pub compression: CompressionStats,
}

impl NetworkStats {
    /// Bytes received and sent as they are without compression.
    pub fn logical_bytes(&self) -> (u64, u64) {
        let (mut bytes_in, mut bytes_out) = (self.bytes_in, self.bytes_out);
        for stats in &self.compression {
            let (requests, replies) = (stats.decompressed, stats.compressed);
            bytes_in = (bytes_in + requests.bytes_out).saturating_sub(requests.bytes_in);
            bytes_out = (bytes_out + replies.bytes_in).saturating_sub(replies.bytes_out);
        }
        (bytes_in, bytes_out)
    }
}

/// Bytes of messages into and out of one compressor, with their headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompressorStats {
    /// Replies before and after compression.
    pub compressed: Flow,
    /// Requests before and after decompression.
    pub decompressed: Flow,
}

/// Bytes in and bytes out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// What went in.
    pub bytes_in: u64,
    /// What came out.
    pub bytes_out: u64,
}

/// One for each of [`Compressor::NEGOTIABLE`], in that order.
pub type CompressionStats = [CompressorStats; Compressor::NEGOTIABLE.len()];
