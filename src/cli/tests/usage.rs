//! `tollgate usage`, of an account and of all.

use super::*;
use crate::ledger::admin::AdminOp;
use crate::ledger::control::LedgerAccess;
use crate::ledger::terms::TermsChange;
use crate::pure::ids::{AccountId, Tier};

/// Who calls with a key, as `key create` has told it.
fn caller(store: &Arc<Embedded>, key: &Value) -> Caller {
    let digest = ApiKey::parse("tg_", key["key"].as_str().unwrap()).unwrap().digest();
    let ledger = Ledger::Embedded(Arc::clone(store));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let found = runtime.block_on(ledger.authenticate(&digest)).unwrap().unwrap();
    found.checked(Clock::System.now()).unwrap()
}

#[test]
fn usage_is_summed_exactly() {
    let place = Place::new();
    place.json("account create acme --tier pro");
    place.json("credits add acme 10 --reference A");
    let (_, key) = place.json("key create --account acme");
    let store = Embedded::open(&place.ledger(), Clock::System).unwrap();
    control::listen(&store).unwrap();
    let caller = caller(&store, &key);
    spend(&caller, 1, "a/b", "0.000000000001");
    spend(&caller, 2, "a/dear", "1.5");
    spend(&caller, 3, "a/b", "0.2");

    let (text, usage) = place.json("usage acme");
    assert!(text.contains("\"total_cost\":1.700000000001,"), "{text}");
    assert!(text.contains(
        "{\"model\":\"a/b\",\"requests\":2,\"prompt_tokens\":6,\"completion_tokens\":8,\"tokens\":14,\"cost\":0.200000000001}"
    ));
    assert_eq!(
        (&usage["period"], &usage["total_tokens"]),
        (&Value::from("today"), &Value::from(21))
    );
    assert_eq!(usage["by_model"][0]["model"], "a/dear");
    let expected = "\
MODEL   REQUESTS  PROMPT  COMPLETION  COST
a/dear         1       3           4  1.5
a/b            2       6           8  0.200000000001
total          3       9          12  1.700000000001
";
    let table = place.run("usage acme --period 7d").stdout;
    let table = table.split_once("\n\n").unwrap().1;
    let squeezed = |text: &str| {
        text.lines()
            .map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect::<Vec<_>>()
    };
    assert_eq!(squeezed(table), squeezed(expected));
    assert!(
        place
            .json("account show acme")
            .0
            .contains("\"balance\":8.299999999999,")
    );
    assert_eq!(place.json("ledger audit").1["balanced"], true);
}

#[test]
fn the_usage_of_all_accounts_is_summed_on_the_file_and_through_its_owner() {
    for to_gateway in [true, false] {
        let place = Place::new();
        // More than a page of them, of which the first and the last have called.
        let access = LedgerAccess::to_embedded(&place.ledger()).unwrap();
        for number in 0..250 {
            let account: AccountId = format!("acct-{number:03}").parse().unwrap();
            access
                .run(AdminOp::AccountCreate {
                    account,
                    tier: Tier::Pro,
                    quota_pico: None,
                    terms: TermsChange::default(),
                })
                .unwrap();
        }
        drop(access);
        assert_eq!(
            place.run("usage --all").stdout,
            "no account has used anything in the period today\n"
        );
        let keys = ["acct-000", "acct-249"].map(|account| {
            place.json(&format!("credits add {account} 10 --reference A"));
            place.json(&format!("key create --account {account}")).1
        });
        let store = Embedded::open(&place.ledger(), Clock::System).unwrap();
        {
            let [first, last] = keys.each_ref().map(|key| caller(&store, key));
            spend(&first, 1, "a/b", "0.000000000001");
            spend(&last, 2, "a/b", "1.5");
            spend(&last, 3, "a/dear", "0.2");
        }
        // Through its socket, or once it is closed.
        let owner = to_gateway.then(|| {
            control::listen(&store).unwrap();
            Arc::clone(&store)
        });
        drop(store);

        let (text, usage) = place.json("usage --all");
        assert!(text.contains("\"total_cost\":1.700000000001,"), "{text}");
        assert_eq!(
            (
                &usage["accounts"],
                &usage["total_requests"],
                &usage["account"],
                &usage["by_account"]
            ),
            (&Value::from(2), &Value::from(3), &Value::Null, &Value::Null)
        );
        assert!(text.contains(
            "{\"model\":\"a/b\",\"requests\":2,\"prompt_tokens\":6,\"completion_tokens\":8,\"tokens\":14,\"cost\":1.500000000001}"
        ));
        let (text, _) = place.json("usage --all --by account");
        // The one that paid most stands first.
        assert!(
            text.contains(
                "\"by_account\":[{\"account\":\"acct-249\",\"requests\":2,\"prompt_tokens\":6,\"completion_tokens\":8,\
                 \"tokens\":14,\"cost\":1.7},{\"account\":\"acct-000\",\"requests\":1,"
            ),
            "{text}"
        );
        let table = place.run("usage --all --by account --period 7d").stdout;
        assert!(
            table.starts_with(
                "usage of all accounts, period 7d: 2 accounts, 1 day (UTC) with calls, costs in USD\n\nACCOUNT "
            ),
            "{table}"
        );
        let day = Clock::System.now().day();
        assert_eq!(
            place.json(&format!("usage --all --from {day} --by day")).1["by_day"][0]["requests"],
            3
        );
        drop(owner);
    }
}

#[test]
fn what_is_of_one_account_is_not_asked_of_all() {
    let place = Place::with_ledger();
    for (words, why) in [
        ("usage --all --by key", "give its name in place of --all"),
        ("usage --all --by end_user", "give its name in place of --all"),
        ("usage acme --by account", "give --all in place of a name"),
        ("usage acme --all", "cannot be used with"),
        ("usage --all --key key_0123456789abcdef", "cannot be used with"),
        ("usage", "<NAME>"),
    ] {
        let outcome = place.run(words);
        assert!(
            outcome.status == 2 && outcome.stderr.contains(why),
            "{words}: {outcome:?}"
        );
    }
}
