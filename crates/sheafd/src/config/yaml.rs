//! The configuration file in MongoDB's YAML form. Every error names its line.
//!
//! The reader supports the part of YAML that such a file needs: nested mappings
//! of scalars. A list, an anchor, a second document or an unknown key is an
//! error.

use saphyr_parser::{Event, Parser, StrInput};

use super::options::{self, Kind};
use super::{ConfigError, Given, Origin};
use sheaf_server::log::Component;

/// Maximum nesting of mappings; greater than that of any option's key.
const DEPTH_MAX: usize = 10;

/// The options that the file sets, in file order.
pub(super) fn parse(text: &str) -> Result<Vec<Given>, ConfigError> {
    let mut reader = Reader {
        parser: Parser::new_from_str(text),
        line: 1,
        given: Vec::new(),
    };
    reader.file()?;
    Ok(reader.given)
}

struct Reader<'t> {
    parser: Parser<'t, StrInput<'t>>,
    /// The line of the last event, from 1.
    line: usize,
    given: Vec<Given>,
}

impl<'t> Reader<'t> {
    fn file(&mut self) -> Result<(), ConfigError> {
        loop {
            match self.next()? {
                Event::Nothing
                | Event::StreamStart
                | Event::DocumentStart(_)
                | Event::DocumentEnd => {}
                // An empty file, or a file of comments.
                Event::StreamEnd => return Ok(()),
                Event::Scalar(text, ..) if is_empty(&text) => {}
                Event::MappingStart(..) => {
                    self.mapping("", 0)?;
                    break;
                }
                _ => return Err(self.wrong(
                    "the file must be a mapping, such as 'net:' followed by an indented 'port: 27017'",
                )),
            }
        }
        loop {
            match self.next()? {
                Event::StreamEnd => return Ok(()),
                Event::DocumentEnd | Event::Nothing => {}
                _ => return Err(self.wrong("the file must contain one document")),
            }
        }
    }

    /// Reads the mapping of the section `path`; its start event has been consumed.
    fn mapping(&mut self, path: &str, depth: usize) -> Result<(), ConfigError> {
        let mut seen: Vec<String> = Vec::new();
        loop {
            let name = match self.next()? {
                Event::MappingEnd => return Ok(()),
                Event::Scalar(name, ..) => name.into_owned(),
                _ => return Err(self.wrong("a key must be a plain word")),
            };
            let key = match path {
                "" => name.clone(),
                path => format!("{path}.{name}"),
            };
            let line = self.line;
            if seen.contains(&name) {
                return Err(self.wrong(format!("duplicate key '{key}'")));
            }
            seen.push(name);
            match self.next()? {
                Event::Scalar(text, ..) => self.scalar(&key, &text, line)?,
                Event::MappingStart(..) if depth < DEPTH_MAX && options::is_section(&key) => {
                    self.mapping(&key, depth + 1)?;
                }
                Event::MappingStart(..) if options::by_key(&key).is_some() => {
                    return Err(at(
                        line,
                        format!("'{key}' takes a single value, not a mapping"),
                    ));
                }
                Event::SequenceStart(..) if options::by_key(&key).is_some() => {
                    return Err(at(
                        line,
                        format!(
                            "'{key}' takes a single value, not a list; separate values with commas"
                        ),
                    ));
                }
                Event::MappingStart(..) | Event::SequenceStart(..) => {
                    return Err(unknown(&key, line));
                }
                _ => return Err(at(line, format!("'{key}' has an unsupported value"))),
            }
        }
    }

    fn scalar(&mut self, key: &str, text: &str, line: usize) -> Result<(), ConfigError> {
        let Some((option, name)) = options::by_key(key) else {
            // An empty section.
            return match is_empty(text) && options::is_section(key) {
                true => Ok(()),
                false => Err(unknown(key, line)),
            };
        };
        let is_component = option.kind != Kind::Parameters && !name.is_empty();
        if is_component && Component::from_name(name).is_none() {
            return Err(unknown(key, line));
        }
        let text = match option.kind {
            Kind::Text if is_empty(text) => "",
            _ => text,
        };
        let named = format!("'{key}'");
        let value = option.value(&named, text).map_err(|e| at(line, e.0))?;
        self.given.push(Given {
            option,
            name: name.to_string(),
            value,
            origin: Origin::File { line },
        });
        Ok(())
    }

    fn next(&mut self) -> Result<Event<'t>, ConfigError> {
        match self.parser.next_event() {
            None => Ok(Event::StreamEnd),
            Some(Ok((event, span))) => {
                self.line = span.start.line();
                Ok(event)
            }
            Some(Err(e)) => Err(at(e.marker().line(), format!("not YAML: {}", e.info()))),
        }
    }

    fn wrong(&self, message: impl Into<String>) -> ConfigError {
        at(self.line, message)
    }
}

fn is_empty(text: &str) -> bool {
    matches!(text, "" | "~" | "null")
}

fn at(line: usize, message: impl Into<String>) -> ConfigError {
    ConfigError::new(format!("line {line}: {}", message.into()))
}

fn unknown(key: &str, line: usize) -> ConfigError {
    at(line, format!("unknown key '{key}'"))
}
