//! `hostInfo`: the machine the server runs on.

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
    out.append("cpuArch", std::env::consts::ARCH);
    out.append("numaEnabled", false);
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
    out.end();
    Ok(())
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
