//! Receipts in files, beside those in the store.

use crate::ledger::ReceiptFiles;
use crate::ledger::tests::logged::logged;
use crate::ledger::tests::rig::{NOW, Rig, debit, receipts_of, request};
use crate::pure::receipt::Receipt;

pub(super) fn each_receipt_is_a_line_of_a_file(rig: &Rig) {
    let folder = tempfile::tempdir().unwrap();
    let files = ReceiptFiles::start(folder.path(), 0, rig.clock.clone()).unwrap();
    assert_eq!(logged(|| rig.ledger.write_receipts_to(&files)), Vec::<String>::new());
    let twice = "ERROR the ledger writes its receipts to files already";
    assert_eq!(logged(|| rig.ledger.write_receipts_to(&files)), [twice]);
    let caller = rig.caller("10");
    for n in 1..=3 {
        rig.reserve(&caller, &request(n, "1")).unwrap().settle(debit("0.5"));
    }
    rig.reserve(&caller, &request(4, "1")).unwrap().release();
    let mut kept = receipts_of(&rig.ledger, &caller.account.id);
    rig.ledger.close();
    files.close();
    let text = std::fs::read_to_string(folder.path().join(format!("receipts-{}.jsonl", NOW.day()))).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let mut written: Vec<Receipt> = lines.collect();
    assert_eq!(written.len(), 3);
    for receipts in [&mut kept, &mut written] {
        receipts.sort_by_key(|receipt| receipt.billed.id);
    }
    assert_eq!(written, kept);
}
