//! What the tests of billing share.

pub(super) mod rig;
