//! The table of what is billed in conf/README.md: each of its examples is run, as it stands there.

use rust_decimal::Decimal;
use serde_json::{Value, json};

use crate::chat::{PROMPT, request};
use crate::disconnect_head::leave;
use crate::harness::catalogue::{EMBED, SMALL, cost};
use crate::harness::reply::whole_chat;
use crate::harness::{Cue, Gateway, Reply, Setup, Upstream, within};

/// One row.
struct Row {
    example: String,
    billed: String,
}

/// The rows of the table, in order.
fn rows() -> Vec<Row> {
    let document = include_str!("../../conf/README.md");
    let (_, table) = document
        .split_once("| What happens | Example | Billed |\n")
        .expect("the table");
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    rows.map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let code = |cell: &str| {
            let code = cell.strip_prefix('`').and_then(|cell| cell.strip_suffix('`'));
            code.unwrap_or_else(|| panic!("an example in backticks: {line}"))
                .to_owned()
        };
        assert_eq!(cells.len(), 3, "{line}");
        Row {
            example: code(cells[1]),
            billed: code(cells[2]),
        }
    })
    .collect()
}

/// What an example asks for and what its provider does.
#[derive(Default)]
struct Example {
    kind: String,
    max: Option<u64>,
    choices: Option<u64>,
    text: String,
    usage: Option<Value>,
    stream: Option<Reply>,
    status: Option<u16>,
    leaves_after: Option<usize>,
    /// The client leaves before the head, which comes at the cue.
    leaves_before: Option<Cue>,
    /// The model's maximum in the catalogue.
    catalogue: Option<u64>,
    /// The answer is read on for a client that leaves, because the model reasons where nobody sees it, or because of the file; what follows
    /// comes at the cue.
    unseen: Option<Cue>,
    /// The request has a file.
    file: bool,
    /// All of a whole answer comes but its last byte.
    breaks: bool,
    /// A whole answer passes on its first byte before the others come.
    passes: Option<Cue>,
}

impl Example {
    fn read(text: &str) -> Example {
        let mut example = Example::default();
        let mut words = 0;
        for step in text.split(", ") {
            let (step, argument) = step.split_once(' ').unwrap_or((step, ""));
            let number = || argument.parse::<u64>().unwrap();
            match step {
                "whole" | "embeddings" => example.kind = step.to_owned(),
                "stream" => {
                    example.kind = step.to_owned();
                    example.stream = Some(Reply::stream().role());
                }
                "max" => example.max = Some(number()),
                "choices" => example.choices = Some(number()),
                "status" => example.status = Some(argument.parse().unwrap()),
                "text" => {
                    words += argument.parse::<usize>().unwrap();
                    example.text.push_str(&" word".repeat(argument.parse().unwrap()));
                    example.stream = example
                        .stream
                        .map(|reply| (0..number()).fold(reply, |reply, _| reply.text(" word")));
                }
                "report" => {
                    let (prompt, completion) = argument.split_once('/').unwrap();
                    let (prompt, completion): (u64, u64) = (prompt.parse().unwrap(), completion.parse().unwrap());
                    example.usage = Some(json!({ "prompt_tokens": prompt, "completion_tokens": completion }));
                    example.stream = example.stream.map(|reply| reply.usage(prompt, completion));
                }
                "reasoning" => {
                    example.usage.as_mut().unwrap()["completion_tokens_details"] =
                        json!({ "reasoning_tokens": number() });
                }
                "total" => example.usage.as_mut().unwrap()["total_tokens"] = number().into(),
                "finish" => example.stream = example.stream.map(Reply::finish),
                "done" => example.stream = example.stream.map(Reply::done),
                "dies" => example.stream = example.stream.map(Reply::close),
                "breaks" => example.breaks = true,
                "passes" => example.passes = Some(Cue::new()),
                "catalogue" => example.catalogue = Some(number()),
                "unseen" => example.unseen = Some(Cue::new()),
                "file" => (example.file, example.unseen) = (true, Some(Cue::new())),
                "leaves" if argument == "before the head" => example.leaves_before = Some(Cue::new()),
                "leaves" if example.unseen.is_some() => {
                    example.leaves_after = Some(words + 1);
                    let cue = example.unseen.as_ref().unwrap();
                    example.stream = example.stream.map(|reply| reply.wait(cue));
                }
                "leaves" => {
                    example.leaves_after = Some(words + 1);
                    example.stream = example.stream.map(Reply::silence);
                }
                other => panic!("no such step: {other}"),
            }
        }
        example
    }

    fn body(&self) -> String {
        if self.kind == "embeddings" {
            return json!({ "model": EMBED, "input": "Hello" }).to_string();
        }
        let mut body: Value = serde_json::from_str(&request(SMALL)).unwrap();
        if self.file {
            let file = json!({ "type": "file", "file": { "file_data": "QUJD" } });
            body["messages"][0]["content"] = json!([{ "type": "text", "text": "Hello" }, file]);
        }
        for (key, value) in [("max_tokens", self.max), ("n", self.choices)] {
            if let Some(value) = value {
                body[key] = value.into();
            }
        }
        body.to_string()
    }

    fn reply(&self) -> Reply {
        match &self.leaves_before {
            Some(cue) => Reply::default().wait(cue).and(self.answer()),
            None => self.answer(),
        }
    }

    fn answer(&self) -> Reply {
        if let Some(status) = self.status {
            return Reply::status(status);
        }
        match (&self.stream, self.kind.as_str()) {
            (Some(stream), _) => stream.clone(),
            (None, "embeddings") => {
                let vector = json!({ "object": "embedding", "index": 0, "embedding": [0.25, -0.5] });
                let mut answer = json!({ "object": "list", "data": [vector], "model": "up-embed" });
                if let Some(usage) = &self.usage {
                    let prompt = &usage["prompt_tokens"];
                    answer["usage"] = json!({ "prompt_tokens": prompt, "total_tokens": prompt });
                }
                self.whole(&answer)
            }
            (None, _) => {
                let mut answer = whole_chat(&self.text, None);
                if let Some(usage) = &self.usage {
                    answer["usage"] = usage.clone();
                }
                self.whole(&answer)
            }
        }
    }

    fn whole(&self, answer: &Value) -> Reply {
        let text = answer.to_string();
        let all_but_one = &text[..text.len() - 1];
        let begun = Reply::json_head(text.len() + 1);
        match (&self.passes, self.breaks, self.leaves_after) {
            (Some(cue), _, Some(_)) => {
                let (first, others) = all_but_one.split_at(1);
                begun.bytes(first).wait(cue).bytes(others).silence()
            }
            (Some(cue), ..) => {
                let (first, others) = all_but_one.split_at(1);
                begun.bytes(first).wait(cue).bytes(others).close()
            }
            (None, true, _) => begun.bytes(all_but_one).close(),
            (None, false, Some(_)) => begun.bytes(all_but_one).silence(),
            (None, false, None) => Reply::json(answer),
        }
    }

    /// Where it is asked.
    fn path(&self) -> &'static str {
        match self.kind.as_str() {
            "embeddings" => "/llm/embeddings",
            "stream" => "/llm/chat/stream",
            _ => "/llm/chat",
        }
    }

    /// Asks for a whole answer, and leaves or reads on as the example says.
    async fn ask_whole(&self, gateway: &Gateway, upstream: &Upstream) {
        let call = gateway.http1.post_request(self.path(), self.body());
        if let Some(cue) = &self.leaves_before {
            leave(&gateway.http1, self.path(), self.body(), upstream, 1).await;
            cue.give();
        } else if let Some(cue) = &self.passes {
            let answer = within("a head", call.send()).await.unwrap();
            if self.leaves_after.is_some() {
                drop(answer);
                cue.give();
                upstream.hung_up().await;
            } else {
                cue.give();
                within("a broken body", answer.bytes()).await.unwrap_err();
            }
        } else if self.leaves_after.is_some() {
            tokio::select! {
                answer = call.send() => panic!("an answer came: {answer:?}"),
                _ = upstream.asked(1) => {}
            }
            upstream.hung_up().await;
        } else {
            gateway.http1.post(self.path(), self.body()).await;
        }
    }

    /// What `billed` says in credits.
    fn owed(&self, billed: &str) -> Decimal {
        let Some((prompt, completion)) = billed.split_once(" + ") else {
            assert_eq!(billed, "nothing");
            return Decimal::ZERO;
        };
        let prompt = match prompt {
            // A token a byte, and what the chat format adds to one message.
            "bound" => self.body().len() as u64 + 256 + 16,
            figure => figure.parse().unwrap(),
        };
        let model = if self.kind == "embeddings" { EMBED } else { SMALL };
        cost(model, prompt, completion.parse().unwrap())
    }

    async fn run(&self, gateway: &Gateway, upstream: &Upstream) {
        match self.kind.as_str() {
            "stream" => {
                let mut events = gateway.http1.stream(self.path(), self.body()).await;
                let Some(count) = self.leaves_after else {
                    if events.status == 200 {
                        events.rest().await;
                    }
                    return;
                };
                for _ in 0..count {
                    events.next().await.unwrap();
                }
                drop(events);
                match &self.unseen {
                    Some(cue) => cue.give(),
                    None => upstream.hung_up().await,
                }
            }
            _ => self.ask_whole(gateway, upstream).await,
        }
    }
}

#[tokio::test]
async fn every_example_of_the_document_is_billed_as_it_says() {
    let rows = rows();
    assert!(rows.len() >= 35, "{} rows", rows.len());
    assert_eq!(PROMPT, 7, "the document says so");
    for row in rows {
        println!("{} -> {}", row.example, row.billed);
        let example = Example::read(&row.example);
        let upstream = Upstream::always(example.reply()).await;
        let mut setup = Setup::over(&upstream);
        if example.passes.is_some() {
            setup = setup.conf(|conf| conf["timeouts"]["whole_gather_ms"] = 1.into());
        }
        if example.unseen.is_some() && example.kind == "whole" {
            // Its last byte does not come.
            setup = setup.conf(|conf| conf["timeouts"]["disconnect_drain_ms"] = 500.into());
        }
        setup = setup.model(SMALL, |model| {
            if let Some(max) = example.catalogue {
                model["max_completion_tokens"] = max.into();
            }
            if example.unseen.is_some() && !example.file {
                model["reasoning"] = true.into();
            }
        });
        let gateway = setup.start().await;
        example.run(&gateway, &upstream).await;
        assert_eq!(gateway.spent().await, example.owed(&row.billed), "{}", row.example);
        gateway.check_books().await;
    }
}
