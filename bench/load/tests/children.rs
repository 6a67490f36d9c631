//! What the children of a process used.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
};

use crate::{
    children::{self, Spent, settled},
    process,
};

/// A child that works, says so, and ends when it is told to; then its parent says that it has waited for it.
const WORK: &str =
    "sh -c 'i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; echo worked; read line'; echo waited; read line";

#[test]
fn what_a_child_used_counts_while_it_lives_and_once_when_it_has_ended() {
    let mut parent = Command::new("sh")
        .args(["-c", WORK])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (pid, mut tell) = (parent.id(), parent.stdin.take().unwrap());
    let mut said = BufReader::new(parent.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "worked");
    assert_eq!(children::of(pid).len(), 1);
    let living = Spent::by_children_of(&[pid]);
    let known = [pid, children::of(pid)[0]];
    let besides = Spent::by_children_of(&known);

    tell.write_all(b"\n").unwrap();
    assert_eq!(said.next().unwrap().unwrap(), "waited");
    assert!(children::of(pid).is_empty());
    let ended = Spent::by_children_of(&[pid]);
    parent.kill().unwrap();
    parent.wait().unwrap();

    let tick = process::tick_ns();
    assert!(living.ns > 2 * tick, "{living:?}");
    assert_eq!(
        besides.ns, 0,
        "one that is among them already is none of their children"
    );
    // Of those that have ended the kernel tells whole ticks, of both modes.
    let most = living.ns + living.ns / 2 + 3 * tick;
    assert!((living.ns - 2 * tick..most).contains(&ended.ns), "{living:?} {ended:?}");
}

#[test]
fn a_child_that_ends_between_two_looks_counts_once() {
    let spent = |ns| Spent { ns, ..Spent::default() };
    assert_eq!(settled(|| 7, || spent(40)), spent(47));
    // It had used 40 when it was looked at, and its parent is charged with 50 right behind that.
    let (mut ended, mut living) = ([7, 57, 57].into_iter(), [spent(40), spent(0)].into_iter());
    let both = settled(|| ended.next().unwrap(), || living.next().unwrap());
    assert_eq!(both, spent(57));
    // Where they end all the time it is not looked for ever.
    let mut ended = 0_u64..;
    assert_eq!(settled(|| ended.next().unwrap(), || spent(40)), spent(5));
}
