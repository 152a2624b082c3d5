//! Load generation: consecutive requests on each of several connections, and their cost in server
//! CPU time.
//!
//! The server is another process. Its CPU clock is read before and after, so the cost of the client
//! does not count, and other load on the machine disturbs less than it would a measurement of wall
//! time.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sheaf_wire::{HEADER_BYTES, Header};

/// The result of a load.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Number of requests answered.
    pub requests: u64,
    /// Wall time.
    pub elapsed: Duration,
    /// CPU time of the server, user and kernel mode.
    pub server_cpu: Duration,
}

impl Measured {
    /// Server CPU time per request, in microseconds.
    pub fn cpu_us(&self) -> f64 {
        self.server_cpu.as_secs_f64() * 1e6 / self.requests.max(1) as f64
    }

    /// Requests per second of wall time.
    pub fn per_second(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64()
    }
}

/// Sends `request` repeatedly on `connections` connections for `duration`, waiting for each reply.
/// `pid` is the server's process.
pub fn run(
    address: SocketAddr,
    pid: u32,
    connections: usize,
    duration: Duration,
    request: &[u8],
) -> io::Result<Measured> {
    let make = |_, _, out: &mut Vec<u8>| out.extend_from_slice(request);
    run_with(address, pid, connections, duration, &make)
}

/// As [`run`], with varying requests: `make(connection, number, out)` appends a request to the
/// empty buffer `out`.
pub fn run_with(
    address: SocketAddr,
    pid: u32,
    connections: usize,
    duration: Duration,
    make: &(impl Fn(usize, u64, &mut Vec<u8>) + Sync),
) -> io::Result<Measured> {
    let mut streams = Vec::new();
    for connection in 0..connections {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        // Set up the connection before the measurement starts.
        let mut request = Vec::new();
        make(connection, 0, &mut request);
        exchange(&mut stream, &request, &mut Vec::new())?;
        streams.push(stream);
    }
    let stop = AtomicBool::new(false);
    let cpu_before = cpu_time(pid)?;
    let start = Instant::now();
    let requests = std::thread::scope(|scope| {
        let stop = &stop;
        let workers: Vec<_> = streams
            .into_iter()
            .enumerate()
            .map(|(connection, mut stream)| {
                scope.spawn(move || {
                    let (mut request, mut reply) = (Vec::new(), Vec::new());
                    let mut done = 0u64;
                    while !stop.load(Ordering::Relaxed) {
                        done += 1;
                        request.clear();
                        make(connection, done, &mut request);
                        exchange(&mut stream, &request, &mut reply)?;
                    }
                    io::Result::Ok(done)
                })
            })
            .collect();
        std::thread::sleep(duration);
        stop.store(true, Ordering::Relaxed);
        workers
            .into_iter()
            .map(|worker| worker.join().expect("a worker does not panic"))
            .sum::<io::Result<u64>>()
    })?;
    Ok(Measured {
        requests,
        elapsed: start.elapsed(),
        server_cpu: cpu_time(pid)?.saturating_sub(cpu_before),
    })
}

/// Sends one request and reads its reply into `reply`.
pub fn exchange(stream: &mut TcpStream, request: &[u8], reply: &mut Vec<u8>) -> io::Result<()> {
    stream.write_all(request)?;
    reply.resize(4096, 0);
    let mut have = 0;
    loop {
        let n = stream.read(&mut reply[have..])?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        have += n;
        if have < HEADER_BYTES {
            continue;
        }
        let header = Header::read(reply).ok_or(io::ErrorKind::InvalidData)?;
        let length = usize::try_from(header.message_length).map_err(io::Error::other)?;
        if have >= length {
            reply.truncate(length);
            return Ok(());
        }
        if reply.len() < length {
            reply.resize(length, 0);
        }
    }
}

/// CPU time of a process so far, over all its threads.
pub fn cpu_time(pid: u32) -> io::Result<Duration> {
    let mut clock = 0;
    // SAFETY: the pointer is valid during the call.
    let failed = unsafe { libc::clock_getcpuclockid(pid as libc::pid_t, &mut clock) };
    if failed != 0 {
        return Err(io::Error::from_raw_os_error(failed));
    }
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: as above.
    if unsafe { libc::clock_gettime(clock, &mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// Resident memory of a process, in kB.
pub fn resident_kb(pid: u32) -> io::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|text| text.trim_end_matches("kB").trim().parse().ok())
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}
