//! The addresses the server listens on.
//!
//! A `bind_ip` entry is an address, a host name, `*`, or the path of a Unix
//! domain socket. IPv6 sockets accept IPv6 only, so that `0.0.0.0` and `::` can
//! be bound at the same time.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};

use super::Peer;

/// Maximum number of connections that wait in the kernel to be accepted.
const BACKLOG: i32 = 1024;

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// An address and port; port 0 lets the kernel choose.
    Tcp(SocketAddr),
    /// A Unix domain socket.
    Unix {
        /// The socket file.
        path: PathBuf,
        /// The file's mode bits, as for `chmod`.
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

/// The server cannot listen on an address.
#[derive(Debug)]
pub struct BindError {
    /// The address, or the `bind_ip` entry that could not be resolved.
    pub endpoint: String,
    /// The system's error.
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

/// Resolves a host name, or parses an address. Without `ipv6` the result omits the
/// IPv6 addresses of a name.
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
            "the name resolves only to IPv6 addresses, and --ipv6 is not set",
        )));
    }
    Ok(addresses)
}

/// The wildcard addresses that `bind_ip_all` listens on.
pub fn all_addresses(ipv6: bool) -> Vec<IpAddr> {
    let mut addresses = vec![IpAddr::V4(Ipv4Addr::UNSPECIFIED)];
    if ipv6 {
        addresses.push(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
    }
    addresses
}

/// The path of the Unix domain socket for a port.
pub fn unix_socket_path(prefix: &Path, port: u16) -> PathBuf {
    prefix.join(format!("mongodb-{port}.sock"))
}

/// A listening socket. Dropping it removes the file of a Unix domain socket.
pub struct Listener {
    pub(super) socket: Socket,
    endpoint: Endpoint,
}

impl Listener {
    /// Listens on `endpoint`. Replaces a stale socket file of a server that is
    /// gone.
    ///
    /// Errors: the socket file has a live listener, the file is not a socket,
    /// or a system error.
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

    /// The endpoint with the actual port.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The TCP port; `None` for a Unix domain socket.
    pub fn port(&self) -> Option<u16> {
        match &self.endpoint {
            Endpoint::Tcp(address) => Some(address.port()),
            Endpoint::Unix { .. } => None,
        }
    }

    /// Accepts one pending connection. Errors: `WouldBlock` if there is none.
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
            // The file may have been removed already.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn local_address(socket: &Socket) -> Option<SocketAddr> {
    socket.local_addr().ok()?.as_socket()
}

fn bind_tcp(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    // Connections in TIME_WAIT must not delay a restart.
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
                "the path exists and is not a socket",
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
    // The listener thread polls several sockets and must not block in `accept`
    // when the pending client has just disconnected.
    socket.set_nonblocking(true)?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}
