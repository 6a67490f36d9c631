//! `cargo +nightly fuzz run sse --fuzz-dir tests/fuzz`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollgate::pure::tap::fuzz::fuzz_sse(data));
