//! The audit of one account: what Redis holds of it at one moment, counted one by one.

use std::collections::{BTreeMap, BTreeSet};

use redis::Value;

use super::reply::{self, corrupt};
use crate::ledger::admin::AuditFinding;
use crate::ledger::{StoreError, clamped};
use crate::pure::ids::AccountId;
use crate::pure::time::{Day, Month};

/// An account's books, as sums of their entries.
#[derive(Default)]
struct Books {
    available: i128,
    committed: i128,
    used: i128,
    month: Month,
    paid_in: i128,
    debits: i128,
    debits_of_month: i128,
    holds: i128,
    held_by: BTreeSet<Vec<u8>>,
    open: BTreeMap<String, i128>,
    open_counted: BTreeMap<String, i128>,
    /// Keys that have, or had, a limit.
    tracked: BTreeSet<String>,
    /// What open calls hold of keys' limits, by key and period: as it is counted, and one by one.
    held_of: BTreeMap<String, i128>,
    held_of_counted: BTreeMap<String, i128>,
    /// What was spent of them.
    spent_of: BTreeMap<String, i128>,
    /// The holds that count under limits.
    limited: BTreeSet<Vec<u8>>,
}

/// What is used in a month, against its days.
pub(super) const MONTH_RULE: &str = "debits of the month = used in the month";

/// Checks one account's books, and says which keys' spending is counted; nothing when there is no such account.
///
/// # Errors
/// When an entry cannot be read.
pub(super) fn audit(
    id: &AccountId,
    books: &Value,
    findings: &mut Vec<AuditFinding>,
) -> Result<Option<BTreeSet<String>>, StoreError> {
    let [_, fields, order] = reply::list(books)? else {
        return Err(corrupt("the books have other parts than they should"));
    };
    let fields = fields_of(fields)?;
    if fields.is_empty() {
        return Ok(None);
    }
    let order = reply::list(order)?
        .iter()
        .map(bytes)
        .collect::<Result<BTreeSet<_>, _>>()?;
    let books = Books::read(&fields)?;
    let held = books.committed - books.used;
    let mut rule = |rule: &str, expected: i128, found: i128| {
        if expected != found {
            findings.push(AuditFinding {
                account: id.clone(),
                rule: rule.to_owned(),
                expected: clamped(expected),
                found: clamped(found),
            });
        }
    };
    rule(
        "top-ups - debits = balance",
        books.paid_in - books.debits,
        books.available + held,
    );
    rule("sum of holds = held", books.holds, held);
    rule(MONTH_RULE, books.debits_of_month, books.used);
    let unordered = books.held_by.symmetric_difference(&order).count();
    rule("every hold can expire", 0, as_credits(unordered));
    for scope in books
        .open
        .keys()
        .chain(books.open_counted.keys())
        .collect::<BTreeSet<_>>()
    {
        let of = |counts: &BTreeMap<String, i128>| as_credits(counts.get(scope).copied().unwrap_or(0));
        rule("calls at once = open holds", of(&books.open_counted), of(&books.open));
    }
    for counter in books
        .held_of
        .keys()
        .chain(books.held_of_counted.keys())
        .collect::<BTreeSet<_>>()
    {
        let of = |sums: &BTreeMap<String, i128>| sums.get(counter).copied().unwrap_or(0);
        // What is spent and held is counted in one, which is at most the largest amount.
        let most = i128::from(i64::MAX) - of(&books.spent_of);
        rule(
            "holds of a key = held of its limit",
            of(&books.held_of_counted).min(most),
            of(&books.held_of),
        );
    }
    let gone = books.limited.difference(&books.held_by).count();
    rule(GONE_RULE, 0, as_credits(gone));
    Ok(Some(books.tracked))
}

/// What a hold takes of limits, against the holds that there are: one that a gateway of an earlier version has freed is left.
pub(super) const GONE_RULE: &str = "what counts under a limit is an open hold";

/// A count in 10^-12 credit: a finding's figures are credits, and a count is shown as so many.
pub(super) fn as_credits(count: impl TryInto<i128>) -> i128 {
    count.try_into().unwrap_or(i128::MAX).saturating_mul(1_000_000_000_000)
}

/// Checks what a key has spent against its usage, which may be more than the largest amount that can be counted as spent.
///
/// # Errors
/// When an entry cannot be read.
pub(super) fn audit_key(id: &AccountId, books: &Value, findings: &mut Vec<AuditFinding>) -> Result<(), StoreError> {
    let [spent, fields] = reply::list(books)? else {
        return Err(corrupt("a key's books have other parts than they should"));
    };
    let found = amount(reply::text(spent)?)?;
    let mut expected = 0;
    for (name, value) in fields_of(fields)? {
        if name.first() == Some(&b'c') {
            expected += amount(reply::text(value)?)?;
        }
    }
    let (expected, found) = (clamped(expected), clamped(found));
    if expected != found {
        findings.push(AuditFinding {
            account: id.clone(),
            rule: "usage of the key = spent by the key".to_owned(),
            expected,
            found,
        });
    }
    Ok(())
}

impl Books {
    /// What is held of a limit, as it is counted: its name is `<key> <period>`.
    fn counter(&mut self, name: &[u8]) -> &mut i128 {
        self.held_of
            .entry(String::from_utf8_lossy(name).into_owned())
            .or_default()
    }

    fn add_part(&mut self, id: &[u8], text: &str) -> Result<(), StoreError> {
        let mut parts = text.split(' ');
        let held = amount(parts.next().unwrap_or_default())?;
        let key = parts
            .next()
            .ok_or_else(|| corrupt("a hold under a limit is too short"))?;
        for period in parts.take(4) {
            *self.held_of_counted.entry(format!("{key} {period}")).or_default() += held;
        }
        self.limited.insert(id.to_vec());
        Ok(())
    }

    fn read(fields: &[(Vec<u8>, &Value)]) -> Result<Books, StoreError> {
        let mut books = Books::default();
        let mut costs: Vec<(Day, i128)> = Vec::new();
        for (name, value) in fields {
            let text = reply::text(value)?;
            match name.as_slice() {
                b"avail" => books.available = amount(text)?,
                b"committed" => books.committed = amount(text)?,
                b"used" => books.used = amount(text)?,
                b"month" => books.month = Month(reply::number(Some(text))?),
                b"about" | b"tier" | b"quota" | b"created" | b"next" | b"first" | b"last" | b"producers"
                | b"numbered" | b"forgotten" => {}
                [b't', ..] => books.paid_in += amount(first_word(text))?,
                [b'u', b'l', key @ ..] => {
                    books.tracked.insert(String::from_utf8_lossy(key).into_owned());
                }
                [b'u', b'c', counter @ ..] => *books.counter(counter) += amount(text)?,
                [b'u', b's', counter @ ..] => {
                    let spent = amount(text)?;
                    *books.counter(counter) -= spent;
                    let name = String::from_utf8_lossy(counter).into_owned();
                    books.spent_of.insert(name, spent);
                }
                [b'u', b'h', id @ ..] => books.add_part(id, text)?,
                [b'h', id @ ..] => {
                    let mut parts = text.splitn(4, ' ');
                    books.holds += amount(parts.next().unwrap_or_default())?;
                    let scope = parts.nth(2).ok_or_else(|| corrupt("a hold is too short"))?;
                    *books.open_counted.entry(scope.to_owned()).or_default() += 1;
                    books.held_by.insert(id.to_vec());
                }
                [b'w', scope @ ..] => {
                    let open = text.rsplit(' ').next().unwrap_or_default();
                    let scope = String::from_utf8_lossy(scope).into_owned();
                    books.open.insert(scope, amount(open)?);
                }
                [b'c', row @ ..] => {
                    let row = std::str::from_utf8(row).map_err(|_| corrupt("a usage row is not UTF-8"))?;
                    let cost = amount(text)?;
                    books.debits += cost;
                    costs.push((Day(reply::number(Some(first_word(row)))?), cost));
                }
                [b'u' | b'd' | b'p' | b'n', ..] => {}
                other => {
                    let name = String::from_utf8_lossy(other).into_owned();
                    return Err(corrupt(&format!("an account has the unknown field {name:?}")));
                }
            }
        }
        let month = books.month;
        let of_month = costs.iter().filter(|(day, _)| day.month() == month);
        books.debits_of_month = of_month.map(|(_, cost)| cost).sum();
        Ok(books)
    }
}

fn fields_of(fields: &Value) -> Result<Vec<(Vec<u8>, &Value)>, StoreError> {
    match fields {
        Value::Map(pairs) => pairs.iter().map(|(name, value)| Ok((bytes(name)?, value))).collect(),
        list => {
            let pairs = reply::list(list)?.chunks_exact(2).map(|pair| match pair {
                [name, value] => Ok((bytes(name)?, value)),
                _ => Err(corrupt("a field has no value")),
            });
            pairs.collect()
        }
    }
}

fn bytes(value: &Value) -> Result<Vec<u8>, StoreError> {
    match value {
        Value::BulkString(bytes) => Ok(bytes.clone()),
        other => Err(corrupt(&format!("a text was expected, not {other:?}"))),
    }
}

fn first_word(text: &str) -> &str {
    text.split(' ').next().unwrap_or_default()
}

fn amount(text: &str) -> Result<i128, StoreError> {
    reply::number(Some(text)).map(i128::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn a_count_is_shown_as_so_many() {
        let fields = [
            ("avail", "10"),
            ("committed", "7"),
            ("used", "0"),
            ("month", "0"),
            ("tr", "17"),
            ("hone", "3 0 9 "),
            ("htwo", "4 0 9 "),
            ("w", "0 0 0 5"),
            ("uhgone", "1 key_x t"),
        ];
        let fields = fields
            .iter()
            .flat_map(|(name, value)| [text(name), text(value)])
            .collect();
        let order = Value::Array(vec![text("other")]);
        let books = Value::Array(vec![text(""), Value::Array(fields), order]);
        let mut findings = Vec::new();
        audit(&"acme".parse().unwrap(), &books, &mut findings).unwrap();
        let told = |finding: &AuditFinding| {
            let (expected, found) = (finding.expected.to_string(), finding.found.to_string());
            [finding.rule.clone(), expected, found]
        };
        let told: Vec<_> = findings.iter().map(told).collect();
        let expected = [
            ["every hold can expire", "0", "3"],
            ["calls at once = open holds", "2", "5"],
            ["holds of a key = held of its limit", "0.000000000001", "0"],
            [GONE_RULE, "0", "1"],
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn what_a_key_spent_is_the_sum_of_its_usage() {
        let books = |spent: &str, fields: &[&str]| {
            let fields = fields.iter().map(|field| text(field)).collect();
            Value::Array(vec![text(spent), Value::Array(fields)])
        };
        let id: AccountId = "acme".parse().unwrap();
        let found = |books: &Value| {
            let mut findings = Vec::new();
            audit_key(&id, books, &mut findings).map(|()| findings)
        };
        let usage = ["c20260101 a/m", "5", "r20260101 a/m", "9", "c20260102 a/m", "7"];
        assert_eq!(found(&books("12", &usage)), Ok(Vec::new()));
        let finding = AuditFinding {
            account: id.clone(),
            rule: "usage of the key = spent by the key".to_owned(),
            expected: clamped(12),
            found: clamped(13),
        };
        assert_eq!(found(&books("13", &usage)), Ok(vec![finding]));
        let long = [
            "c20260101 a/m",
            "9223372036854775807",
            "c20260201 a/m",
            "9223372036854775807",
        ];
        assert_eq!(found(&books("9223372036854775807", &long)), Ok(Vec::new()));
        assert_eq!(found(&books("9223372036854775806", &long)).unwrap().len(), 1);
        for wrong in [Value::Nil, books("x", &usage), books("12", &["c1", "x"])] {
            assert!(found(&wrong).is_err(), "{wrong:?}");
        }
    }
}
