//! The demo: its folder, what it prints, and what it leaves behind.

use std::io::{Read, Write};
use std::net::TcpListener;

use serde_json::Value;

use super::*;
use crate::config::Credential;
use crate::pure::receipt::CallEnding;

mod ports;

fn args(folder: &tempfile::TempDir, listen: &str) -> DemoArgs {
    DemoArgs {
        listen: Some(listen.parse().unwrap()),
        data_dir: folder.path().join("demo"),
        simulated: false,
        with_traffic: false,
    }
}

fn no_environment(_: &str) -> Option<String> {
    None
}

#[test]
fn the_help_has_every_word_that_the_simulated_provider_knows() {
    use clap::Args as _;
    let mut command = DemoArgs::augment_args(clap::Command::new("demo"));
    let help = command.render_help().to_string();
    let words = include_str!("../../simulator/mod.rs").lines();
    let words: Vec<&str> = words
        .filter_map(|line| line.strip_prefix("//! | `")?.split_once('`'))
        .map(|(word, _)| word)
        .collect();
    assert!(words.len() >= 9, "{words:?}");
    for word in words {
        assert!(help.contains(word), "{word} is not in\n{help}");
    }
}

/// What a bare HTTP request is answered.
fn ask_http(address: SocketAddr, request: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_demo_is_set_up_from_nothing_and_again() {
    let folder = tempfile::tempdir().unwrap();
    let args = args(&folder, "127.0.0.1:0");
    let first = Demo::prepare(&args, no_environment).unwrap();
    assert_ne!(first.config.listen.port(), 0);
    assert_ne!(first.config.listen, first.config.admin_listen);
    let catalogue = first.config.load_catalogue().unwrap();
    assert_eq!(
        catalogue.default_for(Purpose::Chat).unwrap().id.as_ref(),
        "simulated/chat"
    );
    assert!(
        catalogue
            .model("simulated/vendor/model:free")
            .unwrap()
            .pricing
            .is_free()
    );

    // Other commands read the same file, without the credential.
    let config = Config::load(&first.config.path).unwrap();
    assert_eq!(config.store, first.config.store);
    let AdminReply::Account(view) = ask(
        &config,
        AdminOp::AccountShow {
            account: "demo".parse().unwrap(),
        },
    )
    .unwrap() else {
        panic!("not an account");
    };
    assert_eq!(
        (
            view.figures.balance.to_string().as_str(),
            view.record.tier,
            view.keys.len()
        ),
        ("10", Tier::Pro, 1)
    );

    let second = Demo::prepare(&args, no_environment).unwrap();
    assert_eq!(first.greeting.key, second.greeting.key, "the key was kept");
    assert_eq!(first.greeting.operator_token, second.greeting.operator_token);
    assert!(first.greeting.operator_token.starts_with("tgop_"));
    let AdminReply::Account(view) = ask(
        &config,
        AdminOp::AccountShow {
            account: "demo".parse().unwrap(),
        },
    )
    .unwrap() else {
        panic!("not an account");
    };
    assert_eq!((view.figures.balance.to_string().as_str(), view.keys.len()), ("10", 1));
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(args.data_dir.join("key")).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);

    let revoke = AdminOp::KeyRevoke {
        key: crate::ledger::admin::KeyRef::Id(view.keys[0].id.clone()),
    };
    ask(&config, revoke).unwrap();
    let third = Demo::prepare(&args, no_environment).unwrap();
    assert_ne!(
        first.greeting.key, third.greeting.key,
        "the one that was kept is revoked"
    );
}

#[test]
fn demos_on_any_port_do_not_meet_on_the_usual_ones() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    // Neither listens yet: each has found its ports free.
    let demos = folders
        .each_ref()
        .map(|folder| Demo::prepare(&args(folder, "127.0.0.1:0"), no_environment).unwrap());
    let mut taken: Vec<SocketAddr> = Vec::new();
    for Demo { config, .. } in &demos {
        let operators = config.operator.as_ref().unwrap().address;
        taken.extend([config.listen, config.admin_listen, operators]);
    }
    taken.sort_unstable();
    taken.dedup();
    assert_eq!(taken.len(), 6, "{taken:?}");
    assert!(
        taken
            .iter()
            .all(|address| ![ADMIN_PORT, OPERATOR_PORT].contains(&address.port()))
    );
}

#[test]
fn a_day_of_traffic_is_what_its_calls_would_have_left() {
    let folder = tempfile::tempdir().unwrap();
    let args = DemoArgs {
        with_traffic: true,
        ..args(&folder, "127.0.0.1:0")
    };
    let before = Clock::System.now();
    let first = Demo::prepare(&args, no_environment).unwrap();
    let audit = |config: &Config| match ask(config, AdminOp::Audit).unwrap() {
        AdminReply::Audit(report) => report,
        other => panic!("{other:?}"),
    };
    let report = audit(&first.config);
    assert_eq!((report.accounts, report.findings), (9, Vec::new()));
    let receipts = |account: &str| {
        let query = crate::ledger::admin::ReceiptQuery::newest(&account.parse().unwrap(), 1_000);
        match ask(&first.config, AdminOp::Receipts(query)).unwrap() {
            AdminReply::Receipts(page) => page.receipts,
            other => panic!("{other:?}"),
        }
    };
    let acme = receipts("acme");
    assert!(acme.len() > 300, "{}", acme.len());
    let (day, now) = (before.plus_millis(-86_400_000), Clock::System.now());
    let mut hours: Vec<i64> = Vec::new();
    for receipt in &acme {
        let call = &receipt.billed.call;
        assert!(day <= call.created.unwrap() && call.ended.unwrap() <= now);
        assert!(call.created < call.first_byte && call.first_byte <= call.ended);
        assert!(receipt.billed.cost <= receipt.billed.held.unwrap());
        hours.push(receipt.resolved.since(day) / 3_600_000);
    }
    let ended = |ending| {
        acme.iter()
            .filter(|receipt| receipt.billed.call.ending == Some(ending))
            .count()
    };
    let (left, failed) = (ended(CallEnding::ClientGone), ended(CallEnding::UpstreamFailed));
    assert!(
        (1..40).contains(&left) && (1..20).contains(&failed),
        "{left} left, {failed} failed"
    );
    hours.sort_unstable();
    hours.dedup();
    assert!(hours.len() >= 18, "calls in {} hours", hours.len());
    assert!(!receipts("demo").is_empty());
    let AdminReply::Account(poor) = ask(
        &first.config,
        AdminOp::AccountShow {
            account: "fjord".parse().unwrap(),
        },
    )
    .unwrap() else {
        panic!("not an account");
    };
    assert!(
        poor.figures.balance.pico() < 100_000_000_000,
        "{}",
        poor.figures.balance
    );

    let second = Demo::prepare(&args, no_environment).unwrap();
    assert_eq!(first.greeting.key, second.greeting.key);
    assert_eq!(receipts("acme").len(), acme.len(), "a second start adds nothing");
    assert_eq!(audit(&second.config).findings, Vec::new());

    // And says so, in one line, beside all that a start says.
    let text = first.greeting.written(Format::Text).unwrap();
    assert!(!text.contains("\ntraffic "), "{text}");
    let text = second.greeting.written(Format::Text).unwrap();
    let told = text.lines().find_map(|line| line.strip_prefix("traffic   ")).unwrap();
    assert!(told.contains("already") && told.contains("--data-dir"), "{told}");
    let json: Value = serde_json::from_str(&second.greeting.written(Format::Json).unwrap()).unwrap();
    assert_eq!(json["traffic"], told);
}

#[test]
fn who_asks_for_a_day_where_the_demo_ran_before_is_told_whose_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let args = args(&folder, "127.0.0.1:0");
    let before = Demo::prepare(&args, no_environment).unwrap();
    let args = DemoArgs {
        with_traffic: true,
        ..args
    };
    let after = Demo::prepare(&args, no_environment).unwrap();
    assert_eq!(before.greeting.key, after.greeting.key);
    let calls = |account: &str| {
        let query = crate::ledger::admin::ReceiptQuery::newest(&account.parse().unwrap(), 1_000);
        match ask(&after.config, AdminOp::Receipts(query)).unwrap() {
            AdminReply::Receipts(page) => page.receipts.len(),
            other => panic!("{other:?}"),
        }
    };
    assert!(calls("acme") > 300 && calls("demo") == 0);
    let text = after.greeting.written(Format::Text).unwrap();
    let told = text.lines().find_map(|line| line.strip_prefix("traffic   ")).unwrap();
    assert!(
        told.contains("the account demo is older") && told.contains("--data-dir"),
        "{told}"
    );
}

#[test]
fn the_simulated_provider_answers_the_gateway_alone() {
    let folder = tempfile::tempdir().unwrap();
    let demo = Demo::prepare(&args(&folder, "127.0.0.1:0"), no_environment).unwrap();
    let address = demo.simulated.as_ref().unwrap().address();
    let provider = &demo.config.providers["simulated"];
    assert_eq!(provider.base_url.port, address.port());
    let Credential::Bearer(credential) = &provider.credential else {
        panic!("no credential")
    };
    let request = |credential: &str| {
        format!("GET /v1/models HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {credential}\r\nconnection: close\r\n\r\n")
    };
    let answer = ask_http(address, &request(credential));
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains("vendor/model:free"),
        "{answer}"
    );
    assert!(ask_http(address, &request("guessed")).starts_with("HTTP/1.1 401"));
}

#[test]
fn the_greeting_comes_when_the_gateway_answers() {
    let folder = tempfile::tempdir().unwrap();
    let demo = Demo::prepare(&args(&folder, "127.0.0.1:0"), no_environment).unwrap();
    let address = demo.config.listen;
    let greeting = Greeting {
        conf: demo.greeting.conf.clone(),
        key: "K".into(),
        base_url: "B".into(),
        status_page: "S".into(),
        console: "C".into(),
        operator_token: "T".into(),
        wallet: "W".into(),
        model: "m".into(),
        ..demo.greeting
    };
    let conf = greeting.conf.display().to_string();
    let json = greeting.written(Format::Json).unwrap();
    assert_eq!(json.lines().count(), 1);
    let value: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        value,
        serde_json::json!({"base_url": "B", "key": "K", "account": "demo", "conf": conf, "status_page": "S", "console": "C", "operator_token": "T", "wallet": "W"})
    );
    let text = greeting.written(Format::Text).unwrap();
    for part in [
        "curl -N B/llm/chat/stream",
        "Bearer K",
        "B/llm/balance",
        "B/llm/usage",
        "B/llm/public/models",
        "status    S",
        "console   C",
        "sign in with T",
        "wallet    W",
        &conf,
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }

    // A gateway that refuses at first: the greeting waits for its 200.
    let demo = Demo { greeting, ..demo };
    let ended = demo.serve(Format::Json, |config| {
        let listener = TcpListener::bind(config.listen)?;
        for status in ["503 Busy", "200 OK"] {
            let (mut stream, _) = listener.accept()?;
            let mut request = [0; 512];
            let length = stream.read(&mut request)?;
            assert!(request[..length].starts_with(b"GET /api/v1/llm/health "));
            stream.write_all(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").as_bytes())?;
        }
        Err("stopped".into())
    });
    assert_eq!(ended.unwrap_err().to_string(), "stopped");
    assert!(TcpListener::bind(address).is_ok());
}

#[test]
fn with_a_credential_the_real_provider_is_asked() {
    let folder = tempfile::tempdir().unwrap();
    fn environment(name: &str) -> Option<String> {
        (name == "OPENAI_API_KEY").then(|| "sk-secret".to_owned())
    }
    let mut args = args(&folder, "127.0.0.1:0");
    let demo = Demo::prepare(&args, environment).unwrap();
    assert!(demo.simulated.is_none() && demo.config.providers["openai"].is_on());
    assert!(demo.greeting.model.starts_with("openai/"), "{}", demo.greeting.model);
    assert!(demo.config.catalogue.starts_with(folder.path().canonicalize().unwrap()));
    assert_eq!(demo.config.store, Config::load(&demo.config.path).unwrap().store);
    let written = std::fs::read_to_string(&demo.config.path).unwrap();
    assert!(!written.contains("sk-secret"));
    args.simulated = true;
    assert!(Demo::prepare(&args, environment).unwrap().simulated.is_some());
}

#[test]
fn a_demo_leaves_what_is_not_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let args = args(&folder, "127.0.0.1:0");
    std::fs::create_dir_all(&args.data_dir).unwrap();
    let conf = args.data_dir.join("tollgate.yaml");
    std::fs::write(&conf, "listen: 127.0.0.1:1\n").unwrap();
    let error = Demo::prepare(&args, no_environment).err().unwrap().to_string();
    assert!(error.contains("--data-dir"), "{error}");
    assert_eq!(std::fs::read_to_string(&conf).unwrap(), "listen: 127.0.0.1:1\n");

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap();
    let args = DemoArgs {
        listen: Some(listen),
        ..args
    };
    let error = Demo::prepare(&args, no_environment).err().unwrap().to_string();
    assert!(error.contains("--listen"), "{error}");
}
