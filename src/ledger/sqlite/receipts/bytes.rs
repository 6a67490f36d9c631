//! How many bytes the receipts of a file have, and the bound on them: noted with each row that is written or deleted, so that nobody has to
//! add up the file.

use rusqlite::{OptionalExtension, Transaction, params};

use super::super::corrupt;
use crate::ledger::StoreError;

/// What is noted: the bytes of all lists, and the first and the last row that are counted in it. Versions that know no bound write and
/// delete rows and leave the note: then it does not fit the table any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Note {
    bytes: i64,
    first: i64,
    last: i64,
}

/// Adds up the file where the note does not fit it. Called at each start.
pub(super) fn count_anew(t: &Transaction<'_>) -> Result<(), StoreError> {
    let (first, last) = ends(t)?;
    if noted(t)?.is_some_and(|note| (note.first, note.last) == (first, last)) {
        return Ok(());
    }
    let bytes = t.query_row(
        "SELECT coalesce(sum(octet_length(list)), 0) FROM receipt_lists",
        [],
        |row| row.get(0),
    )?;
    put(t, Note { bytes, first, last })
}

/// Rows were written, from the first to the last, with so many bytes in all.
pub(super) fn added(t: &Transaction<'_>, (first, last): (i64, i64), bytes: usize) -> Result<(), StoreError> {
    let note = noted(t)?.unwrap_or_default();
    let bytes = note.bytes.saturating_add(i64::try_from(bytes).unwrap_or(i64::MAX));
    let first = if note.first == 0 { first } else { note.first };
    put(t, Note { bytes, first, last })
}

/// The oldest rows were deleted, which had so many bytes.
pub(super) fn dropped(t: &Transaction<'_>, bytes: i64) -> Result<(), StoreError> {
    if bytes == 0 {
        return Ok(());
    }
    let note = noted(t)?.unwrap_or_default();
    let (first, last) = ends(t)?;
    let bytes = note.bytes.saturating_sub(bytes).max(0);
    put(t, Note { bytes, first, last })
}

/// Deletes the oldest rows until no more than this is left, or so many were deleted as one transaction may. The last day that a deleted
/// row was of.
pub(super) fn keep_within(t: &Transaction<'_>, bytes_max: u64) -> Result<Option<i64>, StoreError> {
    let most = i64::try_from(bytes_max).unwrap_or(i64::MAX);
    let note = noted(t)?.unwrap_or_default();
    let (mut left, mut upto, mut last_day) = (note.bytes, None, None);
    if left <= most {
        return Ok(None);
    }
    let sql = format!("SELECT seq, day, octet_length(list) FROM receipt_lists ORDER BY seq LIMIT {ROWS_MAX}");
    let mut statement = t.prepare_cached(&sql)?;
    let mut rows = statement.query([])?;
    while left > most
        && let Some(row) = rows.next()?
    {
        upto = Some(row.get::<_, i64>(0)?);
        last_day = last_day.max(Some(row.get::<_, i64>(1)?));
        left = left.saturating_sub(row.get::<_, i64>(2)?);
    }
    let Some(upto) = upto else { return Ok(None) };
    t.prepare_cached("DELETE FROM receipt_lists WHERE seq <= ?1")?
        .execute([upto])?;
    dropped(t, note.bytes.saturating_sub(left))?;
    Ok(last_day)
}

/// The first and the last row; 0 without any.
fn ends(t: &Transaction<'_>) -> Result<(i64, i64), StoreError> {
    let end = |sql: &str| t.prepare_cached(sql)?.query_row([], |row| row.get::<_, i64>(0));
    Ok((
        end("SELECT coalesce((SELECT seq FROM receipt_lists ORDER BY seq LIMIT 1), 0)")?,
        end("SELECT coalesce((SELECT seq FROM receipt_lists ORDER BY seq DESC LIMIT 1), 0)")?,
    ))
}

fn noted(t: &Transaction<'_>) -> Result<Option<Note>, StoreError> {
    let text: Option<String> = t
        .prepare_cached("SELECT value FROM settings WHERE name = ?1")?
        .query_row([NOTE], |row| row.get(0))
        .optional()?;
    let Some(text) = text else { return Ok(None) };
    let mut parts = text.split(' ').map(str::parse::<i64>);
    let mut number = || {
        parts
            .next()
            .and_then(Result::ok)
            .ok_or_else(|| corrupt("the bytes of receipts"))
    };
    let (bytes, first, last) = (number()?, number()?, number()?);
    Ok(Some(Note { bytes, first, last }))
}

fn put(t: &Transaction<'_>, note: Note) -> Result<(), StoreError> {
    let text = format!("{} {} {}", note.bytes, note.first, note.last);
    t.prepare_cached("INSERT INTO settings (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2")?
        .execute(params![NOTE, text])?;
    Ok(())
}

/// The setting with the note.
const NOTE: &str = "receipt lists bytes";
/// How many rows one transaction deletes for the bound's sake: some milliseconds. What is left over it goes with the next.
const ROWS_MAX: u32 = 1_000;

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use crate::clock::Clock;
    use crate::ledger::Ledger;
    use crate::ledger::embedded::Embedded;
    use crate::ledger::tests::rig::{NOW, block_on, caller_of, debit, request};

    /// What a version wrote that leaves the note as it is, is counted at the next start.
    #[test]
    fn rows_that_another_version_wrote_are_counted_at_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        let open = || Ledger::Embedded(Embedded::open_keeping(&path, 30, Clock::manual(NOW)).unwrap());
        let ledger = open();
        let caller = caller_of(&ledger, "acme", "1", Default::default());
        let hold = block_on(caller.reserve(&request(1, "0.1"))).unwrap().unwrap();
        hold.settle(debit("0.1"));
        drop((caller, ledger));
        drop(open());
        let file = Connection::open(&path).unwrap();
        let sql = "INSERT INTO receipt_lists (account, day, at, oldest, list) SELECT account, day, at, oldest, list FROM receipt_lists";
        assert_eq!(file.execute(sql, []).unwrap(), 1);
        drop(open());
        let text = |sql: &str| file.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap();
        let noted = text("SELECT value FROM settings WHERE name = 'receipt lists bytes'");
        let counted = "SELECT sum(octet_length(list)) || ' ' || min(seq) || ' ' || max(seq) FROM receipt_lists";
        assert_eq!(noted, text(counted));
    }
}
