//! To come with its issue.
