//! Faults on request.

use super::*;

#[tokio::test]
async fn statuses_on_request() {
    let server = Server::start().await;
    for status in [400, 401, 403, 404, 408, 413, 422, 429, 500, 502, 503, 529] {
        let response = server
            .post("/v1/chat/completions", &streamed(&format!("simulate:{status} Hello")))
            .await;
        let retry_after = response
            .headers()
            .get("retry-after")
            .map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(retry_after.as_deref(), (status == 429).then_some("1"));
        error(response, status).await;
        let by_model = with(says("Hello"), json!({"model": format!("simulate:{status}=7")}));
        assert_eq!(
            server.post("/v1/chat/completions", &by_model).await.headers()["retry-after"],
            "7"
        );
    }
    let unknown = error(
        server.post("/v1/chat/completions", &says("simulate:nothing")).await,
        400,
    )
    .await;
    assert!(unknown["message"].as_str().unwrap().contains("error-event"));
    error(
        server
            .post("/v1/embeddings", &json!({"model": "e", "input": "simulate:500"}))
            .await,
        500,
    )
    .await;
}

#[tokio::test]
async fn cut_drops_the_connection() {
    let mut server = Server::start().await;
    for (body, count) in [
        (streamed("simulate:cut"), 3),
        (streamed("simulate:cut=1000"), 0),
        (streamed("simulate:cut=0"), 0),
    ] {
        let mut bytes = String::new();
        server.raw(&body).await.read_to_string(&mut bytes).await.unwrap();
        assert!(!bytes.contains("0\r\n\r\n") && !bytes.contains("[DONE]"), "{bytes}");
        let (events, ending) = server.ending().await;
        assert_eq!((bytes.matches("data: ").count(), ending), (events, Ending::Cut));
        assert!(count == 0 || events == count);
        assert_eq!(bytes.is_empty(), events == 0);
    }
    let mut bytes = String::new();
    server
        .raw(&says("simulate:cut"))
        .await
        .read_to_string(&mut bytes)
        .await
        .unwrap();
    let (head, body) = bytes.split_once("\r\n\r\n").unwrap();
    let length = head
        .to_ascii_lowercase()
        .lines()
        .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    assert_eq!(body.len(), length.unwrap_or(0_usize) / 2);
}

#[tokio::test]
async fn stall_keeps_the_connection_until_the_client_leaves() {
    let mut server = Server::start().await;
    for body in [streamed("simulate:stall"), says("simulate:stall")] {
        drop(server.raw(&body).await);
        assert_eq!(server.ending().await, (0, Ending::ClientGone));
    }
    let mut stream = server.raw(&streamed("simulate:stall=2")).await;
    let mut bytes = Vec::new();
    while bytes.windows(5).filter(|window| window == b"data:").count() < 2 {
        stream.read_buf(&mut bytes).await.unwrap();
    }
    assert!(server.observations.recv().await.is_some() && server.observations.is_empty());
    drop(stream);
    assert_eq!(server.ending().await, (2, Ending::ClientGone));
}

#[tokio::test]
async fn the_other_faults() {
    let server = Server::start().await;
    let events = server.stream(streamed("simulate:error-event=2")).await;
    assert_eq!((events.len(), &events[2]["error"]["type"]), (3, &json!("server_error")));
    assert_eq!(
        server.chat(says("simulate:error-event")).await["error"]["type"],
        "server_error"
    );

    let events = server.stream(streamed("simulate:no-done")).await;
    assert_eq!(events.last().unwrap()["choices"], json!([]));

    let events = server.stream(streamed("simulate:no-usage+tokens=1")).await;
    assert!(
        events.len() == 4 && events.iter().all(|event| event.get("usage").is_none()),
        "{events:?}"
    );
    assert_eq!(server.chat(says("simulate:no-usage")).await.get("usage"), None);

    let whole = server.chat(says("simulate:bad-usage+tokens=500")).await;
    assert_eq!(whole["usage"]["prompt_tokens"], -1);
    assert_eq!(
        tokens::count(whole["choices"][0]["message"]["content"].as_str().unwrap()),
        500
    );

    let begun = Instant::now();
    server.stream(streamed("simulate:slow=2+tokens=5")).await;
    assert!(begun.elapsed() >= Duration::from_millis(12));
}
