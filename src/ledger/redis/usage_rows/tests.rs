//! What one step reads, and what all of them read together.

use super::*;
use crate::ledger::Caller;
use crate::ledger::tests::rig::{NOW, Rig, block_on, redis_of};

/// Writes usage of so many models a day, from the first day on. The key has used every other one of them.
fn fill(rig: &Rig, caller: &Caller, first: i64, models: &[u32]) {
    let script = r"
local account, of_key = KEYS[1], KEYS[2]
for at = 2, #ARGV do
  local day, models = string.format('%d', ARGV[1] + at - 2), ''
  for n = 1, tonumber(ARGV[at]) do
    local model = string.format('m/%04d', n)
    for _, key in ipairs(n % 2 == 0 and { account, of_key } or { account }) do
      redis.call('HSET', key, 'u' .. day .. ' ' .. model, '1 3 4', 'c' .. day .. ' ' .. model, '5')
    end
    models = models .. model .. '\n'
  end
  redis.call('HSET', account, 'd' .. day, models)
end
redis.call('HSET', account, 'first', ARGV[1], 'last', ARGV[1] + #ARGV - 2)
return 'filled'
";
    let [account, _] = account_keys(&caller.account.id);
    let of_key = usage_of_key(&caller.account.id, &caller.key.id);
    let mut command = redis::cmd("EVAL");
    command.arg(script).arg(2).arg(account).arg(of_key);
    command.arg(first).arg(models);
    let shared = &redis_of(&rig.ledger).shared;
    let filled = block_on(async { shared.command(&shared.link(), command).await.unwrap() });
    assert_eq!(reply::text(&filled), Ok("filled"));
}

#[test]
fn a_step_has_whole_days_and_looks_at_no_more_than_so_many_rows() {
    let rig = Rig::redis();
    let caller = rig.caller("1");
    let first = NOW.day().0 - 5;
    fill(&rig, &caller, first, &[3, 3, 0, 3, 9, 1]);
    let shared = &redis_of(&rig.ledger).shared;
    // How many rows it has, and where the next one begins.
    let step = |key: Option<&KeyId>, days: RowDays, place: i64| {
        let of = (&caller.account.id, key);
        let read = block_on(async { shared.some_usage_rows(&shared.link(), of, days, (place, 7)).await });
        let (rows, next) = read.unwrap().unwrap();
        (rows.len(), next.map(|(day, place)| (day.0 - first, place)))
    };
    let all = RowDays::default();
    let from = |day: i64| RowDays {
        first: Some(Day(first + day)),
        ..all
    };
    assert_eq!(step(None, all, 0), (6, Some((2, 0))));
    assert_eq!(step(None, from(2), 0), (3, Some((4, 0))));
    // A day that has more by itself.
    assert_eq!(step(None, from(4), 0), (7, Some((4, 7))));
    assert_eq!(step(None, from(4), 7), (3, None));
    assert_eq!(step(None, from(6), 0), (0, None));
    // What a key has not used is looked at, too.
    let key = Some(&caller.key.id);
    assert_eq!(step(key, all, 0), (2, Some((2, 0))));
    assert_eq!(step(key, from(4), 0), (3, Some((4, 7))));
    assert_eq!(step(key, from(4), 7), (1, None));
    assert_eq!(step(None, RowDays::SINCE_YESTERDAY, 0), (7, Some((4, 7))));
    assert_eq!(step(None, Days::from(Period::Today).into(), 0), (1, None));
    let two = Days::Span {
        from: Day(0),
        to: Day(first + 1),
    };
    assert_eq!(step(None, two.into(), 0), (6, None));
}

#[test]
fn a_report_of_many_steps_has_each_row_once_and_in_order() {
    let rig = Rig::redis();
    let caller = rig.caller("1");
    let first = NOW.day().0 - 3;
    let models = [400, 300, 1_200, 400];
    fill(&rig, &caller, first, &models);
    let expected = |every: usize| {
        let of_day = |(day, models): (i64, u32)| {
            let numbers = (1..=models).skip(every - 1).step_by(every);
            numbers.map(move |n| (Day(day), format!("m/{n:04}")))
        };
        (first..).zip(models).flat_map(of_day).collect::<Vec<_>>()
    };
    let rows = |rows: Vec<UsageRow>| -> Vec<_> { rows.into_iter().map(|row| (row.day, row.model)).collect() };
    assert_eq!(rows(rig.usage(&caller, Period::All)), expected(1));
    assert_eq!(rows(rig.usage_of_key(&caller, Period::All)), expected(2));
    let (shared, nobody) = (&redis_of(&rig.ledger).shared, "nobody".parse().unwrap());
    let of_nobody = block_on(async {
        let days = RowDays::default();
        shared.usage_rows(&shared.link(), (&nobody, None), days).await
    });
    assert_eq!(of_nobody, Ok(None));
}
