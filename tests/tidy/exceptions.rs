//! What the repository may break, each with the reason.

use crate::rules::circles::Circle;

/// Files whose imports may point up, and why.
pub(crate) const UPWARD: &[(&str, &str)] = &[];

/// Circles of imports, and why. Each may become smaller, and none larger.
pub(crate) const CIRCLES: &[Circle] = &[];

/// Words that are the field's own where they stand: file, word, reason.
pub(crate) const WORDS: &[(&str, &str, &str)] = &[];
