//! The SASL mechanisms that a client may request.

use sheaf_bson::{Error, ErrorCode};

/// A mechanism that the server has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mechanism {
    /// `SCRAM-SHA-1`: RFC 5802 over MongoDB's digest of name and password.
    ScramSha1,
    /// `SCRAM-SHA-256`: RFC 7677.
    ScramSha256,
}

/// Mechanisms of MongoDB that the server does not have.
const ABSENT: &[&str] = &[
    "MONGODB-X509",
    "PLAIN",
    "GSSAPI",
    "MONGODB-AWS",
    "MONGODB-OIDC",
    "MONGODB-CR",
];

impl Mechanism {
    /// Every mechanism, in the order in which MongoDB lists them.
    pub const ALL: [Mechanism; 2] = [Mechanism::ScramSha1, Mechanism::ScramSha256];

    /// As clients spell it.
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::ScramSha1 => "SCRAM-SHA-1",
            Mechanism::ScramSha256 => "SCRAM-SHA-256",
        }
    }

    /// The mechanism with this name.
    /// Errors: `MechanismUnavailable`, which names what the server has.
    pub fn named(name: &str) -> Result<Mechanism, Error> {
        if let Some(found) = Mechanism::ALL.into_iter().find(|m| m.name() == name) {
            return Ok(found);
        }
        Err(Error::new(
            ErrorCode::MECHANISM_UNAVAILABLE,
            match ABSENT.contains(&name) {
                true => format!(
                    "authentication mechanism '{name}' is not supported: use SCRAM-SHA-256 or \
                     SCRAM-SHA-1"
                ),
                false => format!("unknown authentication mechanism '{name}'"),
            },
        ))
    }
}

/// A set of mechanisms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mechanisms(u8);

impl Mechanisms {
    /// Every mechanism.
    pub const ALL: Mechanisms = Mechanisms(0b11);
    /// No mechanism.
    pub const NONE: Mechanisms = Mechanisms(0);

    /// The set that [`Mechanisms::bits`] returned.
    pub fn from_bits(bits: u64) -> Mechanisms {
        Mechanisms(bits as u8 & Mechanisms::ALL.0)
    }

    /// The set as a number.
    pub fn bits(self) -> u64 {
        u64::from(self.0)
    }

    /// Parses a list with commas.
    /// Errors: [`Mechanism::named`]; an empty list.
    pub fn parse(list: &str) -> Result<Mechanisms, Error> {
        let mut set = Mechanisms::NONE;
        for name in list
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
        {
            set = set.with(Mechanism::named(name)?);
        }
        match set == Mechanisms::NONE {
            true => Err(Error::bad_value("no authentication mechanism is named")),
            false => Ok(set),
        }
    }

    /// The set with this mechanism.
    #[must_use]
    pub fn with(self, mechanism: Mechanism) -> Mechanisms {
        Mechanisms(self.0 | 1 << mechanism as u8)
    }

    /// Whether the mechanism is in the set.
    pub fn contains(self, mechanism: Mechanism) -> bool {
        self.0 & 1 << mechanism as u8 != 0
    }

    /// The mechanisms of the set, in MongoDB's order.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = Mechanism> {
        (Mechanism::ALL.into_iter()).filter(move |mechanism| self.contains(*mechanism))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_mechanisms() {
        assert_eq!(
            Mechanisms::parse("SCRAM-SHA-256, SCRAM-SHA-1").unwrap(),
            Mechanisms::ALL
        );
        let one = Mechanisms::parse("SCRAM-SHA-256").unwrap();
        assert!(one.contains(Mechanism::ScramSha256) && !one.contains(Mechanism::ScramSha1));
        assert_eq!(Mechanisms::from_bits(one.bits()), one);
        assert!(Mechanisms::parse("").is_err());
        for absent in [
            "PLAIN",
            "GSSAPI",
            "MONGODB-AWS",
            "MONGODB-OIDC",
            "scram-sha-1",
        ] {
            let error = Mechanisms::parse(absent).unwrap_err();
            assert_eq!(error.code(), ErrorCode::MECHANISM_UNAVAILABLE);
            assert!(error.message().contains(absent));
        }
    }
}
