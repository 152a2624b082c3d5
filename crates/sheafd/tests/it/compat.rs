//! COMPAT.md lists what is supported of MongoDB; this test keeps it correct.
//!
//! ```text
//!   docs/compat/mongodb-names.txt ─┐   MongoDB's names, with an example of each
//!   tables, parsers, the server ───┴─> COMPAT.md: same / differs (how) / absent
//! ```
//!
//! A name counts as supported only if it is in the table that the server dispatches by, or if the
//! parser accepts the example.
//! `SHEAF_BLESS=1 cargo test -p sheafd --test it compat` rewrites the file.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sheaf_bson::json::parse_doc;
use sheaf_bson::{DocBuf, DocBuilder, RawValue, doc};
use sheaf_db::CollectionOptions;
use sheaf_db::index::definition::IndexSpec;
use sheaf_query::canonical::{CanonicalQuery, FindSpec};
use sheaf_query::expression::VariableScope;
use sheaf_query::javascript;
use sheaf_query::update::{self, UpdateDriver};
use sheaf_query::{expression, pipeline};
use sheaf_server::command::{Compat, rows as commands};
use sheafd::config::options::{OPTIONS, Standing};

use super::server::Server;

/// Names that MongoDB does not have.
const OURS: &str = "sheaf's own";

/// A name of MongoDB's, or one of sheaf's own.
struct Name {
    name: String,
    example: String,
    difference: String,
}

struct Section {
    title: String,
    names: Vec<Name>,
}

/// The support of a name.
enum Verdict {
    Same,
    Differs(String),
    Absent(String),
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read_sections() -> Vec<Section> {
    let file = root().join("docs/compat/mongodb-names.txt");
    let text = std::fs::read_to_string(file).expect("the list of names");
    let mut sections: Vec<Section> = Vec::new();
    for line in text
        .lines()
        .filter(|l| !l.is_empty() && !l.starts_with('#'))
    {
        if let Some(title) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            sections.push(Section {
                title: title.to_owned(),
                names: Vec::new(),
            });
            continue;
        }
        let mut columns = line.splitn(3, '|').map(str::trim);
        let mut column = || columns.next().unwrap_or_default().to_owned();
        let name = Name {
            name: column(),
            example: column(),
            difference: column(),
        };
        let section = sections
            .last_mut()
            .expect("a section before the first name");
        section.names.push(name);
    }
    sections
}

/// The rows of a section: MongoDB's names in their order, then sheaf's own.
fn rows(section: &Section, parameters: &BTreeSet<String>) -> Vec<(String, Verdict)> {
    let listed = |ours: Vec<String>, verdict: &dyn Fn(&Name) -> Verdict| {
        let mut rows: Vec<_> = (section.names.iter())
            .map(|name| (name.name.clone(), verdict(name)))
            .collect();
        for name in ours {
            if !section.names.iter().any(|known| known.name == name) {
                rows.push((name, Verdict::Differs(OURS.to_owned())));
            }
        }
        rows
    };
    let in_table = |table: Vec<&str>| {
        let ours: Vec<String> = table.iter().map(|name| (*name).to_owned()).collect();
        listed(ours.clone(), &|name| match ours.contains(&name.name) {
            true => present(name),
            false => Verdict::Absent(String::new()),
        })
    };
    let probed = |probe: fn(&DocBuf) -> Result<(), String>| {
        listed(Vec::new(), &|name| {
            let example = parse_doc(&name.example);
            let example = example.unwrap_or_else(|e| panic!("{}: {e}", name.name));
            match probe(&example) {
                Ok(()) => present(name),
                Err(_) => Verdict::Absent(String::new()),
            }
        })
    };
    match section.title.as_str() {
        "commands" => listed(
            commands().map(|row| row.command.name.to_owned()).collect(),
            &command,
        ),
        "query operators" => probed(|filter| find(doc! {}, doc! {}, filter.clone())),
        "variables" => probed(|example| {
            let Some(RawValue::Array(stages)) = example.get("pipeline") else {
                panic!("a variable's example is a pipeline");
            };
            let scope = VariableScope::new(sheaf_bson::DateTime(0));
            let context = sheaf_query::matcher::ParseContext {
                variables: scope.with_cluster_time(Some(sheaf_bson::Timestamp::default())),
                ..Default::default()
            };
            let parsed = pipeline::Pipeline::parse(stages, &context);
            parsed.map(|_| ()).map_err(|e| e.to_string())
        }),
        "sorts" => probed(|sort| find(sort.clone(), doc! {}, doc! {})),
        "projections" => probed(|projection| find(doc! {}, projection.clone(), doc! {"a": 1})),
        "update operators" => {
            for name in update::operator_names() {
                assert!(
                    section.names.iter().any(|known| known.name == name),
                    "{name}"
                );
            }
            probed(update_is_known)
        }
        "aggregation stages" => {
            in_table(pipeline::stage_names().chain(["$changeStream"]).collect())
        }
        "accumulators of $group" => in_table(pipeline::accumulator_names().collect()),
        "window operators" => in_table(pipeline::window_function_names().collect()),
        "expressions" => {
            let table = expression::operators::TABLE;
            in_table(table.iter().map(|entry| entry.name()).collect())
        }
        "indexes" => probed(|spec| {
            let mut named = DocBuilder::from_doc(spec.as_raw());
            named.append("name", "i");
            let parsed = IndexSpec::parse(named.finish().as_raw());
            parsed.map(|_| ()).map_err(|e| e.to_string())
        }),
        "collection options" => probed(|options| {
            // A view is not a collection: its definition is parsed separately.
            if let Some(RawValue::Array(stages)) = options.get("pipeline") {
                let parsed = pipeline::Pipeline::parse(stages, &Default::default());
                return parsed.map(|_| ()).map_err(|e| e.to_string());
            }
            let parsed = CollectionOptions::parse(options.as_raw());
            parsed.map(|_| ()).map_err(|e| e.to_string())
        }),
        "server parameters" => in_table(parameters.iter().map(String::as_str).collect()),
        "options of the server" => listed(
            (OPTIONS.iter().filter(|o| !o.flag.is_empty()))
                .map(|option| format!("--{}", option.flag))
                .collect(),
            &option,
        ),
        other => panic!("no check for section '{other}'"),
    }
}

fn present(name: &Name) -> Verdict {
    match name.difference.as_str() {
        "" => Verdict::Same,
        how => Verdict::Differs(how.to_owned()),
    }
}

fn command(name: &Name) -> Verdict {
    match commands()
        .map(|row| &row.command)
        .find(|command| command.name == name.name)
    {
        None => Verdict::Absent(String::new()),
        Some(command) => match command.compat {
            Compat::Same => Verdict::Same,
            Compat::Differs(how) => Verdict::Differs(how.to_owned()),
        },
    }
}

fn option(name: &Name) -> Verdict {
    let flag = name.name.trim_start_matches('-');
    let found = OPTIONS
        .iter()
        .find(|option| option.flag == flag || option.alias == Some(flag));
    match found.map(|option| option.standing) {
        Some(Standing::Supported) => present(name),
        Some(Standing::Accepted { because, .. }) => {
            Verdict::Differs(format!("accepted without effect: {because}"))
        }
        Some(Standing::Refused { because, .. }) => Verdict::Absent(because.to_owned()),
        None => Verdict::Absent(String::new()),
    }
}

/// The JavaScript of the program, for every operation.
struct Scripts;

impl javascript::Host for Scripts {
    fn operation(&self, _db: &str) -> Option<Arc<dyn javascript::JavaScript>> {
        let stored = Box::new(javascript::NoStoredFunctions);
        let limits = javascript::Limits {
            heap_bytes: 1 << 20,
        };
        Some(javascript::Engine::operation(
            &sheaf_js::QuickJs,
            limits,
            stored,
        ))
    }
}

fn find(sort: DocBuf, projection: DocBuf, filter: DocBuf) -> Result<(), String> {
    let _scripts = javascript::enter(Arc::new(Scripts), "test");
    let scope = VariableScope::new(sheaf_bson::DateTime(0)).allowing_where();
    let context = sheaf_query::matcher::ParseContext { variables: scope };
    let spec = FindSpec {
        filter: Some(filter.as_raw()),
        sort: Some(sort.as_raw()),
        projection: Some(projection.as_raw()),
        ..FindSpec::default()
    };
    let query = CanonicalQuery::with_context(spec, &context);
    query.map(|_| ()).map_err(|e| e.to_string())
}

fn update_is_known(example: &DocBuf) -> Result<(), String> {
    let update = match example.get("pipeline") {
        Some(stages) => stages,
        None => RawValue::Document(example.as_raw()),
    };
    let filters = sheaf_bson::array![{"x": 1}];
    let filters = example.to_owned().get("$set").and_then(|set| {
        let named = set.as_document()?.first()?.key().contains("[x]");
        named.then_some(filters.as_raw())
    });
    let scope = VariableScope::new(sheaf_bson::DateTime(0));
    let parsed = UpdateDriver::parse(update, filters, &scope);
    parsed.map(|_| ()).map_err(|e| e.to_string())
}

fn page(parameters: &BTreeSet<String>) -> String {
    let mut body = String::new();
    let mut summary = String::from("| | same | differs | absent |\n|---|---|---|---|\n");
    for section in read_sections() {
        let rows = rows(&section, parameters);
        let count = |test: fn(&Verdict) -> bool| rows.iter().filter(|(_, v)| test(v)).count();
        let same = count(|v| matches!(v, Verdict::Same));
        let differs = count(|v| matches!(v, Verdict::Differs(_)));
        let absent = count(|v| matches!(v, Verdict::Absent(_)));
        let mut title = section.title.clone();
        title[..1].make_ascii_uppercase();
        let anchor = section
            .title
            .to_lowercase()
            .replace('$', "")
            .replace(' ', "-");
        let _ = writeln!(
            summary,
            "| [{title}](#{anchor}) | {same} | {differs} | {absent} |"
        );
        let _ = write!(body, "\n## {title}\n");
        if rows
            .iter()
            .any(|(_, v)| !matches!(v, Verdict::Absent(why) if why.is_empty()))
        {
            body.push_str("\n| | | |\n|---|---|---|\n");
        }
        let mut bare = Vec::new();
        for (name, verdict) in &rows {
            let _ = match verdict {
                Verdict::Same => writeln!(body, "| `{name}` | same | |"),
                Verdict::Differs(how) => writeln!(body, "| `{name}` | differs | {how} |"),
                Verdict::Absent(why) if why.is_empty() => {
                    bare.push(format!("`{name}`"));
                    Ok(())
                }
                Verdict::Absent(why) => writeln!(body, "| `{name}` | absent | {why} |"),
            };
        }
        if !bare.is_empty() {
            let _ = writeln!(body, "\nAbsent: {}.", bare.join(", "));
        }
    }
    format!(
        "# What sheaf has of MongoDB\n\n\
         Generated by a test from the server's tables of commands, parameters and options, and from\n\
         the names in docs/compat/mongodb-names.txt that its parsers accept. Absent features are\n\
         rejected by name; for each difference, the table states what it is.\n\n{summary}{body}"
    )
}

#[test]
fn compat_md_is_true() {
    let server = Server::start();
    let shown = server
        .client()
        .ok(&doc! {"getParameter": "*", "$db": "admin"});
    let parameters = shown
        .iter()
        .map(|element| element.key().to_owned())
        .filter(|name| name != "ok")
        .collect();
    let wanted = page(&parameters);
    let file = root().join("COMPAT.md");
    if std::env::var_os("SHEAF_BLESS").is_some() {
        std::fs::write(&file, &wanted).expect("COMPAT.md is written");
        return;
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    let differing = wanted.lines().zip(found.lines()).find(|(a, b)| a != b);
    assert!(
        wanted == found,
        "COMPAT.md is not what the server is; first difference: {differing:?}\n\
         rewrite it: SHEAF_BLESS=1 cargo test -p sheafd --test it compat"
    );
}
