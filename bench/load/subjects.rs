//! Starts what is measured.

use crate::{
    Result,
    cli::Variant,
    fleet::{Fleet, Subject},
    gateway, peers,
};

/// Starts a variant. Errors say what is missing.
pub(crate) fn launch(fleet: &Fleet, variant: Variant) -> Result<Subject> {
    match variant {
        Variant::Direct => Ok(fleet.pass_through(&variant.name(), fleet.upstream, Vec::new())),
        Variant::Baseline | Variant::BaselineJemalloc => fleet.baseline(variant),
        Variant::Embedded | Variant::Redis => gateway::launch(fleet, variant),
        Variant::Nginx => peers::nginx(fleet),
        Variant::Haproxy => peers::haproxy(fleet),
    }
}
