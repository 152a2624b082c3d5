//! Combinations of options: what sparse, partial, TTL, hashed and wildcard indexes cannot have.

use sheaf_bson::json::shell_doc;
use sheaf_bson::{DocBuf, Error, ErrorCode, RawElement, Result};
use sheaf_query::planner::index_entry::{IndexKind, fields_of};

use super::key_pattern::is_wildcard;
use super::parse::failed_to_parse;
use super::{IndexSpec, cannot_create};

impl IndexSpec {
    pub(super) fn check_combination(&self) -> Result<()> {
        if self.sparse && self.partial_filter.is_some() {
            return Err(cannot_create(
                "cannot mix \"partialFilterExpression\" and \"sparse\" options",
            ));
        }
        self.check_kind()?;
        if self.expire_after_seconds.is_some()
            && self.key.iter().count() > 1
            && !self.is_on_times_of_buckets()
        {
            return Err(cannot_create(format!(
                "TTL indexes are single-field indexes, compound indexes do not support TTL. \
                 Index spec: {}",
                self.to_doc()
            )));
        }
        Ok(())
    }

    /// Whether this is the translation of an index on the time of measurements, which is one field
    /// there and two on buckets.
    fn is_on_times_of_buckets(&self) -> bool {
        self.original_filter.is_some()
            && self.key.iter().count() == 2
            && self
                .key
                .iter()
                .all(|field| field.key().starts_with("control."))
    }

    /// Checks the restrictions on hashed and wildcard indexes.
    fn check_kind(&self) -> Result<()> {
        let key = shell_doc(self.key.as_raw());
        let hashed = |e: &RawElement<'_>| e.value().as_str() == Some("hashed");
        let wildcard = |e: &RawElement<'_>| is_wildcard(e.key());
        let (hashed, wildcards) = (
            self.key.iter().filter(hashed).count(),
            self.key.iter().filter(wildcard).count(),
        );
        if hashed > 1 {
            return Err(Error::new(
                ErrorCode(31303),
                format!(
                    "A maximum of one index field is allowed to be hashed but found {hashed} for 'key' {key}"
                ),
            ));
        }
        if hashed == 1 && (self.unique || self.prepare_unique) {
            return Err(Error::new(
                ErrorCode(16764),
                "Currently hashed indexes cannot guarantee uniqueness. Use a regular index.",
            ));
        }
        let projection = self.wildcard_projection.as_ref().map(DocBuf::as_raw);
        if wildcards == 0 {
            return match projection {
                Some(_) => Err(Error::bad_value(
                    "The field 'wildcardProjection' is only allowed in an 'wildcard' index",
                )),
                None => Ok(()),
            };
        }
        if wildcards > 1 || hashed > 0 {
            return Err(cannot_create(format!(
                "a wildcard index must have one wildcard ('$**') and otherwise only regular \
                 fields; key: {key}"
            )));
        }
        for (option, set) in [
            ("unique", self.unique || self.prepare_unique),
            ("sparse", self.sparse),
            ("expireAfterSeconds", self.expire_after_seconds.is_some()),
        ] {
            if set {
                return Err(cannot_create(format!(
                    "Index type 'wildcard' does not support the {option} option"
                )));
            }
        }
        let of_all = self.key.get("$**").is_some();
        let compound = self.key.iter().count() > 1;
        if projection.is_some() && !of_all {
            return Err(failed_to_parse(
                "The field 'wildcardProjection' is only allowed when 'key' is {\"$**\": ±1}",
            ));
        }
        if compound && of_all && projection.is_none() {
            return Err(cannot_create(
                "a compound index on '$**' needs a 'wildcardProjection' that excludes its other \
                 fields",
            ));
        }
        let (fields, kind) = fields_of(self.key.as_raw(), projection)?;
        if let IndexKind::Wildcard(wildcard) = &kind {
            let overlapping = fields.iter().enumerate().find(|(field, f)| {
                !(wildcard.path_field..wildcard.path_field + 2).contains(field)
                    && wildcard.paths.touches(&f.path)
            });
            if let Some((_, field)) = overlapping {
                return Err(cannot_create(format!(
                    "the field '{}' of a compound wildcard index is also covered by its wildcard; \
                     exclude it with 'wildcardProjection'. key: {key}",
                    field.path.dotted()
                )));
            }
        }
        Ok(())
    }
}
