//! Any bytes as a key, or as a document whose fields are encoded as keys.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sheaf_testkit::fuzz::keystring(data));
