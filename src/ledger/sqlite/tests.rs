//! The ledger's file by itself, without the thread that writes it for a ledger.

use super::credits::Untold;
use super::*;
use crate::config::Idempotency;
use crate::ledger::admin::credits::STATEMENT_ROWS_MAX;
use crate::ledger::idempotency::call::{KeyEnd, KeyWrite, KeyedCall};
use crate::ledger::tests::rig::{NOW, request_id};
use crate::pure::idempotency::{Answer, Fingerprint, KEPT_MS, KeyName};
use crate::pure::ids::KeyId;

/// A folder with a file that has an account.
struct File {
    folder: tempfile::TempDir,
    database: Database,
}

impl File {
    fn new() -> File {
        let folder = tempfile::tempdir().unwrap();
        let mut database = Database::open(&folder.path().join("ledger.db")).unwrap();
        let record = AccountRecord {
            id: acme(),
            tier: Tier::Pro,
            monthly_quota: None,
            created: NOW,
            terms: Default::default(),
        };
        database.insert_account(&record).unwrap();
        File { folder, database }
    }

    fn reader(&self) -> Reader {
        Reader::open(&self.folder.path().join("ledger.db")).unwrap()
    }

    fn change(&self, sql: &str) {
        self.database.connection.execute_batch(sql).unwrap();
    }
}

fn acme() -> AccountId {
    "acme".parse().unwrap()
}

#[test]
fn the_bounds_of_receipts_are_those_that_were_set_last() {
    let mut file = File::new();
    assert_eq!(file.database.receipt_bounds_before(), Ok(None));
    for (days, bytes_max) in [(30, 1_000), (30, 1_000), (0, 1_000), (7, 1_000), (7, 2_000), (7, 2_000)] {
        let bounds = ReceiptBounds { days, bytes_max };
        file.database.keep_receipts(bounds, NOW.day()).unwrap();
        assert_eq!(file.database.receipt_bounds_before(), Ok(Some(bounds)));
        assert_eq!(file.database.receipt_days(), days);
    }
}

#[test]
fn a_statement_reads_so_many_entries_and_debits_and_no_more() {
    let file = File::new();
    let (most, at) = (STATEMENT_ROWS_MAX, NOW.0);
    file.change(&format!(
        "INSERT INTO topups (account, reference, amount, at)
         WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {most}) SELECT 'acme', 'r' || n, 1, {at} FROM n"
    ));
    let days = (NOW.day(), NOW.day());
    let told = file.reader().statement(&acme(), days).unwrap();
    assert_eq!(told.entries.len(), most);
    let day = NOW.day().0;
    for more in ["a/m", "b/m"] {
        file.change(&format!(
            "INSERT INTO usage (account, day, model, requests, prompt, completion, cost) VALUES ('acme', {day}, '{more}', 1, 1, 1, 1)"
        ));
        let told = file.reader().statement(&acme(), days);
        assert!(matches!(told, Err(Untold::Invalid(_))), "{told:?}");
    }
}

fn keyed(name: &str, n: u64) -> KeyedCall {
    let key: KeyId = "key_x".to_owned().into();
    KeyedCall {
        name: KeyName::of(&key, name.as_bytes()).unwrap(),
        key,
        fingerprint: Fingerprint::from_bytes([1; 32]),
        request: request_id(n),
        limits: Idempotency::default(),
    }
}

impl File {
    /// Which of these could be written.
    fn write(&mut self, writes: &[KeyWrite<'_>], now: Timestamp) -> Vec<bool> {
        self.database.write_keys(writes, now).unwrap()
    }

    /// How many keys are known, and what their answers have: as the file counts, and as it is.
    fn known(&self) -> [(i64, i64); 3] {
        let sums = "SELECT coalesce(sum(known), 0), coalesce(sum(bytes), 0) FROM idempotency_sums WHERE key";
        [
            format!("{sums} = 'key_x'"),
            format!("{sums} = ''"),
            "SELECT count(*), coalesce(sum(bytes), 0) FROM idempotency".to_owned(),
        ]
        .map(|sql| {
            let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
            self.database.connection.query_row(&sql, [], row).unwrap()
        })
    }
}

#[test]
fn a_name_that_is_sent_again_when_it_has_expired_counts_once_and_so_does_its_answer() {
    let mut file = File::new();
    let key = keyed("again", 0).key;
    for (round, body) in (0..3).zip(["longer", "x", "some"]) {
        let now = NOW.plus_millis(round * KEPT_MS);
        let call = keyed("again", u64::try_from(round).unwrap());
        assert_eq!(file.write(&[KeyWrite::Sent(&call)], now), [true]);
        assert_eq!(file.known(), [(1, 0); 3], "{round}");
        let answer = Answer {
            streamed: false,
            body: body.as_bytes().to_vec().into(),
        };
        let end = KeyEnd::Billed(Some(answer));
        assert_eq!(file.write(&[KeyWrite::Ended(&call, &end)], now), [true]);
        let bytes = i64::try_from(body.len()).unwrap();
        assert_eq!(file.known(), [(1, bytes); 3], "{round}");
        assert_eq!(file.database.keys_known(&key), Ok(1));
        // Until it has expired it is its call's.
        let other = keyed("again", 99);
        let before = now.plus_millis(KEPT_MS - 1);
        let ends =
            [KeyEnd::Billed(None), KeyEnd::Freed].map(|end| file.write(&[KeyWrite::Ended(&other, &end)], before));
        assert_eq!(
            (file.write(&[KeyWrite::Sent(&other)], before), ends),
            (vec![false], [vec![false], vec![false]])
        );
    }
}
