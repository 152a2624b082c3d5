//! Certificates for tests: authorities, servers, clients, and lists of revoked ones.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer,
    DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair,
    KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};

/// A certificate authority.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// What a certificate is for.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    /// The common name of its subject.
    pub name: &'a str,
    /// Host names; empty for a client.
    pub hosts: &'a [&'a str],
    /// Its validity has ended.
    pub expired: bool,
    /// Its serial number, by which it can be revoked.
    pub serial: u64,
}

impl Authority {
    /// An authority of this name.
    pub fn new(name: &str) -> Authority {
        let (params, key) = authority(name);
        Authority(CertifiedIssuer::self_signed(params, key).expect("a certificate"))
    }

    /// An authority below this one.
    pub fn intermediate(&self, name: &str) -> Authority {
        let (params, key) = authority(name);
        Authority(CertifiedIssuer::signed_by(params, key, &self.0).expect("a certificate"))
    }

    /// Its certificate, in PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate and its key, in PEM.
    pub fn issue(&self, wanted: Wanted<'_>) -> String {
        let hosts: Vec<String> = wanted.hosts.iter().map(|host| host.to_string()).collect();
        let mut params = CertificateParams::new(hosts).expect("host names");
        let mut name = DistinguishedName::new();
        name.push(DnType::OrganizationName, "sheaf");
        name.push(DnType::OrganizationalUnitName, "tests");
        name.push(DnType::CommonName, wanted.name);
        params.distinguished_name = name;
        params.serial_number = Some(SerialNumber::from(wanted.serial));
        params.use_authority_key_identifier_extension = true;
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(if wanted.expired { 2021 } else { 2120 }, 1, 1);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![match wanted.hosts {
            [] => ExtendedKeyUsagePurpose::ClientAuth,
            _ => ExtendedKeyUsagePurpose::ServerAuth,
        }];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        certificate.pem() + &key.serialize_pem()
    }

    /// A list that revokes the certificates of these serial numbers, in PEM.
    pub fn revoke(&self, serials: &[u64], expired: bool) -> String {
        let revoked = serials.iter().map(|serial| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: date_time_ymd(2020, 6, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 6, 1),
            next_update: date_time_ymd(if expired { 2021 } else { 2120 }, 1, 1),
            crl_number: SerialNumber::from(1u64),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = params.signed_by(&self.0).expect("a list");
        list.pem().expect("PEM")
    }
}

fn authority(name: &str) -> (CertificateParams, KeyPair) {
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    subject.push(DnType::OrganizationName, "sheaf");
    subject.push(DnType::CommonName, name);
    params.distinguished_name = subject;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2120, 1, 1);
    (params, KeyPair::generate().expect("a key"))
}

/// A server's certificate, for the name `localhost` only.
pub const SERVER: Wanted<'static> = Wanted {
    name: "server",
    hosts: &["localhost"],
    expired: false,
    serial: 1,
};

/// A client's certificate.
pub const CLIENT: Wanted<'static> = Wanted {
    name: "client",
    hosts: &[],
    expired: false,
    serial: 2,
};

/// Writes the files that the suites of clients use.
///
/// | file | |
/// |---|---|
/// | `ca.pem` | the authority of all others |
/// | `server.pem` | of `localhost`, and of no other name |
/// | `expired-server.pem` | the same, expired |
/// | `client.pem`, `expired.pem`, `revoked.pem` | of clients |
/// | `stranger.pem` | of a client of another authority, `other-ca.pem` |
/// | `crl.pem` | revokes `revoked.pem` |
pub fn write_all(folder: &Path) -> std::io::Result<()> {
    let (ca, other) = (Authority::new("ca"), Authority::new("other"));
    let expired = true;
    for (file, text) in [
        ("ca.pem", ca.pem()),
        ("other-ca.pem", other.pem()),
        ("server.pem", ca.issue(SERVER)),
        ("expired-server.pem", ca.issue(Wanted { expired, ..SERVER })),
        ("client.pem", ca.issue(CLIENT)),
        ("expired.pem", ca.issue(Wanted { expired, ..CLIENT })),
        (
            "revoked.pem",
            ca.issue(Wanted {
                serial: 3,
                ..CLIENT
            }),
        ),
        ("stranger.pem", other.issue(CLIENT)),
        ("crl.pem", ca.revoke(&[3], false)),
    ] {
        write(folder, file, &text)?;
    }
    Ok(())
}

/// Writes one file and returns its path.
pub fn write(folder: &Path, name: &str, text: &str) -> std::io::Result<PathBuf> {
    let path = folder.join(name);
    std::fs::write(&path, text)?;
    Ok(path)
}
