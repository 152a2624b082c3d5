//! Starts the server from its settings, and stops it.
//!
//! ```text
//!  log ─> lock on the data folder ─> database (service) ─> listeners ─> ready
//!   ^                                                                     │
//!   └── locks released <── database closed <── connections closed <── signal
//! ```

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sheaf_bson::{DocBuilder, Error};
use sheaf_server::engine;
use sheaf_server::host::{host_name, memory_limit, threads_limit};
use sheaf_server::log::{self, Component, Log, Severity, events};

use crate::config::{Net, Settings};
use crate::net::{
    BindError, Connections, Endpoint, Listener, MessageMemory, NetOptions, Server, Service,
    all_addresses, resolve, unix_socket_path,
};
use crate::process::daemon::Readiness;
use crate::process::{self, Exit, LockFile, PidFile, Reason, Shutdown};
use crate::program::Program;
use crate::service::CommandService;
use crate::tls::Tls;

/// Time that operations in progress have to finish after a shutdown request.
const GRACE: Duration = Duration::from_secs(10);

/// How long a large message waits for memory.
const MESSAGE_PATIENCE: Duration = Duration::from_secs(30);

/// Memory that large messages may take together: an eighth of the machine's or the container's, but
/// enough for four of the largest.
fn message_bytes_max() -> usize {
    const LEAST: usize = 4 * sheaf_wire::MAX_MESSAGE_BYTES;
    let eighth = memory_limit().map_or(0, |bytes| bytes / 8);
    usize::try_from(eighth).unwrap_or(usize::MAX).max(LEAST)
}

/// Maximum wait for the last log lines at shutdown.
const LOG_FLUSH: Duration = Duration::from_secs(2);

/// Runs the server until a shutdown is requested.
pub fn run(settings: Settings, readiness: Readiness) -> Exit {
    log::set_context("main");
    let log = match Log::open(settings.log.options.clone()) {
        Ok(log) => log,
        Err(e) => {
            eprintln!("sheafd: cannot open the log: {e}");
            return Exit::BadOptions;
        }
    };
    for (component, level) in &settings.log.components {
        log.set_verbosity(*component, *level);
    }
    log_panics(&log);
    let exit = start_and_wait(&settings, &log, readiness);
    log.info(Component::Control, 23138, "Shutting down", |attr| {
        attr.append("exitCode", i32::from(exit.code()));
    });
    log.flush(LOG_FLUSH);
    exit
}

fn start_and_wait(settings: &Settings, log: &Arc<Log>, readiness: Readiness) -> Exit {
    log_start(settings, log);
    let shutdown = Shutdown::new();
    if let Err(e) = process::listen(shutdown.clone(), Arc::clone(log)) {
        return fatal(log, Exit::Uncaught, &e.to_string());
    }
    log::set_context("initandlisten");
    warn(settings, log);
    let folder = &settings.server.storage.db_path;
    let lock = process::prepare_folder(folder, settings.server.storage.db_path_given)
        .and_then(|()| LockFile::acquire(folder));
    let lock = match lock {
        Ok(lock) => lock,
        Err(e) => return fatal(log, Exit::Uncaught, &e.to_string()),
    };

    if let Some(maintenance) = settings.server.storage.maintenance {
        return match engine::maintain(&settings.server, log, maintenance) {
            Ok(true) => Exit::Clean,
            Ok(false) => fatal(
                log,
                Exit::Uncaught,
                "data files are damaged: restore a backup, or salvage readable data with --repair",
            ),
            Err(e) => fatal(log, Exit::Uncaught, &e.to_string()),
        };
    }

    if let Some(entry) = open_to_all(settings).filter(|_| !settings.no_auth) {
        let error = format!(
            "on the address '{entry}' everyone who reaches it would own the data: add --auth to \
             require logins, or --noauth to allow it"
        );
        return fatal(log, Exit::BadOptions, &error);
    }
    let tls = match settings.net.tls.clone().map(Tls::new).transpose() {
        Ok(tls) => tls,
        Err(e) => return fatal(log, Exit::BadOptions, &e),
    };
    let program = Arc::new(Program {
        shutdown,
        connections: Connections::new(connections_max(settings, log)),
        tls,
    });
    let service = match open(settings, log, &program) {
        Ok(service) => Arc::new(service),
        Err(e) => return fatal(log, Exit::Uncaught, &e.to_string()),
    };

    let running = Running {
        settings,
        log,
        program,
    };
    let exit = running.serve(Arc::clone(&service) as Arc<dyn Service>, readiness);
    let at_rest = service.close();
    drop(lock);
    match exit {
        Exit::Clean if !at_rest => Exit::Unclean,
        exit => exit,
    }
}

/// Opens the database in the locked data folder and creates the service for its requests.
///
/// Errors: the data folder cannot be opened, or an option cannot be honoured.
fn open(
    settings: &Settings,
    log: &Arc<Log>,
    program: &Arc<Program>,
) -> Result<CommandService, Error> {
    let settings = Arc::new(settings.server.clone());
    let db = sheaf_server::open::open(&settings, log)?;
    let server = sheaf_server::Server::new(
        db,
        settings,
        Arc::clone(log),
        Arc::clone(program) as _,
        Arc::clone(program) as _,
    )?;
    sheaf_server::jobs::start(&server)?;
    Ok(CommandService(server))
}

/// A server that is about to listen.
struct Running<'s> {
    settings: &'s Settings,
    log: &'s Arc<Log>,
    program: Arc<Program>,
}

impl Running<'_> {
    /// Listens, waits for a shutdown request, and closes all connections.
    fn serve(self, service: Arc<dyn Service>, readiness: Readiness) -> Exit {
        let Running {
            settings,
            log,
            program,
        } = self;
        let listeners = match bind(&settings.net) {
            Ok(listeners) => listeners,
            Err(e) => return fatal(log, Exit::NetError, &e.to_string()),
        };
        let pid_file = match settings.pid_file.as_deref().map(PidFile::write).transpose() {
            Ok(pid_file) => pid_file,
            Err(e) => return fatal(log, Exit::Uncaught, &e.to_string()),
        };
        let port = listeners.iter().find_map(Listener::port);
        for listener in &listeners {
            log.info(Component::Network, 23015, "Listening on", |attr| {
                attr.append("address", listener.endpoint().to_string().as_str());
            });
        }
        let options = NetOptions {
            compressors: settings.net.compressors,
            quiet: settings.log.quiet,
            send_limit: None,
            tls: program.tls.clone(),
            handshake_limit: None,
            message_memory: MessageMemory::new(message_bytes_max(), MESSAGE_PATIENCE),
        };
        let connections = Arc::clone(&program.connections);
        let server = match Server::start(listeners, service, connections, options, Arc::clone(log))
        {
            Ok(server) => server,
            Err(e) => return fatal(log, Exit::NetError, &e.to_string()),
        };
        log.info(
            Component::Network,
            23016,
            "Waiting for connections",
            |attr| {
                attr.append("port", i32::from(port.unwrap_or(settings.net.port)));
                attr.append("ssl", if program.tls.is_some() { "on" } else { "off" });
            },
        );
        // A process that waits for readiness may read the log immediately.
        log.flush(LOG_FLUSH);
        if let Err(e) = readiness.ready() {
            log.warning(
                Component::Control,
                events::READINESS_NOT_REPORTED,
                "Could not report readiness to the calling process",
                |attr| {
                    attr.append("error", e.to_string().as_str());
                },
            );
        }

        let reason = program.shutdown.wait();
        log::set_context("shutdown");
        log.info(
            Component::Control,
            23381,
            "Shutting down after the operations in progress",
            |attr| {
                match reason {
                    Reason::Signal(signal) => attr.append("signal", signal),
                    Reason::Command => attr.append("command", "shutdown"),
                };
            },
        );
        server.stop(GRACE);
        drop(pid_file);
        Exit::Clean
    }
}

/// Listens on all addresses of the settings. All share one port: with port 0
/// the port of the first listener is used for the others.
fn bind(net: &Net) -> Result<Vec<Listener>, BindError> {
    let mut listeners = Vec::new();
    let mut port = net.port;
    for entry in net.bind.iter().filter(|entry| !entry.starts_with('/')) {
        let addresses = match entry.as_str() {
            "*" => all_addresses(net.ipv6),
            entry => resolve(entry, net.ipv6)?,
        };
        for address in addresses {
            let listener = Listener::bind(Endpoint::Tcp(SocketAddr::new(address, port)))?;
            port = listener.port().unwrap_or(port);
            listeners.push(listener);
        }
    }
    let named = net
        .bind
        .iter()
        .filter(|entry| entry.starts_with('/'))
        .map(PathBuf::from);
    let own = net
        .unix_socket
        .iter()
        .map(|socket| unix_socket_path(&socket.prefix, port));
    for path in named.chain(own) {
        listeners.push(Listener::bind(Endpoint::Unix {
            path,
            permissions: net.unix_permissions,
        })?);
    }
    Ok(listeners)
}

/// Descriptors kept for files, in percent.
const FILES_PERCENT: u64 = 20;

/// Threads kept for the server itself.
const THREADS_RESERVED: u64 = 64;

/// The configured number of connections, or the number that descriptors and threads allow: each
/// connection needs one of each. A lower limit is logged with its reason.
fn connections_max(settings: &Settings, log: &Log) -> usize {
    let wanted = settings.net.connections_max;
    let by_files = process::raise_open_files().map(|files| Limit {
        id: 22939,
        message: "The open file limit allows fewer connections than configured",
        name: "openFiles",
        value: files,
        connections: files * (100 - FILES_PERCENT) / 100,
    });
    let by_threads = threads_limit().map(|threads| Limit {
        id: events::CONNECTIONS_LIMITED_BY_THREADS,
        message: "The thread limit allows fewer connections than configured",
        name: "threads",
        value: threads,
        connections: threads.saturating_sub(THREADS_RESERVED).max(1),
    });
    let limits = by_files.into_iter().chain(by_threads);
    let Some(least) = limits.min_by_key(|limit| limit.connections) else {
        return wanted;
    };
    let possible = usize::try_from(least.connections).unwrap_or(usize::MAX);
    if possible < wanted {
        log.info(Component::Network, least.id, least.message, |attr| {
            attr.append("maxConns", wanted as i64);
            attr.append(least.name, least.value as i64);
            attr.append("connections", possible as i64);
        });
    }
    wanted.min(possible)
}

/// What bounds the number of connections.
struct Limit {
    id: u32,
    message: &'static str,
    name: &'static str,
    value: u64,
    connections: u64,
}

fn log_start(settings: &Settings, log: &Log) {
    log.info(Component::Control, 4_615_611, "sheafd starting", |attr| {
        attr.append("pid", std::process::id() as i64);
        attr.append("port", i32::from(settings.net.port));
        attr.append(
            "dbPath",
            settings.server.storage.db_path.to_string_lossy().as_ref(),
        );
        attr.append("architecture", "64-bit");
        attr.append("host", host_name().as_str());
    });
    log.info(Component::Control, 23403, "Build Info", |attr| {
        attr.begin_document("buildInfo");
        attr.append("version", crate::VERSION);
        attr.begin_document("environment");
        attr.append("target_arch", std::env::consts::ARCH);
        attr.append("target_os", std::env::consts::OS);
        attr.end();
        attr.end();
    });
    log.info(
        Component::Control,
        21951,
        "Options set by command line",
        |attr| {
            attr.append_bson("options", &settings.server.parsed);
        },
    );
}

/// Logs the warnings an operator should see before trusting data to this server.
fn warn(settings: &Settings, log: &Log) {
    if !settings.server.authorization {
        log.startup_warning(
            22120,
            "Access control is not enabled for the database. Read and write access to data and configuration is unrestricted",
            log::none,
        );
    }
    for (option, because) in &settings.without_effect {
        log.startup_warning(
            events::OPTION_WITHOUT_EFFECT,
            "Option has no effect",
            |attr: &mut DocBuilder| {
                attr.append("option", option.as_str());
                attr.append("reason", *because);
            },
        );
    }
    // SAFETY: accesses no memory.
    if unsafe { libc::geteuid() } == 0 {
        log.startup_warning(
            22138,
            "You are running this process as the root user, which is not recommended",
            log::none,
        );
    }
    if let Some(entry) = open_to_all(settings) {
        log.startup_warning(
            events::LISTENS_WITHOUT_ACCESS_CONTROL,
            "The server accepts remote connections without access control",
            |attr: &mut DocBuilder| {
                attr.append("bindIp", entry);
            },
        );
    }
}

/// The first address beyond this machine on which the server would listen without access control.
fn open_to_all(settings: &Settings) -> Option<&str> {
    let beyond_loopback = |entry: &&String| match entry.parse::<std::net::IpAddr>() {
        Ok(address) => !address.is_loopback(),
        Err(_) => *entry != "localhost" && !entry.starts_with('/'),
    };
    let entry = settings.net.bind.iter().find(beyond_loopback)?;
    (!settings.server.authorization).then_some(entry)
}

fn fatal(log: &Log, exit: Exit, error: &str) -> Exit {
    log.line(
        Severity::Fatal,
        Component::Control,
        20573,
        "The server cannot start",
        |attr| {
            attr.append("error", error);
            attr.append("exitCode", i32::from(exit.code()));
        },
    );
    exit
}

/// Logs panics with their source location.
fn log_panics(log: &Arc<Log>) {
    let log = Arc::downgrade(log);
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let Some(log) = log.upgrade() else {
            return print(panic);
        };
        let payload = panic.payload();
        let message = payload
            .downcast_ref::<&str>()
            .copied()
            .or(payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("an internal invariant does not hold");
        log.error(Component::Control, events::PANIC, "Panic", |attr| {
            attr.append("error", log.client_text(message));
            if let Some(place) = panic.location() {
                attr.append("file", place.file());
                attr.append("line", i64::from(place.line()));
            }
        });
    }));
}
