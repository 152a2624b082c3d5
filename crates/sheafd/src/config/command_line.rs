//! The command line, with the names and spellings of `mongod`.

use std::ffi::OsString;

use clap::{Arg, ArgAction, ArgMatches, Command};

use super::options::{Kind, OPTIONS, Opt, Standing};
use super::{ConfigError, Given, Origin};

/// The parsed command line.
pub(super) enum Parsed {
    /// Print this text and exit.
    Print(String),
    /// Run the server, or shut one down.
    Given(CommandLine),
}

pub(super) struct CommandLine {
    /// In the order of the option table.
    pub given: Vec<Given>,
    pub config: Option<String>,
    pub shutdown: bool,
    /// All arguments unchanged, the program's name first.
    pub arguments: Vec<String>,
}

pub(super) fn parse(arguments: &[OsString]) -> Result<Parsed, ConfigError> {
    let matches = match command().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(e) if e.kind() == clap::error::ErrorKind::DisplayHelp => {
            return Ok(Parsed::Print(e.to_string()));
        }
        Err(e) => {
            // Drop the usage text that follows: the caller prints its own.
            let text = e.to_string();
            let text = text.split("\n\nUsage:").next().unwrap_or(&text);
            let text = text.strip_prefix("error: ").unwrap_or(text);
            return Err(ConfigError::new(text.trim_end()));
        }
    };
    if matches.get_flag("version") {
        return Ok(Parsed::Print(format!("{}\n", crate::version_text())));
    }
    let mut line = CommandLine {
        given: Vec::new(),
        config: None,
        shutdown: false,
        arguments: arguments
            .iter()
            .map(|a| a.to_string_lossy().into_owned())
            .collect(),
    };
    for option in OPTIONS.iter().filter(|o| !o.flag.is_empty()) {
        match option.flag {
            "config" => line.config = matches.get_one::<String>("config").cloned(),
            "shutdown" => line.shutdown = matches.get_flag("shutdown"),
            _ => read_option(option, &matches, &mut line.given)?,
        }
    }
    Ok(Parsed::Given(line))
}

fn read_option(
    option: &'static Opt,
    matches: &ArgMatches,
    given: &mut Vec<Given>,
) -> Result<(), ConfigError> {
    let named = format!("--{}", option.flag);
    let mut give = |name: &str, text: &str| -> Result<(), ConfigError> {
        given.push(Given {
            option,
            name: name.to_string(),
            value: option.value(&named, text)?,
            origin: Origin::CommandLine,
        });
        Ok(())
    };
    if let Kind::Count(max) = option.kind {
        match i64::from(matches.get_count(option.flag)) {
            0 => return Ok(()),
            n => return give("", &n.min(max).to_string()),
        }
    }
    if option.is_flag() {
        return match matches.get_flag(option.flag) {
            true => give("", option.flag_means.unwrap_or("true")),
            false => Ok(()),
        };
    }
    let Some(values) = matches.get_many::<String>(option.flag) else {
        return Ok(());
    };
    for text in values {
        if option.kind != Kind::Parameters {
            give("", text)?;
            continue;
        }
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => give(name, value)?,
            _ => {
                return Err(ConfigError::new(format!(
                    "{named} must be name=value, not '{text}'"
                )));
            }
        }
    }
    Ok(())
}

fn command() -> Command {
    let mut command = Command::new("sheafd")
        .about("A document database that speaks MongoDB's wire protocol.")
        .disable_version_flag(true)
        .arg(
            Arg::new("version")
                .long("version")
                .action(ArgAction::SetTrue)
                .help("Print the version and exit"),
        );
    for option in OPTIONS.iter().filter(|o| !o.flag.is_empty()) {
        command = command.arg(argument(option));
    }
    command
}

fn argument(option: &'static Opt) -> Arg {
    let mut argument = Arg::new(option.flag).long(option.flag).help(option.help);
    if let Some(short) = option.short {
        argument = argument.short(short);
    }
    if let Some(alias) = option.alias {
        argument = argument.alias(alias);
    }
    if option.standing != Standing::Supported {
        argument = argument.hide(true);
    }
    argument = match option.kind {
        Kind::Count(_) => argument.action(ArgAction::Count),
        Kind::Parameters => argument.action(ArgAction::Append).value_name("name=value"),
        _ if option.is_flag() => argument.action(ArgAction::SetTrue),
        Kind::Integer(..) | Kind::Number(..) => argument
            .action(ArgAction::Set)
            .allow_negative_numbers(true)
            .value_name("number"),
        _ => argument.action(ArgAction::Set).value_name("value"),
    };
    // A refused option is reported by name, with or without a value.
    if option.standing != Standing::Supported && !option.is_flag() {
        argument = argument.num_args(0..=1).default_missing_value("");
    }
    argument
}
