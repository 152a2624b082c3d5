//! Compares two specs: the same index, compatible, or in conflict.
//!
//! Their *signature* decides: key pattern (1 equals 1.0), collation, partial filter, wildcard
//! projection, sparse, unique. Indexes with different signatures coexist as long as their names
//! differ.
//!
//! | name | signature | other options | answer |
//! |------|-----------|---------------|--------|
//! | same | same      | same          | exists already, nothing to do |
//! | same | same      | differ        | IndexOptionsConflict (85) |
//! | same | differs   | -             | IndexKeySpecsConflict (86) |
//! | new  | same      | -             | IndexOptionsConflict (85) |
//! | new  | differs   | -             | a new index |

use sheaf_bson::{DocBuf, Error, ErrorCode, RawDoc, Result, compare_docs};

use super::IndexSpec;

/// How a spec relates to an existing index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpecRelation {
    /// Neither name nor signature match.
    Unrelated,
    /// The same index.
    Identical,
}

impl IndexSpec {
    /// Whether an index with this key pattern, collation, partial filter, wildcard projection,
    /// sparseness and uniqueness would hold the same keys and reject the same documents.
    pub fn same_signature(&self, other: &IndexSpec) -> bool {
        let same = |a: &Option<DocBuf>, b: &Option<DocBuf>| match (a, b) {
            (None, None) => true,
            (Some(a), Some(b)) => compare_docs(a.as_raw(), b.as_raw()).is_eq(),
            _ => false,
        };
        same(&self.partial_filter, &other.partial_filter)
            && same(&self.wildcard_projection, &other.wildcard_projection)
            && self.same_key(other.key.as_raw())
            && self.collator() == other.collator()
            && self.sparse == other.sparse
            && self.unique == other.unique
    }

    /// Whether the key pattern equals `key`; 1 equals 1.0.
    pub fn same_key(&self, key: RawDoc<'_>) -> bool {
        compare_docs(self.key.as_raw(), key).is_eq()
    }

    /// Compares a requested spec with an existing index.
    /// Errors: `IndexOptionsConflict`, `IndexKeySpecsConflict`.
    pub fn relate(&self, existing: &IndexSpec) -> Result<SpecRelation> {
        // Vector indexes have separate names and purposes.
        if self.vector.is_some() != existing.vector.is_some() {
            return Ok(SpecRelation::Unrelated);
        }
        if self.vector.is_some() {
            return match self.name == existing.name {
                true => Err(Error::new(
                    ErrorCode::INDEX_ALREADY_EXISTS,
                    format!(
                        "there is a search index '{}' already; drop it, or change it with updateSearchIndex",
                        self.name
                    ),
                )),
                false => Ok(SpecRelation::Unrelated),
            };
        }
        let same_name = self.name == existing.name;
        let same_signature = self.same_signature(existing);
        let same_options = self.expire_after_seconds == existing.expire_after_seconds
            && self.hidden == existing.hidden;
        let both = || {
            format!(
                "Requested index: {}, existing index: {}",
                self.to_doc(),
                existing.to_doc()
            )
        };
        match (same_name, same_signature, same_options) {
            (true, true, true) => Ok(SpecRelation::Identical),
            (true, true, false) => Err(Error::new(
                ErrorCode::INDEX_OPTIONS_CONFLICT,
                format!(
                    "An equivalent index already exists with the same name but different options. \
                     {}",
                    both()
                ),
            )),
            (true, false, _) => Err(Error::new(
                ErrorCode::INDEX_KEY_SPECS_CONFLICT,
                format!(
                    "An existing index has the same name as the requested index. When index names \
                     are not specified, they are auto generated and can cause conflicts. Give the \
                     index another name. {}",
                    both()
                ),
            )),
            (false, true, true) => Err(Error::new(
                ErrorCode::INDEX_OPTIONS_CONFLICT,
                format!(
                    "Index already exists with a different name: {}",
                    existing.name
                ),
            )),
            (false, true, false) => Err(Error::new(
                ErrorCode::INDEX_OPTIONS_CONFLICT,
                format!(
                    "An equivalent index already exists with a different name and options. {}",
                    both()
                ),
            )),
            (false, false, _) => Ok(SpecRelation::Unrelated),
        }
    }
}
