//! The user manual agrees with the server: its sample configuration is accepted, and its tables
//! list every parameter, counter and exit code.

use std::path::PathBuf;

use sheaf_bson::{RawDoc, RawValue};

use super::server::Server;
use super::write_commands::command;

fn page(name: &str) -> String {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../docs/manual", name]
        .iter()
        .collect();
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The first cells of the rows of all tables, without backticks; a cell may have several names.
fn first_cells(page: &str) -> Vec<String> {
    page.lines()
        .filter_map(|line| line.strip_prefix("| "))
        .filter_map(|row| row.split(" |").next())
        .flat_map(|cell| cell.split(", "))
        .map(|name| name.trim_matches('`').to_string())
        .collect()
}

/// The sample configuration, with paths in a temporary folder and a free port.
#[test]
fn the_sample_configuration_starts_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let sample = page("sheafd.yaml");
    let mut text = sample.clone();
    for (from, to) in [
        ("/var/lib/sheaf", path("data")),
        ("/var/log/sheafd.log", path("log")),
        ("/run/sheafd.pid", path("pid")),
        (
            "pathPrefix: /tmp",
            format!("pathPrefix: {}", folder.path().display()),
        ),
        ("port: 27017", "port: 0".to_string()),
    ] {
        assert_eq!(text.matches(from).count(), 1, "{from}");
        text = text.replace(from, &to);
    }
    // The test reads the log from standard output.
    let log = text.find("  destination: file").unwrap();
    let end = log + text[log..].find("  quiet:").unwrap();
    text.replace_range(log..end, "");
    std::fs::create_dir(folder.path().join("data")).unwrap();
    let file = folder.path().join("sheafd.yaml");
    std::fs::write(&file, text).unwrap();
    let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_sheafd"));
    program.arg("--config").arg(&file);
    let server = Server::launch(program, folder.path(), None);
    let mut client = server.client();
    let options = client.ok(&command("{getCmdLineOpts: 1, $db: 'admin'}"));
    let parsed = options.get("parsed").and_then(|v| v.as_document());
    let parsed = parsed.expect("the options in effect");
    for section in [
        "net",
        "storage",
        "systemLog",
        "operationProfiling",
        "replication",
    ] {
        assert!(parsed.get(section).is_some(), "{section}: {parsed:?}");
    }
    let shown = client.ok(&command(
        "{getParameter: 1, ttlMonitorSleepSecs: 1, $db: 'admin'}",
    ));
    assert_eq!(
        shown
            .get("ttlMonitorSleepSecs")
            .and_then(|v| v.as_i64_exact()),
        Some(60)
    );
    assert!(server.stop().success());
}

#[test]
fn every_parameter_is_described_with_its_default() {
    let page = page("parameters.md");
    let server = Server::start();
    let reply = server
        .client()
        .ok(&command("{getParameter: '*', $db: 'admin'}"));
    let described = first_cells(&page);
    let mut wrong = String::new();
    let mut names = Vec::new();
    for element in reply.iter() {
        let name = element.key();
        let default = match element.value() {
            RawValue::Document(_) => continue,
            RawValue::Boolean(value) => format!("`{value}`"),
            RawValue::String(text) => format!("`{text}`"),
            RawValue::Array(list) => {
                let names: Vec<_> = list.iter().filter_map(|name| name.as_str()).collect();
                format!("`{}`", names.join(","))
            }
            number => match number.as_f64() {
                Some(n) => format!("{n}"),
                None => continue,
            },
        };
        if ["ok", "logLevel"].contains(&name) {
            continue;
        }
        names.push(name.to_string());
        if !page.contains(&format!("| `{name}` | {default} |")) {
            wrong += &format!("| `{name}` | {default} |\n");
        }
    }
    assert!(wrong.is_empty(), "parameters.md lacks:\n{wrong}");
    let unknown: Vec<&String> = described
        .iter()
        .filter(|name| {
            !names.contains(name) && !["parameter", "---|---|---"].contains(&name.as_str())
        })
        .collect();
    assert!(unknown.is_empty(), "parameters.md describes {unknown:?}");
}

#[test]
fn every_counter_of_the_engine_is_described() {
    let described = first_cells(&page("monitoring.md"));
    let server = Server::start();
    let mut client = server.client();
    client.ok(&command("{insert: 'c', documents: [{_id: 1}]}"));
    let reply = client.ok(&command("{serverStatus: 1, $db: 'admin'}"));
    let engine = reply.get("sheaf").and_then(|v| v.as_document());
    let missing = undescribed(engine.expect("a section of the engine"), &described);
    assert!(missing.is_empty(), "monitoring.md lacks {missing:?}");
}

fn undescribed(section: RawDoc<'_>, described: &[String]) -> Vec<String> {
    let mut missing = Vec::new();
    for element in section.iter() {
        let name = element.key();
        if !described.iter().any(|cell| cell == name) {
            missing.push(name.to_string());
        }
        let (true, Some(memory)) = (name == "memory", element.value().as_document()) else {
            continue;
        };
        for kind in memory
            .iter()
            .filter(|kind| kind.value().as_document().is_some())
        {
            let kind = format!("memory.{}", kind.key());
            if !described.contains(&kind) {
                missing.push(kind);
            }
        }
    }
    missing
}

#[test]
fn every_exit_code_is_described() {
    use sheafd::process::Exit;
    let described = first_cells(&page("process.md"));
    for exit in [
        Exit::Clean,
        Exit::Failure,
        Exit::BadOptions,
        Exit::Unclean,
        Exit::NetError,
        Exit::Uncaught,
    ] {
        // A new exit code needs a row here and in the manual.
        let code = match exit {
            Exit::Clean
            | Exit::Failure
            | Exit::BadOptions
            | Exit::Unclean
            | Exit::NetError
            | Exit::Uncaught => exit.code().to_string(),
        };
        assert!(
            described.contains(&code),
            "process.md lacks {exit:?}, {code}"
        );
    }
}
