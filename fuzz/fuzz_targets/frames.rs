//! Any bytes as what a connection receives.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sheaf_testkit::fuzz::frames(data));
