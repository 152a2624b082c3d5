//! Prints the import circles of crates: `cargo run -p sheaf-testkit --example borders -- SRC...`

use std::path::Path;

fn main() {
    for src in std::env::args().skip(1) {
        println!("{src}");
        match sheaf_testkit::borders::survey(Path::new(&src)) {
            Ok(report) => print!("{report}"),
            Err(error) => eprintln!("{error}"),
        }
    }
}
