//! Events that go before every webhook has them, for they are too old.

use super::events::{claim, count};
use crate::ledger::admin::events::{Delivery, Event, EventOp};
use crate::ledger::admin::{AdminOp, AdminReply};
use crate::ledger::events::KEEP_MS;
use crate::ledger::tests::rig::{Rig, audit_is_clean};

/// A webhook was away for three days: its events went, and nothing counted them.
pub(super) fn an_event_that_is_too_old_counts_as_dropped_once(rig: &Rig) {
    let caller = rig.caller("1");
    rig.credit(&caller, "1", "second").unwrap();
    rig.clock.advance(KEEP_MS + 1);
    let [first, second] = claim(&rig.ledger, 10).try_into().unwrap();
    assert!(first.is_too_old && second.is_too_old);
    let settle = |event: &Event, deliveries: Vec<Delivery>, is_dropped: bool| {
        let op = EventOp::Settle {
            id: event.id.clone(),
            account: event.account.clone(),
            deliveries,
            is_dropped,
        };
        assert_eq!(rig.run(AdminOp::Event(op)), Ok(AdminReply::Done));
        let counted = count(rig);
        (counted.open, counted.dropped)
    };
    let open = Delivery {
        url: "https://a.example".to_owned(),
        failed: 1,
        due: rig.clock.now().plus_millis(1_000),
        done: false,
    };
    assert_eq!(settle(&first, vec![open], true), (2, 0), "it stays");
    for _ in 0..2 {
        assert_eq!(settle(&first, Vec::new(), true), (1, 1));
    }
    assert_eq!(settle(&second, Vec::new(), false), (0, 1), "every webhook has it");
    audit_is_clean(&rig.ledger);
}
