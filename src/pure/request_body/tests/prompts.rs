//! The prompt: its bounds, its images, and its text.

use super::*;

const BOUNDS: PromptBounds = PromptBounds {
    image_tokens_each: Some(1000),
    audio_tokens_each: None,
    file_tokens_each: None,
    overhead_tokens: 0,
    context_length: 1_000_000,
};

fn content(content: &str) -> RequestBody {
    chat(&format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":{content}}}]}}"#
    ))
    .unwrap()
}

fn texts(body: &RequestBody) -> Vec<String> {
    let mut texts = Vec::new();
    body.visit_text(&mut |text| texts.push(text.to_owned()));
    texts
}

#[test]
fn images_are_counted_and_their_bytes_are_not() {
    let data = "A".repeat(100_000);
    for (part, images) in [
        (
            format!(r#"{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{data}"}}}}"#),
            1,
        ),
        (
            format!(r#"{{"type":"image_url","image_url":{{"url":"data:image\/png;base64,{data}","detail":"high"}}}}"#),
            1,
        ),
        (
            format!(r#"{{"type":"input_image","image_url":"data:image/png;base64,{data}"}}"#),
            1,
        ),
        (
            format!(r#"{{"image_url":"data:image/png;base64,{data}","image_url":{{"url":"http://u"}},"type":"text"}}"#),
            2,
        ),
    ] {
        let body = content(&format!("[{part}]"));
        assert_eq!(body.images(), images, "{part:.60}");
        assert!(body.prompt_bytes() < 250, "{part:.60}");
        let bound = body.prompt_tokens_bound(&BOUNDS);
        assert!(bound >= images * 1000 && bound < images * 1000 + 1000, "{bound}");
        assert!(texts(&body).concat().len() < 20);
    }
    let remote = content(
        r#"[{"type":"image_url","image_url":{"url":"https://x/y.png"}},{"type":"image","source":{"data":"AA"}}]"#,
    );
    assert_eq!(remote.images(), 2);
    for one in [
        r#"{"url":"https://x/y.png?film=mp4"}"#,
        r#"{"url":"https://x/mp4/1","format":"image/png"}"#,
        r#"{"url":"HTTP://x","format":"png","detail":"low"}"#,
        r#"{"url":"iVBORw0KGgo="}"#,
    ] {
        let bound = content(&format!(r#"[{{"type":"image_url","image_url":{one}}}]"#)).prompt_tokens_bound(&BOUNDS);
        assert!((1_000..2_000).contains(&bound), "{one}: {bound}");
    }
}

#[test]
fn an_address_is_text_unless_it_begins_as_data_do() {
    let data = "A".repeat(400);
    for (start, is_text) in [
        ("data:image/", false),
        (r"data:image\/", false),
        (r"\/ata:image/", true),
        (r"dat\u0061:image/", false),
        (r"\u0020\n DA\tTA:image/", false),
        ("https://image/", true),
    ] {
        let body = content(&format!(
            r#"[{{"type":"image_url","image_url":{{"url":"{start}png;base64,{data}"}}}}]"#
        ));
        assert_eq!(body.prompt_bytes() == body.bytes.len() as u64, is_text, "{start}");
    }
}

#[test]
fn what_has_no_bound_of_its_own_takes_the_context_window() {
    for part in [
        r#"{"type":"file","file":{"file_id":"f"}}"#,
        r#"{"type":"fi\u006ce"}"#,
        r#"{"type":"input_audio","input_audio":{"data":"AA","format":"wav"}}"#,
        r#"{"type":"video_url","video_url":{"url":"https://x"}}"#,
        r#"{"type":"image_url","image_url":{"url":"data:application/pdf;base64,AA"}}"#,
        r#"{"type":"image_url","image_url":{"url":"\u0064ata:video/mp4;base64,AA"}}"#,
        r#"{"type":"image_url","image_url":{"url":"DATA:video/mp4;base64,AA"}}"#,
        r#"{"type":"image_url","image_url":{"url":" data:video/mp4;base64,AA"}}"#,
        r#"{"type":"image_url","image_url":{"url":"gs://bucket/film.mp4"}}"#,
        r#"{"type":"image_url","image_url":{"url":"https://x/film.MP4?a=b"}}"#,
        r#"{"type":"image_url","image_url":{"url":"https://x/?a=film.mov"}}"#,
        r#"{"type":"image_url","image_url":{"url":"https://x/a.pd\u0066"}}"#,
        r#"{"type":"image_url","image_url":{"url":"https://x/?gs://film"}}"#,
        r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,AA","format":"video/mp4"}}"#,
        r#"{"type":"image_url","image_url":{"format":"application\/pdf","url":"https://x"}}"#,
        r#"{"type":"input_audio","input_audio":{"data":"data:video/mp4;base64,AA","format":"wav"}}"#,
        r#"{"type":"input_audio","input_audio":{"data":"https://x/film.mp4","format":"wav"}}"#,
        r#"{"type":"input_audio","input_audio":{"data":"AA","format":"video\/mp4"}}"#,
        r#"{"type":"text","text":"a","type":"file"}"#,
        r#"{"type":7}"#,
        r#"{"video_url":"https://x"}"#,
    ] {
        assert_eq!(
            content(&format!("[{part}]")).prompt_tokens_bound(&BOUNDS),
            1_000_000,
            "{part}"
        );
    }
    assert_eq!(content(r#"{"parts":[]}"#).prompt_tokens_bound(&BOUNDS), 1_000_000);
    let audio = chat(r#"{"model":"m","messages":[{"role":"assistant","audio":{"id":"a"}}]}"#).unwrap();
    assert_eq!(audio.prompt_tokens_bound(&BOUNDS), 1_000_000);
    let no_audio =
        chat(r#"{"model":"m","messages":[{"role":"assistant","audio":null,"content":[{"type":"text","text":"a"}]}]}"#);
    assert!(no_audio.unwrap().prompt_tokens_bound(&BOUNDS) < 1000);
}

/// It was one sound whatever was in it: such as a film, which has more tokens.
#[test]
fn a_sound_is_one_where_it_says_nothing_else() {
    let bounds = PromptBounds {
        audio_tokens_each: Some(500),
        ..BOUNDS
    };
    let bound = |part: &str| content(&format!("[{part}]")).prompt_tokens_bound(&bounds);
    for sound in [
        r#"{"type":"input_audio","input_audio":{"data":"AA+/","format":"wav"}}"#,
        r#"{"type":"input_audio","input_audio":{"data":"data:audio\/wav;base64,AA","format":"mp3"}}"#,
        r#"{"type":"input_audio","input_audio":{"data":"AA","format":"audio/ogg"}}"#,
        r#"{"type":"input_audio","input_audio":"AA"}"#,
    ] {
        assert!(bound(sound) < 2_000, "{sound}");
    }
    for film in [
        r#"{"type":"input_audio","input_audio":{"data":"data:video/mp4;base64,AA","format":"wav"}}"#,
        r#"{"type":"input_audio","input_audio":{"data":"gs://x/film","format":"wav"}}"#,
        r#"{"type":"input_audio","input_audio":{"format":"video/mp4","data":"AA"}}"#,
        r#"{"type":"input_audio","input_audio":"da\u0074a:video/mp4;base64,AA"}"#,
    ] {
        assert_eq!(bound(film), 1_000_000, "{film}");
    }
}

/// Some upstreams put any role before the model: it was no text.
#[test]
fn a_role_that_is_none_of_the_known_is_text() {
    let role = |role: &str| format!(r#"{{"model":"m","messages":[{{"role":"{role}","content":"a"}}]}}"#);
    for known in [
        "system",
        "developer",
        "user",
        "assistant",
        "tool",
        "function",
        r"us\u0065r",
    ] {
        assert_eq!(texts(&chat(&role(known)).unwrap()), ["a"], "{known}");
    }
    let long = "word ".repeat(1_000);
    assert_eq!(texts(&chat(&role(&long)).unwrap()), [long.as_str(), "a"]);
}

#[test]
fn a_bound_holds_for_every_message_and_tool() {
    let body = chat(r#"{"model":"m","messages":[{},{},{}]}"#).unwrap();
    assert_eq!(body.prompt_bytes(), 35);
    assert_eq!(body.prompt_tokens_bound(&BOUNDS), 35 + 256 + 3 * 16);
    assert_eq!(body.prompt_tokens_of_text(0, &BOUNDS), 256 + 3 * 16);
    let tools = check_accepted(r#""tools":[{"type":"function","function":{"name":"f"}}],"functions":[1]"#);
    let tool_bytes = r#"[{"type":"function","function":{"name":"f"}}][1]"#.len() as u64;
    assert_eq!(tools.prompt_bytes(), tools.bytes.len() as u64 + tool_bytes);
    assert_eq!(tools.prompt_tokens_of_text(5, &BOUNDS), 5 + 256 + 1_024 + 16);
}

#[test]
fn the_bound_of_embeddings() {
    let bound = |body: &str| embeddings(body).unwrap().prompt_tokens_bound(&BOUNDS);
    assert_eq!(bound(r#"{"model":"m","input":"abc"}"#), 5 + 8);
    assert_eq!(bound(r#"{"model":"m","input":["abc", "d"]}"#), 5 + 3 + 16);
    assert_eq!(bound(r#"{"model":"m","input":[1,2,3]}"#), 3 + 8);
    assert_eq!(bound(r#"{"model":"m","input":[[1,2],[3]]}"#), 3 + 16);
    // An instruction may be put before each text.
    assert_eq!(
        bound(r#"{"model":"m","input":["a","b"],"instruction":"12345678"}"#),
        6 + 2 * 18
    );
    let body = embeddings(r#"{"model":"m","input":["a\n","b"],"user":"u"}"#).unwrap();
    assert_eq!(texts(&body), ["a\n", "b"]);
}

#[test]
fn the_text_is_all_that_the_model_sees() {
    let body = chat(
        r#"{"model":"m","user":"u","metadata":{"a":"b"},"stop":["s"],"service_tier":"flex","messages":[
            {"role":"system","content":"a\n\"\u00e9\ud83d\ude00\/"},
            {"role":"user","name":"bo","content":[{"type":"text","text":"t1"},{"type":"image_url","image_url":{"url":"https://x"}},"t2"]},
            {"role":"assistant","content":null,"tool_calls":[{"id":"c","function":{"name":"f","arguments":"{}"}}]},
            {"role":"tool","tool_call_id":"c","content":""}
        ],"temperature":0.5,"tools":[ {"type":"function"} ],"response_format":{"type":"json_object"},"unknown":"x\ty"}"#,
    )
    .unwrap();
    assert_eq!(
        texts(&body),
        [
            "a\n\"é😀/",
            "bo",
            "t1",
            "t2",
            r#"[{"id":"c","function":{"name":"f","arguments":"{}"}}]"#,
            "c",
            r#"[ {"type":"function"} ]"#,
            r#"{"type":"json_object"}"#,
            "x\ty",
        ]
    );
}

#[test]
fn sounds_and_files_are_counted_by_kind_and_their_bytes_are_no_text() {
    let bounds = PromptBounds {
        audio_tokens_each: Some(2_000),
        file_tokens_each: Some(3_000),
        overhead_tokens: 50,
        ..BOUNDS
    };
    let data = "QUFB".repeat(200_000);
    for (part, tokens) in [
        (
            format!(r#"{{"type":"input_audio","input_audio":{{"data":"{data}","format":"wav"}}}}"#),
            2_000,
        ),
        (
            format!(r#"{{"type":"file","file":{{"filename":"a.pdf","file_data":"{data}"}}}}"#),
            3_000,
        ),
        (
            format!(r#"{{"type":"text","text":"a","file":{{"file_data":"data:application/pdf;base64,{data}"}}}}"#),
            3_000,
        ),
        (r#"{"type":"input_file","file_id":"f"}"#.to_owned(), 3_000),
        (r#"{"type":"document"}"#.to_owned(), 3_000),
    ] {
        let body = content(&format!("[{part}]"));
        assert!(body.prompt_bytes() < 250, "{part:.60}");
        let bound = body.prompt_tokens_bound(&bounds);
        assert!((tokens + 50..tokens + 800).contains(&bound), "{part:.60}: {bound}");
        assert!(texts(&body).concat().len() < 60, "{part:.60}");
    }
    let film = content(&format!(
        r#"[{{"type":"image_url","image_url":{{"url":"data:video/mp4;base64,{data}"}}}}]"#
    ));
    assert!(film.prompt_bytes() < 250 && texts(&film).concat().len() < 20);
    assert_eq!(film.prompt_tokens_bound(&bounds), 1_000_000);
}

#[test]
fn no_bound_exceeds_the_context() {
    let bounds = PromptBounds {
        context_length: 500,
        ..BOUNDS
    };
    assert_eq!(
        content(&format!("\"{}\"", "a ".repeat(5_000))).prompt_tokens_bound(&bounds),
        500
    );
    assert_eq!(
        content(r#"[{"type":"image_url"},{"type":"image_url"}]"#).prompt_tokens_bound(&bounds),
        500
    );
    let each = embeddings(&format!(r#"{{"model":"m","input":["{0}","{0}"]}}"#, "a".repeat(5_000))).unwrap();
    assert_eq!(
        each.prompt_tokens_bound(&bounds),
        1_000,
        "each input is a prompt of its own"
    );
}

/// A count of it may take as long as the body is: by that it is decided where it is counted.
#[test]
fn all_of_an_embeddings_request_is_read_for_its_text() {
    let ids = vec!["1"; 100_000].join(",");
    let body = embeddings(&format!(r#"{{"model":"m","input":[{ids}]}}"#)).unwrap();
    assert_eq!(body.prompt_bytes(), 0);
    assert_eq!(body.visited_bytes(), u64::try_from(body.bytes().len()).unwrap());
    let body = chat(r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#).unwrap();
    assert_eq!(body.visited_bytes(), body.prompt_bytes());
}
