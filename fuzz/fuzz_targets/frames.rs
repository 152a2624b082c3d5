//! Any bytes as the input of a connection.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sheaf_testkit::fuzz::frames(data));
