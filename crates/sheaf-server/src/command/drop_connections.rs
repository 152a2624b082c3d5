//! `dropConnections`: closes connections to other servers, of which there are none.

use sheaf_bson::{DocBuilder, Error, ErrorCode, RawValue};

use super::context::CommandContext;
use super::fields;

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "dropConnections";
    let mut hosts = None;
    for element in cx.arguments() {
        match element.key() {
            "hostAndPort" => {
                for host in fields::array(NAME, &element)?.iter() {
                    match host {
                        RawValue::String(host) => check_host(host)?,
                        _ => return Err(fields::wrong_type(NAME, &element, "string")),
                    }
                }
                hosts = Some(());
            }
            _ => cx.unknown_field(&element)?,
        }
    }
    fields::required(NAME, "hostAndPort", hosts)
}

/// Errors: `FailedToParse` for text that is not `host`, `host:port` or `[address]:port`.
fn check_host(text: &str) -> Result<(), Error> {
    let wrong = |why: &str| {
        Err(Error::new(
            ErrorCode::FAILED_TO_PARSE,
            format!("'{text}' is not a host and port: {why}"),
        ))
    };
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, rest)) if rest.is_empty() || rest.starts_with(':') => {
                (host, rest.strip_prefix(':'))
            }
            _ => return wrong("the address in brackets does not end"),
        },
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return wrong("the host is empty");
    }
    match port.map(str::parse::<u16>) {
        None => Ok(()),
        Some(Ok(port)) if port > 0 => Ok(()),
        Some(_) => wrong("the port must be a number from 1 to 65535"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports() {
        for good in ["h:1", "h", "[::1]:27017", "[fe80::1]", "10.0.0.1:65535"] {
            assert!(check_host(good).is_ok(), "{good}");
        }
        for bad in [
            "", ":1", "h:", "h:0", "h:65536", "h:x", "h:-1", "a:b:c", "[::1", "[]:1",
        ] {
            let error = check_host(bad).unwrap_err();
            assert_eq!(error.code(), ErrorCode::FAILED_TO_PARSE, "{bad}");
        }
    }
}
