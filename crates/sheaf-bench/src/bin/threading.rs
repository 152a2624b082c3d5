//! Compares a blocking thread per connection with tasks on an async runtime. Measures all forms of
//! the null server and prints their cost.
//!
//!   cargo run --release -p sheaf-bench --bin threading
//!
//! `threading PID ADDRESS` measures another server that is already running.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use sheaf_bench::load::{self, exchange, resident_kb};
use sheaf_bench::null_server::{self, Form, NullServer, small_request};

const CONNECTIONS: [usize; 3] = [1, 4, 64];

/// Number of rounds; the cheapest counts, because disturbances only add.
const ROUNDS: usize = 5;

const ROUND: Duration = Duration::from_millis(600);

const IDLE_CONNECTIONS: u64 = 1000;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["serve", form] => null_server::serve_named(form),
        [pid, address] => {
            heading();
            let pid = pid.parse().map_err(io::Error::other)?;
            measure("running", pid, address.parse().map_err(io::Error::other)?)
        }
        _ => {
            heading();
            for form in Form::ALL {
                let server = NullServer::start(form)?;
                measure(form.name(), server.pid(), server.address)?;
            }
            Ok(())
        }
    }
}

fn heading() {
    println!(
        "{:<18} {:>12} {:>14} {:>14} {:>14} {:>16}",
        "", "connections", "cpu us/request", "requests/s", "requests", "kB/idle conn."
    );
}

fn measure(name: &str, pid: u32, address: SocketAddr) -> io::Result<()> {
    let request = small_request();
    for connections in CONNECTIONS {
        let mut best: Option<load::Measured> = None;
        for _ in 0..ROUNDS {
            let measured = load::run(address, pid, connections, ROUND, &request)?;
            if best.is_none_or(|best| measured.cpu_us() < best.cpu_us()) {
                best = Some(measured);
            }
        }
        if let Some(best) = best {
            println!(
                "{name:<18} {connections:>12} {:>14.2} {:>14.0} {:>14}",
                best.cpu_us(),
                best.per_second(),
                best.requests
            );
        }
    }
    let before = resident_kb(pid)?;
    let mut idle = Vec::new();
    for _ in 0..IDLE_CONNECTIONS {
        let mut stream = TcpStream::connect(address)?;
        exchange(&mut stream, &request, &mut Vec::new())?;
        idle.push(stream);
    }
    std::thread::sleep(Duration::from_millis(2500));
    let grown = resident_kb(pid)?.saturating_sub(before);
    let each = grown as f64 / IDLE_CONNECTIONS as f64;
    println!("{name:<18} {IDLE_CONNECTIONS:>12} {:>61.1}", each);
    Ok(())
}
