//! What this program does for the commands: it stops, rotates certificates, and counts.

use std::sync::Arc;

use sheaf_bson::{Error, ErrorCode};
use sheaf_server::control::{Control, NoControl};
use sheaf_server::traffic::{ConnectionStats, NetworkStats, Traffic, TransportSecurity};

use crate::net::Connections;
use crate::process::{Reason, Shutdown};
use crate::tls::Tls;

/// The parts of the program that commands reach.
pub struct Program {
    /// The request to stop.
    pub shutdown: Shutdown,
    /// The open connections.
    pub connections: Arc<Connections>,
    /// TLS of these connections.
    pub tls: Option<Arc<Tls>>,
}

impl Control for Program {
    fn request_shutdown(&self) -> Result<(), Error> {
        self.shutdown.request(Reason::Command);
        Ok(())
    }

    fn rotate_certificates(&self) -> Result<(), Error> {
        let Some(tls) = &self.tls else {
            return NoControl.rotate_certificates();
        };
        let rotated = tls.rotate();
        rotated.map_err(|e| Error::new(ErrorCode::INVALID_SSL_CONFIGURATION, e))
    }
}

impl Traffic for Program {
    fn connections(&self) -> ConnectionStats {
        self.connections.stats()
    }

    fn network(&self) -> NetworkStats {
        self.connections.network()
    }

    fn transport_security(&self) -> Option<TransportSecurity> {
        self.tls.as_ref().map(|tls| tls.status())
    }
}
