//! Where lines go: a bounded queue, and one thread that writes them out.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::{Condvar, Mutex};

/// Bytes of lines that may wait for the writer; beyond that lines are dropped.
const QUEUED_BYTES_MAX: usize = 8 << 20;

/// Bytes handed to the system in one write.
const CHUNK_BYTES: usize = 64 << 10;

/// Where the lines go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Destination {
    /// Standard output.
    #[default]
    Stdout,
    /// A file.
    File {
        /// Its path.
        path: PathBuf,
        /// Append to an existing file; otherwise [`Rotation::Rename`] renames it first.
        append: bool,
    },
}

/// What `logRotate` does to a log file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rotation {
    /// Renames it to `<path>.<time in UTC>` and begins a new one.
    #[default]
    Rename,
    /// Opens the path again: another program has renamed the file.
    Reopen,
}

pub(super) struct Sink {
    shared: Option<Arc<Shared>>,
    path: Option<PathBuf>,
}

struct Shared {
    queue: Mutex<Queue>,
    /// Something was queued.
    filled: Condvar,
    /// Everything queued was written.
    drained: Condvar,
}

#[derive(Default)]
struct Queue {
    items: VecDeque<Item>,
    bytes: usize,
    /// Number of lines dropped and not yet reported.
    lost: u64,
    /// The writer is writing items that it has taken from the queue.
    writing: bool,
    closed: bool,
}

enum Item {
    Line(Arc<str>),
    Rotate(mpsc::Sender<io::Result<()>>),
}

impl Sink {
    pub(super) fn open(destination: Destination, rotation: Rotation) -> io::Result<Sink> {
        let output = match &destination {
            Destination::Stdout => Output::Stdout,
            Destination::File { path, append } => {
                if !append && rotation == Rotation::Rename {
                    rename_old(path)?;
                }
                Output::File {
                    file: open_file(path)?,
                    path: path.clone(),
                    rotation,
                }
            }
        };
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            filled: Condvar::new(),
            drained: Condvar::new(),
        });
        let writer = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("logWriter".into())
            .stack_size(128 << 10)
            .spawn(move || write_lines(&writer, output))?;
        Ok(Sink {
            shared: Some(shared),
            path: match destination {
                Destination::Stdout => None,
                Destination::File { path, .. } => Some(path),
            },
        })
    }

    /// A sink that writes nothing.
    pub(super) fn none() -> Sink {
        Sink {
            shared: None,
            path: None,
        }
    }

    pub(super) fn write(&self, line: Arc<str>) {
        let Some(shared) = &self.shared else { return };
        let mut queue = shared.queue.lock();
        if queue.bytes + line.len() > QUEUED_BYTES_MAX {
            queue.lost += 1;
            return;
        }
        queue.bytes += line.len() + 1;
        queue.items.push_back(Item::Line(line));
        drop(queue);
        shared.filled.notify_one();
    }

    pub(super) fn rotate(&self) -> io::Result<()> {
        let Some(shared) = &self.shared else {
            return Ok(());
        };
        let (done, result) = mpsc::channel();
        shared.queue.lock().items.push_back(Item::Rotate(done));
        shared.filled.notify_one();
        result
            .recv()
            .unwrap_or_else(|_| Err(io::Error::other("the log writer thread has ended")))
    }

    pub(super) fn flush(&self, limit: Duration) {
        let Some(shared) = &self.shared else { return };
        let end = Instant::now() + limit;
        let mut queue = shared.queue.lock();
        while !queue.items.is_empty() || queue.writing {
            if shared.drained.wait_until(&mut queue, end).timed_out() {
                return;
            }
        }
    }

    pub(super) fn path(&self) -> Option<PathBuf> {
        self.path.clone()
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            shared.queue.lock().closed = true;
            shared.filled.notify_one();
        }
    }
}

/// The writer thread: writes everything queued, then waits for more.
fn write_lines(shared: &Shared, mut output: Output) {
    let mut chunk = Vec::new();
    loop {
        let mut queue = shared.queue.lock();
        queue.writing = false;
        if queue.items.is_empty() {
            shared.drained.notify_all();
            if queue.closed {
                return;
            }
            shared.filled.wait(&mut queue);
            continue;
        }
        let items = std::mem::take(&mut queue.items);
        let mut lost = std::mem::take(&mut queue.lost);
        queue.bytes = 0;
        queue.writing = true;
        drop(queue);

        let mut pending = 0;
        for item in items {
            match item {
                Item::Line(line) => {
                    chunk.extend_from_slice(line.as_bytes());
                    chunk.push(b'\n');
                    pending += 1;
                    if chunk.len() >= CHUNK_BYTES {
                        lost += output.write(&mut chunk, &mut pending);
                    }
                }
                Item::Rotate(done) => {
                    lost += output.write(&mut chunk, &mut pending);
                    // The receiver may be gone.
                    let _ = done.send(output.rotate());
                }
            }
        }
        lost += output.write(&mut chunk, &mut pending);
        chunk.shrink_to(CHUNK_BYTES);
        if lost > 0 {
            lost = report_lost(&mut output, lost);
            shared.queue.lock().lost += lost;
        }
    }
}

/// Logs the number of lost lines; returns the number still unreported.
fn report_lost(output: &mut Output, lost: u64) -> u64 {
    let format = super::format::Format::new(true);
    let line = format.line(
        super::Severity::Warning,
        super::Component::Control,
        super::events::LINES_LOST,
        "logWriter",
        "Log lines were lost: the log's destination is full or too slow",
        sheaf_bson::doc! {"lines": lost as i64}.as_raw(),
        &[],
    );
    let mut chunk = line.into_bytes();
    chunk.push(b'\n');
    match output.write(&mut chunk, &mut 1) {
        0 => 0,
        _ => lost,
    }
}

enum Output {
    Stdout,
    File {
        file: File,
        path: PathBuf,
        rotation: Rotation,
    },
}

impl Output {
    /// Writes and empties the chunk of `pending` lines; returns how many of
    /// them were lost.
    fn write(&mut self, chunk: &mut Vec<u8>, pending: &mut u64) -> u64 {
        let lines = std::mem::take(pending);
        if chunk.is_empty() {
            return 0;
        }
        let written = match self {
            Output::Stdout => io::stdout()
                .write_all(chunk)
                .and_then(|()| io::stdout().flush()),
            Output::File { file, .. } => file.write_all(chunk),
        };
        chunk.clear();
        // No other place reports a failure of the log; the number of lost lines is logged once a
        // write succeeds.
        match written {
            Ok(()) => 0,
            Err(_) => lines.max(1),
        }
    }

    fn rotate(&mut self) -> io::Result<()> {
        let Output::File {
            file,
            path,
            rotation,
        } = self
        else {
            return Ok(());
        };
        if *rotation == Rotation::Rename {
            rename_old(path)?;
        }
        *file = open_file(path)?;
        Ok(())
    }
}

fn open_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// Renames an existing regular file to `<path>.<time in UTC>`, with a number appended when that
/// name is taken.
fn rename_old(path: &Path) -> io::Result<()> {
    match std::fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Ok(found) if !found.is_file() => return Ok(()),
        Ok(_) | Err(_) => {}
    }
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs() as i64;
    let now = jiff::tz::Offset::UTC
        .to_datetime(jiff::Timestamp::from_second(seconds).unwrap_or_default());
    let stem = format!(
        "{}.{:04}-{:02}-{:02}T{:02}-{:02}-{:02}",
        path.display(),
        now.year(),
        now.month(),
        now.day(),
        now.hour(),
        now.minute(),
        now.second()
    );
    let mut target = PathBuf::from(&stem);
    let mut number = 1;
    while target.exists() {
        target = PathBuf::from(format!("{stem}.{number}"));
        number += 1;
    }
    std::fs::rename(path, target)
}
