//! Warns once a day that the server's certificate expires soon, or has expired.

use std::time::Duration;

use sheaf_bson::DateTime;

use super::schedule::{Job, Next};
use crate::log::{Component, events};
use crate::parameters::Parameter;
use crate::server::Server;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) fn job() -> Job<Server> {
    Job {
        name: "certificate",
        is_long: false,
        period: |_| Some(DAY),
        run: Box::new(|server| match server.traffic.transport_security() {
            Some(_) => {
                warn_of_expiry(server);
                Next::Period
            }
            None => Next::Never,
        }),
    }
}

/// Whether a certificate's validity has ended or ends within
/// `tlsX509ExpirationWarningThresholdDays`.
pub fn expires_soon(server: &Server, expires: DateTime) -> bool {
    let days = server.parameters.int(Parameter::CertificateWarningDays);
    let limit = days.saturating_mul(DAY.as_millis() as i64);
    days > 0 && expires.millis() < DateTime::now().millis().saturating_add(limit)
}

/// Logs a warning if the server's certificate expires soon.
pub fn warn_of_expiry(server: &Server) {
    let Some(status) = server.traffic.transport_security() else {
        return;
    };
    if !expires_soon(server, status.expires) {
        return;
    }
    let message = match status.expires < DateTime::now() {
        true => "The server's certificate has expired",
        false => "The server's certificate expires soon",
    };
    server.log.warning(
        Component::Network,
        events::CERTIFICATE_EXPIRES,
        message,
        |attr| {
            attr.append("subject", status.subject.as_str());
            attr.append("expires", status.expires);
        },
    );
}
