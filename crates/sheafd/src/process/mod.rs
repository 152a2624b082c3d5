//! The server as a process: its lock on the data folder, its place in the
//! background, the signals it hears, and how it ends.

pub mod daemon;
mod exit;
mod heap;
mod limits;
mod lock_file;
mod resources;
mod shutdown;
mod signals;

pub use exit::Exit;
pub use heap::{give_back_unused, resident_anonymous, set_up_heap};
pub use limits::{keep_files_private, outlive_file_size_limit, raise_open_files};
pub use lock_file::{LockFile, PidFile, prepare_folder, stop_holder};
pub use resources::{cpu_times, file_system, machine_memory, memory_limit};
pub use shutdown::{Reason, Shutdown};
pub use signals::listen;
