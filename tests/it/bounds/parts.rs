//! What is held and billed for images, sounds, films and files in a prompt.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rust_decimal::Decimal;
use serde_json::{Value, json};
use tollgate::net::dns::Resolver;

use crate::harness::catalogue::{SMALL, cost};
use crate::harness::{Reply, Setup, Upstream};

/// A chat whose message has this part beside a short text.
fn with_part(part: Value) -> String {
    let content = json!([{ "type": "text", "text": "Hello" }, part]);
    json!({ "model": SMALL, "messages": [{ "role": "user", "content": content }], "max_tokens": 5 }).to_string()
}

/// 750 kB of base64 are no 750,000 tokens: with the dearest prompt that the model can take, it costs less than what is held here.
#[tokio::test]
async fn the_bytes_of_a_file_a_sound_or_a_film_are_not_text() {
    let upstream = Upstream::always(Reply::chat_without_usage("Hi")).await;
    let data = "QUJD".repeat(190_000);
    for part in [
        json!({ "type": "file", "file": { "filename": "a.pdf", "file_data": format!("data:application/pdf;base64,{data}") } }),
        json!({ "type": "input_audio", "input_audio": { "data": data, "format": "wav" } }),
        json!({ "type": "image_url", "image_url": { "url": format!("data:video/mp4;base64,{data}") } }),
    ] {
        let context = cost(SMALL, 128_000, 5);
        let gateway = Setup::over(&upstream).credit(&context.to_string()).start().await;
        gateway.http1.post("/llm/chat", with_part(part)).await.ok();
        let spent = gateway.spent().await;
        assert!(
            spent > Decimal::ZERO && spent < cost(SMALL, 3_000, 1),
            "what was counted is billed: {spent}"
        );
        gateway.check_books().await;
    }
}

#[tokio::test]
async fn parts_are_held_by_the_models_figure_for_their_kind() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    for (key, part) in [
        (
            "image_tokens_max",
            json!({ "type": "image_url", "image_url": { "url": "https://example.com/a.png" } }),
        ),
        (
            "audio_tokens_max",
            json!({ "type": "input_audio", "input_audio": { "data": "QUJD", "format": "wav" } }),
        ),
        ("file_tokens_max", json!({ "type": "file", "file": { "file_id": "f" } })),
    ] {
        let credit = cost(SMALL, 50_000, 5).to_string();
        for (figure, status) in [(Value::Null, 402), (40_000.into(), 200), (60_000.into(), 402)] {
            let setup = Setup::over(&upstream).credit(&credit);
            let setup = setup.model(SMALL, |model| model[key] = figure.clone());
            let gateway = setup.start().await;
            let answer = gateway.http1.post("/llm/chat", with_part(part.clone())).await;
            assert_eq!(answer.status, status, "{key} {figure}");
        }
    }
}

/// Where its provider reports nothing: what the model says of an image, and what a large one usually comes to where that is less.
#[tokio::test]
async fn an_image_that_nobody_reported_is_billed_by_the_models_figure() {
    let upstream = Upstream::always(Reply::chat_without_usage("Hi")).await;
    let image = with_part(json!({ "type": "image_url", "image_url": { "url": "https://example.com/a.png" } }));
    let mut spent = Vec::new();
    for figure in [1, 501, 40_000] {
        let setup = Setup::over(&upstream).model(SMALL, |model| model["image_tokens_max"] = figure.into());
        let gateway = setup.start().await;
        gateway.http1.post("/llm/chat", image.clone()).await.ok();
        spent.push(gateway.spent().await);
    }
    assert_eq!(spent[1] - spent[0], cost(SMALL, 500, 0));
    assert_eq!(spent[2] - spent[0], cost(SMALL, 1_104, 0));
}

/// OpenRouter parses a file for a model that reads none, for a fee beside the tokens: nobody was billed for it.
#[tokio::test]
async fn a_file_for_a_model_that_reads_none_is_refused_where_its_provider_would_parse_it_for_a_fee() {
    // All names are those of this machine.
    let resolve = |_: &str, port: u16| -> io::Result<Vec<SocketAddr>> { Ok(vec![([127, 0, 0, 1], port).into()]) };
    let file = json!({ "type": "file", "file": { "filename": "a.pdf", "file_data": "QUJD" } });
    for (host, modality, allowed, is_refused) in [
        ("openrouter.ai", "text+image->text", "route", true),
        ("eu.OpenRouter.ai", "text->text", "route", true),
        ("openrouter.ai", "text+files->text", "route", true),
        ("openrouter.ai", "text->file+text", "route", true),
        ("openrouter.ai", "text+image+file->text", "route", false),
        ("notopenrouter.ai", "text+image->text", "route", false),
        // Its operator bears what that costs.
        ("openrouter.ai", "text+image->text", "plugins", false),
    ] {
        let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
        let targets = json!([{ "provider": "spare", "model": "x" }, { "provider": "main", "model": "y" }]);
        for targets in [json!([{ "provider": "main", "model": "y" }]), targets] {
            let setup = Setup::at(&upstream.base_url_at(host))
                .provider("spare", json!({ "base_url": upstream.base_url() }))
                .conf(|conf| conf["providers"]["main"]["allow_fields"] = json!([allowed]))
                .resolver(Resolver::new(Arc::new(resolve), Duration::from_secs(60)));
            let setup = setup.model(SMALL, |model| {
                model["modality"] = modality.into();
                model["targets"] = targets;
            });
            let gateway = setup.start().await;
            let answer = gateway.http1.post("/llm/chat", with_part(file.clone())).await;
            if is_refused {
                let error = answer.error(400, "invalid_request_error");
                let message = error["message"].as_str().unwrap();
                assert!(message.contains("reads no files"), "{host} {modality}: {message}");
                gateway.check_untouched(&upstream).await;
            } else {
                answer.ok();
            }
        }
    }
}
