//! Reads the map of a cluster's slots, again and again: a fail-over or a moved slot gives accounts to another master.
//!
//! Every server is asked, and what most of them say is believed: one that was away may take itself for a master that it is no more.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use redis::RedisResult;

use super::link::Line;
use super::options::unavailable;
use super::shared::Shared;
use super::slots::Layout;
use super::url::Address;
use crate::ledger::StoreError;

/// The map as the servers of a cluster's address say it.
///
/// # Errors
/// When none of them does in time: what one of them says in its place.
pub(super) async fn read(address: &Address, within: Duration) -> Result<Layout, StoreError> {
    let mut lines = BTreeMap::new();
    let (mut said, mut failed) = (Vec::new(), None);
    for layout in layouts(address, &mut lines, address.nodes().to_vec(), within).await {
        match layout {
            Ok(layout) => said.push(layout),
            Err(error) => failed = Some(error),
        }
    }
    most_said(said).ok_or_else(|| failed.unwrap_or_else(|| unavailable(&format!("no answer from {address:?}"))))
}

/// Follows the map of a cluster's slots, for ever.
pub(super) async fn follow(shared: Arc<Shared>) {
    let address = shared.shards.address();
    let mut lines = BTreeMap::new();
    loop {
        drop(tokio::time::timeout(READ_EVERY, shared.shards.doubted()).await);
        let layouts = layouts(address, &mut lines, shared.shards.nodes(), shared.options.timeout).await;
        if let Some(layout) = most_said(layouts.into_iter().flatten().collect()) {
            shared.shards.laid_out(&layout);
        }
        tokio::time::sleep(READ_AGAIN).await;
    }
}

/// What each of `nodes` says, and why others say nothing.
async fn layouts(
    address: &Address,
    lines: &mut BTreeMap<String, Line>,
    nodes: Vec<String>,
    within: Duration,
) -> Vec<Result<Layout, StoreError>> {
    lines.retain(|node, _| nodes.contains(node));
    for node in nodes {
        lines.entry(node).or_default();
    }
    let asked = lines.iter().map(async |(node, line)| {
        let address = address.node_of(node);
        let said = match tokio::time::timeout(within, layout(line, &address, node)).await {
            Ok(said) => said,
            Err(_) => Err(unavailable(&format!("no answer from {node}"))),
        };
        if let Err(error) = &said {
            log::debug!("{node}: {error}");
            line.give_up_any();
        }
        said
    });
    join_all(asked).await
}

async fn layout(line: &Line, address: &Address, node: &str) -> Result<Layout, StoreError> {
    let mut command = redis::cmd("CLUSTER");
    command.arg("SLOTS");
    let answer: RedisResult<_> = async {
        let (mut connection, _) = line.connection(address).await?;
        connection.send(&command).await
    }
    .await;
    Layout::read(&answer.map_err(|error| unavailable(&format!("{node}: {error}")))?, node)
}

/// What most say of whose the slots are; none when nobody says anything.
fn most_said(layouts: Vec<Layout>) -> Option<Layout> {
    let count = |layout: &Layout| layouts.iter().filter(|other| other.ranges == layout.ranges).count();
    let most = layouts
        .iter()
        .filter(|layout| !layout.ranges.is_empty())
        .max_by_key(|layout| count(layout));
    most.cloned()
}

/// How often the map is read when nothing speaks against it, and how soon after another reading when something does.
const READ_EVERY: Duration = Duration::from_secs(1);
const READ_AGAIN: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_most_say_is_believed() {
        let says = |owner: &str| Layout {
            ranges: [(0, 16_383, owner.to_owned())].into(),
            nodes: [owner.to_owned()].into(),
        };
        let said = most_said(vec![says("old:1"), says("new:1"), Layout::default(), says("new:1")]);
        assert_eq!(said, Some(says("new:1")));
        assert_eq!(most_said(vec![Layout::default()]), None);
    }
}
