//! Generated bodies, compared with serde_json.

use super::*;
use crate::pure::chat::fuzz_body;

const SEEDS: [&str; 4] = [
    r#"{"model":"a/b:c","messages":[{"role":"user","content":"h\n\u00e9\ud83d\ude00"}],"stream":true,"max_tokens":10}"#,
    r#" { "model" : "m" , "input" : [ "a" , "b" ] , "x" : [ -0.5e+3 , true , null , { } ] } "#,
    r#"{"messages":[{"content":[{"type":"text","text":"é"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA"}}]}],"model":"m","stream_options":{"x":1},"n":2}"#,
    r#"{"model":"m","input":[[1,2],[3]],"max_completion_tokens":null,"tools":[{"type":"function","function":{}}]}"#,
];

/// Keeps the fuzz target's function alive, and shows that no truncation of a body is a body.
#[test]
fn every_prefix_of_a_body_is_refused() {
    for seed in SEEDS {
        fuzz_body(seed.as_bytes());
        for end in 0..seed.trim_end().len() {
            let prefix = &seed.as_bytes()[..end];
            fuzz_body(prefix);
            check_not_json(prefix);
        }
    }
}

#[test]
fn every_changed_byte_is_read_as_serde_json_reads_it() {
    for seed in SEEDS {
        for at in 0..seed.len() {
            for byte in *b"\"\\{}[],:01-.eEtnu \n\x00\x1f\x7f\x80\xc3\xff" {
                let mut changed = seed.as_bytes().to_vec();
                changed[at] = byte;
                fuzz_body(&changed);
            }
        }
    }
}
