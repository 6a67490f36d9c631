//! The listings of models (`/llm/models`, `/llm/models/purposes`, `/llm/public/models`), and OpenAI's shape of them.

use reqwest::Method;
use serde_json::{Value, json};
use tollgate::ledger::key_settings::KeySettings;

use crate::harness::catalogue::{EMBED, FREE, HUGE, LARGE, SMALL, TWIN, model};
use crate::harness::client::ask;
use crate::harness::{Gateway, KeySpec, Setup, Upstream};

/// The ids of a listing, in order.
fn ids(listing: &Value) -> Vec<&str> {
    let models = listing["models"].as_array().or(listing["data"].as_array()).unwrap();
    models.iter().map(|model| model["id"].as_str().unwrap()).collect()
}

/// A gateway whose catalogue has so many models more.
async fn with_many(upstream: &Upstream, more: usize) -> Gateway {
    let mut setup = Setup::over(upstream);
    let models = setup.catalogue["models"].as_array_mut().unwrap();
    for number in 0..more {
        let mut many = model(
            SMALL,
            &format!("Many {number}"),
            "free",
            json!([]),
            json!([{ "provider": "main", "model": "x" }]),
        );
        many["id"] = format!("many/model-{number}").into();
        many["provider"] = "Many Inc".into();
        models.push(many);
    }
    setup.start().await
}

#[tokio::test]
async fn a_model_has_the_fields_of_the_interface_and_list_prices_as_text() {
    let upstream = Upstream::unused().await;
    let gateway = Gateway::over(&upstream).await;
    let listing = gateway.http1.get("/llm/models").await.ok().json();
    let models = listing["models"].as_array().unwrap();
    let small = models.iter().find(|model| model["id"] == SMALL).unwrap();
    assert_eq!(small["name"], "Small Chat");
    assert_eq!(small["provider"], "Acme AI");
    assert_eq!(small["context_length"], 128_000);
    assert_eq!(small["description"], "Small Chat of the tests");
    assert_eq!(small["architecture"], json!({ "modality": "text+image->text" }));
    assert_eq!(
        small["pricing"],
        json!({ "prompt": "0.0000001725", "completion": "0.00000069" }),
        "with the markup"
    );
    let price = |id: &str| models.iter().find(|model| model["id"] == id).unwrap()["pricing"].clone();
    assert_eq!(price(FREE), json!({ "prompt": "0", "completion": "0" }));
    assert_eq!(
        price(LARGE),
        json!({ "prompt": "0.00000345", "completion": "0.0000173919675" })
    );
    assert_eq!(price(EMBED), json!({ "prompt": "0.000000023", "completion": "0" }));
}

#[tokio::test]
async fn models_lists_what_the_tier_may_use_and_counts_it() {
    let upstream = Upstream::unused().await;
    let gateway = Gateway::over(&upstream).await;
    let listing = gateway.http1.get("/llm/models").await.ok().json();
    assert_eq!(ids(&listing), [FREE, SMALL, LARGE, TWIN, EMBED]);
    assert_eq!(listing["total"], 5);
    for (query, expected) in [
        ("purpose=chat", vec![FREE, SMALL, TWIN]),
        ("purpose=vision", vec![SMALL]),
        ("purpose=code", vec![SMALL, LARGE]),
        ("purpose=fast", vec![SMALL]),
        ("purpose=router", vec![SMALL]),
        ("purpose=planner", vec![SMALL, LARGE]),
        ("purpose=executor", vec![SMALL]),
        ("purpose=embedding", vec![EMBED]),
        ("purpose=free", vec![FREE]),
        ("purpose=slide", vec![SMALL]),
        ("purpose=slot_extract", vec![SMALL]),
        ("search=small", vec![SMALL, EMBED]),
        ("search=SMALL%20c", vec![SMALL]),
        ("search=acme%2Ftwin", vec![TWIN]),
        ("search=huge", vec![]),
        ("search=", vec![FREE, SMALL, LARGE, TWIN, EMBED]),
        ("search=small&purpose=embedding", vec![EMBED]),
        ("search=nothing", vec![]),
        ("unknown=1", vec![FREE, SMALL, LARGE, TWIN, EMBED]),
    ] {
        let listing = gateway.http1.get(&format!("/llm/models?{query}")).await.ok().json();
        assert_eq!(ids(&listing), expected, "{query}");
        assert_eq!(listing["total"], expected.len(), "{query}");
    }
}

#[tokio::test]
async fn models_an_unknown_purpose_is_400_and_all_eleven_are_named() {
    let upstream = Upstream::unused().await;
    let gateway = Gateway::over(&upstream).await;
    for purpose in ["", "Chat", "none", "chat,code", "chat&purpose=code"] {
        let error = gateway
            .http1
            .get(&format!("/llm/models?purpose={purpose}"))
            .await
            .error(400, "invalid_request_error");
        if !purpose.contains('&') {
            let all = "chat, vision, code, fast, router, planner, executor, embedding, free, slide, slot_extract";
            assert!(error["message"].as_str().unwrap().contains(all), "{error}");
        }
    }
}

#[tokio::test]
async fn purposes_maps_each_of_the_eleven_to_its_default() {
    let upstream = Upstream::unused().await;
    let gateway = Gateway::over(&upstream).await;
    let expected = json!({
        "chat": SMALL, "vision": SMALL, "code": LARGE, "fast": SMALL, "router": SMALL, "planner": LARGE, "executor": SMALL,
        "embedding": EMBED, "free": FREE, "slide": SMALL, "slot_extract": SMALL,
    });
    assert_eq!(gateway.http1.get("/llm/models/purposes").await.ok().json(), expected);
}

#[tokio::test]
async fn public_models_are_paged_by_24_from_page_1_without_a_key() {
    let upstream = Upstream::unused().await;
    let gateway = with_many(&upstream, 54).await;
    let client = gateway.http1.with_key("");
    for (query, page, per_page, pages, first, count) in [
        ("", 1, 24, 3, FREE, 24),
        ("?page=1", 1, 24, 3, FREE, 24),
        ("?page=2", 2, 24, 3, "many/model-18", 24),
        ("?page=3", 3, 24, 3, "many/model-42", 12),
        ("?page=4", 4, 24, 3, "", 0),
        ("?page=18446744073709551615", u64::MAX, 24, 3, "", 0),
        ("?per_page=60", 1, 60, 1, FREE, 60),
        ("?per_page=500", 1, 500, 1, FREE, 60),
        ("?page=3&per_page=7", 3, 7, 9, "many/model-8", 7),
        ("?page=60&per_page=1", 60, 1, 60, "many/model-53", 1),
    ] {
        let listing = client.get(&format!("/llm/public/models{query}")).await.ok().json();
        assert_eq!(listing["total"], 60, "{query}");
        assert_eq!(listing["page"], page, "{query}");
        assert_eq!(listing["per_page"], per_page, "{query}");
        assert_eq!(listing["total_pages"], pages, "{query}");
        assert_eq!(ids(&listing).len(), count, "{query}");
        assert_eq!(ids(&listing).first().copied().unwrap_or(""), first, "{query}");
    }
    let listing = client.get("/llm/public/models").await.ok().json();
    assert!(ids(&listing).contains(&HUGE), "the full list, whatever the tier");
}

#[tokio::test]
async fn public_models_are_searched_by_name_and_provider() {
    let upstream = Upstream::unused().await;
    let gateway = with_many(&upstream, 30).await;
    for (search, total) in [
        ("many%20inc", 30),
        ("MANY%201", 11),
        ("acme", 6),
        ("reasoner", 1),
        ("zzz", 0),
        ("", 36),
    ] {
        let listing = gateway
            .http1
            .get(&format!("/llm/public/models?search={search}"))
            .await
            .ok()
            .json();
        assert_eq!(listing["total"], total, "{search}");
        assert_eq!(listing["total_pages"], (total + 23) / 24, "{search}");
    }
    let listing = gateway
        .http1
        .get("/llm/public/models?search=many&page=2")
        .await
        .ok()
        .json();
    assert_eq!(ids(&listing).len(), 6);
}

#[tokio::test]
async fn public_models_bad_page_numbers_are_400() {
    let upstream = Upstream::unused().await;
    let gateway = Gateway::over(&upstream).await;
    for name in ["page", "per_page"] {
        for value in [
            "0",
            "-1",
            "1.5",
            "x",
            "",
            "+1",
            "1e2",
            "0x10",
            "99999999999999999999",
            "%31%20",
            "1&page=2&per_page=3",
        ] {
            let answer = gateway.http1.get(&format!("/llm/public/models?{name}={value}")).await;
            let error = answer.error(400, "invalid_request_error");
            assert!(error["message"].as_str().unwrap().contains("page"), "{error}");
        }
    }
    gateway
        .http1
        .get("/llm/public/models?per_page=501")
        .await
        .error(400, "invalid_request_error");
}

#[tokio::test]
async fn openai_clients_find_models_in_their_own_shape() {
    let upstream = Upstream::unused().await;
    let gateway = Gateway::over(&upstream).await;
    let listing = gateway.http1.get("/models").await.ok().json();
    assert_eq!(listing["object"], "list");
    assert_eq!(ids(&listing), [FREE, SMALL, LARGE, TWIN, EMBED]);
    for path in ["/models/acme/small", "/models/acme%2Fsmall", "/models/acme%2fsmall"] {
        let found = gateway.http1.get(path).await.ok().json();
        assert_eq!(found["id"], SMALL);
        assert_eq!(found["object"], "model");
        assert_eq!(found["owned_by"], "Acme AI");
        assert!(found["created"].is_u64());
        assert_eq!(found, listing["data"][1]);
    }
    gateway.http1.get("/models/acme/twin:duo").await.ok();
    gateway.http1.get("/models/acme%2Ftwin%3Aduo").await.ok();
    for unknown in [
        "/models/acme",
        "/models/none/such",
        "/models/acme/huge",
        "/models/acme/small/",
    ] {
        let error = gateway.http1.get(unknown).await.error(404, "not_found_error");
        let message = format!("There is no model {:?} for this key.", &unknown["/models/".len()..]);
        assert_eq!(error["message"], message);
    }
}

#[tokio::test]
async fn openrouters_clients_find_what_they_need_of_a_model_in_the_same_list() {
    let upstream = Upstream::unused().await;
    let gateway = Gateway::over(&upstream).await;
    let listing = gateway.http1.get("/models").await.ok().json();
    assert_eq!(
        (&listing["total_count"], &listing["links"]),
        (&json!(5), &json!({ "next": null }))
    );
    let small = listing["data"][1].as_object().unwrap();
    for (name, value) in [
        ("canonical_slug", json!(SMALL)),
        ("name", json!("Small Chat")),
        ("description", json!("Small Chat of the tests")),
        ("context_length", json!(128_000)),
        (
            "pricing",
            json!({ "prompt": "0.0000001725", "completion": "0.00000069" }),
        ),
        (
            "architecture",
            json!({ "modality": "text+image->text", "input_modalities": ["text", "image"], "output_modalities": ["text"] }),
        ),
        (
            "top_provider",
            json!({ "context_length": 128_000, "max_completion_tokens": 4_096, "is_moderated": false }),
        ),
        ("supported_parameters", json!(["max_tokens", "max_completion_tokens"])),
        ("per_request_limits", Value::Null),
        ("default_parameters", Value::Null),
        ("supported_voices", Value::Null),
    ] {
        assert_eq!(small.get(name), Some(&value), "{name}");
    }
    let details = small["links"]["details"].as_str().unwrap();
    assert_eq!(
        gateway.http1.get(&format!("/{details}")).await.ok().json(),
        listing["data"][1]
    );
    let embed = &listing["data"][4];
    assert_eq!(embed["architecture"]["output_modalities"], json!(["embeddings"]));
    assert_eq!(embed["top_provider"]["max_completion_tokens"], Value::Null);
    assert_eq!(embed["supported_parameters"], json!([]));
    // A key of some models alone.
    let spec = KeySpec {
        settings: KeySettings {
            models: vec![SMALL.parse().unwrap()],
            ..KeySettings::default()
        },
        ..KeySpec::default()
    };
    let own = gateway
        .http1
        .with_key(&gateway.new_key(spec).await)
        .get("/models")
        .await;
    let own = own.ok().json();
    assert_eq!((&own["total_count"], &own["data"][0]), (&json!(1), &listing["data"][1]));
    assert_eq!(own["links"], listing["links"]);
}

#[tokio::test]
async fn prices_have_openrouters_names_where_it_means_the_same_by_them() {
    let upstream = Upstream::unused().await;
    let setup = Setup::over(&upstream).model(SMALL, |model| {
        model["pricing"] = json!({
            "prompt": "0.1", "completion": "0.2", "input_cache_read": "0.01", "audio": "0.3", "image": "0.4", "image_output": "0.5",
            "overrides": [{ "min_prompt_tokens": 1_000, "prompt": "0.6", "image": "0.7" }],
            "tiers": { "flex": { "prompt": "0.05" } },
        });
    });
    let gateway = setup.conf(|conf| conf["markup"] = "1".into()).start().await;
    let told = gateway.http1.get("/models/acme/small").await.ok().json();
    let kinds = json!({ "completion": "0.2", "input_cache_read": "0.01", "audio": "0.3" });
    let row = |prompt: &str, image: &str| {
        let mut row = kinds.clone();
        (row["prompt"], row["image_token"]) = (prompt.into(), image.into());
        row
    };
    let (mut pricing, mut long) = (row("0.1", "0.4"), row("0.6", "0.7"));
    long["min_prompt_tokens"] = 1_000.into();
    pricing["overrides"] = json!([long]);
    assert_eq!(told["pricing"], pricing);
}

#[tokio::test]
async fn listings_have_an_etag_and_answer_304_to_who_has_it() {
    let upstream = Upstream::unused().await;
    let gateway = Gateway::over(&upstream).await;
    for path in ["/llm/models", "/llm/models/purposes", "/models"] {
        let etag = gateway.http1.get(path).await.ok().header("etag").to_owned();
        assert!(etag.starts_with('"') && etag.ends_with('"'), "{etag:?}");
        for known in [
            etag.clone(),
            format!("W/{etag}"),
            format!("\"x\", {etag}"),
            "*".to_owned(),
        ] {
            let answer = ask(gateway.http1.request(Method::GET, path).header("if-none-match", &known)).await;
            assert_eq!((answer.status, answer.body.len()), (304, 0), "{path} {known}");
            assert_eq!(answer.header("etag"), etag);
        }
        let answer = ask(gateway
            .http1
            .request(Method::GET, path)
            .header("if-none-match", "\"other\""))
        .await;
        assert_eq!(answer.ok().header("etag"), etag);
    }
}
