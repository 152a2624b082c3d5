//! Parses, validates, completes and writes the collation document.
//!
//! ```text
//!   {locale: "fr_CA", strength: 1}
//!   {locale: "fr_CA", caseLevel: false, caseFirst: "off", strength: 1, numericOrdering: false,
//!    alternate: "non-ignorable", maxVariable: "punct", normalization: false, backwards: true,
//!    version: "57.1"}
//! ```

use super::locale::{self, Locale};
use crate::builder::DocBuilder;
use crate::error_code::{Error, ErrorCode, Result};
use crate::fields;
use crate::json::shell_doc;
use crate::raw::{RawDoc, RawElement};
use crate::raw_value::RawValue;
use crate::value::DocBuf;

/// The collation version that MongoDB reports. We report the same one, so that tools which copy
/// collections and indexes between servers find equal specifications on both sides. It is
/// independent of the data that our sort keys are built from ([`super::SORT_KEY_DATA`]).
const VERSION: &str = "57.1";

/// The `caseFirst` option: which case sorts first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CaseFirst {
    /// No preference: the default order of the third level, lowercase first.
    Off,
    /// Uppercase sorts first.
    Upper,
    /// Lowercase sorts first.
    Lower,
}

/// The `alternate` option: whether spaces and punctuation are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Alternate {
    /// Spaces and punctuation compare like other characters.
    NonIgnorable,
    /// Spaces and punctuation are ignored below strength 4.
    Shifted,
}

/// The `maxVariable` option: which characters `alternate: "shifted"` affects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MaxVariable {
    /// Spaces and punctuation.
    Punct,
    /// Only spaces.
    Space,
}

/// A collation other than the simple one, with every field filled in.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Collation {
    pub(super) locale: Locale,
    /// Adds a separate case level, so that case also counts at strength 1 and 2.
    pub case_level: bool,
    /// Which case comes first.
    pub case_first: CaseFirst,
    /// Number of levels that count: 1 letters, 2 accents, 3 case, 4 punctuation, 5 code points.
    pub strength: u8,
    /// Runs of digits compare as numbers.
    pub numeric_ordering: bool,
    /// Whether spaces and punctuation are ignored below strength 4.
    pub alternate: Alternate,
    /// Which of them `alternate: "shifted"` affects.
    pub max_variable: MaxVariable,
    /// Stored and reported only: comparison always treats text as if normalized.
    pub normalization: bool,
    /// Accents compare from the end of the text.
    pub backwards: bool,
}

impl Collation {
    /// The collation of a locale with its defaults. Errors: BadValue for an unknown locale.
    pub fn of_locale(locale: &str) -> Result<Collation> {
        let mut spec = DocBuilder::new();
        spec.append("locale", locale);
        let spec = spec.finish();
        Collation::parse(spec.as_raw())?.ok_or_else(|| invalid("locale", spec.as_raw()))
    }

    /// The ICU name of the locale, as the user wrote it.
    pub fn locale(&self) -> &str {
        self.locale.name()
    }

    /// Parses a collation document; `None` is the simple collation. Errors: see
    /// [`super::CollationChoice::parse`].
    pub fn parse(spec: RawDoc<'_>) -> Result<Option<Collation>> {
        let Some(name) = spec.get_element("locale") else {
            return Err(fields::missing_field("collation.locale"));
        };
        let name = string(&name)?;
        let simple = name == "simple";
        let locale = match simple {
            true => None,
            false => Some(Locale::parse(name).map_err(|why| {
                Error::bad_value(format!(
                    "Field 'locale' is invalid in: {}: {why}",
                    shell_doc(spec)
                ))
            })?),
        };
        let defaults = locale
            .as_ref()
            .map_or(locale::Defaults::PLAIN, Locale::defaults);
        let mut parsed = Collation {
            locale: locale.unwrap_or_default(),
            case_level: false,
            case_first: defaults.case_first,
            strength: 3,
            numeric_ordering: false,
            alternate: defaults.alternate,
            max_variable: MaxVariable::Punct,
            normalization: defaults.normalization,
            backwards: defaults.backwards,
        };
        let mut says_backwards = false;
        for element in spec {
            let is_absent = matches!(element.value(), RawValue::Null | RawValue::Undefined);
            match element.key() {
                "locale" => {}
                "caseLevel" | "caseFirst" | "strength" | "numericOrdering" | "alternate"
                | "maxVariable" | "normalization" | "backwards" | "version"
                    if is_absent => {}
                "caseLevel" => parsed.case_level = boolean(&element)?,
                "caseFirst" => {
                    parsed.case_first = match string(&element)? {
                        "off" => CaseFirst::Off,
                        "upper" => CaseFirst::Upper,
                        "lower" => CaseFirst::Lower,
                        other => return Err(not_a_value(&element, other)),
                    }
                }
                "strength" => {
                    parsed.strength = match integer(&element)? {
                        n @ 1..=5 => n as u8,
                        other => return Err(not_a_value(&element, &other.to_string())),
                    }
                }
                "numericOrdering" => parsed.numeric_ordering = boolean(&element)?,
                "alternate" => {
                    parsed.alternate = match string(&element)? {
                        "non-ignorable" => Alternate::NonIgnorable,
                        "shifted" => Alternate::Shifted,
                        other => return Err(not_a_value(&element, other)),
                    }
                }
                "maxVariable" => {
                    parsed.max_variable = match string(&element)? {
                        "punct" => MaxVariable::Punct,
                        "space" => MaxVariable::Space,
                        other => return Err(not_a_value(&element, other)),
                    }
                }
                "normalization" => parsed.normalization = boolean(&element)?,
                "backwards" => {
                    parsed.backwards = boolean(&element)?;
                    says_backwards = parsed.backwards;
                }
                "version" => check_version(string(&element)?)?,
                other => {
                    return Err(fields::unknown_field(format_args!("collation.{other}")));
                }
            }
        }
        if simple {
            // Other valid fields have no effect.
            return Ok(None);
        }
        if spec.get("caseFirst").is_some()
            && parsed.case_first != CaseFirst::Off
            && !parsed.case_level
            && parsed.strength < 3
        {
            return Err(Error::bad_value(format!(
                "'caseFirst' is invalid unless 'caseLevel' is on or 'strength' is greater than 2: {}",
                shell_doc(spec)
            )));
        }
        if says_backwards && parsed.strength == 1 {
            return Err(Error::bad_value(format!(
                "'backwards' is invalid with 'strength' of 1: {}",
                shell_doc(spec)
            )));
        }
        Ok(Some(parsed))
    }

    /// The document with every field, as shown by `listCollections`, `listIndexes` and `explain`.
    pub fn to_doc(&self) -> DocBuf {
        let mut out = DocBuilder::new();
        out.append("locale", self.locale.name());
        out.append("caseLevel", self.case_level);
        out.append(
            "caseFirst",
            match self.case_first {
                CaseFirst::Off => "off",
                CaseFirst::Upper => "upper",
                CaseFirst::Lower => "lower",
            },
        );
        out.append("strength", i32::from(self.strength));
        out.append("numericOrdering", self.numeric_ordering);
        out.append(
            "alternate",
            match self.alternate {
                Alternate::NonIgnorable => "non-ignorable",
                Alternate::Shifted => "shifted",
            },
        );
        out.append(
            "maxVariable",
            match self.max_variable {
                MaxVariable::Punct => "punct",
                MaxVariable::Space => "space",
            },
        );
        out.append("normalization", self.normalization);
        out.append("backwards", self.backwards);
        out.append("version", VERSION);
        out.finish()
    }
}

fn invalid(field: &str, spec: RawDoc<'_>) -> Error {
    Error::bad_value(format!(
        "Field '{field}' is invalid in: {}",
        shell_doc(spec)
    ))
}

fn check_version(version: &str) -> Result<()> {
    if version == VERSION {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::INCOMPATIBLE_COLLATION_VERSION,
        format!(
            "collation version {version} is not supported, this server has {VERSION}; omit 'version'"
        ),
    ))
}

fn not_a_value(element: &RawElement<'_>, value: &str) -> Error {
    Error::bad_value(format!(
        "Enumeration value '{value}' for field 'collation.{}' is not a valid value.",
        element.key()
    ))
}

fn wrong_type(element: &RawElement<'_>, expected: &str) -> Error {
    fields::wrong_type(
        format_args!("collation.{}", element.key()),
        element.value(),
        expected,
    )
}

fn string<'a>(element: &RawElement<'a>) -> Result<&'a str> {
    match element.value() {
        RawValue::String(text) => Ok(text),
        _ => Err(wrong_type(element, "string")),
    }
}

fn boolean(element: &RawElement<'_>) -> Result<bool> {
    match element.value() {
        RawValue::Boolean(flag) => Ok(flag),
        value if value.is_number() => Ok(value.is_truthy()),
        _ => Err(wrong_type(element, "[bool, long, int, decimal, double]")),
    }
}

fn integer(element: &RawElement<'_>) -> Result<i64> {
    let value = element.value();
    if !value.is_number() {
        return Err(wrong_type(element, "[long, int, decimal, double]"));
    }
    value
        .as_i64_exact()
        .ok_or_else(|| not_a_value(element, &value.to_string()))
}
