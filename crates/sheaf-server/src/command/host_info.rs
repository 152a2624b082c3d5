//! `hostInfo`: the machine the server runs on.

use std::collections::BTreeSet;

use sheaf_bson::{DateTime, DocBuilder, Error};

use super::context::CommandContext;
use crate::host::host_name;
use crate::host::machine_memory;

/// Runs it.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    cx.no_arguments()?;
    let memory_mb = machine_memory().map_or(0, |bytes| bytes >> 20) as i64;
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get()) as i32;
    out.begin_document("system");
    out.append("currentTime", DateTime::now());
    out.append("hostname", host_name().as_str());
    out.append("cpuAddrSize", usize::BITS as i32);
    out.append("memSizeMB", memory_mb);
    out.append("memLimitMB", memory_mb);
    out.append("numCores", cores);
    out.append("numCoresAvailableToProcess", cores);
    let topology = CpuTopology::read();
    out.append("numPhysicalCores", topology.cores.unwrap_or(cores));
    out.append("numCpuSockets", topology.sockets.unwrap_or(1));
    out.append("cpuArch", std::env::consts::ARCH);
    out.append("numaEnabled", topology.numa_nodes > 1);
    out.append("numNumaNodes", topology.numa_nodes);
    out.end();
    out.begin_document("os");
    out.append("type", "Linux");
    out.append("name", os_name().as_str());
    out.append("version", first_line("/proc/sys/kernel/osrelease").as_str());
    out.end();
    out.begin_document("extra");
    out.append("versionString", first_line("/proc/version").as_str());
    out.append(
        "kernelVersion",
        first_line("/proc/sys/kernel/osrelease").as_str(),
    );
    append_limits(out);
    out.end();
    Ok(())
}

/// Processors, as Linux describes them.
struct CpuTopology {
    cores: Option<i32>,
    sockets: Option<i32>,
    numa_nodes: i32,
}

impl CpuTopology {
    fn read() -> CpuTopology {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let value = |line: &str, name: &str| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim().to_owned())
        };
        let (mut sockets, mut cores, mut socket) = (BTreeSet::new(), BTreeSet::new(), None);
        for line in text.lines() {
            if let Some(id) = value(line, "physical id") {
                sockets.insert(id.clone());
                socket = Some(id);
            } else if let Some(id) = value(line, "core id") {
                cores.insert((socket.clone(), id));
            }
        }
        let count = |n: usize| i32::try_from(n).ok().filter(|n| *n > 0);
        let nodes = std::fs::read_dir("/sys/devices/system/node")
            .into_iter()
            .flatten();
        let nodes = nodes.flatten().filter(|entry| {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("node"));
            number.is_some_and(|number| number.parse::<u32>().is_ok())
        });
        CpuTopology {
            cores: count(cores.len()),
            sockets: count(sockets.len()),
            numa_nodes: count(nodes.count()).unwrap_or(1),
        }
    }
}

/// The C library's version, and limits of memory and open files.
fn append_limits(out: &mut DocBuilder) {
    let limits = crate::host::system_limits();
    out.append("libcVersion", limits.libc_version.as_str());
    out.append("pageSize", limits.page_bytes);
    out.append("numPages", limits.pages);
    out.append("maxOpenFiles", limits.open_files);
}

fn first_line(path: &str) -> String {
    std::fs::read_to_string(path)
        .ok()
        .and_then(|text| text.lines().next().map(str::to_owned))
        .unwrap_or_default()
}

fn os_name() -> String {
    std::fs::read_to_string("/etc/os-release")
        .ok()
        .and_then(|text| {
            text.lines()
                .find_map(|line| line.strip_prefix("PRETTY_NAME="))
                .map(|name| name.trim_matches('"').to_owned())
        })
        .unwrap_or_else(|| "Linux".into())
}
