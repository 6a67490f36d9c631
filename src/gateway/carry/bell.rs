//! A bell that wakes a call's task and remembers that it rang. Who waits for many things hangs one to each, and asks only the bell for as
//! long as it is silent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

/// The bell of one call.
#[derive(Default)]
pub(super) struct Bell(Option<Arc<Rope>>);

struct Rope {
    has_rung: AtomicBool,
    /// The task that it wakes. Another task has a rope of its own, so that none is ever without its waker.
    task: Waker,
}

impl Wake for Rope {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.has_rung.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}

impl Bell {
    /// Whether nothing that was given its waker has rung since the last [`Bell::hang`], and that was for this task.
    pub(super) fn is_silent(&self, context: &Context<'_>) -> bool {
        let is_silent =
            |rope: &Arc<Rope>| rope.task.will_wake(context.waker()) && !rope.has_rung.load(Ordering::Acquire);
        self.0.as_ref().is_some_and(is_silent)
    }

    /// Silent from now on, and it wakes this task: the waker that rings it. To be called before what is waited for is looked at, so that
    /// it rings for whatever comes after that look.
    pub(super) fn hang(&mut self, context: &Context<'_>) -> Waker {
        let kept = self.0.take().filter(|rope| rope.task.will_wake(context.waker()));
        let rope = kept.unwrap_or_else(|| {
            Arc::new(Rope {
                has_rung: AtomicBool::new(false),
                task: context.waker().clone(),
            })
        });
        rope.has_rung.store(false, Ordering::Release);
        let rings = Waker::from(Arc::clone(&rope));
        self.0 = Some(rope);
        rings
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.wake_by_ref();
        }

        fn wake_by_ref(self: &Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn it_wakes_the_task_it_was_hung_for_and_is_silent_until_it_rings() {
        let (first, second) = (Arc::new(Woken::default()), Arc::new(Woken::default()));
        let wakers = [Waker::from(Arc::clone(&first)), Waker::from(Arc::clone(&second))];
        let [one, two] = wakers.each_ref().map(Context::from_waker);
        let mut bell = Bell::default();
        assert!(!bell.is_silent(&one), "nothing was given it yet");
        let rings = bell.hang(&one);
        assert!(
            bell.is_silent(&one) && !bell.is_silent(&two),
            "another task has to hang it anew"
        );
        rings.wake_by_ref();
        assert!(!bell.is_silent(&one));
        bell.hang(&one);
        assert!(bell.is_silent(&one));
        rings.wake_by_ref();
        assert!(
            !bell.is_silent(&one),
            "who has the waker since the first time rings it still"
        );
        let rings = bell.hang(&two);
        rings.wake();
        assert!(!bell.is_silent(&two));
        assert_eq!(
            (first.0.load(Ordering::SeqCst), second.0.load(Ordering::SeqCst)),
            (2, 1)
        );
    }

    #[test]
    fn however_rings_and_looks_meet_the_last_ring_is_heard() {
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let context = Context::from_waker(&waker);
        let mut bell = Bell::default();
        let rings = bell.hang(&context);
        for _ in 0..1000 {
            let before = woken.0.load(Ordering::SeqCst);
            std::thread::scope(|threads| {
                threads.spawn(|| rings.wake_by_ref());
                bell.hang(&context);
            });
            assert!(
                woken.0.load(Ordering::SeqCst) > before,
                "the ring has woken the task, before the look or after it"
            );
            bell.hang(&context);
            rings.wake_by_ref();
            assert!(!bell.is_silent(&context));
            assert_eq!(woken.0.load(Ordering::SeqCst), before + 2);
        }
    }
}
