//! Lines, attributes, verbosity, destinations and rotation of the log.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sheaf_bson::{DocBuf, array, doc, json};

use super::format::Format;
use super::{Component, Destination, Log, LogOptions, Rotation, Severity, set_context};

const PATIENCE: Duration = Duration::from_secs(30);

fn line(attr: &DocBuf) -> String {
    Format::new(true).line(
        Severity::Info,
        Component::Network,
        22943,
        "conn1",
        "Connection \"accepted\"",
        attr.as_raw(),
        &[],
    )
}

/// The line after its timestamp, which changes.
fn without_time(line: &str) -> &str {
    let (time, rest) = line.split_once("\"},").expect("a timestamp");
    assert!(time.starts_with("{\"t\":{\"$date\":\""), "{line}");
    rest
}

#[test]
fn the_shape_of_a_line() {
    let attr = doc! {"remote": "127.0.0.1:5", "connectionId": 1i64, "share": 0.5};
    assert_eq!(
        without_time(&line(&attr)),
        r#""s":"I",  "c":"NETWORK",  "id":22943,   "ctx":"conn1","msg":"Connection \"accepted\"","attr":{"remote":"127.0.0.1:5","connectionId":1,"share":0.5}}"#
    );
    assert!(without_time(&line(&doc! {})).ends_with(r#""msg":"Connection \"accepted\""}"#));
    let debug = Format::new(true).line(
        Severity::Debug(3),
        Component::Default,
        1,
        "x",
        "m",
        doc! {}.as_raw(),
        &["a", "b"],
    );
    assert_eq!(
        without_time(&debug),
        r#""s":"D3", "c":"-",        "id":1,       "ctx":"x","msg":"m","tags":["a","b"]}"#
    );
}

#[test]
fn timestamps() {
    let utc = line(&doc! {});
    let (time, _) = utc.split_once("\"},").unwrap();
    let time = time.strip_prefix("{\"t\":{\"$date\":\"").unwrap();
    assert_eq!(time.len(), "2020-05-01T15:16:17.180Z".len(), "{time}");
    assert!(time.ends_with('Z'));
    let local = Format::new(false).line(
        Severity::Info,
        Component::Default,
        1,
        "x",
        "m",
        doc! {}.as_raw(),
        &[],
    );
    let (time, _) = local.split_once("\"},").unwrap();
    let time = time.strip_prefix("{\"t\":{\"$date\":\"").unwrap();
    let (_, offset) = time.split_at("2020-05-01T15:16:17.180".len());
    assert!(
        offset.starts_with(['+', '-']) && offset.len() == 6,
        "{time}"
    );
}

#[test]
fn long_attributes_are_cut_and_the_line_stays_json() {
    let numbers = array![1, 2, 3];
    let many = sheaf_bson::ArrayBuf::from_values((0..5000).map(|i| i % 1000));
    let attr = doc! {
        "type": "command",
        "command": {
            "find": "c",
            "filter": {"a": {"$in": many}, "b": "x"},
            "sort": {"a": 1},
            "$db": "test",
        },
        "numbers": numbers,
        "text": "y".repeat(20_000).as_str(),
        "short": "z".repeat(9_000).as_str(),
        "durationMillis": 5,
    };
    let line = line(&attr);
    assert!(line.len() < 40_000, "{}", line.len());
    let read = json::parse_doc(&line).expect("the line is JSON");
    let shown = read.get("attr").and_then(|v| v.as_document()).unwrap();
    assert_eq!(
        shown.get("durationMillis").and_then(|v| v.as_i64_exact()),
        Some(5)
    );
    assert_eq!(
        shown.get("short").and_then(|v| v.as_str()).map(str::len),
        Some(9000)
    );
    let command = shown.get("command").and_then(|v| v.as_document()).unwrap();
    let keys: Vec<&str> = command.iter().map(|e| e.key()).collect();
    assert_eq!(keys, ["find", "filter"]);
    let filter = command.get("filter").and_then(|v| v.as_document()).unwrap();
    let list = filter
        .get("a")
        .and_then(|v| v.as_document())
        .unwrap()
        .get("$in");
    let kept = list.and_then(|v| v.as_array()).unwrap().count();
    assert!((1000..5000).contains(&kept), "{kept}");
    assert!(filter.get("b").is_none());

    let size = read.get("size").and_then(|v| v.as_document()).unwrap();
    let command = attr.get("command").and_then(|v| v.as_document()).unwrap();
    let whole = size.get("command").and_then(|v| v.as_i64_exact());
    assert_eq!(whole, Some(command.len_bytes() as i64));
    let expected = format!(
        "{{\"command\":{{\"truncated\":{{\"filter\":{{\"truncated\":{{\"a\":{{\"truncated\":{{\"$in\":{{\"truncated\":{{\"{kept}\":{{\"type\":\"int\",\"size\":4}}}},\"omitted\":{}}}}}}}}},\"omitted\":1}}}},\"omitted\":2}},\"text\":{{\"type\":\"string\",\"size\":20005}}}}",
        5000 - kept - 1
    );
    let truncated = read.get("truncated").expect("it says what is missing");
    assert_eq!(json::to_relaxed(truncated), expected);
}

#[test]
fn verbosity_is_inherited() {
    let log = Log::in_memory();
    let enabled = |level, component| log.enabled(Severity::Debug(level), component);
    assert!(log.enabled(Severity::Info, Component::Write));
    assert!(!enabled(1, Component::Write));

    log.set_component_verbosity(
        doc! {"verbosity": 1, "storage": {"verbosity": 2, "journal": {"verbosity": 4}}, "query": 0}
            .as_raw(),
    )
    .unwrap();
    assert_eq!(log.default_verbosity(), 1);
    assert!(enabled(1, Component::Write) && !enabled(2, Component::Write));
    assert!(enabled(2, Component::Recovery) && !enabled(3, Component::Recovery));
    assert!(enabled(4, Component::Journal));
    assert!(!enabled(1, Component::Query));

    log.set_component_verbosity(doc! {"storage": {"verbosity": -1}}.as_raw())
        .unwrap();
    assert!(enabled(1, Component::Recovery) && !enabled(2, Component::Recovery));
    assert!(enabled(4, Component::Journal));

    let shown = log.component_verbosity();
    let storage = shown.get("storage").and_then(|v| v.as_document()).unwrap();
    assert_eq!(
        json::to_relaxed(storage),
        r#"{"verbosity":-1,"recovery":{"verbosity":-1},"journal":{"verbosity":4}}"#
    );
    // What it shows can be set.
    log.set_component_verbosity(shown.as_raw()).unwrap();
}

#[test]
fn wrong_verbosity_changes_nothing() {
    let log = Log::in_memory();
    let before = log.component_verbosity();
    for (document, code, expected) in [
        (doc! {"write": 3, "nosuch": 1}, 2, "nosuch"),
        (
            doc! {"write": 3, "storage": {"jornal": 1}},
            2,
            "storage.jornal",
        ),
        (doc! {"write": 3, "query": "much"}, 14, "query"),
        (doc! {"write": 3, "verbosity": {}}, 14, "number"),
    ] {
        let error = log
            .set_component_verbosity(document.as_raw())
            .expect_err(expected);
        assert_eq!(error.code().0, code);
        assert!(error.message().contains(expected), "{error}");
        assert_eq!(log.component_verbosity(), before);
    }
}

#[test]
fn recent_lines_and_startup_warnings() {
    let log = Log::in_memory();
    log.startup_warning(1, "careful", super::none);
    for i in 0..2000 {
        log.info(Component::Write, i, "line", super::none);
    }
    log.line(
        Severity::Debug(1),
        Component::Write,
        1,
        "not enabled",
        |_| panic!("the attributes of a line that is not logged are not asked for"),
    );
    let (total, lines) = log.recent();
    assert_eq!(total, 2001);
    assert_eq!(lines.len(), 1024);
    assert!(lines[0].contains("\"id\":976,") && lines[1023].contains("\"id\":1999,"));
    let (total, warnings) = log.startup_warnings();
    assert_eq!(total, 1);
    assert!(warnings[0].contains("careful") && warnings[0].contains("startupWarnings"));
    log.clear_recent();
    assert_eq!(log.recent(), (2001, Vec::new()));
}

#[test]
fn threads_have_names() {
    let log = Log::in_memory();
    let other = Arc::clone(&log);
    std::thread::spawn(move || {
        set_context("conn77");
        other.info(Component::Write, 1, "m", super::none);
    })
    .join()
    .unwrap();
    let (_, lines) = log.recent();
    assert!(lines[0].contains("\"ctx\":\"conn77\""), "{}", lines[0]);
}

fn to_file(path: &Path, rotation: Rotation) -> Arc<Log> {
    let options = LogOptions {
        destination: Destination::File {
            path: path.to_path_buf(),
            append: true,
        },
        rotation,
        ..LogOptions::default()
    };
    Log::open(options).expect("the file can be opened")
}

#[test]
fn rotation() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();

    let log = to_file(&path, Rotation::Rename);
    log.info(Component::Write, 1, "before", super::none);
    log.rotate().unwrap();
    // Two rotations within a second create two files.
    log.rotate().unwrap();
    log.info(Component::Write, 1, "after", super::none);
    log.flush(PATIENCE);
    assert!(read(&path).contains("after") && !read(&path).contains("before"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
    drop(log);

    let log = to_file(&path, Rotation::Reopen);
    let moved = folder.path().join("moved");
    std::fs::rename(&path, &moved).unwrap();
    log.info(Component::Write, 1, "still there", super::none);
    log.rotate().unwrap();
    log.info(Component::Write, 1, "reopened", super::none);
    log.flush(PATIENCE);
    assert!(read(&moved).contains("still there") && !read(&moved).contains("reopened"));
    assert!(read(&path).contains("reopened"));
}

#[test]
fn a_full_disk_loses_only_lines() {
    let log = to_file(Path::new("/dev/full"), Rotation::Reopen);
    for i in 0..100 {
        log.info(Component::Write, i, "lost", super::none);
    }
    log.flush(PATIENCE);
    assert_eq!(log.recent().0, 100);

    // A file that cannot be opened is an error when the log is opened, and at rotation.
    let options = LogOptions {
        destination: Destination::File {
            path: "/nowhere/log".into(),
            append: true,
        },
        ..LogOptions::default()
    };
    assert!(Log::open(options).is_err());
}
