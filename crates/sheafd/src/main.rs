//! The server's entry point.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use sheaf_server::host::set_up_heap;
use sheafd::config::{self, Request, Settings};
use sheafd::process::daemon::{Forked, Readiness, fork};
use sheafd::process::{Exit, keep_files_private, outlive_file_size_limit, stop_holder};
use sheafd::startup;
use sheafd::tls::ask_for_password;

/// How long `--shutdown` waits for the server to end.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(300);

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let exit = match config::read(&arguments) {
        Err(e) => {
            eprintln!("sheafd: {e}\nTry 'sheafd --help' for a list of options.");
            Exit::BadOptions
        }
        Ok(Request::Print(text)) => {
            print!("{text}");
            Exit::Clean
        }
        Ok(Request::Shutdown(settings)) => shutdown(&settings),
        Ok(Request::Run(mut settings)) => {
            if let Some(tls) = &mut settings.net.tls {
                ask_for_password(tls);
            }
            match settings.fork {
                true => return run_in_background(*settings),
                false => run(*settings, Readiness::foreground()),
            }
        }
    };
    exit.into()
}

fn run(settings: Settings, readiness: Readiness) -> Exit {
    keep_files_private();
    // SAFETY: no thread has been started.
    unsafe { set_up_heap() };
    outlive_file_size_limit();
    startup::run(settings, readiness)
}

fn run_in_background(settings: Settings) -> ExitCode {
    // SAFETY: options have been read, and no thread has been started.
    match unsafe { fork() } {
        Err(e) => {
            eprintln!("sheafd: cannot fork: {e}");
            Exit::Uncaught.into()
        }
        Ok(Forked::Child(readiness)) => run(settings, readiness).into(),
        Ok(Forked::Parent { pid, failed: None }) => {
            println!("sheafd is running in the background as process {pid}");
            Exit::Clean.into()
        }
        Ok(Forked::Parent {
            failed: Some(code), ..
        }) => {
            eprintln!("sheafd: the background process exited with code {code}; see its log");
            ExitCode::from(code)
        }
    }
}

fn shutdown(settings: &Settings) -> Exit {
    match stop_holder(&settings.server.storage.db_path, SHUTDOWN_LIMIT) {
        Ok(pid) => {
            println!("process {pid} has stopped");
            Exit::Clean
        }
        Err(e) => {
            eprintln!("sheafd: {}", e.message());
            Exit::Failure
        }
    }
}
