//! Connections over TLS, with the echo service: what passes, and which clients are refused.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};
use sheaf_bson::doc;
use sheaf_wire::Compressor;
use sheaf_wire::request::{compressed, op_msg};
use sheafd::net::{Endpoint, NetOptions};
use sheafd::tls::{Tls, TlsMode, TlsOptions, TlsVersion};

use super::certificates::{self, Authority, CLIENT, SERVER, Wanted};
use super::client::{Client, Reply};
use super::echo::EchoServer;

/// The suites of clients have files that do not change, so that they need no tool to make them.
#[test]
fn client_suites_have_certificates() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients/tls/files");
    if !folder.exists() && std::env::var_os("SHEAF_BLESS").is_some() {
        std::fs::create_dir_all(&folder).expect("a folder");
        certificates::write_all(&folder).expect("the files are written");
    }
    let options = Files::at(&folder).options();
    Tls::new(options)
        .expect("the files can be used; SHEAF_BLESS=1 creates them if they are missing");
}

/// Files of certificates, and the options that use them.
pub struct Files {
    path: PathBuf,
    /// `None` if the folder is not the test's own.
    _own: Option<tempfile::TempDir>,
}

impl Files {
    pub fn new() -> Files {
        let folder = tempfile::tempdir().expect("a temporary folder");
        certificates::write_all(folder.path()).expect("the files are written");
        Files {
            path: folder.path().to_owned(),
            _own: Some(folder),
        }
    }

    fn at(path: &Path) -> Files {
        Files {
            path: path.to_owned(),
            _own: None,
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `requireTLS`, and clients need a certificate.
    pub fn options(&self) -> TlsOptions {
        TlsOptions {
            mode: TlsMode::Require,
            certificate_key_file: self.path().join("server.pem"),
            password: None,
            ca_file: self.path().join("ca.pem"),
            cluster_ca_file: None,
            crl_file: None,
            cluster_file: None,
            cluster_password: None,
            allow_connections_without_certificates: false,
            allow_invalid_certificates: false,
            versions: vec![TlsVersion::Tls12, TlsVersion::Tls13],
            log_versions: Vec::new(),
        }
    }

    /// The configuration of a client that trusts `ca.pem` and has this certificate.
    pub fn client(
        &self,
        own: Option<&str>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_file(self.path().join("ca.pem")).expect("a certificate");
        roots.add(ca).expect("an authority");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .expect("versions")
            .with_root_certificates(roots);
        Arc::new(match own {
            None => builder.with_no_client_auth(),
            Some(name) => {
                let path = self.path().join(name);
                let chain = CertificateDer::pem_file_iter(&path).expect("certificates");
                let chain = chain.collect::<Result<_, _>>().expect("certificates");
                let key = PrivateKeyDer::from_pem_file(&path).expect("a key");
                builder.with_client_auth_cert(chain, key).expect("a pair")
            }
        })
    }
}

const BOTH: &[&SupportedProtocolVersion] = &[&rustls::version::TLS12, &rustls::version::TLS13];

fn connect(server: &EchoServer, config: &Arc<ClientConfig>) -> Client {
    let name = "localhost".try_into().expect("a name");
    let connection = ClientConnection::new(Arc::clone(config), name).expect("a client");
    Client::over_tls(server.socket(), connection)
}

/// The reply to a first command, or why there is none.
fn first(server: &EchoServer, config: &Arc<ClientConfig>) -> Result<Reply, String> {
    let mut client = connect(server, config);
    let message = op_msg(1, Default::default(), doc! {"whoami": 1}.as_raw(), &[]);
    client.try_send(&message).map_err(|e| e.to_string())?;
    client.try_receive().map_err(|e| e.to_string())
}

fn subject(reply: &Reply) -> &str {
    reply
        .body
        .get("subject")
        .and_then(|v| v.as_str())
        .expect("a subject")
}

/// Waits until a line of the server's log contains these texts.
fn wait_log(server: &EchoServer, texts: &[&str]) {
    server.seen.wait(|_| {
        let (_, lines) = server.log.recent();
        lines
            .iter()
            .any(|line| texts.iter().all(|text| line.contains(text)))
    });
}

#[test]
fn messages_pass_with_every_version() {
    let files = Files::new();
    let server = EchoServer::start_tls(files.options(), None);
    for version in BOTH {
        let config = files.client(Some("client.pem"), &[version]);
        let mut client = connect(&server, &config);
        let reply = client.run(&doc! {"whoami": 1});
        assert_eq!(subject(&reply), "CN=client,OU=tests,O=sheaf");
        // Over many records, and compressed.
        for bytes in [0, 1, 16_384, 16_385, 5 << 20] {
            let text = "x".repeat(bytes);
            let command = doc! {"echo": text.as_str()};
            let reply = client.run(&command);
            let echoed = reply.body.get("body").and_then(|v| v.as_document());
            assert_eq!(echoed, Some(command.as_raw()));
        }
        let command = doc! {"echo": "again and ".repeat(1000).as_str()};
        for compressor in Compressor::NEGOTIABLE {
            client.send(&compressed(
                compressor,
                &op_msg(1, Default::default(), command.as_raw(), &[]),
            ));
            assert_eq!(client.receive().compressor, Some(compressor));
        }
    }
    let status = server.tls.as_ref().expect("TLS").status();
    assert_eq!((status.tls12, status.tls13), (1, 1));
    assert_eq!(status.subject, "CN=server,OU=tests,O=sheaf");
}

#[test]
fn counters_are_of_messages_not_of_records() {
    let files = Files::new();
    let server = EchoServer::start_tls(files.options(), None);
    let mut client = connect(&server, &files.client(Some("client.pem"), BOTH));
    let message = op_msg(1, Default::default(), doc! {"echo": 1}.as_raw(), &[]);
    client.send(&message);
    let reply = client.receive();
    drop(client);
    server
        .seen
        .wait(|_| server.connections.stats().current == 0);
    let network = server.connections.network();
    assert_eq!(network.bytes_in, message.len() as u64);
    assert_eq!(network.bytes_out, reply.header.message_length as u64);
}

#[test]
fn clients_without_a_valid_certificate_are_refused() {
    let files = Files::new();
    let mut options = files.options();
    options.crl_file = Some(files.path().join("crl.pem"));
    let server = EchoServer::start_tls(options, None);
    for version in BOTH {
        for (own, error, logged) in [
            (Some("client.pem"), "", ""),
            (None, "CertificateRequired", "peer sent no certificates"),
            (
                Some("expired.pem"),
                "CertificateExpired",
                "certificate expired",
            ),
            (
                Some("revoked.pem"),
                "CertificateRevoked",
                "invalid peer certificate: Revoked",
            ),
            (
                Some("stranger.pem"),
                "UnknownCA",
                "invalid peer certificate: UnknownIssuer",
            ),
        ] {
            let reply = first(&server, &files.client(own, &[version]));
            match (reply, error) {
                (Ok(reply), "") => assert_eq!(subject(&reply), "CN=client,OU=tests,O=sheaf"),
                // TLS 1.2 has no alert of this name.
                (Err(e), "CertificateRequired")
                    if version.version == rustls::ProtocolVersion::TLSv1_2 =>
                {
                    assert!(e.contains("fatal alert"), "{own:?}: {e}");
                }
                (Err(e), error) => assert!(e.contains(error) && !error.is_empty(), "{own:?}: {e}"),
                (Ok(_), _) => panic!("{own:?} is accepted"),
            }
            if !logged.is_empty() {
                wait_log(
                    &server,
                    &["\"id\":22988,", "\"SSLHandshakeFailed\"", logged],
                );
            }
        }
    }
}

#[test]
fn certificates_are_optional_where_the_option_says_so() {
    let files = Files::new();
    let mut options = files.options();
    options.allow_connections_without_certificates = true;
    let server = EchoServer::start_tls(options, None);
    let reply = first(&server, &files.client(None, BOTH)).expect("accepted");
    assert_eq!(subject(&reply), "");
    let reply = first(&server, &files.client(Some("client.pem"), BOTH)).expect("accepted");
    assert_eq!(subject(&reply), "CN=client,OU=tests,O=sheaf");
    // One that is presented must be valid.
    let error = first(&server, &files.client(Some("stranger.pem"), BOTH));
    assert!(error.is_err_and(|e| e.contains("UnknownCA")));
}

#[test]
fn invalid_certificates_are_accepted_where_the_option_says_so_and_identify_no_user() {
    let files = Files::new();
    let mut options = files.options();
    options.allow_invalid_certificates = true;
    options.certificate_key_file = files.path().join("expired-server.pem");
    let server = EchoServer::start_tls(options, None);
    // The client checks the server's own.
    let error = first(&server, &files.client(Some("client.pem"), BOTH));
    assert!(error.is_err_and(|e| e.contains("certificate expired")));

    let mut options = files.options();
    options.allow_invalid_certificates = true;
    let server = EchoServer::start_tls(options, None);
    for own in ["expired.pem", "stranger.pem"] {
        let reply = first(&server, &files.client(Some(own), BOTH)).expect("accepted");
        assert_eq!(subject(&reply), "", "{own}");
    }
    wait_log(&server, &["\"id\":9000062,", "certificate expired"]);
    let reply = first(&server, &files.client(Some("client.pem"), BOTH)).expect("accepted");
    assert_eq!(subject(&reply), "CN=client,OU=tests,O=sheaf");
}

#[test]
fn an_authority_of_its_own_for_clients() {
    let files = Files::new();
    let mut options = files.options();
    options.cluster_ca_file = Some(files.path().join("other-ca.pem"));
    let server = EchoServer::start_tls(options, None);
    let reply = first(&server, &files.client(Some("stranger.pem"), BOTH)).expect("accepted");
    assert_eq!(subject(&reply), "CN=client,OU=tests,O=sheaf");
    let error = first(&server, &files.client(Some("client.pem"), BOTH));
    assert!(error.is_err_and(|e| e.contains("UnknownCA")));
}

#[test]
fn an_outdated_revocation_list_refuses_every_client() {
    let files = Files::new();
    let ca = Authority::new("ca");
    let write = |name, text: String| certificates::write(files.path(), name, &text).unwrap();
    write("ca.pem", ca.pem());
    write("server.pem", ca.issue(SERVER));
    write("client.pem", ca.issue(CLIENT));
    let mut options = files.options();
    options.crl_file = Some(write("old-crl.pem", ca.revoke(&[], true)));
    let server = EchoServer::start_tls(options, None);
    assert!(first(&server, &files.client(Some("client.pem"), BOTH)).is_err());
    wait_log(&server, &["\"id\":22988,", "revocation list"]);
}

#[test]
fn a_chain_is_completed_from_the_authorities_file() {
    let files = Files::new();
    let root = Authority::new("root");
    let below = root.intermediate("below");
    let write = |name, text: String| certificates::write(files.path(), name, &text).unwrap();
    write("ca.pem", root.pem() + &below.pem());
    write("server.pem", below.issue(SERVER));
    write(
        "client.pem",
        below.issue(Wanted {
            name: "deep",
            ..CLIENT
        }),
    );
    let server = EchoServer::start_tls(files.options(), None);
    // The client knows the root only.
    write("ca.pem", root.pem());
    let reply = first(&server, &files.client(Some("client.pem"), BOTH)).expect("accepted");
    assert_eq!(subject(&reply), "CN=deep,OU=tests,O=sheaf");
}

#[test]
fn plain_connections_by_mode() {
    let files = Files::new();
    for (mode, is_allowed) in [
        (TlsMode::Allow, true),
        (TlsMode::Prefer, true),
        (TlsMode::Require, false),
    ] {
        let mut options = files.options();
        options.mode = mode;
        let server = EchoServer::start_tls(options, None);
        let mut plain = server.client();
        match is_allowed {
            true => drop(plain.ok(&doc! {"echo": 1})),
            false => {
                plain.send(&op_msg(
                    1,
                    Default::default(),
                    doc! {"echo": 1}.as_raw(),
                    &[],
                ));
                assert_eq!(plain.receive_rest(), []);
                wait_log(
                    &server,
                    &[
                        "\"id\":22988,",
                        "The server is configured to only allow SSL connections",
                    ],
                );
            }
        }
        assert!(first(&server, &files.client(Some("client.pem"), BOTH)).is_ok());
    }
}

#[test]
fn a_plain_message_that_begins_with_the_byte_of_a_handshake() {
    let files = Files::new();
    let mut options = files.options();
    options.mode = TlsMode::Allow;
    let server = EchoServer::start_tls(options, None);
    // A length whose lowest bytes are those of a handshake's record: 0x16, and 0x16 0x03.
    for wanted in [0x0116, 0x0316] {
        let empty = op_msg(1, Default::default(), doc! {"echo": ""}.as_raw(), &[]).len();
        let text = "x".repeat(wanted - empty);
        let message = op_msg(
            1,
            Default::default(),
            doc! {"echo": text.as_str()}.as_raw(),
            &[],
        );
        assert_eq!(message.len(), wanted);
        let mut client = server.client();
        // Slowly, so that the first look sees one byte.
        client.send(&message[..1]);
        std::thread::sleep(std::time::Duration::from_millis(20));
        client.send(&message[1..]);
        assert!(client.receive().is_ok());
    }
}

#[test]
fn unix_sockets_stay_plain() {
    let files = Files::new();
    let path = files.path().join("plain.sock");
    let endpoint = Endpoint::Unix {
        path: path.clone(),
        permissions: 0o700,
    };
    let options = NetOptions {
        tls: Some(Tls::new(files.options()).unwrap()),
        ..NetOptions::default()
    };
    let server = EchoServer::start_with(endpoint, 10, options);
    server.client().ok(&doc! {"echo": 1});
}

#[test]
fn versions_can_be_disabled_and_logged() {
    let files = Files::new();
    let mut options = files.options();
    options.versions = vec![TlsVersion::Tls13];
    options.log_versions = vec![TlsVersion::Tls13];
    let server = EchoServer::start_tls(options, None);
    let error = first(
        &server,
        &files.client(Some("client.pem"), &[&rustls::version::TLS12]),
    );
    assert!(error.is_err_and(|e| e.contains("ProtocolVersion")));
    first(&server, &files.client(Some("client.pem"), BOTH)).expect("accepted");
    wait_log(&server, &["\"id\":9000063,", "\"version\":\"1.3\""]);
}

#[test]
fn certificates_rotate_without_dropping_a_connection() {
    let files = Files::new();
    let mut options = files.options();
    options.crl_file = Some(files.path().join("crl.pem"));
    let server = EchoServer::start_tls(options, None);
    let tls = server.tls.clone().expect("TLS");
    let old = files.client(Some("client.pem"), BOTH);
    let mut open = connect(&server, &old);
    open.ok(&doc! {"echo": 1});

    // Files that cannot be used leave everything as it is.
    let list = files.path().join("crl.pem");
    std::fs::write(&list, "nothing").unwrap();
    let error = tls.rotate().expect_err("there is no list");
    assert!(
        error.contains("--tlsCRLFile") && error.contains("no revocation list"),
        "{error}"
    );
    assert!(first(&server, &old).is_ok());

    // A new authority issues everything.
    let ca = Authority::new("ca");
    let write = |name, text: String| certificates::write(files.path(), name, &text).unwrap();
    write("ca.pem", ca.pem());
    write(
        "server.pem",
        ca.issue(Wanted {
            name: "new",
            ..SERVER
        }),
    );
    write("client.pem", ca.issue(CLIENT));
    write("crl.pem", ca.revoke(&[], false));
    tls.rotate().expect("the files can be used");
    assert_eq!(tls.status().subject, "CN=new,OU=tests,O=sheaf");
    open.ok(&doc! {"echo": 1});
    assert!(first(&server, &old).is_err());
    let new = files.client(Some("client.pem"), BOTH);
    assert!(first(&server, &new).is_ok());

    // A client that is revoked cannot resume its session either.
    write("crl.pem", ca.revoke(&[CLIENT.serial], false));
    tls.rotate().expect("the files can be used");
    let error = first(&server, &new).expect_err("revoked");
    assert!(error.contains("CertificateRevoked"), "{error}");
    open.ok(&doc! {"echo": 1});
}

#[test]
fn the_end_of_the_server_ends_tls_connections_and_handshakes() {
    let files = Files::new();
    let mut server = EchoServer::start_tls(files.options(), None);
    let mut idle = connect(&server, &files.client(Some("client.pem"), BOTH));
    idle.ok(&doc! {"echo": 1});
    let silent = server.socket();
    let mut halfway = server.socket();
    halfway.write_all(&[22, 3, 1, 2, 0, 1]).unwrap();
    server
        .seen
        .wait(|_| server.connections.stats().current == 3);
    server.stop();
    assert_eq!(idle.receive_rest(), []);
    assert_eq!(server.connections.stats().current, 0);
    drop((silent, halfway));
}

#[test]
fn a_disconnect_is_noticed_during_an_operation() {
    let files = Files::new();
    let server = EchoServer::start_tls(files.options(), None);
    let mut client = connect(&server, &files.client(Some("client.pem"), BOTH));
    client.send(&op_msg(
        1,
        Default::default(),
        doc! {"await": 1}.as_raw(),
        &[],
    ));
    server.seen.wait_waiting(1);
    drop(client);
    assert_eq!(server.seen.wait_ended(1), [sheaf_server::ClientState::Gone]);
}
