//! `storageEngine` and `indexOptionDefaults`: options of MongoDB's engine, kept for the tools that
//! read them back, without effect on this one.

use sheaf_bson::fields::wrong_type;
use sheaf_bson::{Error, ErrorCode, RawDoc, RawValue, Result};

/// The settings that a configuration string of WiredTiger may hold for a table.
const SETTINGS: &[&str] = &[
    "access_pattern_hint",
    "allocation_size",
    "app_metadata",
    "assert",
    "block_allocation",
    "block_compressor",
    "cache_resident",
    "checksum",
    "colgroups",
    "collator",
    "columns",
    "dictionary",
    "encryption",
    "exclusive",
    "extractor",
    "format",
    "huffman_key",
    "huffman_value",
    "ignore_in_memory_cache_size",
    "immutable",
    "import",
    "internal_item_max",
    "internal_key_max",
    "internal_key_truncate",
    "internal_page_max",
    "key_format",
    "key_gap",
    "leaf_item_max",
    "leaf_key_max",
    "leaf_page_max",
    "leaf_value_max",
    "log",
    "lsm",
    "memory_page_image_max",
    "memory_page_max",
    "os_cache_dirty_max",
    "os_cache_max",
    "prefix_compression",
    "prefix_compression_min",
    "readonly",
    "source",
    "split_deepen_min_child",
    "split_deepen_per_child",
    "split_pct",
    "tiered_storage",
    "type",
    "value_format",
    "verbose",
    "write_timestamp_usage",
];

/// Checks the options of a storage engine: `{wiredTiger: {configString: ...}}`.
///
/// Errors: `TypeMismatch`, `BadValue` for what WiredTiger would not take, `InvalidOptions` for
/// another engine or field.
pub(crate) fn check(option: &str, value: RawValue<'_>) -> Result<()> {
    let RawValue::Document(engines) = value else {
        return Err(wrong_type(option, value, "object"));
    };
    for engine in engines {
        let RawValue::Document(settings) = engine.value() else {
            return Err(Error::bad_value(format!(
                "'{option}.{}' has to be an embedded document.",
                engine.key()
            )));
        };
        if engine.key() != "wiredTiger" {
            return Err(invalid(format!(
                "{} is not a registered storage engine for this server",
                engine.key()
            )));
        }
        check_settings(option, settings)?;
    }
    Ok(())
}

fn check_settings(option: &str, settings: RawDoc<'_>) -> Result<()> {
    for element in settings {
        match (element.key(), element.value()) {
            ("configString", RawValue::String(text)) => check_text(text)?,
            ("configString", value) => {
                return Err(wrong_type(
                    format_args!("{option}.wiredTiger.configString"),
                    value,
                    "string",
                ));
            }
            (other, _) => {
                return Err(invalid(format!(
                    "'{other}' is not a supported option in {option}.wiredTiger"
                )));
            }
        }
    }
    Ok(())
}

/// Checks `name=value,name=(name=value,...),...`: names, and that parentheses match.
fn check_text(text: &str) -> Result<()> {
    let (mut depth, mut begin) = (0usize, 0);
    let mut parts = Vec::new();
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => match depth.checked_sub(1) {
                Some(less) => depth = less,
                None => return Err(bad(text)),
            },
            b',' if depth == 0 => {
                parts.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[begin..]);
    let known = |part: &str| {
        let name = part.split(['=', ':']).next().unwrap_or(part).trim();
        name.is_empty() && part.trim().is_empty() || SETTINGS.contains(&name)
    };
    match depth == 0 && parts.into_iter().all(known) {
        true => Ok(()),
        false => Err(bad(text)),
    }
}

fn bad(text: &str) -> Error {
    Error::bad_value(format!(
        "unknown configuration key in '{text}': Invalid argument"
    ))
}

fn invalid(message: String) -> Error {
    Error::new(ErrorCode::INVALID_OPTIONS, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_bson::json::parse_doc;

    #[test]
    fn configurations_are_checked() {
        let code = |text: &str| {
            let doc = parse_doc(text).unwrap();
            check("storageEngine", doc.get("o").unwrap()).map_err(|e| e.code().0)
        };
        for good in [
            "{o: {}}",
            "{o: {wiredTiger: {}}}",
            "{o: {wiredTiger: {configString: ''}}}",
            "{o: {wiredTiger: {configString: 'block_compressor=zlib, leaf_page_max=16KB'}}}",
            "{o: {wiredTiger: {configString: 'log=(enabled=true,x=1),type=file'}}}",
        ] {
            assert_eq!(code(good), Ok(()), "{good}");
        }
        for (bad, wanted) in [
            ("{o: 1}", 14),
            ("{o: {wiredTiger: 1}}", 2),
            ("{o: {other: {}}}", 72),
            ("{o: {wiredTiger: {x: 1}}}", 72),
            ("{o: {wiredTiger: {configString: 1}}}", 14),
            ("{o: {wiredTiger: {configString: 'nothing=1'}}}", 2),
            ("{o: {wiredTiger: {configString: 'log=(enabled'}}}", 2),
            ("{o: {wiredTiger: {configString: 'a)'}}}", 2),
        ] {
            assert_eq!(code(bad), Err(wanted), "{bad}");
        }
    }
}
