//! Compares strings and builds sort keys with the ICU4X library and its compiled-in data.

use std::cmp::Ordering;
use std::fmt;

use icu_collator::options::{
    AlternateHandling, CaseLevel, CollatorOptions, MaxVariable as IcuMaxVariable, Strength,
};
use icu_collator::preferences::{CollationCaseFirst, CollationNumericOrdering, CollationType};
use icu_collator::provider::{
    Baked, CollationDiacriticsV1, CollationJamoV1, CollationMetadata, CollationMetadataV1,
    CollationReorderingV1, CollationRootV1, CollationSpecialPrimariesV1, CollationTailoringV1,
};
use icu_collator::{CollatorBorrowed, CollatorPreferences};
use icu_locale_core::Locale as IcuLocale;
use icu_normalizer::provider::{
    Baked as NormalizerBaked, NormalizerNfdDataV1, NormalizerNfdTablesV1,
};
use icu_provider::prelude::*;

use super::spec::{Alternate, CaseFirst, Collation, MaxVariable};
use crate::compare::DEPTH_MAX;
use crate::element_type::ElementType;
use crate::error_code::{Error, Result};
use crate::raw_value::RawValue;
use crate::value::Value;
use crate::{ArrayBuilder, DocBuilder};

/// A collation ready to compare. Built once per operation or index, then shared.
///
/// Two collators are equal when their collations are equal.
pub struct Collator {
    collation: Collation,
    icu: Icu,
}

enum Icu {
    /// Uses the compiled data unchanged.
    Compiled(CollatorBorrowed<'static>),
    /// Uses the compiled data with the `backwards` flag changed ([`WithBackwards`]).
    Changed(Box<icu_collator::Collator>),
}

impl Collator {
    /// Errors: BadValue if the locale's data does not have the requested variant.
    pub fn new(collation: Collation) -> Result<Collator> {
        let refuse = |why: String| {
            Error::bad_value(format!(
                "Field 'locale' is invalid in: {}: {why}",
                crate::json::shell_doc(collation.to_doc().as_raw())
            ))
        };
        let locale: IcuLocale = collation
            .locale
            .tag()
            .parse()
            .map_err(|e| refuse(format!("{e}")))?;
        let mut preferences = CollatorPreferences::from(&locale);
        if let Some(variant) = collation.locale.variant() {
            let known = has_variant(&locale, variant);
            match variant.parse() {
                Ok(kind) if known => {
                    let kind: icu_locale_core::extensions::unicode::Value = kind;
                    preferences.collation_type = CollationType::try_from(&kind).ok();
                }
                _ => {
                    return Err(refuse(format!(
                        "this locale has no collation '{}'",
                        collation.locale().split('=').nth(1).unwrap_or(variant)
                    )));
                }
            }
        }
        preferences.case_first = Some(match collation.case_first {
            CaseFirst::Off => CollationCaseFirst::False,
            CaseFirst::Upper => CollationCaseFirst::Upper,
            CaseFirst::Lower => CollationCaseFirst::Lower,
        });
        preferences.numeric_ordering = Some(match collation.numeric_ordering {
            true => CollationNumericOrdering::True,
            false => CollationNumericOrdering::False,
        });
        let mut options = CollatorOptions::default();
        options.strength = Some(match collation.strength {
            1 => Strength::Primary,
            2 => Strength::Secondary,
            3 => Strength::Tertiary,
            4 => Strength::Quaternary,
            _ => Strength::Identical,
        });
        options.case_level = Some(match collation.case_level {
            true => CaseLevel::On,
            false => CaseLevel::Off,
        });
        options.alternate_handling = Some(match collation.alternate {
            Alternate::NonIgnorable => AlternateHandling::NonIgnorable,
            Alternate::Shifted => AlternateHandling::Shifted,
        });
        options.max_variable = Some(match collation.max_variable {
            MaxVariable::Punct => IcuMaxVariable::Punctuation,
            MaxVariable::Space => IcuMaxVariable::Space,
        });
        let data = WithBackwards(collation.backwards);
        let icu = if collation.backwards == collation.locale.defaults().backwards {
            CollatorBorrowed::try_new(preferences, options).map(Icu::Compiled)
        } else {
            icu_collator::Collator::try_new_unstable(&data, preferences, options)
                .map(|changed| Icu::Changed(Box::new(changed)))
        };
        let icu = icu.map_err(|e| refuse(e.to_string()))?;
        Ok(Collator { collation, icu })
    }

    /// The collation, with defaults filled in.
    pub fn collation(&self) -> &Collation {
        &self.collation
    }

    /// Compares two strings.
    #[inline]
    pub fn compare(&self, a: &str, b: &str) -> Ordering {
        self.compare_bytes(a.as_bytes(), b.as_bytes())
    }

    /// As [`Collator::compare`]; invalid UTF-8 compares as U+FFFD.
    pub(crate) fn compare_bytes(&self, a: &[u8], b: &[u8]) -> Ordering {
        match &self.icu {
            Icu::Compiled(icu) => icu.compare_utf8(a, b),
            Icu::Changed(icu) => icu.as_borrowed().compare_utf8(a, b),
        }
    }

    /// A sort key: memcmp of two keys gives the collation's order. Contains no zero byte.
    pub fn sort_key(&self, text: &str) -> Vec<u8> {
        let mut key = Vec::with_capacity(text.len() * 2 + 4);
        self.write_sort_key(text.as_bytes(), &mut key);
        key
    }

    fn write_sort_key(&self, text: &[u8], key: &mut Vec<u8>) {
        // Writing to a vector cannot fail.
        let _ = match &self.icu {
            Icu::Compiled(icu) => icu.write_sort_key_utf8_to(text, key),
            Icu::Changed(icu) => icu.as_borrowed().write_sort_key_utf8_to(text, key),
        };
    }

    /// The sort key as text: each byte becomes the character with that code point, so that
    /// comparing the texts bytewise gives the collation's order.
    pub fn key_text(&self, text: &str) -> String {
        self.sort_key(text).into_iter().map(char::from).collect()
    }

    /// The value with every string and symbol replaced by its sort key as text.
    pub fn key_value(&self, value: RawValue<'_>) -> Value {
        with_text(value, &|text| self.key_text(text), 0)
    }
}

impl PartialEq for Collator {
    fn eq(&self, other: &Collator) -> bool {
        std::ptr::eq(self, other) || self.collation == other.collation
    }
}

impl Eq for Collator {}

impl fmt::Debug for Collator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Collator({})", self.collation.to_doc())
    }
}

/// Whether values of this type can contain text, which a collation compares.
pub fn is_collatable(element_type: ElementType) -> bool {
    matches!(
        element_type,
        ElementType::String | ElementType::Symbol | ElementType::Document | ElementType::Array
    )
}

/// The sort key in `0x...` notation. `text` is the result of [`Collator::key_text`].
pub fn text_of_sort_key(text: &str) -> String {
    use fmt::Write;
    let mut out = String::with_capacity(2 + text.len() * 2);
    out.push_str("0x");
    for c in text.chars() {
        let _ = write!(out, "{:02x}", c as u32);
    }
    out
}

/// A result of [`Collator::key_value`] for display: sort keys are shown as `CollationKey(0x...)`.
pub fn shown_key_value(value: RawValue<'_>) -> Value {
    with_text(
        value,
        &|key| format!("CollationKey({})", text_of_sort_key(key)),
        0,
    )
}

/// The value with `of` applied to every string and symbol, up to `DEPTH_MAX` levels deep.
fn with_text(value: RawValue<'_>, of: &dyn Fn(&str) -> String, depth: u32) -> Value {
    match value {
        RawValue::String(text) => Value::String(of(text)),
        RawValue::Symbol(text) => Value::Symbol(of(text)),
        RawValue::Document(doc) if depth < DEPTH_MAX => {
            let mut out = DocBuilder::new();
            for element in doc {
                out.append(element.key(), &with_text(element.value(), of, depth + 1));
            }
            Value::Document(out.finish())
        }
        RawValue::Array(array) if depth < DEPTH_MAX => {
            let mut out = ArrayBuilder::new();
            for element in array {
                out.push(with_text(element, of, depth + 1).as_raw());
            }
            Value::Array(out.finish())
        }
        other => other.to_value(),
    }
}

/// Whether the compiled data has this collation for the locale's language (with its script, if
/// given).
fn has_variant(locale: &IcuLocale, variant: &str) -> bool {
    let Ok(attributes) = DataMarkerAttributes::try_from_str(variant) else {
        return false;
    };
    let mut id = locale.id.clone();
    id.variants.clear();
    let mut candidates = vec![id.clone()];
    id.region = None;
    candidates.push(id.clone());
    id.script = None;
    candidates.push(id);
    candidates.iter().any(|id| {
        let locale = DataLocale::from(id);
        let request = DataRequest {
            id: DataIdentifierBorrowed::for_marker_attributes_and_locale(attributes, &locale),
            ..Default::default()
        };
        DataProvider::<CollationMetadataV1>::load(&Baked, request).is_ok()
    })
}

/// The compiled data with `backwards` (accents compare from the end) set as given. ICU has this as
/// an option; ICU4X has it as a property of the locale's data (set for Canadian French).
struct WithBackwards(bool);

/// The `backwards` bit of [`CollationMetadata::bits`].
const BACKWARDS: u32 = 1 << 7;

impl DataProvider<CollationMetadataV1> for WithBackwards {
    fn load(&self, request: DataRequest) -> Result<DataResponse<CollationMetadataV1>, DataError> {
        let found = DataProvider::<CollationMetadataV1>::load(&Baked, request)?;
        let mut bits = found.payload.get().bits & !BACKWARDS;
        if self.0 {
            bits |= BACKWARDS;
        }
        Ok(DataResponse {
            metadata: found.metadata,
            payload: DataPayload::from_owned(CollationMetadata { bits }),
        })
    }
}

macro_rules! from_compiled_data {
    ($($marker:ident $data:ident,)*) => {
        $(impl DataProvider<$marker> for WithBackwards {
            fn load(&self, request: DataRequest) -> Result<DataResponse<$marker>, DataError> {
                DataProvider::<$marker>::load(&$data, request)
            }
        })*
    };
}

from_compiled_data! {
    CollationSpecialPrimariesV1 Baked,
    CollationRootV1 Baked,
    CollationTailoringV1 Baked,
    CollationDiacriticsV1 Baked,
    CollationJamoV1 Baked,
    CollationReorderingV1 Baked,
    NormalizerNfdDataV1 NormalizerBaked,
    NormalizerNfdTablesV1 NormalizerBaked,
}
