//! Which requests waited for a connection.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use tokio::task::{JoinSet, yield_now};

use crate::due::{Due, Queue};

fn on_one_thread(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(test);
}

fn due(at_ns: u64, was_queued: bool) -> Option<Due> {
    Some(Due { at_ns, was_queued })
}

/// For a connection that does not wait.
async fn next(queue: &Queue) -> Option<Due> {
    queue.next(|| false).await
}

#[test]
fn what_was_due_while_a_connection_was_free_was_not_queued_whoever_takes_it() {
    on_one_thread(async {
        let queue = Arc::new(Queue::default());
        queue.push(1);
        assert_eq!(next(&queue).await, due(1, true), "nobody was there yet");

        let (mut waiting, mine) = (JoinSet::new(), Arc::clone(&queue));
        waiting.spawn(async move { mine.next(|| false).await });
        yield_now().await;
        // The one that waits is told of it, and has not woken up when another one, which has just got its answer, takes it.
        queue.push(2);
        assert_eq!(next(&queue).await, due(2, false));
        yield_now().await;
        // It still waits: for the first of these.
        queue.push(3);
        queue.push(4);
        assert_eq!(next(&queue).await, due(3, false));
        assert_eq!(next(&queue).await, due(4, true));
        yield_now().await;
        queue.push(5);
        assert_eq!(waiting.join_next().await.unwrap().unwrap(), due(5, false));
        queue.push(6);
        assert_eq!(next(&queue).await, due(6, true), "it waits no longer");
    });
}

#[test]
fn all_that_wait_are_told_that_no_more_will_come() {
    on_one_thread(async {
        let (queue, is_over) = (Arc::new(Queue::default()), Arc::new(AtomicBool::new(false)));
        let mut waiting = JoinSet::new();
        for _ in 0..3 {
            let (queue, is_over) = (Arc::clone(&queue), Arc::clone(&is_over));
            waiting.spawn(async move { queue.next(|| is_over.load(Relaxed)).await });
        }
        yield_now().await;
        is_over.store(true, Relaxed);
        queue.end();
        assert_eq!(waiting.join_all().await, [None::<Due>; 3]);
        queue.push(7);
        assert!(queue.next(|| true).await.is_some(), "what is due is still taken");
    });
}
