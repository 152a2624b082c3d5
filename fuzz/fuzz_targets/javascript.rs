//! Any bytes as a document and a script.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    sheaf_testkit::fuzz::javascript(&sheaf_js::QuickJs, data)
});
