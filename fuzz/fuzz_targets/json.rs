//! Any text as a value.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sheaf_testkit::fuzz::json(data));
