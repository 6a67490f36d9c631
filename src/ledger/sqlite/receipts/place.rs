//! Where a page of receipts ended, as a text that says nothing to whoever has it: in the clear it would count the rows of all accounts, and
//! tell a key when others of its account called.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use rusqlite::{Connection, OptionalExtension};

use super::super::corrupt;
use crate::ledger::StoreError;
use crate::pure::ids::{AccountId, hex, unhex};

/// A row's place in the index, and how many of its lines are still to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Its last debit, the earliest start of its calls, its number.
    pub(super) row: [i64; 3],
    pub(super) lines: usize,
}

/// What seals places of a file, and opens them: also after a restart, and in another process.
pub(super) struct Seal(LessSafeKey);

impl Seal {
    /// # Errors
    /// When the file has no key, or it cannot be read.
    pub(super) fn of(connection: &Connection) -> Result<Seal, StoreError> {
        let key = kept(connection)?.and_then(|text| unhex::<KEY_BYTES>(&text));
        let key = key.ok_or_else(|| corrupt("the key of pages cannot be read"))?;
        let key = UnboundKey::new(&AES_256_GCM, &key).map_err(|_| corrupt("the key of pages is none"))?;
        Ok(Seal(LessSafeKey::new(key)))
    }

    /// # Errors
    /// When the system gives no random bytes.
    pub(super) fn seal(&self, account: &AccountId, place: Place) -> Result<String, StoreError> {
        let mut nonce = [0; NONCE_LEN];
        random(&mut nonce)?;
        let lines = i64::try_from(place.lines).map_err(corrupt)?;
        let mut sealed: Vec<u8> = place
            .row
            .into_iter()
            .chain([lines])
            .flat_map(i64::to_be_bytes)
            .collect();
        let about = Aad::from(account.as_str());
        let done = self
            .0
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), about, &mut sealed);
        done.map_err(|_| corrupt("a place cannot be sealed"))?;
        Ok(hex(&[&nonce, &sealed[..]].concat()))
    }

    /// None for what was sealed for another account or by another file, and for any other text.
    pub(super) fn open(&self, account: &AccountId, text: &str) -> Option<Place> {
        let bytes = unhex::<SEALED_BYTES>(text)?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_LEN>()?;
        let mut sealed = sealed.to_vec();
        let about = Aad::from(account.as_str());
        let opened = self
            .0
            .open_in_place(Nonce::assume_unique_for_key(*nonce), about, &mut sealed);
        let (numbers, rest) = opened.ok()?.as_chunks::<8>();
        let [at, oldest, seq, lines] = numbers else { return None };
        Some(Place {
            row: [at, oldest, seq].map(|number| i64::from_be_bytes(*number)),
            lines: usize::try_from(i64::from_be_bytes(*lines))
                .ok()
                .filter(|_| rest.is_empty())?,
        })
    }
}

/// Makes the file's key, where it has none.
pub(super) fn complete_schema(connection: &Connection) -> Result<(), StoreError> {
    // One that cannot be read protects nothing that is left.
    if kept(connection)?.is_some_and(|text| unhex::<KEY_BYTES>(&text).is_some()) {
        return Ok(());
    }
    let mut key = [0; KEY_BYTES];
    random(&mut key)?;
    let sql = "INSERT INTO settings (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2";
    connection.execute(sql, [KEY, &hex(&key)])?;
    Ok(())
}

fn kept(connection: &Connection) -> Result<Option<String>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT value FROM settings WHERE name = ?1")?;
    Ok(statement.query_row([KEY], |row| row.get(0)).optional()?)
}

fn random(bytes: &mut [u8]) -> Result<(), StoreError> {
    getrandom::fill(bytes).map_err(|error| StoreError::Unavailable(format!("no random bytes: {error}")))
}

/// The setting with what places are sealed by.
const KEY: &str = "receipt pages key";
const KEY_BYTES: usize = 32;
/// A nonce, four numbers, and what shows that nobody changed them.
const SEALED_BYTES: usize = NONCE_LEN + 4 * 8 + 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::query::is_place;

    fn seal() -> Seal {
        let connection = Connection::open_in_memory().unwrap();
        let settings = "CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL)";
        connection.execute_batch(settings).unwrap();
        complete_schema(&connection).unwrap();
        let key = kept(&connection).unwrap();
        complete_schema(&connection).unwrap();
        assert_eq!(kept(&connection).unwrap(), key, "it is kept");
        Seal::of(&connection).unwrap()
    }

    #[test]
    fn a_place_is_opened_by_its_file_and_for_its_account_alone() {
        let (seal, other) = (seal(), seal());
        let [acme, globex] = ["acme", "globex"].map(|name| name.parse::<AccountId>().unwrap());
        let place = Place {
            row: [i64::MAX, 1_795_132_800_000, 7],
            lines: 3,
        };
        let text = seal.seal(&acme, place).unwrap();
        assert!(is_place(&text), "{text}");
        assert_eq!(seal.open(&acme, &text), Some(place));
        assert_eq!(seal.open(&globex, &text), None);
        assert_eq!(other.open(&acme, &text), None);
        assert_ne!(seal.seal(&acme, place).unwrap(), text, "nor is it known again");
        for at in [0, 30, text.len() - 1] {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
            assert_eq!(seal.open(&acme, std::str::from_utf8(&changed).unwrap()), None, "{at}");
        }
        for none in ["", "1.2.3.4", "1795132800000-0"] {
            assert_eq!(seal.open(&acme, none), None);
        }
    }
}
