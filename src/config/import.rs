//! An import from file to file: the list and its rules are read, and the catalogue is replaced in one step, or left as it is.

use std::fs::{File, Metadata, Permissions};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::doubts::price_max;
use super::{Config, ConfigError, without_mark};
use crate::pure::catalogue::changes::Changes;
use crate::pure::catalogue::{Catalogue, doubts};
use crate::pure::import::{Imported, Rules, Skipped};

/// What becomes of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// It is only shown.
    No,
    /// It takes the catalogue's place.
    Yes,
    /// The same, unless it looks like a mistake of the provider's: nobody is there to look at it first.
    UnlessDoubtful,
}

/// What an import did, or would do.
#[derive(Debug)]
pub struct Import {
    /// What changes for callers: prices are list prices.
    pub changes: Changes,
    /// Models of the list that are not sold.
    pub skipped: Vec<Skipped>,
    /// What else an operator should know.
    pub notes: Vec<String>,
    /// Models in the new catalogue.
    pub models: usize,
    /// Those of them that are the operator's own, and that no list keeps up to date.
    pub own: usize,
    /// Whether the file was written.
    pub written: bool,
}

/// Reads the rules of an import.
///
/// # Errors
/// When there are none in the file, or they have a mistake.
pub(crate) fn read_rules(path: &Path) -> Result<Rules, ConfigError> {
    Rules::parse(&super::read(path)?).map_err(|problem| ConfigError::new(path, problem))
}

/// Imports `list`, which was read from `source`, by the rules of a file.
///
/// # Errors
/// When the rules, the list, the catalogue as it is, or what would become of it has a mistake, or when somebody else changes the catalogue
/// meanwhile: it is left as it is.
pub fn import(config: &Config, rules: &Path, source: &Path, list: &str, write: Write) -> Result<Import, ConfigError> {
    let rules_at = rules;
    let rules = read_rules(rules_at)?;
    if !config.providers.contains_key(&rules.provider) {
        let problem = format!(
            "the rules name the provider {}, which is not configured",
            rules.provider
        );
        return Err(ConfigError::new(rules_at, problem));
    }
    let refused = |error: crate::pure::import::ImportError| {
        ConfigError::new(source, error.problem).at(Some(error.line).filter(|line| *line > 0))
    };
    let mut imported = Imported::read(list, &rules).map_err(refused)?;
    let path = &config.catalogue;
    let before = match super::text_of(path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(ConfigError::new(path, error.to_string())),
    };
    let old_text = without_mark(before.as_deref().unwrap_or_default());
    let old = if old_text.trim().is_empty() {
        Catalogue::default()
    } else {
        config.catalogue_of(old_text)?
    };
    let here = |error: crate::pure::import::ImportError| ConfigError::new(path, error.problem);
    if write == Write::UnlessDoubtful {
        imported.distrust_new(&old);
    }
    let new_text = imported.into_catalogue(old_text, &rules).map_err(here)?;
    let new = config.catalogue_of(&new_text).map_err(|error| {
        let problem = format!(
            "after this import it would be wrong, so it is left as it is: {}",
            error.problem
        );
        ConfigError::new(path, problem)
    })?;
    let changes = Changes::between(&old, &new);
    let (models, imported_models) = (new.models().len(), imported.models.len());
    let own = models.saturating_sub(imported_models);
    if write == Write::UnlessDoubtful
        && let Some(doubt) = doubts::between(&old, &new, own, price_max(config))
    {
        let problem = format!("{doubt}: if that is right, import it by hand (tollgate catalogue import)");
        return Err(ConfigError::new(source, problem));
    }
    let written = write != Write::No && new_text != old_text;
    // Entries that nobody has looked at are as old as they were.
    let keeps_time = write == Write::UnlessDoubtful && own > 0;
    let time = std::fs::metadata(path).and_then(|file| file.modified());
    if written {
        replace(path, before.as_deref(), &new_text, time.ok().filter(|_| keeps_time))
            .map_err(|error| ConfigError::new(path, error.to_string()))?;
    }
    Ok(Import {
        changes,
        skipped: imported.skipped,
        notes: imported.notes,
        models,
        own,
        written,
    })
}

/// Writes a file beside the old one and puts it in its place, so that no reader sees half of it: where a symbolic link leads, and with owner,
/// group and mode of the old one. It is as old as `time` says, else new.
///
/// # Errors
/// When it cannot be written so, or when the old one does not say `before` any more, for somebody else has changed it.
fn replace(path: &Path, before: Option<&str>, text: &str, time: Option<SystemTime>) -> std::io::Result<()> {
    use std::io::Write as _;
    let place = place_of(path)?;
    // Another gateway or command may do the same at this moment, in another container under the same number of a process.
    let name = crate::clock::unique().simple().to_string();
    let fresh = place.with_extension(format!("{name}.new"));
    let mut file = File::create_new(&fresh)?;
    // Says that this process lives. Where files cannot be locked, none is taken for left.
    let _ = file.try_lock();
    if let Ok(about) = file.metadata() {
        remove_left(&place, (name.as_str(), about.uid()));
    }
    let mut write = || {
        file.write_all(text.as_bytes())?;
        if let Ok(old) = std::fs::metadata(&place) {
            give(&file, &old)?;
        }
        if let Some(time) = time {
            file.set_modified(time)?;
        }
        file.sync_all()?;
        let is_as_before = match super::text_of(&place) {
            Ok(now) => before == Some(now.as_str()),
            Err(error) => before.is_none() && error.kind() == ErrorKind::NotFound,
        };
        match is_as_before {
            true => std::fs::rename(&fresh, &place),
            false => Err(Error::other(CHANGED)),
        }
    };
    let written = write();
    if written.is_err() {
        // What is left of it is of no use; why it failed is told already.
        let _ = std::fs::remove_file(&fresh);
    }
    written
}

/// Removes what processes that died in the middle of an import left beside the catalogue at `place`: regular files of the owner of the one that
/// is made now, of its form of name, that were made a while before it and that nobody has locked. What cannot be looked at or removed stays.
fn remove_left(place: &Path, (name, owner): (&str, u32)) {
    let Some(now) = made_at(name) else { return };
    let is_left = |path: &Path| {
        let name = name_of_new(path, place);
        let is_old = name
            .and_then(made_at)
            .is_some_and(|made| now.saturating_sub(made) > LEFT_AFTER_MS);
        // Of the link itself, not of what it leads to.
        let is_own = || {
            path.symlink_metadata()
                .is_ok_and(|about| about.is_file() && about.uid() == owner)
        };
        is_old && is_own() && File::open(path).is_ok_and(|file| file.try_lock().is_ok())
    };
    let folder = place.parent().filter(|folder| !folder.as_os_str().is_empty());
    let Ok(entries) = std::fs::read_dir(folder.unwrap_or(Path::new("."))) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()).filter(|path| is_left(path)) {
        // Where that fails, it stays for the next import.
        let _ = std::fs::remove_file(&path);
    }
}

/// What makes the name of a new file of this catalogue unlike any other; none for a file of another form of name.
fn name_of_new<'p>(path: &'p Path, place: &Path) -> Option<&'p str> {
    let (name, stem) = (path.file_name()?.to_str()?, place.file_stem()?.to_str()?);
    name.strip_prefix(stem)?.strip_prefix('.')?.strip_suffix(".new")
}

/// When such a name was given ([`crate::clock::unique`]), in milliseconds since 1970. None for another text.
fn made_at(name: &str) -> Option<u64> {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let is_unique = name.len() == 32 && name.bytes().all(is_hex) && name.as_bytes().get(12) == Some(&b'7');
    let millis = name.get(..12).filter(|_| is_unique)?;
    u64::from_str_radix(millis, 16).ok()
}

/// Where a file is, or is to be: a symbolic link stays, and what it leads to is replaced.
fn place_of(path: &Path) -> std::io::Result<PathBuf> {
    match path.canonicalize() {
        Err(error) if error.kind() == ErrorKind::NotFound && path.symlink_metadata().is_err() => Ok(path.to_owned()),
        place => place,
    }
}

/// Gives a new file the owner, the group and the mode of an old one, as far as this user may: with another group, that may no more than all
/// others.
///
/// # Errors
/// Where whoever has changed or read the catalogue so far could not any more. Root always can.
fn give(file: &File, old: &Metadata) -> std::io::Result<()> {
    let new = file.metadata()?;
    let differs = |old: u32, new: u32| Some(old).filter(|old| *old != new);
    let (owner, group) = (differs(old.uid(), new.uid()), differs(old.gid(), new.gid()));
    let has_all = owner.is_none() && group.is_none();
    if has_all || fchown(file, owner, group).is_ok() {
        return file.set_permissions(old.permissions());
    }
    let keeps_group = group.is_none() || fchown(file, None, group).is_ok();
    match mode_of_own(old.mode(), (owner.is_none() || old.uid() == 0, keeps_group)) {
        Some(mode) => file.set_permissions(Permissions::from_mode(mode)),
        None => {
            let (user, uid, gid) = (new.uid(), old.uid(), old.gid());
            Err(Error::new(
                ErrorKind::PermissionDenied,
                format!(
                    "the user {user} cannot keep its owner and group, {uid}:{gid}, and somebody could not change or read it any more: give \
                     it to that user and a group of theirs (chown), or add the user to that group"
                ),
            ))
        }
    }
}

/// The mode of a file in place of one of `mode` whose owner, or group, it does not have. None where somebody loses what they could do:
/// the owner, unless that is root or the same, or the group.
fn mode_of_own(mode: u32, (keeps_owner, keeps_group): (bool, bool)) -> Option<u32> {
    const GROUP: u32 = 0o070;
    const GROUP_CHANGES: u32 = 0o060;
    const GROUP_WRITES: u32 = 0o020;
    const OTHERS_READ: u32 = 0o004;
    if keeps_group {
        return (keeps_owner || mode & GROUP_CHANGES == GROUP_CHANGES).then_some(mode);
    }
    let may_go = keeps_owner && mode & GROUP_WRITES == 0 && mode & OTHERS_READ != 0;
    may_go.then_some(mode & !GROUP | (mode & 0o007) << 3)
}

/// So much older than the file that is made now, in milliseconds, is one that was left: a process has not locked its own at once, and earlier
/// versions lock none.
const LEFT_AFTER_MS: u64 = 60_000;
const CHANGED: &str = "it was changed meanwhile: run it again";

#[cfg(test)]
mod tests;
