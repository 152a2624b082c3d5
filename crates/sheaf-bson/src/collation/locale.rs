//! ICU locale names, and the collation defaults that depend on the locale.
//!
//! ```text
//!   en   en_US   sr_Latn   zh_Hant_TW   en_US_POSIX   de@collation=phonebook
//!   └ language, script, region, variant, then the variant of the collation
//! ```

use super::spec::{Alternate, CaseFirst};

/// A locale whose language has a collation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Locale {
    name: String,
}

/// The fields of a collation that depend on the locale.
#[derive(Debug, Clone, Copy)]
pub(super) struct Defaults {
    pub case_first: CaseFirst,
    pub alternate: Alternate,
    pub normalization: bool,
    pub backwards: bool,
}

impl Defaults {
    /// The defaults of most locales.
    pub const PLAIN: Defaults = Defaults {
        case_first: CaseFirst::Off,
        alternate: Alternate::NonIgnorable,
        normalization: false,
        backwards: false,
    };
}

/// Languages with a collation. Sorted.
const LANGUAGES: &[&str] = &[
    "af", "am", "ar", "as", "az", "be", "bg", "bn", "bo", "br", "bs", "ca", "ceb", "chr", "cs",
    "cy", "da", "de", "dsb", "dz", "ee", "el", "en", "eo", "es", "et", "fa", "ff", "fi", "fil",
    "fo", "fr", "fy", "ga", "gl", "gu", "ha", "haw", "he", "hi", "hr", "hsb", "hu", "hy", "id",
    "ig", "is", "it", "ja", "ka", "kk", "kl", "km", "kn", "ko", "kok", "ku", "ky", "lb", "lkt",
    "ln", "lo", "lt", "lv", "mk", "ml", "mn", "mr", "ms", "mt", "my", "nb", "ne", "nl", "nn", "no",
    "om", "or", "pa", "pl", "ps", "pt", "ro", "ru", "sa", "se", "si", "sk", "sl", "smn", "sq",
    "sr", "sv", "sw", "ta", "te", "th", "tk", "to", "tr", "ug", "uk", "ur", "uz", "vi", "wae",
    "wo", "xh", "yi", "yo", "zh", "zu",
];

/// Languages whose default for `normalization` is true. Sorted.
const NORMALIZING: &[&str] = &[
    "as", "bn", "bo", "el", "fa", "gu", "he", "hi", "ig", "km", "kn", "kok", "mr", "my", "or",
    "pa", "ps", "si", "ta", "te", "th", "vi", "wo", "yi", "yo",
];

/// ICU variant names, and their spelling in BCP 47 language tags.
const VARIANTS: &[(&str, &str)] = &[
    ("compat", "compat"),
    ("dictionary", "dict"),
    ("emoji", "emoji"),
    ("eor", "eor"),
    ("phonebook", "phonebk"),
    ("phonetic", "phonetic"),
    ("pinyin", "pinyin"),
    ("search", "search"),
    ("searchjl", "searchjl"),
    ("standard", "standard"),
    ("stroke", "stroke"),
    ("traditional", "trad"),
    ("unihan", "unihan"),
    ("zhuyin", "zhuyin"),
    ("big5han", "big5han"),
    ("gb2312han", "gb2312"),
];

impl Locale {
    /// Parses an ICU name. Errors: a message that states why the name is invalid.
    pub fn parse(name: &str) -> Result<Locale, String> {
        let (base, keywords) = match name.split_once('@') {
            Some((base, keywords)) => (base, Some(keywords)),
            None => (name, None),
        };
        let mut parts = base.split('_');
        let language = parts.next().unwrap_or_default();
        if LANGUAGES.binary_search(&language).is_err() {
            return Err(format!(
                "'{language}' is not a language with a collation; use a locale such as 'en', 'fr_CA' or 'sr_Latn'"
            ));
        }
        let (mut script, mut region) = (false, false);
        for part in parts {
            let bytes = part.as_bytes();
            let fits = match bytes.len() {
                4 if !script && !region && bytes[0].is_ascii_uppercase() => {
                    script = true;
                    bytes[1..].iter().all(u8::is_ascii_lowercase)
                }
                2 if !region => {
                    region = true;
                    bytes.iter().all(u8::is_ascii_uppercase)
                }
                _ => base == "en_US_POSIX",
            };
            if !fits {
                return Err(format!("'{part}' is neither a script nor a region"));
            }
        }
        if let Some(keywords) = keywords {
            let Some(variant) = keywords.strip_prefix("collation=") else {
                return Err(format!(
                    "only collation=<variant> is supported after '@', not '{keywords}'"
                ));
            };
            if !VARIANTS.iter().any(|(icu, _)| *icu == variant) {
                return Err(format!("'{variant}' is not a collation variant"));
            }
        }
        Ok(Locale {
            name: name.to_owned(),
        })
    }

    /// The ICU name, as the user wrote it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The locale without the collation variant, as a lowercase BCP 47 language tag: `fr-ca`.
    pub fn tag(&self) -> String {
        let base = self.name.split('@').next().unwrap_or_default();
        base.replace('_', "-").to_ascii_lowercase()
    }

    /// The collation variant in BCP 47 spelling; `None` for the default variant.
    pub fn variant(&self) -> Option<&'static str> {
        let (_, icu) = self.name.split_once("@collation=")?;
        let found = VARIANTS.iter().find(|(name, _)| *name == icu)?;
        (found.1 != "standard").then_some(found.1)
    }

    /// The collation defaults of this locale.
    pub fn defaults(&self) -> Defaults {
        let language = self.name.split(['_', '@']).next().unwrap_or_default();
        let is_canadian_french = self.name.split('@').next() == Some("fr_CA");
        Defaults {
            case_first: match language {
                "da" | "mt" => CaseFirst::Upper,
                _ => CaseFirst::Off,
            },
            alternate: match language {
                "th" => Alternate::Shifted,
                _ => Alternate::NonIgnorable,
            },
            normalization: NORMALIZING.binary_search(&language).is_ok(),
            backwards: is_canadian_french,
        }
    }
}
