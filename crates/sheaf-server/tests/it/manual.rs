//! docs/manual/commands.md is generated from the command table; this test keeps it current.
//!
//! `SHEAF_BLESS=1 cargo test -p sheaf-server --test it manual` rewrites the page.

use std::fmt::Write as _;
use std::path::Path;

use sheaf_server::command::GROUPS;
use sheaf_server::command_facts::{
    ApiV1, Command, Compat, Database, InTransaction, Privileges, Resource, Target,
    UnknownArguments, Waits,
};

fn privileges(command: &Command) -> String {
    match command.privileges {
        Privileges::Open => "none, also before authentication".to_owned(),
        Privileges::Authenticated => "none".to_owned(),
        Privileges::ByArguments(_, text) => text.to_owned(),
        Privileges::All(all) => {
            let all: Vec<String> = all
                .iter()
                .map(|(action, on)| {
                    let on = match on {
                        Resource::Anything => "everything",
                        Resource::Cluster => "the server",
                        Resource::Database => "the database",
                        Resource::Collection | Resource::FullName => "the collection",
                    };
                    format!("{} on {on}", action.name())
                })
                .collect();
            all.join(", ")
        }
    }
}

fn facts(command: &Command) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    if !command.aliases.is_empty() {
        facts.push(("Also", format!("`{}`", command.aliases.join("`, `"))));
    }
    if let Compat::Differs(how) = command.compat {
        facts.push(("Differs from MongoDB", how.to_owned()));
    }
    if command.database == Database::Admin {
        facts.push(("Database", "`admin` only".to_owned()));
    }
    facts.push(("Privileges", privileges(command)));
    match command.target {
        Target::Collection => {}
        Target::TimeSeries => facts.push(("Also on", "time-series collections".to_owned())),
        Target::View => facts.push(("Also on", "views and time-series collections".to_owned())),
    }
    let transaction = match command.transaction {
        InTransaction::Refused => None,
        InTransaction::Statement => Some("as a statement"),
        InTransaction::Pipeline => Some("as a statement, with most stages"),
        InTransaction::LaterStatement => Some("as a statement after the first"),
        InTransaction::End => Some("ends one"),
    };
    if let Some(transaction) = transaction {
        facts.push(("In a transaction", transaction.to_owned()));
    }
    if command.retryable {
        facts.push(("Retryable", "with `txnNumber`".to_owned()));
    }
    let mut levels = Vec::new();
    if command.read_concern.majority {
        levels.push("`available`, `majority`");
    }
    if command.read_concern.linearizable {
        levels.push("`linearizable`");
    }
    if command.read_concern.snapshot {
        levels.push("`snapshot`");
    }
    if !levels.is_empty() {
        let levels = format!("also {}", levels.join(", "));
        facts.push(("Read concern", levels));
    }
    match command.write_concern {
        Waits::Not => {}
        Waits::AsGiven => facts.push(("Write concern", "where given".to_owned())),
        Waits::OrDefault => facts.push(("Write concern", "where given, or the default".to_owned())),
    }
    match command.api_v1 {
        ApiV1::Outside => {}
        ApiV1::Inside { except: [] } => facts.push(("Stable API", "version 1".to_owned())),
        ApiV1::Inside { except } => {
            let except = except.join("`, `");
            facts.push(("Stable API", format!("version 1, without `{except}`")));
        }
    }
    if command.unknown_arguments == UnknownArguments::Ignored {
        facts.push(("Unknown arguments", "ignored".to_owned()));
    }
    if command.explained.is_some() {
        facts.push(("Explained", "by `explain`".to_owned()));
    }
    facts
}

fn page() -> String {
    let mut page = String::from(
        "# Commands\n\n\
         Written by a test from the command table. The arguments are those of MongoDB's manual;\n\
         COMPAT.md lists which commands, stages and operators are absent.\n\n\
         Privileges are recorded for access control and are not enforced yet.\n\
         All commands take the read concerns `local`, `available` and `majority`.\n",
    );
    for (title, rows) in GROUPS {
        let _ = write!(page, "\n## {title}\n");
        for row in *rows {
            let command = &row.command;
            let _ = write!(page, "\n### {}\n\n{}.\n\n", command.name, command.help);
            for (name, fact) in facts(command) {
                let _ = writeln!(page, "- {name}: {fact}");
            }
        }
    }
    page
}

#[test]
fn commands_md_is_the_table() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/manual/commands.md");
    let wanted = page();
    if std::env::var_os("SHEAF_BLESS").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, &wanted).expect("commands.md is written");
        return;
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    let differing = wanted.lines().zip(found.lines()).find(|(a, b)| a != b);
    assert!(
        wanted == found,
        "docs/manual/commands.md is not the table; first difference: {differing:?}\n\
         rewrite it: SHEAF_BLESS=1 cargo test -p sheaf-server --test it manual"
    );
}
