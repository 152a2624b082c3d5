//! The server as a process: its lock on the data folder, its place in the
//! background, the signals it handles, and its exit codes.

pub mod daemon;
mod exit;
mod limits;
mod lock_file;
mod shutdown;
mod signals;

pub use exit::Exit;
pub use limits::{keep_files_private, outlive_file_size_limit, raise_open_files};
pub use lock_file::{LockFile, PidFile, prepare_folder, stop_holder};
pub use shutdown::{Reason, Shutdown};
pub use signals::listen;
