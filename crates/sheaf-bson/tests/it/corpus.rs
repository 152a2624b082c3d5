//! The test vectors of the BSON specification, read from a directory next to the project.
//!
//! If they are absent, the test prints a note and runs only the few vectors below.

use std::path::PathBuf;

use serde_json::Value as Json;
use sheaf_bson::{Decimal128, DocBuf, ValidateOptions, compare_docs, json, validate};

const FEW: &str = r#"{
  "description": "a few of every kind", "bson_type": "0x00", "test_key": "x",
  "valid": [
    {"description": "string", "canonical_bson": "1200000002780006000000776F726C640000",
     "canonical_extjson": "{\"x\" : \"world\"}"},
    {"description": "decimal", "canonical_bson": "1800000013640001000000000000000000000000003E3000",
     "canonical_extjson": "{\"d\" : {\"$numberDecimal\" : \"0.1\"}}"}
  ],
  "decodeErrors": [{"description": "boolean 2", "bson": "090000000862000200"}],
  "parseErrors": [{"description": "bad oid", "string": "{\"a\" : {\"$oid\" : 42}}"}]
}"#;

/// Name and content of every vector file.
fn files() -> Vec<(String, Json)> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/bson-corpus");
    let mut files = vec![("few".to_owned(), serde_json::from_str(FEW).unwrap())];
    let Ok(entries) = std::fs::read_dir(&dir) else {
        eprintln!(
            "no BSON corpus at {}: only the built-in vectors run",
            dir.display()
        );
        return files;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "json") {
            let text = std::fs::read_to_string(&path).unwrap();
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            files.push((name, serde_json::from_str(&text).unwrap()));
        }
    }
    assert!(files.len() > 25, "the corpus has lost files");
    files
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().map(|c| c.to_digit(16).unwrap()).collect();
    digits.chunks(2).map(|p| (p[0] * 16 + p[1]) as u8).collect()
}

fn cases<'f>(file: &'f Json, kind: &str) -> impl Iterator<Item = &'f Json> {
    file[kind]
        .as_array()
        .map_or([].as_slice(), Vec::as_slice)
        .iter()
}

fn same_json(a: &str, b: &str) -> bool {
    serde_json::from_str::<Json>(a).unwrap() == serde_json::from_str::<Json>(b).unwrap()
}

#[test]
fn valid_documents() {
    for (name, file) in files() {
        for case in cases(&file, "valid") {
            let what = format!("{name}: {}", case["description"]);
            let text = |key: &str| case[key].as_str();
            let lossy = case["lossy"] == Json::Bool(true);
            let canonical = unhex(text("canonical_bson").unwrap());
            validate(&canonical, &ValidateOptions::default())
                .unwrap_or_else(|e| panic!("{what}: {e}"));
            let doc = DocBuf::from_vec(canonical).unwrap();

            let extended = text("canonical_extjson").unwrap();
            let printed = json::to_canonical(&doc);
            assert!(
                same_json(&printed, extended),
                "{what}: {printed}\n expected {extended}"
            );
            let parsed = json::parse_doc(extended).unwrap_or_else(|e| panic!("{what}: {e}"));
            if lossy {
                assert!(
                    compare_docs(parsed.as_raw(), doc.as_raw()).is_eq(),
                    "{what}"
                );
            } else {
                assert_eq!(parsed.as_bytes(), doc.as_bytes(), "{what}: {extended}");
            }

            if let Some(relaxed) = text("relaxed_extjson") {
                let printed = json::to_relaxed(&doc);
                assert!(
                    same_json(&printed, relaxed),
                    "{what}: {printed}\n expected {relaxed}"
                );
                let again = json::to_relaxed(&json::parse_doc(relaxed).unwrap());
                assert!(same_json(&again, relaxed), "{what}: {again}");
            }
            if let Some(degenerate) = text("degenerate_extjson") {
                let parsed = json::parse_doc(degenerate).unwrap_or_else(|e| panic!("{what}: {e}"));
                assert_eq!(
                    json::to_canonical(&parsed),
                    json::to_canonical(&doc),
                    "{what}"
                );
            }
            if let Some(degenerate) = text("degenerate_bson") {
                let degenerate = unhex(degenerate);
                validate(&degenerate, &ValidateOptions::default()).unwrap();
                let degenerate = DocBuf::from_vec(degenerate).unwrap();
                let printed = json::to_canonical(&degenerate);
                assert!(same_json(&printed, extended), "{what}: {printed}");
            }

            // The shell style with types reads back exactly.
            if !lossy {
                let shell = json::typed(&doc);
                let back =
                    json::parse_doc(&shell).unwrap_or_else(|e| panic!("{what}: {shell}: {e}"));
                assert_eq!(back.as_bytes(), doc.as_bytes(), "{what}: {shell}");
            }
        }
    }
}

#[test]
fn malformed_documents_are_refused() {
    let mut refused = 0;
    for (name, file) in files() {
        for case in cases(&file, "decodeErrors") {
            let bytes = unhex(case["bson"].as_str().unwrap());
            let result = validate(&bytes, &ValidateOptions::default());
            assert!(result.is_err(), "{name}: {}", case["description"]);
            refused += 1;
        }
    }
    assert!(refused > 0);
}

#[test]
fn malformed_text_is_refused() {
    let mut refused = 0;
    for (name, file) in files() {
        let is_decimal = file["bson_type"] == "0x13";
        for case in cases(&file, "parseErrors") {
            let text = case["string"].as_str().unwrap();
            let what = format!("{name}: {}: {text}", case["description"]);
            if is_decimal {
                assert!(text.parse::<Decimal128>().is_err(), "{what}");
            } else {
                assert!(json::parse_doc(text).is_err(), "{what}");
            }
            refused += 1;
        }
    }
    assert!(refused > 0);
}
