//! Commands as they pass over the control socket.

use super::*;

#[test]
fn a_quota_that_goes_back_to_the_tiers_is_another_than_one_that_stays() {
    for quota_pico in [None, Some(None), Some(Some(0)), Some(Some(5))] {
        let op = AdminOp::AccountSet {
            account: "acme".parse().unwrap(),
            tier: None,
            quota_pico,
        };
        let text = serde_json::to_string(&op).unwrap();
        match serde_json::from_str(&text).unwrap() {
            AdminOp::AccountSet {
                quota_pico: received, ..
            } => assert_eq!(received, quota_pico, "{text}"),
            other => panic!("{other:?}"),
        }
    }
}
