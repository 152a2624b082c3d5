//! The tree file by itself: reads from a cold disk by either way of reading pages, and what a
//! commit of updates writes.
//!
//! ```text
//!   cargo run --release -p sheaf-bench --bin tree_bench -- [--documents N] [--bytes B] [--folder F]
//! ```
//!
//! Cold means that the file was evicted from the page cache (`posix_fadvise`). `read` is the amount
//! that the process read from disk, by `/proc/self/io`, as a multiple of the size of the documents.

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use sheaf_bench::engines::{Documents, Result, mixed};
use sheaf_storage::TableId;
use sheaf_storage::budget::MemoryBudget;
use sheaf_storage::folder::{DiskFolder, Folder};
use sheaf_storage::tree::{Change, Changes, PageReading, TableOptions, TreeFile, TreeOptions};

const TABLE: TableId = TableId(1);

fn options(reading: PageReading) -> TreeOptions {
    TreeOptions {
        reading,
        budget: MemoryBudget::new(256 << 20),
    }
}

/// Evicts the file from the page cache.
fn forget(path: &Path) -> Result<()> {
    let file = std::fs::File::open(path)?;
    file.sync_all()?;
    // SAFETY: the call takes an open file and no pointers.
    let code = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    if code != 0 {
        return Err(std::io::Error::from_raw_os_error(code).into());
    }
    Ok(())
}

fn bytes_read() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = io
        .lines()
        .find_map(|line| line.strip_prefix("read_bytes: "));
    line.and_then(|number| number.parse().ok()).unwrap_or(0)
}

struct Updates {
    list: Vec<(Vec<u8>, Vec<u8>)>,
    at: usize,
}

impl Changes for Updates {
    fn current(&self) -> Option<Change<'_>> {
        let put = self.list.get(self.at);
        put.map(|(key, value)| Change::Put(key, value))
    }

    fn advance(&mut self) -> sheaf_storage::Result<()> {
        self.at += 1;
        Ok(())
    }
}

fn main() -> Result<()> {
    let (mut count, mut bytes, mut place) = (1_000_000, 500, std::env::temp_dir());
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let value = args.next().ok_or(format!("{arg} needs a value"))?;
        match arg.as_str() {
            "--documents" => count = value.parse()?,
            "--bytes" => bytes = value.parse()?,
            "--folder" => place = PathBuf::from(value),
            _ => return Err(format!("unknown option {arg}").into()),
        }
    }
    let documents = Documents { count, bytes };
    let path = tempfile::tempdir_in(&place)?;
    let folder: Arc<dyn Folder> = Arc::new(DiskFolder::open(path.path())?);
    let file = TreeFile::create(&folder, "tree", options(PageReading::Mapped))?;
    let start = Instant::now();
    let mut bulk = file.bulk(TABLE, TableOptions::default())?;
    for n in 0..count {
        bulk.push(&documents.record_key(n), &documents.document(n, 0))?;
    }
    let mut writer = file.writer()?;
    writer.create_table(TABLE, TableOptions::default())?;
    writer.install(TABLE, bulk.finish()?)?;
    writer.commit(1)?;
    let size = file.stats().file_bytes;
    println!(
        "bulk load                  {:>9.0} documents/s, file {} MB, {:.2} times the entries' bytes",
        count as f64 / start.elapsed().as_secs_f64(),
        size >> 20,
        size as f64 / (count * (bytes as u64 + 8)) as f64,
    );
    drop(file);
    for reading in [PageReading::Mapped, PageReading::Cached] {
        cold(&folder, &path.path().join("tree"), reading, documents)?;
    }
    updates(&folder, documents)
}

fn cold(
    folder: &Arc<dyn Folder>,
    path: &Path,
    reading: PageReading,
    documents: Documents,
) -> Result<()> {
    const GETS: u64 = 4000;
    forget(path)?;
    let file = TreeFile::open(folder, "tree", options(reading))?;
    let roots = file.roots();
    let (start, before) = (Instant::now(), bytes_read());
    for n in 0..GETS {
        let key = documents.record_key(mixed(n) % documents.count);
        assert!(roots.get(TABLE, &key)?.is_some());
    }
    println!(
        "{reading:?}, cold: get          {:>9.1} µs, read {:.0}",
        start.elapsed().as_secs_f64() * 1e6 / GETS as f64,
        (bytes_read() - before) as f64 / (GETS * documents.bytes as u64) as f64,
    );
    drop((roots, file));
    forget(path)?;
    let file = TreeFile::open(folder, "tree", options(reading))?;
    let mut cursor = file.roots().cursor(TABLE)?;
    let (start, before) = (Instant::now(), bytes_read());
    let (mut found, mut seen) = (cursor.seek_first()?, 0);
    while found {
        seen += cursor.value().len();
        found = cursor.next()?;
    }
    println!(
        "{reading:?}, cold: scan         {:>9.1} MB/s, read {:.2}",
        seen as f64 / 1e6 / start.elapsed().as_secs_f64(),
        (bytes_read() - before) as f64 / seen as f64,
    );
    Ok(())
}

/// Commits 64 MB of updates to random documents, several times.
fn updates(folder: &Arc<dyn Folder>, documents: Documents) -> Result<()> {
    let file = TreeFile::open(folder, "tree", options(PageReading::Mapped))?;
    let each = (64 << 20) / documents.bytes as u64;
    for round in 0..6 {
        let mut list: Vec<(Vec<u8>, Vec<u8>)> = (0..each)
            .map(|n| mixed(n + round * each) % documents.count)
            .map(|n| {
                (
                    documents.record_key(n).to_vec(),
                    documents.document(n, round + 1),
                )
            })
            .collect();
        list.sort();
        list.dedup_by(|a, b| a.0 == b.0);
        let (given, before) = (list.len(), file.stats());
        let start = Instant::now();
        let mut writer = file.writer()?;
        writer.apply(TABLE, &mut Updates { list, at: 0 })?;
        let applied = start.elapsed().as_secs_f64();
        writer.commit(round + 2)?;
        let after = file.stats();
        println!(
            "update {given} documents    {:>9.2} µs each applied, {:.2} with commit; {:.1} times their bytes written in {} writes; file {} MB, free {} MB",
            applied * 1e6 / given as f64,
            start.elapsed().as_secs_f64() * 1e6 / given as f64,
            (after.bytes_written - before.bytes_written) as f64 / (given * documents.bytes) as f64,
            after.writes - before.writes,
            after.file_bytes >> 20,
            after.free_bytes >> 20,
        );
    }
    Ok(())
}
