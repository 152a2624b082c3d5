//! Requests, one after the other on each of some connections, and what they
//! cost the server in CPU time.
//!
//! The server is another process; its CPU time is read from its clock before
//! and after, so what this side costs does not count, and a busy machine
//! disturbs less than it would a measurement of time passed.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sheaf_wire::{HEADER_BYTES, Header};

/// What a load cost.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Requests answered.
    pub requests: u64,
    /// Time passed.
    pub elapsed: Duration,
    /// CPU time of the server, in user mode and in the kernel.
    pub server_cpu: Duration,
}

impl Measured {
    /// Server CPU for a request, in microseconds.
    pub fn cpu_us(&self) -> f64 {
        self.server_cpu.as_secs_f64() * 1e6 / self.requests.max(1) as f64
    }

    /// Requests answered in a second.
    pub fn per_second(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64()
    }
}

/// Sends `request` again and again on so many connections for so long, each
/// time waiting for the reply. `pid` is the server's process.
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

/// As [`run`], with requests of their own: `make` appends the request of this
/// number on the connection of this number to an empty buffer.
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
        // The connection is set up before the clock starts.
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

/// CPU time that a process has used, all its threads together.
pub fn cpu_time(pid: u32) -> io::Result<Duration> {
    let mut clock = 0;
    // SAFETY: the pointer is valid for the call.
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

/// Memory of a process that is in RAM, in kB.
pub fn resident_kb(pid: u32) -> io::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|text| text.trim_end_matches("kB").trim().parse().ok())
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}
