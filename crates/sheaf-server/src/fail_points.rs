//! Fail points, by which tests of drivers make commands fail. Only with `enableTestCommands`.
//!
//! ```text
//!   configureFailPoint ──> mode, data ──> a command that matches: counted, waits, fails or is cut off
//! ```
//!
//! A server that never configures one reads a single flag per command.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sheaf_bson::{DocBuf, Error, ErrorCode, RawDoc, RawValue};

/// The fail points that tests of drivers configure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailPoint {
    /// `failCommand`.
    Command,
    /// `onPrimaryTransactionalWrite`.
    TransactionalWrite,
    /// `maxTimeAlwaysTimeOut`.
    MaxTime,
    /// `failGetMoreAfterCursorCheckout`.
    GetMore,
}

const ALL: [(FailPoint, &str); 4] = [
    (FailPoint::Command, "failCommand"),
    (FailPoint::TransactionalWrite, "onPrimaryTransactionalWrite"),
    (FailPoint::MaxTime, "maxTimeAlwaysTimeOut"),
    (FailPoint::GetMore, "failGetMoreAfterCursorCheckout"),
];

/// When a fail point that matches takes effect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// Never.
    #[default]
    Off,
    /// Always.
    AlwaysOn,
    /// The next times.
    Times(u64),
    /// Always, after the next times.
    Skip(u64),
}

impl Mode {
    /// Parses `mode`.
    /// Errors: `BadValue`, `TypeMismatch`.
    pub fn parse(value: RawValue<'_>) -> Result<Mode, Error> {
        let number = |doc: RawDoc<'_>, name: &str| {
            let number = doc.get(name)?.as_i64_exact()?;
            u64::try_from(number).ok()
        };
        match value {
            RawValue::String("off") => Ok(Mode::Off),
            RawValue::String("alwaysOn") => Ok(Mode::AlwaysOn),
            RawValue::Document(doc) => match (number(doc, "times"), number(doc, "skip")) {
                (Some(times), _) => Ok(Mode::Times(times)),
                (None, Some(skip)) => Ok(Mode::Skip(skip)),
                (None, None) => Err(Error::bad_value(
                    "'mode' must be {times: n} or {skip: n}, with n from 0",
                )),
            },
            RawValue::String(other) => Err(Error::bad_value(format!("unknown mode: {other}"))),
            _ => Err(Error::new(
                ErrorCode::TYPE_MISMATCH,
                "'mode' must be a string or object",
            )),
        }
    }

    /// Counts a match; whether it takes effect.
    fn hit(&mut self) -> bool {
        match self {
            Mode::Off | Mode::Times(0) => {
                *self = Mode::Off;
                false
            }
            Mode::AlwaysOn | Mode::Skip(0) => true,
            Mode::Times(left) => {
                *left -= 1;
                true
            }
            Mode::Skip(left) => {
                *left -= 1;
                false
            }
        }
    }
}

#[derive(Debug, Default)]
struct State {
    mode: Mode,
    data: DocBuf,
    entered: u64,
}

/// The state of all fail points.
#[derive(Debug, Default)]
pub struct FailPoints {
    is_any_on: AtomicBool,
    states: Mutex<[State; ALL.len()]>,
}

/// The command for which fail points are checked.
#[derive(Debug, Clone, Copy)]
pub struct Asking<'a> {
    /// As the client spells it.
    pub spelling: &'a str,
    /// As the command table spells it.
    pub name: &'a str,
    /// The client's application name.
    pub app_name: &'a str,
    /// `db.collection`, if the command names one.
    pub namespace: Option<&'a str>,
}

impl FailPoints {
    /// Whether some fail point is on.
    pub fn is_any_on(&self) -> bool {
        self.is_any_on.load(Ordering::Relaxed)
    }

    /// Sets a fail point and returns how often it took effect before.
    /// Errors: `FailPointSetFailed` for an unknown name.
    pub fn set(&self, name: &str, mode: Mode, data: DocBuf) -> Result<u64, Error> {
        let at = ALL.iter().position(|(_, known)| *known == name);
        let at = at.ok_or_else(|| {
            Error::new(ErrorCode(288), format!("failpoint {name} does not exist"))
        })?;
        let mut states = self.states.lock();
        let state = &mut states[at];
        (state.mode, state.data) = (mode, data);
        let any = states.iter().any(|state| state.mode != Mode::Off);
        self.is_any_on.store(any, Ordering::Relaxed);
        Ok(states[at].entered)
    }

    /// The data of the fail point if it takes effect on this command, which is counted.
    pub fn enter(&self, point: FailPoint, asking: &Asking<'_>) -> Option<DocBuf> {
        if !self.is_any_on() {
            return None;
        }
        let mut states = self.states.lock();
        let state = &mut states[point as usize];
        let data = state.data.as_raw();
        let is_meant = match point {
            FailPoint::Command => names_command(data, asking),
            FailPoint::TransactionalWrite | FailPoint::MaxTime | FailPoint::GetMore => true,
        };
        if state.mode == Mode::Off || !is_meant || !state.mode.hit() {
            return None;
        }
        state.entered += 1;
        Some(state.data.clone())
    }
}

/// Whether `failCommands` names the command, and `appName` and `namespace`, if given, fit.
fn names_command(data: RawDoc<'_>, asking: &Asking<'_>) -> bool {
    let is = |field: &str, own: Option<&str>| match data.get(field) {
        Some(RawValue::String(wanted)) => own == Some(wanted),
        _ => true,
    };
    let Some(RawValue::Array(names)) = data.get("failCommands") else {
        return false;
    };
    let named = |name: RawValue<'_>| {
        let name = name.as_str().unwrap_or("");
        name.eq_ignore_ascii_case(asking.spelling) || name == asking.name
    };
    names.iter().any(named)
        && is("appName", Some(asking.app_name))
        && is("namespace", asking.namespace)
}

/// What `failCommand` does to a command.
#[derive(Debug, Default)]
pub struct Failure {
    /// Waits before all else.
    pub block: Option<Duration>,
    /// Closes the connection without a reply.
    pub closes: bool,
    /// Fails with this error, without running.
    pub error: Option<Error>,
    /// Runs, and appends this to the reply.
    pub write_concern_error: Option<DocBuf>,
    /// Labels of the reply, in place of those that the server would append.
    pub labels: Option<Vec<String>>,
    /// The command is a write that a driver may send again.
    pub is_retryable_write: bool,
}

impl Failure {
    /// Reads the data of `failCommand`.
    pub fn of(data: RawDoc<'_>) -> Failure {
        let is_set = |name: &str| data.get(name).is_some_and(|value| value.is_truthy());
        let number = |name: &str| data.get(name).and_then(|value| value.as_i64_exact());
        let labels = |value: RawValue<'_>| {
            let labels = value.as_array()?;
            let labels = labels
                .iter()
                .filter_map(|label| label.as_str().map(str::to_owned));
            Some(labels.collect::<Vec<_>>())
        };
        let labels = data.get("errorLabels").and_then(labels);
        let error = number("errorCode").and_then(|code| i32::try_from(code).ok());
        let error = error.map(|code| {
            let message = "Failing command via 'failCommand' failpoint";
            let labels = labels.iter().flatten().cloned();
            labels.fold(Error::new(ErrorCode(code), message), Error::with_label)
        });
        let blocks = is_set("blockConnection");
        let block = number("blockTimeMS").filter(|_| blocks);
        Failure {
            block: block
                .and_then(|ms| u64::try_from(ms).ok())
                .map(Duration::from_millis),
            closes: is_set("closeConnection"),
            error,
            write_concern_error: data
                .get("writeConcernError")
                .and_then(|value| value.as_document())
                .map(|doc| doc.to_buf()),
            labels,
            is_retryable_write: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_bson::json::parse_doc;

    #[test]
    fn modes_count_what_matches() {
        let points = FailPoints::default();
        let ask = |spelling: &'static str| Asking {
            spelling,
            name: spelling,
            app_name: "a",
            namespace: None,
        };
        let data = |text: &str| parse_doc(text).unwrap();
        assert!(points.enter(FailPoint::Command, &ask("find")).is_none());
        let only = data("{failCommands: ['find'], appName: 'a'}");
        points
            .set("failCommand", Mode::Times(2), only.clone())
            .unwrap();
        assert!(points.enter(FailPoint::Command, &ask("insert")).is_none());
        assert!(points.enter(FailPoint::Command, &ask("find")).is_some());
        assert!(points.enter(FailPoint::Command, &ask("find")).is_some());
        assert!(points.enter(FailPoint::Command, &ask("find")).is_none());
        points.set("failCommand", Mode::Skip(1), only).unwrap();
        assert!(points.enter(FailPoint::Command, &ask("find")).is_none());
        assert!(points.enter(FailPoint::Command, &ask("find")).is_some());
        let other = data("{failCommands: ['find'], appName: 'b'}");
        points.set("failCommand", Mode::AlwaysOn, other).unwrap();
        assert!(points.enter(FailPoint::Command, &ask("find")).is_none());
        assert_eq!(
            points.set("failCommand", Mode::Off, DocBuf::new()).unwrap(),
            3
        );
        assert!(!points.is_any_on());
        assert!(points.set("x", Mode::Off, DocBuf::new()).is_err());
    }
}
