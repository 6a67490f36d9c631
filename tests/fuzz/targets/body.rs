//! `tests/run fuzz`, or `cargo +nightly fuzz run body --fuzz-dir tests/fuzz`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollgate::pure::request_body::fuzz_body(data));
