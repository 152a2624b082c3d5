//! Regular expressions: compiled once, matched under limits, read for prefixes.
//!
//! PCRE2 does the work, as in MongoDB, so that look-around, back references
//! and possessive quantifiers mean what users expect. Such an engine
//! backtracks, and a pattern can be made to backtrack for ages; every match
//! therefore runs under limits, which travel inside the pattern:
//!
//! ```text
//!   (*LIMIT_MATCH=…)(*LIMIT_DEPTH=…)(*LIMIT_HEAP=…)pattern
//! ```
//!
//! Invariant: a match that exceeds a limit is an error for the client, never
//! "does not match". Of two settings of a limit PCRE2 takes the lower, so a
//! pattern cannot raise its own.
//!
//! Matching runs as machine code. Its stack is bounded too; a subject that
//! needs more is tried again by the interpreter, whose stack is the heap.

use std::sync::OnceLock;

use pcre2::bytes::{CaptureLocations, Regex, RegexBuilder};
use sheaf_bson::error_code::{Error, ErrorCode};

/// The longest pattern accepted, in bytes.
pub const PATTERN_BYTES_MAX: usize = 32764;

/// Internal match calls for one subject: milliseconds, not minutes.
const MATCH_LIMIT: u32 = 2_000_000;
/// Nested backtracking points.
const DEPTH_LIMIT: u32 = 250_000;
/// Heap the interpreter may take, in KiB.
const HEAP_LIMIT_KIB: u32 = 64 * 1024;
/// Stack the machine code may take, in bytes, kept by each thread that matches.
const JIT_STACK_BYTES_MAX: usize = 128 * 1024;

/// PCRE2's code for an exhausted machine-code stack.
const ERROR_JIT_STACK_LIMIT: i32 = -46;
/// PCRE2's codes for the three limits: match, depth, heap.
const ERROR_LIMITS: [i32; 3] = [-47, -53, -63];

const INVALID_PATTERN: ErrorCode = ErrorCode(51091);
const INVALID_FLAG: ErrorCode = ErrorCode(51108);

/// A pattern ready to match. Shared between threads.
pub struct CompiledRegex {
    pattern: Box<str>,
    options: Box<str>,
    program: Regex,
    /// Made the first time that the machine code's stack does not suffice.
    interpreter: OnceLock<Option<Regex>>,
}

impl std::fmt::Debug for CompiledRegex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "/{}/{}", self.pattern, self.options)
    }
}

/// The whole match and the groups of one, each from a byte up to, not including, another.
pub type Groups = Vec<Option<(usize, usize)>>;

/// What an anchored pattern says about the strings that match it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegexPrefix {
    /// Every matching string begins with this; never empty.
    pub prefix: String,
    /// And every string that begins with it matches.
    pub exact: bool,
}

/// The options in alphabetical order, each once.
/// Errors: 51108 for a letter outside `imsux`.
pub fn normalize_options(options: &str) -> Result<String, Error> {
    let mut letters: Vec<char> = Vec::with_capacity(options.len());
    for letter in options.chars() {
        if !matches!(letter, 'i' | 'm' | 's' | 'u' | 'x') {
            return Err(Error::new(
                INVALID_FLAG,
                format!("invalid flag in regex options: {letter} (use letters of \"imsxu\")"),
            ));
        }
        if !letters.contains(&letter) {
            letters.push(letter);
        }
    }
    letters.sort_unstable();
    Ok(letters.into_iter().collect())
}

impl CompiledRegex {
    /// Compiles `pattern` with options out of `imsxu` in any order.
    ///
    /// Errors: BadValue for a NUL inside, 51091 for a pattern that is too long
    /// or not a pattern, 51108 for an unknown option.
    pub fn new(pattern: &str, options: &str) -> Result<CompiledRegex, Error> {
        if pattern.contains('\0') || options.contains('\0') {
            return Err(Error::bad_value(
                "Regular expression cannot contain an embedded null byte",
            ));
        }
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(invalid(format!(
                "the pattern has {} bytes, the limit is {PATTERN_BYTES_MAX}",
                pattern.len()
            )));
        }
        if takes_single_bytes(pattern) {
            return Err(invalid("\\C would cut characters into bytes"));
        }
        let options = normalize_options(options)?;
        let program = build(pattern, &options, true).map_err(invalid)?;
        Ok(CompiledRegex {
            pattern: pattern.into(),
            options: options.into(),
            program,
            interpreter: OnceLock::new(),
        })
    }

    /// As written.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Sorted letters.
    pub fn options(&self) -> &str {
        &self.options
    }

    /// Whether some part of `subject` matches.
    ///
    /// Errors: 51156 when the pattern backtracks beyond the limits.
    pub fn is_match(&self, subject: &str) -> Result<bool, Error> {
        self.run(|regex| regex.is_match(subject.as_bytes()))
    }

    /// The first match at or behind byte `start`, which must be the boundary of
    /// a character: the whole match and each group, in bytes; `None` for groups that took no part.
    ///
    /// Errors: as [`CompiledRegex::is_match`].
    pub fn captures_at(&self, subject: &str, start: usize) -> Result<Option<Groups>, Error> {
        if start > subject.len() {
            return Ok(None);
        }
        self.run(|regex| {
            let mut groups = regex.capture_locations();
            let found = regex.captures_read_at(&mut groups, subject.as_bytes(), start)?;
            Ok(found.map(|_| (0..groups.len()).map(|i| groups.get(i)).collect()))
        })
    }

    /// Searches with memory for groups that is used again, as the machine code's stack is.
    pub fn searcher(&self) -> Searcher<'_> {
        Searcher {
            regex: self,
            groups: self.program.capture_locations(),
        }
    }

    /// Runs the program, and once more by interpretation when the machine code's stack did not suffice.
    fn run<T>(&self, how: impl Fn(&Regex) -> Result<T, pcre2::Error>) -> Result<T, Error> {
        let outcome = match how(&self.program) {
            Err(e) if e.code() == ERROR_JIT_STACK_LIMIT => how(self.interpreter()?),
            other => other,
        };
        outcome.map_err(|e| {
            let why = if ERROR_LIMITS.contains(&e.code()) {
                "it backtracks more than the server allows; make its repetitions unambiguous"
                    .to_owned()
            } else {
                e.to_string()
            };
            Error::new(
                ErrorCode(51156),
                format!(
                    "Error occurred while executing the regular expression /{}/: {why}",
                    self.pattern
                ),
            )
        })
    }

    fn interpreter(&self) -> Result<&Regex, Error> {
        let slow = self
            .interpreter
            .get_or_init(|| build(&self.pattern, &self.options, false).ok());
        // It compiled before, so only memory can be missing.
        slow.as_ref().ok_or_else(|| {
            Error::new(
                ErrorCode::EXCEEDED_MEMORY_LIMIT,
                format!("no memory for the regular expression /{}/", self.pattern),
            )
        })
    }

    /// The string with which every match begins, if the pattern says so.
    /// See [`prefix_of`].
    pub fn prefix(&self) -> Option<RegexPrefix> {
        prefix_of(&self.pattern, &self.options)
    }
}

/// Repeated searches by one expression; see [`CompiledRegex::searcher`].
pub struct Searcher<'r> {
    regex: &'r CompiledRegex,
    groups: CaptureLocations,
}

impl Searcher<'_> {
    /// As [`CompiledRegex::captures_at`].
    ///
    /// Errors: as [`CompiledRegex::is_match`].
    pub fn captures_at(&mut self, subject: &str, start: usize) -> Result<Option<Groups>, Error> {
        if start > subject.len() {
            return Ok(None);
        }
        let program = &self.regex.program;
        match program.captures_read_at(&mut self.groups, subject.as_bytes(), start) {
            Ok(None) => Ok(None),
            Ok(Some(_)) => Ok(Some(
                (0..self.groups.len()).map(|i| self.groups.get(i)).collect(),
            )),
            // Errors are reported, and interpretation is tried, in one place.
            Err(_) => self.regex.captures_at(subject, start),
        }
    }
}

fn invalid(why: impl std::fmt::Display) -> Error {
    Error::new(
        INVALID_PATTERN,
        format!("Regular expression is invalid: {why}"),
    )
}

fn build(pattern: &str, options: &str, jit: bool) -> Result<Regex, String> {
    let limits = format!(
        "(*LIMIT_MATCH={MATCH_LIMIT})(*LIMIT_DEPTH={DEPTH_LIMIT})(*LIMIT_HEAP={HEAP_LIMIT_KIB})"
    );
    let mut builder = RegexBuilder::new();
    builder
        .utf(true)
        .caseless(options.contains('i'))
        .multi_line(options.contains('m'))
        .dotall(options.contains('s'))
        .extended(options.contains('x'));
    if jit {
        builder
            .jit_if_available(true)
            .max_jit_stack_size(Some(JIT_STACK_BYTES_MAX));
    }
    builder.build(&format!("{limits}{pattern}")).map_err(|e| {
        let mut why = e.to_string();
        if let Some(at) = e.offset() {
            // The offset counts the limits, which the user has not written.
            let shown = format!("offset {at}");
            let meant = format!("offset {}", at.saturating_sub(limits.len()));
            why = why.replace(&shown, &meant);
        }
        why
    })
}

/// `\C` matches one byte even within a character, which PCRE2 itself calls unsafe.
fn takes_single_bytes(pattern: &str) -> bool {
    let mut rest = pattern.as_bytes();
    while let Some(at) = memchr::memchr(b'\\', rest) {
        match rest.get(at + 1) {
            Some(b'C') => return true,
            Some(b'Q') => {
                let quoted = &rest[at + 2..];
                rest = match memchr::memmem::find(quoted, b"\\E") {
                    Some(end) => &quoted[end + 2..],
                    None => &[],
                };
            }
            _ => rest = rest.get(at + 2..).unwrap_or(&[]),
        }
    }
    false
}

/// The prefix that an anchored, case-sensitive pattern demands.
///
/// ```text
///   /^abc/  /\Aabc/  /^abc.*/    abc   exact
///   /^abc$/ /^abc[0-9]/ /^ab.c/  abc / abc / ab   not exact
///   /^abc?/ /^abc*/ /^abc{0,1}/  ab    not exact
///   /^a\.b/ /^\Qa.b\E/           a.b   exact
///   /^a|b/  /abc/  /^abc/i  /^(?i)abc/   none
/// ```
///
/// `.*` after the prefix is exact only when nothing follows it. With option
/// `m`, `^` also matches after a newline, so only `\A` counts.
pub fn prefix_of(pattern: &str, options: &str) -> Option<RegexPrefix> {
    if options.contains(['i', 'x']) {
        return None;
    }
    let rest = if let Some(rest) = pattern.strip_prefix("\\A") {
        rest
    } else if options.contains('m') {
        return None;
    } else {
        pattern.strip_prefix('^')?
    };
    // An alternative at the top level would not be anchored. One inside a
    // group or class does no harm, but the group ends the prefix anyway: being
    // too careful costs a wider scan, never a result.
    if has_bar(rest) {
        return None;
    }
    let (prefix, exact) = literal_run(rest);
    (!prefix.is_empty()).then_some(RegexPrefix { prefix, exact })
}

/// Whether `|` occurs outside `\|` and `\Q…\E`.
fn has_bar(pattern: &str) -> bool {
    let mut chars = pattern.chars();
    let mut quoted = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('E') => quoted = false,
                Some('Q') if !quoted => quoted = true,
                // Within \Q…\E a backslash is itself, and what follows it may be a bar or a backslash.
                Some(_) if quoted => return true,
                _ => {}
            },
            '|' if !quoted => return true,
            _ => {}
        }
    }
    false
}

/// Literal characters at the start of an (anchored) pattern, and whether the
/// pattern says nothing beyond them.
fn literal_run(pattern: &str) -> (String, bool) {
    let mut prefix = String::new();
    let mut quoted = false;
    let mut rest = pattern;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        if quoted {
            if let Some(after_end) = rest.strip_prefix("\\E") {
                quoted = false;
                rest = after_end;
            } else {
                prefix.push(c);
                rest = after;
            }
            continue;
        }
        match c {
            '\\' => {
                let Some(escaped) = after.chars().next() else {
                    return (prefix, false);
                };
                match escaped {
                    'Q' => quoted = true,
                    'E' => {}
                    // An escaped letter or digit has a meaning of its own; an escaped sign is itself.
                    e if e.is_ascii_alphanumeric() || !e.is_ascii() => return (prefix, false),
                    e => prefix.push(e),
                }
                rest = &after[escaped.len_utf8()..];
            }
            // The character before may be absent, or may repeat.
            '*' | '?' => {
                prefix.pop();
                return (prefix, false);
            }
            '{' => {
                // Not always a quantifier, but always treated as one.
                prefix.pop();
                return (prefix, false);
            }
            '+' => return (prefix, false),
            '.' => return (prefix, matches!(rest, ".*" | ".*?" | ".*+")),
            '^' | '$' | '[' | ']' | '(' | ')' | '|' | '}' => return (prefix, false),
            _ => {
                prefix.push(c);
                rest = after;
            }
        }
    }
    (prefix, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(pattern: &str, options: &str) -> i32 {
        CompiledRegex::new(pattern, options).unwrap_err().code().0
    }

    fn is_match(pattern: &str, options: &str, subject: &str) -> bool {
        CompiledRegex::new(pattern, options)
            .unwrap()
            .is_match(subject)
            .unwrap()
    }

    #[test]
    fn options_mean_what_they_mean_in_pcre() {
        assert!(is_match("b", "", "abc"));
        assert!(!is_match("B", "", "abc"));
        assert!(is_match("B", "i", "abc"));
        assert!(is_match("É", "i", "é"));
        assert!(!is_match("^b", "", "a\nb"));
        assert!(is_match("^b", "m", "a\nb"));
        assert!(!is_match("a.b", "", "a\nb"));
        assert!(is_match("a.b", "s", "a\nb"));
        assert!(is_match("a b # comment", "x", "ab"));
        assert!(is_match("^.$", "u", "é"));
        assert!(is_match("^.$", "", "é"));
        assert!(is_match("(?<=a)b(?!c)", "", "abd"));
        assert!(is_match(r"(\w)\1", "", "book"));
        assert!(is_match("", "", ""));
        assert!(is_match("a\\|b", "", "a|b"));
    }

    #[test]
    fn refusals() {
        assert_eq!(code("a(", ""), 51091);
        assert_eq!(code("a\0b", ""), 2);
        assert_eq!(code("a", "g"), 51108);
        assert_eq!(code("a\\C", ""), 51091);
        assert_eq!(code("a\\Q\\C\\E\\C", ""), 51091);
        assert!(CompiledRegex::new("\\\\C \\QC\\C\\E", "").is_ok());
        assert_eq!(code(&"a".repeat(PATTERN_BYTES_MAX + 1), ""), 51091);
        let e = CompiledRegex::new("abc)", "").unwrap_err();
        assert!(e.message().contains("offset 3"), "{e}");
    }

    #[test]
    fn backtracking_ends_in_an_error() {
        let slow = CompiledRegex::new("^(a+)+$", "").unwrap();
        let subject = "a".repeat(60) + "b";
        assert_eq!(
            slow.is_match(&subject).unwrap_err().code(),
            ErrorCode(51156)
        );
        assert!(slow.is_match("aaaa").unwrap());
        // The pattern may lower the limits, not raise them.
        let greedy = CompiledRegex::new("(*LIMIT_MATCH=4000000000)^(a+)+$", "").unwrap();
        assert!(greedy.is_match(&subject).is_err());
    }

    #[test]
    fn deep_subjects_leave_the_machine_code() {
        let regex = CompiledRegex::new("^(?:.|\\n)*?zzz", "").unwrap();
        let subject = "a".repeat(100_000) + "zzz";
        // Either answer is bounded; a wrong "no" would be neither.
        match regex.is_match(&subject) {
            Ok(found) => assert!(found),
            Err(e) => assert_eq!(e.code(), ErrorCode(51156)),
        }
        let short = "a".repeat(20_000) + "zzz";
        assert!(regex.is_match(&short).unwrap());
    }

    #[test]
    fn prefixes() {
        type Row = (&'static str, &'static str, Option<(&'static str, bool)>);
        let table: &[Row] = &[
            ("^abc", "", Some(("abc", true))),
            ("\\Aabc", "", Some(("abc", true))),
            ("\\Aabc", "m", Some(("abc", true))),
            ("^abc", "m", None),
            ("^abc", "s", Some(("abc", true))),
            ("^abc", "u", Some(("abc", true))),
            ("^abc", "i", None),
            ("^abc", "x", None),
            ("abc", "", None),
            ("", "", None),
            ("^", "", None),
            ("^abc.*", "", Some(("abc", true))),
            ("^abc.*?", "", Some(("abc", true))),
            ("^abc.*d", "", Some(("abc", false))),
            ("^abc.", "", Some(("abc", false))),
            ("^abc.+", "", Some(("abc", false))),
            ("^abc$", "", Some(("abc", false))),
            ("^abc[0-9]", "", Some(("abc", false))),
            ("^abc(d|e)", "", None),
            ("^abc(de)", "", Some(("abc", false))),
            ("^abc|d", "", None),
            ("^abc\\|d", "", Some(("abc|d", true))),
            ("^abc?", "", Some(("ab", false))),
            ("^abc*", "", Some(("ab", false))),
            ("^abc{0,2}", "", Some(("ab", false))),
            ("^abc+", "", Some(("abc", false))),
            ("^a?", "", None),
            ("^a\\.b", "", Some(("a.b", true))),
            ("^a\\.?b", "", Some(("a", false))),
            ("^a\\d", "", Some(("a", false))),
            ("^a\\", "", Some(("a", false))),
            ("^\\Qa.b\\E", "", Some(("a.b", true))),
            ("^\\Qa.b\\Ec", "", Some(("a.bc", true))),
            ("^\\Qa.b\\E*", "", Some(("a.", false))),
            ("^\\Qa|b\\E", "", Some(("a|b", true))),
            ("^\\Qa\\|b\\E", "", None),
            ("^é+", "", Some(("é", false))),
            ("^é?", "", None),
            ("^donutlover@", "", Some(("donutlover@", true))),
            ("(?i)^abc", "", None),
            ("^(?i)abc", "", None),
        ];
        for (pattern, options, want) in table {
            let got = prefix_of(pattern, options);
            let want = want.map(|(prefix, exact)| RegexPrefix {
                prefix: prefix.to_owned(),
                exact,
            });
            assert_eq!(got, want, "/{pattern}/{options}");
        }
    }
}
