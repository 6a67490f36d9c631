//! What the scripts answer, read into the contract's types. Nothing unreadable passes as a number.

use redis::Value;

use crate::ledger::terms::AccountTerms;
use crate::ledger::{Figures, StoreError, UsageRow};
use crate::pure::account::{Denial, Extended, Granted, ReserveRequest, Settled};
use crate::pure::error::AccountStop;
use crate::pure::ids::KeyId;
use crate::pure::limits::Window;
use crate::pure::money::Credits;
use crate::pure::numbers::{Birth, Numbers};
use crate::pure::spend::Spender;
use crate::pure::time::{Day, Timestamp};

/// What a reserve was answered.
pub(super) struct Reserved {
    /// Redis' time.
    pub(super) now: Timestamp,
    /// The scope's window after it.
    pub(super) window: Window,
    pub(super) outcome: Result<Granted, Denial>,
}

/// An account for showing.
pub(super) struct Shown {
    pub(super) tier: String,
    pub(super) quota: Option<Credits>,
    pub(super) created: Timestamp,
    pub(super) figures: Figures,
    pub(super) open_holds: u64,
    pub(super) terms: AccountTerms,
}

/// The answer to a reserve.
pub(super) fn reserved(value: &Value, request: &ReserveRequest) -> Result<Reserved, StoreError> {
    let mut parts = Words(Some(text(value)?));
    let kind = parts.next().unwrap_or_default();
    match kind {
        "none" => return Err(no_account()),
        "range" => return Err(corrupt("the account's holds have left their range")),
        _ => {}
    }
    let now = Timestamp(number(parts.next())?);
    let window = Window::restored(
        Timestamp(number(parts.next())?),
        count(parts.next())?,
        count(parts.next())?,
    );
    // Its open holds: they are in no header.
    count(parts.next())?;
    let rate = window.view(request.limits, now);
    let outcome = match kind {
        "granted" => Ok(Granted {
            amount: credits(parts.next())?,
            rate,
        }),
        "requests" => Err(Denial::Requests(rate)),
        "tokens" => Err(Denial::Tokens(rate)),
        "concurrency" => Err(Denial::Concurrency(rate)),
        "credit" => {
            let available = credits(parts.next())?;
            let (committed, used) = (credits(parts.next())?, credits(parts.next())?);
            let held = held(committed, used)?;
            Err(Denial::Credit { available, held, rate })
        }
        "quota" => {
            let (used, committed) = (credits(parts.next())?, credits(parts.next())?);
            let held = held(committed, used)?;
            Err(Denial::Quota { used, held, rate })
        }
        "key" | "end_user" => {
            let (spent, committed) = (credits(parts.next())?, credits(parts.next())?);
            Err(Denial::Spent {
                spender: if kind == "key" { Spender::Key } else { Spender::EndUser },
                spent,
                held: held(committed, spent)?,
                rate,
            })
        }
        "end_users" => Err(Denial::EndUsers(rate)),
        "suspended" => Err(Denial::Stopped(AccountStop::Suspended)),
        "closed" => Err(Denial::Stopped(AccountStop::Closed)),
        other => return Err(corrupt(&format!("a reserve answered {other:?}"))),
    };
    Ok(Reserved { now, window, outcome })
}

/// The answer to a wish to raise a hold.
pub(super) fn extended(value: &Value) -> Result<Extended, StoreError> {
    let text = text(value)?;
    match cut(text, b' ') {
        Some(("extended", amount)) => Ok(Extended::To(credits(Some(amount))?)),
        _ => match text {
            "refused" => Ok(Extended::Refused),
            "gone" => Ok(Extended::Gone),
            "range" => Err(corrupt("the account's holds have left their range")),
            other => Err(corrupt(&format!("a wish to raise a hold was answered {other:?}"))),
        },
    }
}

/// What became of a settlement.
pub(super) struct SettledWith {
    pub(super) settled: Settled,
    /// The numbers before its own that Redis did not know and holds for open: the first and the last.
    pub(super) opened: Option<(u64, u64)>,
    /// When it was taken, where that is told.
    pub(super) at: Option<Timestamp>,
}

/// The answer to a settlement.
pub(super) enum SettleReply {
    /// What became of it.
    Settled(SettledWith),
    /// There is no such account.
    NoAccount,
    /// It was not taken: what its account has used in the month cannot be counted.
    NoMonth,
    /// It was not taken: its key counts as this one, after which keys of Redis have to be named.
    CountsAs(KeyId),
    /// It was not taken: its account's slot moves, and has keys of it at two masters.
    Apart,
}

/// The answer to a settlement.
pub(super) fn settled(value: &Value) -> Result<SettleReply, StoreError> {
    let text = text(value)?;
    let (word, rest) = cut(text, b' ').unwrap_or((text, ""));
    let settled = match word {
        "settled" => Settled::Now { overrun: false },
        "overrun" => Settled::Now { overrun: true },
        "already" => Settled::Already,
        "stale" => {
            let forgotten = u32::try_from(count(Some(rest))?).unwrap_or(u32::MAX);
            return Ok(SettleReply::Settled(SettledWith {
                settled: Settled::Stale {
                    forgotten: Birth(forgotten),
                },
                opened: None,
                at: None,
            }));
        }
        "range" => Settled::OutOfRange,
        "none" => return Ok(SettleReply::NoAccount),
        "month" => return Ok(SettleReply::NoMonth),
        "as" if !rest.is_empty() => return Ok(SettleReply::CountsAs(KeyId::from(rest.to_owned()))),
        APART => return Ok(SettleReply::Apart),
        other => return Err(corrupt(&format!("a settlement answered {other:?}"))),
    };
    let (rest, at) = match cut(rest, b'@') {
        Some((rest, at)) => (rest, Some(Timestamp(number(Some(at))?))),
        None => (rest, None),
    };
    let opened = opened_run(rest)?;
    Ok(SettleReply::Settled(SettledWith { settled, opened, at }))
}

/// Whether a release was not taken: its account's slot moves, and has keys of it at two masters.
pub(super) fn is_apart(value: &Value) -> bool {
    text(value) == Ok(APART)
}

/// The numbers before its own that Redis did not know at a release and holds for open: the first and the last.
pub(super) fn released_run(value: &Value) -> Option<(u64, u64)> {
    let (_, run) = cut(text(value).ok()?, b' ')?;
    opened_run(run).ok()?
}

/// `first-last`, or one number; nothing when it is empty.
fn opened_run(run: &str) -> Result<Option<(u64, u64)>, StoreError> {
    match cut(run, b'-') {
        _ if run.is_empty() => Ok(None),
        Some((first, last)) => Ok(Some((count(Some(first))?, count(Some(last))?))),
        None => Ok(Some((count(Some(run))?, count(Some(run))?))),
    }
}

/// The answer to `show`; nothing when there is no such account.
pub(super) fn shown(value: &Value) -> Result<Option<Shown>, StoreError> {
    let Value::Array(parts) = value else {
        return Ok(None);
    };
    let [tier, quota, created, avail, committed, used, current, open, terms] = parts.as_slice() else {
        return Err(corrupt("an account has other fields than it should"));
    };
    let quota = match text(quota)? {
        "" => None,
        quota => Some(credits(Some(quota))?),
    };
    let (available, committed, used) = (amount(avail)?, amount(committed)?, amount(used)?);
    let held = held(committed, used)?;
    let balance = available
        .checked_add(held)
        .ok_or_else(|| corrupt("a balance has left its range"))?;
    Ok(Some(Shown {
        tier: text(tier)?.to_owned(),
        quota,
        created: Timestamp(number(Some(text(created)?))?),
        figures: Figures {
            balance,
            held,
            monthly_used: if integer(current)? == 1 { used } else { Credits::ZERO },
        },
        open_holds: u64::try_from(integer(open)?).map_err(|_| corrupt("a negative count"))?,
        terms: super::kept_terms::read(text(terms)?)?,
    }))
}

/// The answer to `rows`; nothing when there is no such account.
pub(super) fn rows(value: &Value) -> Result<Option<Vec<UsageRow>>, StoreError> {
    let Value::Array(rows) = value else {
        return Ok(None);
    };
    let mut usage = rows.iter().map(row).collect::<Result<Vec<UsageRow>, StoreError>>()?;
    usage.sort_by(|a, b| (a.day, &a.model).cmp(&(b.day, &b.model)));
    Ok(Some(usage))
}

/// Some rows, and where the next ones begin, where there are more: a day, and a place in it.
pub(super) type SomeRows = (Vec<UsageRow>, Option<(Day, i64)>);

/// The answer to whoever asked for some rows; nothing when there is no such account.
pub(super) fn some_rows(value: &Value) -> Result<Option<SomeRows>, StoreError> {
    let Value::Array(parts) = value else {
        return Ok(None);
    };
    let (some, next) = match parts.as_slice() {
        [some] => (some, None),
        [some, day, place] => (some, Some((Day(integer(day)?), integer(place)?))),
        _ => return Err(corrupt("some rows have other parts than they should")),
    };
    let some = rows(some)?.ok_or_else(|| corrupt("rows are no list"))?;
    Ok(Some((some, next)))
}

fn row(value: &Value) -> Result<UsageRow, StoreError> {
    let Value::Array(parts) = value else {
        return Err(corrupt("a usage row is no list"));
    };
    let [day, model, counts, cost] = parts.as_slice() else {
        return Err(corrupt("a usage row has other fields than it should"));
    };
    let mut counts = Words(Some(text(counts)?));
    Ok(UsageRow {
        day: Day(integer(day)?),
        model: text(model)?.to_owned(),
        requests: count(counts.next())?,
        prompt_tokens: count(counts.next())?,
        completion_tokens: count(counts.next())?,
        cost: amount(cost)?,
    })
}

/// The words of a text that stand a space apart. They are so short that looking at each byte is cheaper than a search.
struct Words<'t>(Option<&'t str>);

impl<'t> Iterator for Words<'t> {
    type Item = &'t str;

    fn next(&mut self) -> Option<&'t str> {
        let text = self.0?;
        let (word, rest) = match cut(text, b' ') {
            Some((word, rest)) => (word, Some(rest)),
            None => (text, None),
        };
        self.0 = rest;
        Some(word)
    }
}

/// What stands before and behind the first `mark`, an ASCII character.
fn cut(text: &str, mark: u8) -> Option<(&str, &str)> {
    let at = text.bytes().position(|byte| byte == mark)?;
    let (before, after) = text.split_at_checked(at)?;
    Some((before, after.get(1..)?))
}

/// A text.
pub(super) fn text(value: &Value) -> Result<&str, StoreError> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).map_err(|_| corrupt("a text is not UTF-8")),
        Value::SimpleString(text) => Ok(text),
        Value::Okay => Ok("OK"),
        other => Err(corrupt(&format!("a text was expected, not {other:?}"))),
    }
}

/// A text that may be missing.
pub(super) fn optional_text(value: &Value) -> Result<Option<&str>, StoreError> {
    match value {
        Value::Nil => Ok(None),
        present => text(present).map(Some),
    }
}

/// A list.
pub(super) fn list(value: &Value) -> Result<&[Value], StoreError> {
    match value {
        Value::Array(values) | Value::Set(values) => Ok(values),
        other => Err(corrupt(&format!("a list was expected, not {other:?}"))),
    }
}

/// An integer, as such or as a text.
pub(super) fn integer(value: &Value) -> Result<i64, StoreError> {
    match value {
        Value::Int(number) => Ok(*number),
        other => number(Some(text(other)?)),
    }
}

/// An amount, always a text: an integer reply has passed through a double.
pub(super) fn amount(value: &Value) -> Result<Credits, StoreError> {
    credits(Some(text(value)?))
}

/// An amount's text.
pub(super) fn credits(part: Option<&str>) -> Result<Credits, StoreError> {
    number(part).map(Credits::from_pico)
}

/// An integer's text.
pub(super) fn number(part: Option<&str>) -> Result<i64, StoreError> {
    let part = part.ok_or_else(|| corrupt("an answer is too short"))?;
    part.parse()
        .map_err(|_| corrupt(&format!("{part:?} is not an integer")))
}

/// What is not readable.
pub(super) fn corrupt(what: &str) -> StoreError {
    StoreError::Corrupt(what.to_owned())
}

/// A caller's account that Redis does not have (any more).
pub(super) fn no_account() -> StoreError {
    corrupt("the account is not there")
}

fn count(part: Option<&str>) -> Result<u64, StoreError> {
    u64::try_from(number(part)?).map_err(|_| corrupt("a negative count"))
}

/// `highest day open…`, as lua/numbers.lua writes it: numbers that follow one another stand as a run, or each by itself. None where that is
/// not there, or is something else.
pub(super) fn numbers(answer: &Value) -> Option<Numbers> {
    let (high, rest) = text(answer).ok()?.split_once(' ')?;
    let written = rest.split_once(' ').map_or("", |(_, open)| open);
    let mut open: Vec<(u64, u64)> = Vec::new();
    for run in written.split_ascii_whitespace() {
        let (first, last) = run.split_once('-').unwrap_or((run, run));
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        match open.last_mut() {
            Some((_, before)) if before.checked_add(1) == Some(first) && last >= first => *before = last,
            _ => open.push((first, last)),
        }
    }
    Numbers::restored(high.parse().ok()?, open)
}

/// What is held of what is committed.
pub(super) fn held(committed: Credits, used: Credits) -> Result<Credits, StoreError> {
    committed
        .checked_sub(used)
        .ok_or_else(|| corrupt("the account's holds have left their range"))
}

/// What the scripts answer while keys of an account are at two masters.
const APART: &str = "apart";

#[cfg(test)]
mod tests;
