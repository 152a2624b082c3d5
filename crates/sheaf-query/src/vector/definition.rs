//! Validates the definition of a `vectorSearch` index.
//!
//! ```text
//!   {fields: [{type: "vector", path: "embedding", numDimensions: 1536, similarity: "cosine"},
//!             {type: "filter", path: "year"}]}
//! ```
//!
//! Source: the manual's page "How to Index Fields for Vector Search".

use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::fields;
use sheaf_bson::path::FieldPath;
use sheaf_bson::{DocBuf, RawDoc, RawElement, RawValue};

use super::{DIMENSIONS_MAX, Similarity};

/// Maximum number of fields of an index.
const FIELDS_MAX: usize = 64;

/// A validated definition.
#[derive(Debug, Clone, PartialEq)]
pub struct VectorIndexDefinition {
    spec: DocBuf,
    vectors: Vec<VectorField>,
    filters: Vec<Arc<FieldPath>>,
}

/// A vector field.
#[derive(Debug, Clone, PartialEq)]
pub struct VectorField {
    /// The path of the vector. Arrays on the path are not traversed.
    pub path: Arc<FieldPath>,
    /// Number of components of a vector.
    pub dimensions: usize,
    /// How vectors are compared.
    pub similarity: Similarity,
    /// The requested quantization. Vectors are stored unquantized in any case, so results are
    /// exact.
    pub quantization: Quantization,
}

/// The precision with which an index may store vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Quantization {
    None,
    Scalar,
    Binary,
}

impl VectorIndexDefinition {
    /// Parses a definition. Errors: BadValue, TypeMismatch, 40414 for a missing field, 40415 for an
    /// unknown field, NotImplemented for options that MongoDB supports and sheaf does not.
    pub fn parse(spec: RawDoc<'_>) -> Result<VectorIndexDefinition> {
        let mut fields = None;
        for element in spec {
            match element.key() {
                "fields" => {
                    let RawValue::Array(array) = element.value() else {
                        return Err(wrong_type("definition.fields", &element, "array"));
                    };
                    fields = Some(array);
                }
                "numPartitions" if element.value().as_i64_exact() == Some(1) => {}
                "storedSource" if element.value() == RawValue::Boolean(false) => {}
                known @ ("numPartitions" | "storedSource" | "nestedRoot") => {
                    return Err(not_implemented(&format!("definition.{known}")));
                }
                "mappings" | "analyzer" | "analyzers" | "searchAnalyzer" | "synonyms" => {
                    return Err(Error::new(
                        ErrorCode::NOT_IMPLEMENTED,
                        format!(
                            "'definition.{}' belongs to indexes for full-text search (type 'search'), which \
                             are not supported; a 'vectorSearch' index has 'fields'",
                            element.key()
                        ),
                    ));
                }
                other => return Err(fields::unknown_field(&format!("definition.{other}"))),
            }
        }
        let fields = fields.ok_or_else(|| missing("definition.fields"))?;
        let mut definition = VectorIndexDefinition {
            spec: spec.to_buf(),
            vectors: Vec::new(),
            filters: Vec::new(),
        };
        for (at, field) in fields.iter().enumerate() {
            if at == FIELDS_MAX {
                return Err(Error::bad_value(format!(
                    "a vectorSearch index can have {FIELDS_MAX} fields"
                )));
            }
            let name = format!("definition.fields[{at}]");
            let RawValue::Document(field) = field else {
                return Err(Error::new(
                    ErrorCode::TYPE_MISMATCH,
                    format!("'{name}' must be an object, not {}", field.type_name()),
                ));
            };
            definition.add_field(&name, field)?;
        }
        if definition.vectors.is_empty() {
            return Err(Error::bad_value(
                "a vectorSearch index needs a field of type 'vector' in 'definition.fields'",
            ));
        }
        Ok(definition)
    }

    fn add_field(&mut self, name: &str, field: RawDoc<'_>) -> Result<()> {
        match field.get("type") {
            Some(RawValue::String("vector")) => {
                let vector = parse_vector(name, field)?;
                self.refuse_repeated(&vector.path)?;
                self.vectors.push(vector);
            }
            Some(RawValue::String("filter")) => {
                for element in field {
                    if !matches!(element.key(), "type" | "path") {
                        return Err(fields::unknown_field(&format!("{name}.{}", element.key())));
                    }
                }
                let path = parse_path(name, field)?;
                self.refuse_repeated(&path)?;
                self.filters.push(path);
            }
            Some(RawValue::String(known @ ("autoEmbed" | "text"))) => {
                return Err(Error::new(
                    ErrorCode::NOT_IMPLEMENTED,
                    format!(
                        "'{name}.type': '{known}' needs a model that makes vectors of text, which the \
                         server has not; make them in the application, and index them as 'vector'"
                    ),
                ));
            }
            Some(RawValue::String(other)) => {
                return Err(Error::bad_value(format!(
                    "'{name}.type' must be 'vector' or 'filter', not '{other}'"
                )));
            }
            Some(_) => {
                return Err(Error::new(
                    ErrorCode::TYPE_MISMATCH,
                    format!("'{name}.type' must be a string"),
                ));
            }
            None => return Err(missing(&format!("{name}.type"))),
        }
        Ok(())
    }

    fn refuse_repeated(&self, path: &FieldPath) -> Result<()> {
        let vectors = self.vectors.iter().map(|vector| &vector.path);
        if vectors.chain(&self.filters).any(|other| **other == *path) {
            return Err(Error::bad_value(format!(
                "the path '{}' occurs twice in 'definition.fields'",
                path.dotted()
            )));
        }
        Ok(())
    }

    /// The definition as the user wrote it.
    pub fn spec(&self) -> &DocBuf {
        &self.spec
    }

    /// The vector fields; at least one.
    pub fn vectors(&self) -> &[VectorField] {
        &self.vectors
    }

    /// The paths by which searches can filter.
    pub fn filters(&self) -> &[Arc<FieldPath>] {
        &self.filters
    }

    /// The vector field at a path, and its index.
    pub fn vector_at(&self, path: &str) -> Option<(usize, &VectorField)> {
        let mut fields = self.vectors.iter().enumerate();
        fields.find(|(_, field)| field.path.dotted() == path)
    }
}

fn parse_path(name: &str, field: RawDoc<'_>) -> Result<Arc<FieldPath>> {
    let path = match field.get("path") {
        Some(RawValue::String(path)) => path,
        Some(_) => {
            return Err(Error::new(
                ErrorCode::TYPE_MISMATCH,
                format!("'{name}.path' must be a string"),
            ));
        }
        None => return Err(missing(&format!("{name}.path"))),
    };
    if path.split('.').any(|part| part.starts_with('$')) {
        return Err(Error::bad_value(format!(
            "'{name}.path' must not have a part that begins with '$': '{path}'"
        )));
    }
    match FieldPath::parse(path) {
        Ok(path) => Ok(Arc::new(path)),
        Err(error) => Err(Error::bad_value(format!("'{name}.path': {error}"))),
    }
}

fn parse_vector(name: &str, field: RawDoc<'_>) -> Result<VectorField> {
    let (mut dimensions, mut similarity) = (None, None);
    let mut quantization = Quantization::None;
    for element in field {
        let option = format!("{name}.{}", element.key());
        match element.key() {
            "type" | "path" => {}
            "numDimensions" => match element.value().as_i64_exact() {
                Some(n) if (1..=DIMENSIONS_MAX as i64).contains(&n) => {
                    dimensions = Some(n as usize)
                }
                _ => {
                    return Err(Error::bad_value(format!(
                        "'{option}' must be a whole number from 1 to {DIMENSIONS_MAX}"
                    )));
                }
            },
            "similarity" => {
                let parsed = element.value().as_str().and_then(Similarity::parse);
                similarity = Some(parsed.ok_or_else(|| {
                    Error::bad_value(format!(
                        "'{option}' must be 'euclidean', 'cosine' or 'dotProduct'"
                    ))
                })?);
            }
            "quantization" => {
                quantization = match element.value() {
                    RawValue::String("none") => Quantization::None,
                    RawValue::String("scalar") => Quantization::Scalar,
                    RawValue::String("binary") => Quantization::Binary,
                    _ => {
                        return Err(Error::bad_value(format!(
                            "'{option}' must be 'none', 'scalar' or 'binary'"
                        )));
                    }
                };
            }
            "hnswOptions" | "indexingMethod" => return Err(not_implemented(&option)),
            _ => return Err(fields::unknown_field(&option)),
        }
    }
    Ok(VectorField {
        path: parse_path(name, field)?,
        dimensions: dimensions.ok_or_else(|| missing(&format!("{name}.numDimensions")))?,
        similarity: similarity.ok_or_else(|| missing(&format!("{name}.similarity")))?,
        quantization,
    })
}

fn not_implemented(option: &str) -> Error {
    Error::new(
        ErrorCode::NOT_IMPLEMENTED,
        format!("'{option}' is not supported: leave it out"),
    )
}

fn missing(option: &str) -> Error {
    fields::missing_field(option)
}

fn wrong_type(option: &str, element: &RawElement<'_>, expected: &str) -> Error {
    fields::wrong_type(option, element.value(), expected)
}
