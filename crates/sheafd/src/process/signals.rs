//! Signals that the server handles: shutdown and log rotation.

use std::io;
use std::sync::Arc;

use sheaf_server::log::{self, Component, Log};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXCPU};
use signal_hook::iterator::Signals;

use super::{Reason, Shutdown};

/// Starts the signal thread. The first terminating signal begins the shutdown.
/// Later ones are ignored: a shutdown in progress is not cut short.
///
/// Errors: the handlers or the thread could not be set up.
pub fn listen(shutdown: Shutdown, log: Arc<Log>) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGXCPU, SIGUSR1])?;
    std::thread::Builder::new()
        .name("signals".into())
        .stack_size(128 << 10)
        .spawn(move || {
            log::set_context("SignalHandler");
            for signal in signals.forever() {
                match signal {
                    SIGUSR1 => rotate(&log),
                    signal => end(signal, &shutdown, &log),
                }
            }
        })?;
    Ok(())
}

fn end(signal: i32, shutdown: &Shutdown, log: &Log) {
    let message = match shutdown.is_requested() {
        false => "Received signal",
        true => "Received signal while shutting down; ignored",
    };
    log.info(Component::Control, 23377, message, |attr| {
        attr.append("signal", signal);
        attr.append("error", signal_name(signal));
    });
    shutdown.request(Reason::Signal(signal));
}

fn rotate(log: &Log) {
    match log.rotate() {
        Ok(()) => log.info(Component::Control, 23166, "Log rotated", log::none),
        Err(e) => log.error(Component::Control, 23168, "Log rotation failed", |attr| {
            attr.append("error", e.to_string().as_str());
        }),
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        SIGTERM => "Terminated",
        SIGINT => "Interrupt",
        SIGHUP => "Hangup",
        SIGXCPU => "CPU time limit exceeded",
        _ => "Unknown",
    }
}
