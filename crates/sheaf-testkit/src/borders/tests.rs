//! Import orders that the check accepts and rejects.

use super::{Rules, Upward, check};

/// A crate in a temporary folder.
fn crate_of(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    }
    folder
}

fn checked(files: &[(&str, &str)], rules: &Rules<'_>) -> Result<String, String> {
    check(crate_of(files).path(), rules)
}

const LAYERS: [(&str, &str); 4] = [
    ("lib.rs", "mod low; mod high;"),
    ("low.rs", "pub struct Low; pub fn low() {}"),
    (
        "high/mod.rs",
        "mod part; pub use part::Part; use crate::low::{self, Low as L};",
    ),
    (
        "high/part.rs",
        "pub struct Part; fn f() { crate::low::low(); let c = 'a'; let s: &'static str = \"x\"; }",
    ),
];

#[test]
fn an_order_that_holds_is_reported() {
    let rules = Rules {
        order: &["low.rs", "high/ lib.rs"],
        circle_files_max: 0,
        upward: &[],
    };
    let report = checked(&LAYERS, &rules).expect("the order holds");
    assert!(report.contains("4 files, 2 imports"), "{report}");
    assert!(report.contains("upward imports: 0"), "{report}");
}

#[test]
fn a_re_export_is_followed_to_the_definition() {
    let mut files = LAYERS.to_vec();
    files[1] = (
        "low.rs",
        "use crate::high::Part; // and crate::high in a comment",
    );
    let rules = Rules {
        order: &["low.rs", "high/ lib.rs"],
        circle_files_max: 2,
        upward: &[],
    };
    let wrong = checked(&files, &rules).expect_err("an upward import");
    assert!(
        wrong.contains("upward import: low.rs -> high/part.rs: Part"),
        "{wrong}"
    );
    assert!(!wrong.contains("low.rs -> high/mod.rs"), "{wrong}");
}

#[test]
fn an_allowed_import_passes_until_it_is_gone() {
    let mut files = LAYERS.to_vec();
    files[1] = ("low.rs", "fn f() { super::high::part::g(); }");
    let allowed = [Upward {
        from: "low.rs",
        to: "high/part.rs",
        reason: "a test",
    }];
    let rules = Rules {
        order: &["low.rs", "high/ lib.rs"],
        circle_files_max: 2,
        upward: &allowed,
    };
    let report = checked(&files, &rules).expect("it is allowed");
    assert!(report.contains("circles (files in each): 2") || report.contains("upward imports: 1"));
    let wrong = checked(&LAYERS, &rules).expect_err("the allowance is stale");
    assert!(wrong.contains("no longer imported upward"), "{wrong}");
}

#[test]
fn a_circle_is_found_and_named() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a.rs", "use crate::b::B;"),
        ("b.rs", "use crate::c; fn f() { c::g(); }"),
        ("c.rs", "fn g() { let _ = crate::a::A; }"),
    ];
    let rules = Rules {
        order: &["a.rs b.rs c.rs lib.rs"],
        circle_files_max: 2,
        upward: &[],
    };
    let wrong = checked(&files, &rules).expect_err("a circle of three");
    assert!(
        wrong.contains("a circle of 3 files, 2 are allowed"),
        "{wrong}"
    );
    assert!(wrong.contains("b.rs -> c.rs: g"), "{wrong}");
}

#[test]
fn tests_and_literals_do_not_count() {
    let files = [
        ("lib.rs", "mod a; mod b;"),
        (
            "a.rs",
            "#[cfg(test)] mod tests { use crate::b::B; } const S: &str = r#\"crate::b::B\"#;",
        ),
        (
            "b.rs",
            "#[cfg(test)] mod tests; /* crate::a::A /* nested */ */",
        ),
        ("b/tests.rs", "use crate::a::A;"),
    ];
    let rules = Rules {
        order: &["a.rs b.rs lib.rs"],
        circle_files_max: 0,
        upward: &[],
    };
    let report = checked(&files, &rules).expect("no imports");
    assert!(report.contains("3 files, 0 imports"), "{report}");
}

#[test]
fn a_file_without_a_rank_is_refused() {
    let rules = Rules {
        order: &["high/ lib.rs"],
        circle_files_max: 9,
        upward: &[],
    };
    let wrong = checked(&LAYERS, &rules).expect_err("no rank");
    assert!(wrong.contains("low.rs has no rank"), "{wrong}");
}
