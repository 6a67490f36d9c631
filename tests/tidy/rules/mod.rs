//! The rules, each from a tree to what breaks it.

pub(crate) mod circles;
pub(crate) mod direction;
pub(crate) mod functions;
pub(crate) mod text;
