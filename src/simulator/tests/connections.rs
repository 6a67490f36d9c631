//! Credentials, connections, long bodies and the end.

use super::*;

#[tokio::test]
async fn only_the_credential_is_accepted() {
    let options = Options {
        credential: Some("sk-provider".to_owned()),
        ..Options::default()
    };
    let mut server = Server::start_with(options).await;
    let ask = |key: &str| {
        Client::new()
            .get(format!("http://{}/v1/models", server.address))
            .bearer_auth(key)
            .send()
    };
    assert_eq!(
        error(ask("tg_client").await.unwrap(), 401).await["code"],
        "invalid_api_key"
    );
    error(ask("").await.unwrap(), 401).await;
    error(server.post("/v1/embeddings", &json!({})).await, 401).await;
    assert_eq!(ask("sk-provider").await.unwrap().status(), StatusCode::OK);
    // Refused requests are not observed as received.
    let seen: Vec<_> = std::iter::from_fn(|| server.observations.try_recv().ok()).collect();
    let received = |seen: &&Observation| matches!(seen, Observation::Received { target, .. } if target == "/v1/models");
    assert_eq!(seen.iter().filter(received).count(), 1);
}

#[tokio::test]
async fn connections_are_kept_also_after_an_expectation_and_an_error() {
    let server = Server::start().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    for (text, head) in [("simulate:400", "HTTP/1.1 400"), ("", "HTTP/1.1 200")] {
        let sent = String::from_utf8(request(&says(text))).unwrap();
        let (headers, body) = sent.split_once("\r\n\r\n").unwrap();
        stream
            .write_all(format!("{headers}\r\nexpect: 100-continue\r\n\r\n").as_bytes())
            .await
            .unwrap();
        assert!(read_until(&mut stream, "\r\n\r\n").await.starts_with("HTTP/1.1 100"));
        stream.write_all(body.as_bytes()).await.unwrap();
        let answer = read_until(&mut stream, "}}").await;
        assert!(
            answer.starts_with(head) && answer.to_ascii_lowercase().contains("connection: keep-alive"),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn long_bodies() {
    let server = Server::start_with(Options {
        body_bytes_max: 200_000,
        ..Options::default()
    })
    .await;
    let long = server.chat(says(&"long ".repeat(30_000))).await;
    assert!(long["usage"]["prompt_tokens"].as_u64().unwrap() >= 30_000);

    for framing in [
        "content-length: 200001\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\n30d41\r\n",
    ] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let head = format!("POST /v1/chat/completions HTTP/1.1\r\nhost: sim\r\n{framing}");
        stream.write_all(head.as_bytes()).await.unwrap();
        if framing.contains("chunked") {
            stream.write_all(&vec![b' '; 200_001]).await.unwrap();
        }
        assert!(read_until(&mut stream, "}}").await.starts_with("HTTP/1.1 413"));
    }
}

#[tokio::test]
async fn http2_streams_and_cuts() {
    let server = Server::start().await;
    let client = Client::builder().http2_prior_knowledge().build().unwrap();
    let ask = |body: Value| {
        client
            .post(format!("http://{}/v1/chat/completions", server.address))
            .json(&body)
            .send()
    };
    let answer = ask(streamed("Hello")).await.unwrap();
    assert_eq!(answer.version(), http::Version::HTTP_2);
    assert_eq!(events(&answer.text().await.unwrap()).last().unwrap(), "[DONE]");
    // The reset overtakes what is queued, maybe also the header.
    if let Ok(answer) = ask(streamed("simulate:cut")).await {
        assert!(answer.text().await.is_err());
    }
    error(ask(says("simulate:429")).await.unwrap(), 429).await;
}

#[tokio::test]
async fn shutdown_drops_what_is_open() {
    let server = Server::start().await;
    let mut stalled = server.raw(&streamed("simulate:stall=1")).await;
    read_until(&mut stalled, "\n\n\r\n").await;
    server.shutdown.send(true).unwrap();
    server.task.await.unwrap();
    assert_eq!(stalled.read(&mut [0]).await.unwrap(), 0);
    assert!(TcpStream::connect(server.address).await.is_err());
}
