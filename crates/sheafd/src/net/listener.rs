//! The addresses the server listens on.
//!
//! A `bind_ip` entry is an address, a host name, `*`, or the path of a unix
//! socket. IPv6 sockets take IPv6 alone, so that `0.0.0.0` and `::` can stand
//! side by side.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};

use super::Peer;

/// Connections the kernel keeps for us until we accept them.
const BACKLOG: i32 = 1024;

/// One place to listen at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// An address and port; port 0 lets the kernel choose.
    Tcp(SocketAddr),
    /// A unix socket at this path, with these permission bits.
    Unix {
        /// The socket's file.
        path: PathBuf,
        /// As of `chmod`.
        permissions: u32,
    },
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp(address) => address.fmt(f),
            Endpoint::Unix { path, .. } => path.display().fmt(f),
        }
    }
}

/// Why we cannot listen there.
#[derive(Debug)]
pub struct BindError {
    /// Where we wanted to listen, as far as it was known.
    pub endpoint: String,
    /// What the system said.
    pub source: io::Error,
}

impl BindError {
    fn at(endpoint: impl fmt::Display) -> impl FnOnce(io::Error) -> BindError {
        let endpoint = endpoint.to_string();
        move |source| BindError { endpoint, source }
    }
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot listen on {}: {}", self.endpoint, self.source)
    }
}

impl std::error::Error for BindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// The addresses of a name, or the one that is written out. Without `ipv6` a name's
/// IPv6 addresses are left out.
pub fn resolve(entry: &str, ipv6: bool) -> Result<Vec<IpAddr>, BindError> {
    if let Ok(address) = entry.parse::<IpAddr>() {
        return Ok(vec![address]);
    }
    let found = (entry, 0).to_socket_addrs().map_err(BindError::at(entry))?;
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in found.map(|address| address.ip()) {
        if (ipv6 || address.is_ipv4()) && !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if addresses.is_empty() {
        return Err(BindError::at(entry)(io::Error::new(
            io::ErrorKind::AddrNotAvailable,
            "the name has only IPv6 addresses, and --ipv6 was not given",
        )));
    }
    Ok(addresses)
}

/// What `bind_ip_all` means.
pub fn all_addresses(ipv6: bool) -> Vec<IpAddr> {
    let mut addresses = vec![IpAddr::V4(Ipv4Addr::UNSPECIFIED)];
    if ipv6 {
        addresses.push(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
    }
    addresses
}

/// The path of the unix socket that belongs to a port.
pub fn unix_socket_path(prefix: &Path, port: u16) -> PathBuf {
    prefix.join(format!("mongodb-{port}.sock"))
}

/// A socket that listens. A unix socket's file goes away with it.
pub struct Listener {
    pub(super) socket: Socket,
    endpoint: Endpoint,
}

impl Listener {
    /// Listens at this endpoint. A socket file that a dead server left behind
    /// is replaced; one that somebody still listens on, or a file of another
    /// kind, is an error.
    pub fn bind(endpoint: Endpoint) -> Result<Listener, BindError> {
        let bound = match &endpoint {
            Endpoint::Tcp(address) => bind_tcp(*address),
            Endpoint::Unix { path, permissions } => bind_unix(path, *permissions),
        };
        let socket = bound.map_err(BindError::at(&endpoint))?;
        let endpoint = match endpoint {
            Endpoint::Tcp(address) => Endpoint::Tcp(local_address(&socket).unwrap_or(address)),
            unix => unix,
        };
        Ok(Listener { socket, endpoint })
    }

    /// Where it listens; the port is the real one.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The TCP port, if it is a TCP listener.
    pub fn port(&self) -> Option<u16> {
        match &self.endpoint {
            Endpoint::Tcp(address) => Some(address.port()),
            Endpoint::Unix { .. } => None,
        }
    }

    /// Accepts one connection, if one waits.
    pub(super) fn accept(&self) -> io::Result<(Socket, Peer, Option<SocketAddr>)> {
        let (socket, address) = self.socket.accept()?;
        let peer = match &self.endpoint {
            Endpoint::Tcp(_) => {
                socket.set_tcp_nodelay(true)?;
                socket.set_keepalive(true)?;
                Peer::Tcp(address.as_socket().ok_or(io::ErrorKind::InvalidData)?)
            }
            Endpoint::Unix { path, .. } => Peer::Unix(path.clone()),
        };
        let local = local_address(&socket);
        Ok((socket, peer, local))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Endpoint::Unix { path, .. } = &self.endpoint {
            // If it is gone already, that is what we wanted.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn local_address(socket: &Socket) -> Option<SocketAddr> {
    socket.local_addr().ok()?.as_socket()
}

fn bind_tcp(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    // So that a restart need not wait for old connections to be forgotten.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    listen(socket)
}

fn bind_unix(path: &Path, permissions: u32) -> io::Result<Socket> {
    let address = SockAddr::unix(path).map_err(|e| {
        io::Error::new(
            e.kind(),
            format!("{e}: choose a shorter folder with --unixSocketPrefix"),
        )
    })?;
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "a file that is not a socket stands there",
            ));
        }
        Ok(_) if UnixStream::connect(path).is_ok() => {
            return Err(io::Error::from_raw_os_error(libc::EADDRINUSE));
        }
        Ok(_) => std::fs::remove_file(path)?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&address)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(permissions))?;
    listen(socket)
}

fn listen(socket: Socket) -> io::Result<Socket> {
    // The listener thread waits for several at once, and must not be stuck in
    // one whose waiting client has just gone away.
    socket.set_nonblocking(true)?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}
