//! Any bytes as a pipeline, an expression, an update, a schema or a bucket, and a document.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sheaf_testkit::fuzz::pipeline(data));
