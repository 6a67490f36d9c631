//! Which version of each of its files a configuration was read from.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::Config;

/// What tells one version of a file from the next. An import may keep the time of the last write; a file that may be read now says so by
/// its mode, and the time of its last change.
pub(crate) type Stamp = Option<(SystemTime, u64, u64, u32, i64, i64)>;

/// The files that a configuration rests on, each with what is seen of it now.
pub(crate) fn stamps(config: &Config) -> Vec<(PathBuf, Stamp)> {
    files(config).map(|path| (path.clone(), stamp(path))).collect()
}

/// The files that a configuration rests on.
pub(crate) fn files(config: &Config) -> impl Iterator<Item = &PathBuf> {
    let operator_tls = config.operator.iter().flat_map(|operator| &operator.tls);
    let of_tls = config.tls.iter().chain(operator_tls);
    let of_tls = of_tls.flat_map(|tls| [&tls.cert, &tls.key]);
    let authorities = config
        .providers
        .values()
        .filter_map(|provider| provider.ca_file.as_ref());
    [&config.path, &config.catalogue]
        .into_iter()
        .chain(of_tls)
        .chain(authorities)
}

fn stamp(path: &Path) -> Stamp {
    let metadata = std::fs::metadata(path).ok()?;
    Some((
        metadata.modified().ok()?,
        metadata.len(),
        metadata.ino(),
        metadata.mode(),
        metadata.ctime(),
        metadata.ctime_nsec(),
    ))
}
