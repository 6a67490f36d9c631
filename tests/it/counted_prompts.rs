//! Prompts whose bound of a token a byte is too dear: their text is counted as far as there is credit for it, and however far that is, what
//! a 402 says of the call is true.

use rust_decimal::Decimal;
use serde_json::{Value, json};
use tollgate::pure::tokens::{self, Encoding};

use crate::bounds::on_both;
use crate::harness::catalogue::{SMALL, cost};
use crate::harness::{Answer, Gateway, Reply, Setup, Upstream};

/// A model of a family whose tokenizer is here, with the prices of [`SMALL`].
const COUNTED: &str = "openai/counted";

fn setup(upstream: &Upstream, credit: &str) -> Setup {
    let mut setup = Setup::over(upstream).credit(credit);
    let models = setup.catalogue["models"].as_array_mut().unwrap();
    let mut counted = models.iter().find(|model| model["id"] == SMALL).unwrap().clone();
    counted["id"] = COUNTED.into();
    models.push(counted);
    setup
}

/// Asks with a prompt of about 80,000 tokens, which is 400,000 bytes long, and with these members.
async fn ask(gateway: &Gateway, members: Value) -> Answer {
    let message = json!({ "role": "user", "content": "word ".repeat(80_000) });
    let mut body = json!({ "model": COUNTED, "messages": [message] });
    for (key, value) in members.as_object().unwrap() {
        body[key] = value.clone();
    }
    gateway.http1.post("/llm/chat", body.to_string()).await
}

/// What that needs before its prompt is counted: as many tokens as the model's context has, and these.
fn bound(completion: u64) -> Decimal {
    cost(SMALL, 128_000, completion)
}

/// An amount of a refusal, with all its digits.
fn told(answer: &Answer, name: &str) -> Decimal {
    let (_, after) = answer.text().split_once(&format!("\"{name}\":")).unwrap();
    after.split([',', '}']).next().unwrap().parse().unwrap()
}

/// The tokens up to which a prompt was counted were taken for all that it has: the call was said to need little more than there is, and to
/// be able to have thousands of tokens.
#[tokio::test]
async fn a_402_for_a_prompt_that_cannot_be_paid_says_so() {
    let upstream = Upstream::always(Reply::chat("Hi", 80_000, 1)).await;
    for (mut gateway, _redis) in on_both(|| setup(&upstream, "0.01")).await {
        let refused = ask(&gateway, json!({ "max_tokens": 4_000 })).await;
        let error = refused.error(402, "insufficient_credits");
        assert_eq!(error["metadata"]["affordable_tokens"], 0, "{error}");
        assert_eq!(error["metadata"]["reason"], "insufficient_credits");
        assert_eq!(told(&refused, "needed"), bound(4_000), "{error}");
        let least = ask(&gateway, json!({ "max_tokens": 1 })).await;
        least.error(402, "insufficient_credits");
        // It is not told what it can have of a maximum that it did not set.
        let open = ask(&gateway, json!({})).await;
        let error = open.error(402, "insufficient_credits");
        assert_eq!(error["metadata"].get("affordable_tokens"), None, "{error}");
        assert_eq!(told(&open, "needed"), bound(1), "{error}");

        let missing = told(&refused, "needed") - told(&refused, "available");
        gateway.pay_in(&missing.to_string(), "what is missing").await;
        ask(&gateway, json!({ "max_tokens": 4_000 })).await.ok();
        gateway.check_books().await;
    }
}

#[tokio::test]
async fn a_402_for_a_long_prompt_says_how_many_tokens_can_be_paid_and_that_many_can() {
    let upstream = Upstream::always(Reply::chat("Hi", 80_000, 1)).await;
    // Enough for the prompt and its margin, and less than what is asked for costs beside a quarter of the prompt.
    let credit = cost(SMALL, 95_000, 0).to_string();
    for choices in [1, 3] {
        for (gateway, _redis) in on_both(|| setup(&upstream, &credit)).await {
            let with = |max_tokens: u64| json!({ "max_tokens": max_tokens, "n": choices });
            let refused = ask(&gateway, with(20_000 / choices)).await;
            let error = refused.error(402, "insufficient_credits");
            let affordable = error["metadata"]["affordable_tokens"].as_u64().unwrap();
            assert!((1_000..2_400).contains(&(affordable * choices)), "{error}");
            let needed = told(&refused, "needed");
            assert!(needed > cost(SMALL, 80_000, 19_990), "{error}");
            assert!(needed < cost(SMALL, 95_000, 20_000), "{error}");
            let more = ask(&gateway, with(affordable + 1)).await;
            more.error(402, "insufficient_credits");
            ask(&gateway, with(affordable)).await.ok();
            gateway.check_books().await;
        }
    }
}

#[tokio::test]
async fn a_402_by_the_quota_for_a_prompt_that_cannot_be_paid_says_what_it_needs() {
    let upstream = Upstream::unused().await;
    for (gateway, _redis) in on_both(|| setup(&upstream, "100")).await {
        gateway.set_quota("0.01").await;
        let refused = ask(&gateway, json!({ "max_tokens": 4_000 })).await;
        let error = refused.error(402, "quota_exceeded");
        assert_eq!(told(&refused, "needed"), bound(4_000), "{error}");
        let [quota, remaining] = ["limit", "remaining"].map(|name| told(&refused, name));
        assert_eq!([quota, remaining], [Decimal::new(1, 2); 2], "{error}");
        let resets_at = error["metadata"]["resets_at"].as_str().unwrap();
        assert!(resets_at.ends_with("-01T00:00:00Z"), "{error}");
        gateway.check_untouched(&upstream).await;
    }
}

/// A prompt that costs nothing is not counted, however long it is.
#[tokio::test]
async fn a_402_beside_a_prompt_that_costs_nothing_says_how_many_tokens_can_be_paid() {
    let upstream = Upstream::always(Reply::chat("Hi", 80_000, 1)).await;
    let with_free_prompts = || {
        let free = |model: &mut Value| model["pricing"]["prompt"] = "0".into();
        setup(&upstream, "0.0001").model(COUNTED, free)
    };
    for (gateway, _redis) in on_both(with_free_prompts).await {
        let refused = ask(&gateway, json!({ "max_tokens": 4_000 })).await;
        let error = refused.error(402, "insufficient_credits");
        // A token costs 0.0000006 and the markup of 15 %.
        assert_eq!(error["metadata"]["affordable_tokens"], 144, "{error}");
        assert_eq!(told(&refused, "needed"), cost(SMALL, 0, 4_000), "{error}");
        ask(&gateway, json!({ "max_tokens": 144 })).await.ok();
        gateway.check_books().await;
    }
}

/// A tokenizer whose vocabulary has little of a script makes several times as many tokens of it as the one that counts here: an honest report
/// was cut to twice the count.
#[tokio::test]
async fn a_report_of_text_that_another_tokenizer_splits_finer_is_billed_whole_behind_a_counted_hold() {
    let text =
        "\u{a86} \u{a8f}\u{a95} \u{ab8}\u{ab0}\u{ab3} \u{ab5}\u{abe}\u{a95}\u{acd}\u{aaf} \u{a9b}\u{ac7}. ".repeat(400);
    let count = tokens::count(&text, Encoding::O200k);
    let other_bytes = u64::try_from(text.bytes().filter(|byte| !byte.is_ascii()).count()).unwrap();
    // As many clients write it: six bytes for each letter, so that the bound of a token a byte is twice as high.
    let escape = |letter: char| match letter.is_ascii() {
        true => letter.to_string(),
        false => format!("\\u{:04x}", u32::from(letter)),
    };
    let written: String = text.chars().map(escape).collect();
    let call = format!(r#"{{"model":"{SMALL}","messages":[{{"role":"user","content":"{written}"}}],"max_tokens":10}}"#);

    let report = count * 33 / 10;
    let credit = cost(SMALL, 2 * count + other_bytes + 300, 10);
    assert!(report > 2 * count + 300, "{count}");
    let upstream = Upstream::always(Reply::chat("Hi", report, 1)).await;
    for (gateway, _redis) in on_both(|| Setup::over(&upstream).credit(&credit.to_string())).await {
        assert!(
            credit < cost(SMALL, u64::try_from(written.len()).unwrap(), 10),
            "the bound is not paid"
        );
        gateway.http1.post("/llm/chat", call.clone()).await.ok();
        assert_eq!(gateway.spent().await, cost(SMALL, report, 1));
        gateway.counted(1).await;
        let unbilled = gateway.metrics().sum("tollgate_unbilled_tokens_total", &[]);
        assert_eq!(unbilled, Decimal::ZERO);
        gateway.check_books().await;
    }
}
