//! `rotateCertificates`: reads the files of certificates and keys again.

use sheaf_bson::{DocBuilder, Error};

use super::context::CommandContext;
use super::fields;
use crate::log::{Component, events};

/// Runs the command. Open connections keep the certificates they were made with.
pub fn run(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    let mut message = None;
    for element in cx.arguments() {
        match element.key() {
            "message" => message = Some(fields::string("rotateCertificates", &element)?),
            _ => cx.unknown_field(&element)?,
        }
    }
    cx.server.control.rotate_certificates()?;
    let status = cx.server.traffic.transport_security();
    cx.server.log.info(
        Component::Network,
        events::CERTIFICATES_ROTATED,
        "Certificates rotated; open connections keep the previous ones",
        |attr| {
            if let Some(message) = message {
                attr.append("message", message);
            }
            if let Some(status) = status {
                attr.append("subject", status.subject.as_str());
                attr.append("expires", status.expires);
            }
        },
    );
    crate::jobs::warn_of_expiry(cx.server);
    Ok(())
}
