//! Regular expressions: compiled once, matched with limits, analyzed for prefixes.
//!
//! The engine is PCRE2, as in MongoDB, so that look-around, back references and possessive
//! quantifiers have the expected meaning. A backtracking engine can take exponential time on a
//! malicious pattern, so every match has limits, which are part of the pattern:
//!
//! ```text
//!   (*LIMIT_MATCH=…)(*LIMIT_DEPTH=…)(*LIMIT_HEAP=…)pattern
//! ```
//!
//! Invariant: a match that exceeds a limit is an error for the client, never "does not match". If a
//! limit is set twice, PCRE2 uses the lower value, so a pattern cannot raise its limits.
//!
//! Patterns are compiled to machine code, whose stack is bounded as well. A subject that needs more
//! is matched again by the interpreter, which keeps its stack on the heap.
//!
//! In UTF mode PCRE2 validates the rest of the subject in each search. Repeated searches in an
//! ASCII subject for an ASCII pattern, where characters are bytes, use a program that is not in UTF
//! mode and does not: all matches are found in linear time.

use std::sync::OnceLock;

use pcre2::bytes::{CaptureLocations, Regex, RegexBuilder};
use sheaf_bson::error_code::{Error, ErrorCode};

/// Maximum length of a pattern, in bytes; also of the patterns of expressions.
pub const PATTERN_BYTES_MAX: usize = 16_384;

/// Maximum number of internal match calls per subject, which take milliseconds.
const MATCH_LIMIT: u32 = 2_000_000;
/// Maximum number of nested backtracking points.
const DEPTH_LIMIT: u32 = 250_000;
/// Maximum heap memory of the interpreter, in KiB.
const HEAP_LIMIT_KIB: u32 = 64 * 1024;
/// Maximum stack of the machine code, in bytes; each thread that matches keeps one.
const JIT_STACK_BYTES_MAX: usize = 128 * 1024;

/// PCRE2's error code for an exhausted machine-code stack.
const ERROR_JIT_STACK_LIMIT: i32 = -46;
/// PCRE2's error codes for the three limits: match, depth, heap.
const ERROR_LIMITS: [i32; 3] = [-47, -53, -63];

const INVALID_PATTERN: ErrorCode = ErrorCode(51091);
const INVALID_FLAG: ErrorCode = ErrorCode(51108);

/// A compiled pattern. Shared between threads.
pub struct CompiledRegex {
    pattern: Box<str>,
    options: Box<str>,
    program: Regex,
    /// Compiled when the machine code's stack overflows for the first time.
    interpreter: OnceLock<Option<Regex>>,
    /// The program for ASCII subjects; `None` inside for a pattern that needs UTF mode.
    bytewise: OnceLock<Option<Regex>>,
}

impl std::fmt::Debug for CompiledRegex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "/{}/{}", self.pattern, self.options)
    }
}

/// The byte ranges (start, end) of a match and of its groups; `None` for a group that did not
/// participate.
pub type Groups = Vec<Option<(usize, usize)>>;

/// The literal prefix of an anchored pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegexPrefix {
    /// Every matching string begins with it; never empty.
    pub prefix: String,
    /// Whether every string that begins with it matches.
    pub exact: bool,
}

/// The options in alphabetical order, without duplicates.
///
/// Errors: 51108 for a letter other than `imsux`.
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
    /// Compiles `pattern` with options from `imsxu`, in any order.
    ///
    /// Errors: BadValue for a NUL in the pattern, 51091 for a pattern that is too long or
    /// invalid, 51108 for an unknown option.
    pub fn new(pattern: &str, options: &str) -> Result<CompiledRegex, Error> {
        if pattern.contains('\0') {
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
        let program = build(pattern, &options, Mode::Utf).map_err(invalid)?;
        Ok(CompiledRegex {
            pattern: pattern.into(),
            options: options.into(),
            program,
            interpreter: OnceLock::new(),
            bytewise: OnceLock::new(),
        })
    }

    /// The pattern as specified by the user.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// The option letters, sorted.
    pub fn options(&self) -> &str {
        &self.options
    }

    /// Whether some part of `subject` matches.
    ///
    /// Errors: 51156 if the match exceeds the limits.
    pub fn is_match(&self, subject: &str) -> Result<bool, Error> {
        self.run(|regex| regex.is_match(subject.as_bytes()))
    }

    /// The first match at or after byte `start`, which must be a character boundary; `None` if
    /// there is no match.
    ///
    /// Errors: those of [`CompiledRegex::is_match`].
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

    /// A searcher in `subject` that reuses the memory for groups and the machine code's stack.
    pub fn searcher<'r>(&'r self, subject: &'r str) -> Searcher<'r> {
        let bytewise = match subject.is_ascii() {
            true => self.bytewise(),
            false => None,
        };
        let program = bytewise.unwrap_or(&self.program);
        Searcher {
            regex: self,
            subject,
            program,
            validates: bytewise.is_none(),
            groups: program.capture_locations(),
        }
    }

    fn bytewise(&self) -> Option<&Regex> {
        if !self.pattern.is_ascii() {
            return None;
        }
        let program = self
            .bytewise
            .get_or_init(|| build(&self.pattern, &self.options, Mode::Bytewise).ok());
        program.as_ref()
    }

    /// Runs the program, and again with the interpreter if the machine code's stack overflowed.
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
            .get_or_init(|| build(&self.pattern, &self.options, Mode::Interpreted).ok());
        // The pattern compiled before, so the only possible failure is lack of memory.
        slow.as_ref().ok_or_else(|| {
            Error::new(
                ErrorCode::EXCEEDED_MEMORY_LIMIT,
                format!("no memory for the regular expression /{}/", self.pattern),
            )
        })
    }

    /// The literal prefix of the pattern, if it has one. See [`prefix_of`].
    pub fn prefix(&self) -> Option<RegexPrefix> {
        prefix_of(&self.pattern, &self.options)
    }
}

/// Repeated searches with one pattern; see [`CompiledRegex::searcher`].
pub struct Searcher<'r> {
    regex: &'r CompiledRegex,
    subject: &'r str,
    program: &'r Regex,
    validates: bool,
    groups: CaptureLocations,
}

impl Searcher<'_> {
    /// Whether each search validates the rest of the subject.
    pub fn validates(&self) -> bool {
        self.validates
    }

    /// Like [`CompiledRegex::captures_at`].
    ///
    /// Errors: those of [`CompiledRegex::is_match`].
    pub fn captures_at(&mut self, start: usize) -> Result<Option<Groups>, Error> {
        if start > self.subject.len() {
            return Ok(None);
        }
        let subject = self.subject.as_bytes();
        match self
            .program
            .captures_read_at(&mut self.groups, subject, start)
        {
            Ok(None) => Ok(None),
            Ok(Some(_)) => Ok(Some(
                (0..self.groups.len()).map(|i| self.groups.get(i)).collect(),
            )),
            // `CompiledRegex` reports errors and falls back to the interpreter.
            Err(_) => self.regex.captures_at(self.subject, start),
        }
    }
}

fn invalid(why: impl std::fmt::Display) -> Error {
    Error::new(
        INVALID_PATTERN,
        format!("Regular expression is invalid: {why}"),
    )
}

/// How a pattern is compiled.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    /// To machine code.
    Utf,
    /// For the interpreter.
    Interpreted,
    /// To machine code for subjects whose characters are bytes.
    Bytewise,
}

fn build(pattern: &str, options: &str, mode: Mode) -> Result<Regex, String> {
    let limits = format!(
        "(*LIMIT_MATCH={MATCH_LIMIT})(*LIMIT_DEPTH={DEPTH_LIMIT})(*LIMIT_HEAP={HEAP_LIMIT_KIB})"
    );
    let mut builder = RegexBuilder::new();
    builder
        .utf(mode != Mode::Bytewise)
        .caseless(options.contains('i'))
        .multi_line(options.contains('m'))
        .dotall(options.contains('s'))
        .extended(options.contains('x'));
    if mode != Mode::Interpreted {
        builder
            .jit_if_available(true)
            .max_jit_stack_size(Some(JIT_STACK_BYTES_MAX));
    }
    builder.build(&format!("{limits}{pattern}")).map_err(|e| {
        let mut why = e.to_string();
        if let Some(at) = e.offset() {
            // The offset includes the limits, which are not part of the user's pattern.
            let shown = format!("offset {at}");
            let meant = format!("offset {}", at.saturating_sub(limits.len()));
            why = why.replace(&shown, &meant);
        }
        why
    })
}

/// Whether the pattern contains `\C`, which matches a single byte even within a character; PCRE2's
/// documentation calls that unsafe.
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

/// The prefix that an anchored, case-sensitive pattern requires.
///
/// ```text
///   /^abc/  /\Aabc/  /^abc.*/    abc   exact
///   /^abc$/ /^abc[0-9]/ /^ab.c/  abc / abc / ab   not exact
///   /^abc?/ /^abc*/ /^abc{0,1}/  ab    not exact
///   /^a\.b/ /^\Qa.b\E/           a.b   exact
///   /^a|b/  /abc/  /^abc/i  /^(?i)abc/   none
/// ```
///
/// `.*` after the prefix is exact only at the end of the pattern. With option `m`, `^` also matches
/// after a newline, so only `\A` is an anchor.
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
    // An alternative at the top level would not be anchored. One inside a group or class would not
    // matter, but it is rejected as well: that costs a wider scan, never a result.
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
                // Within \Q…\E a backslash is a literal, and the next character may be a bar or a
                // backslash.
                Some(_) if quoted => return true,
                _ => {}
            },
            '|' if !quoted => return true,
            _ => {}
        }
    }
    false
}

/// The literal characters at the start of an anchored pattern, and whether the pattern has no other
/// condition.
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
                    // An escaped ASCII letter or digit has a special meaning; any other escaped
                    // character is a literal.
                    e if e.is_ascii_alphanumeric() => return (prefix, false),
                    e => prefix.push(e),
                }
                rest = &after[escaped.len_utf8()..];
            }
            // The previous character may be absent, or may repeat.
            '*' | '?' => {
                prefix.pop();
                return (prefix, false);
            }
            '{' => {
                // `{` is not always a quantifier, but is treated as one.
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
        // A pattern may lower the limits, but not raise them.
        let greedy = CompiledRegex::new("(*LIMIT_MATCH=4000000000)^(a+)+$", "").unwrap();
        assert!(greedy.is_match(&subject).is_err());
    }

    #[test]
    fn deep_subjects_leave_the_machine_code() {
        let regex = CompiledRegex::new("^(?:.|\\n)*?zzz", "").unwrap();
        let subject = "a".repeat(100_000) + "zzz";
        // A match or a limit error is correct; a wrong "no" is not.
        match regex.is_match(&subject) {
            Ok(found) => assert!(found),
            Err(e) => assert_eq!(e.code(), ErrorCode(51156)),
        }
        let short = "a".repeat(20_000) + "zzz";
        assert!(regex.is_match(&short).unwrap());
    }

    /// Searches in ASCII subjects do not validate the rest of the subject each time, and find what
    /// the program in UTF mode finds.
    #[test]
    fn repeated_searches() {
        for (pattern, options, subject, validates) in [
            ("(?<=a)(b)|a", "", "ababxab", false),
            ("S\\w+", "i", "some Sort", false),
            ("^.", "m", "a\nb\nc", false),
            ("[^a]\\b", "", "ab-cd a", false),
            ("\\p{Lu}|\\d", "", "aB1C", false),
            ("\\x{20ac}|e", "", "see", true),
            ("é|e", "", "see", true),
            ("e", "", "sée e", true),
            ("", "", "ab", false),
        ] {
            let regex = CompiledRegex::new(pattern, options).unwrap();
            let mut searcher = regex.searcher(subject);
            assert_eq!(searcher.validates(), validates, "/{pattern}/");
            for start in (0..=subject.len()).filter(|at| subject.is_char_boundary(*at)) {
                let found = searcher.captures_at(start).unwrap();
                assert_eq!(
                    found,
                    regex.captures_at(subject, start).unwrap(),
                    "/{pattern}/"
                );
            }
        }
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
            ("^\\é1", "", Some(("é1", true))),
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
