//! A server in this process on a temporary folder, used by most tests.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sheaf_server::control::NoControl;
use sheaf_server::log::{Destination, Log, LogOptions, Rotation};
use sheaf_server::traffic::NoTraffic;
use sheaf_server::{Settings, jobs};
use tempfile::TempDir;

use super::client::Client;

/// A running server; closed when dropped.
pub struct Server {
    server: Arc<sheaf_server::Server>,
    folder: PathBuf,
    /// `None` if the folder belongs to the test.
    _own_folder: Option<TempDir>,
}

impl Server {
    /// A server on a new folder.
    pub fn start() -> Server {
        Server::start_with(&[])
    }

    /// A server on a new folder with these options, spelled as on the command line.
    pub fn start_with(options: &[&str]) -> Server {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().to_path_buf();
        Server::open(&path, options, Some(folder))
    }

    /// A server on the test's folder, which can be restarted on it.
    pub fn start_on(folder: &Path, options: &[&str]) -> Server {
        Server::open(folder, options, None)
    }

    fn open(folder: &Path, options: &[&str], own_folder: Option<TempDir>) -> Server {
        let settings = settings(folder, options);
        let log = Log::open(LogOptions {
            destination: Destination::File {
                path: folder.join("log"),
                append: true,
            },
            utc: true,
            verbosity: 0,
            rotation: Rotation::Rename,
        });
        let log = log.expect("a log");
        let db = sheaf_server::open::open(&settings, &log).expect("the database opens");
        let (control, traffic) = (Arc::new(NoControl), Arc::new(NoTraffic));
        let server = sheaf_server::Server::new(db, Arc::new(settings), log, control, traffic);
        let server = server.expect("the settings are possible");
        jobs::start(&server).expect("threads");
        Server {
            server,
            folder: folder.to_path_buf(),
            _own_folder: own_folder,
        }
    }

    /// A new client of it.
    pub fn client(&self) -> Client {
        Client::new(&self.server)
    }

    /// Returns its data folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Stops it.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.server.interrupt();
        let at_rest = self.server.close();
        assert!(
            at_rest || std::thread::panicking(),
            "the database is closed"
        );
    }
}

fn settings(folder: &Path, options: &[&str]) -> Settings {
    let mut settings = Settings::in_folder(folder);
    settings.javascript = Some(Arc::new(sheaf_js::QuickJs));
    for pair in options.chunks(2) {
        let &[name, value] = pair else {
            panic!("an option without a value: {pair:?}");
        };
        match name {
            "--setParameter" => {
                let (name, value) = value.split_once('=').expect("name=value");
                let parameter = (name.to_owned(), value.to_owned());
                settings.parameters.push(parameter);
            }
            "--cacheSizeGB" => {
                let gigabytes: f64 = value.parse().expect("a number");
                settings.storage.cache_bytes = Some((gigabytes * f64::from(1 << 30)) as u64);
            }
            "--auth" => settings.authorization = value == "true",
            "--replSet" => settings.replica_set = Some(value.to_owned()),
            "--storageEngine" => settings.storage.engine = Some(value.to_owned()),
            other => panic!("add {other} to the options of tests"),
        }
    }
    settings
}
