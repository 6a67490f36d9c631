//! The folders of ledger and journal: nobody but the gateway's user has business there.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Makes a folder, and those above it, where they are missing: for their owner alone. One that is there keeps its mode.
///
/// # Errors
/// When it cannot be made.
pub(crate) fn make(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_new_folder_is_its_owners_and_one_that_is_there_keeps_its_mode() {
        let place = tempfile::tempdir().unwrap();
        let (shared, new) = (place.path().join("shared"), place.path().join("shared/data"));
        std::fs::create_dir(&shared).unwrap();
        std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o750)).unwrap();
        make(&new).unwrap();
        make(&new).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&shared), mode(&new)), (0o750, 0o700));
    }
}
