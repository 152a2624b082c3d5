//! `buildInfo`: version and build facts.

use sheaf_bson::{DocBuilder, Error};

use super::context::CommandContext;
use super::hello::BSON_BYTES_MAX;
use crate::server::Server;

/// The MongoDB version whose behaviour clients can rely on.
pub const COMPATIBLE_VERSION: &str = "8.2.0";

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    cx.no_arguments()?;
    append(cx.server, out);
    Ok(())
}

/// Appends version and build facts.
pub fn append(server: &Server, out: &mut DocBuilder) {
    out.append("version", COMPATIBLE_VERSION);
    out.append("sheafVersion", env!("CARGO_PKG_VERSION"));
    out.append("gitVersion", "unknown");
    out.begin_array("modules");
    out.end();
    out.append("allocator", "system");
    out.append("javascriptEngine", server.javascript_engine());
    out.append("sysInfo", "deprecated");
    out.begin_array("versionArray");
    for part in COMPATIBLE_VERSION.split('.') {
        out.push(part.parse::<i32>().unwrap_or(0));
    }
    out.push(0);
    out.end();
    out.begin_document("openssl");
    out.append("running", "disabled");
    out.append("compiled", "disabled");
    out.end();
    out.begin_document("buildEnvironment");
    out.append("target_arch", std::env::consts::ARCH);
    out.append("target_os", std::env::consts::OS);
    out.end();
    out.append("bits", usize::BITS as i32);
    out.append("debug", cfg!(debug_assertions));
    out.append("maxBsonObjectSize", BSON_BYTES_MAX);
    out.begin_array("storageEngines");
    for engine in ["sheaf", "redb", "memory"] {
        out.push(engine);
    }
    out.end();
}
