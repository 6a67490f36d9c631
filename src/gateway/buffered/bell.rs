//! A bell that wakes a call's task and remembers that it rang. Who waits for many things hangs one to each, and asks only the bell for as
//! long as it is silent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use futures::task::AtomicWaker;

/// The bell of one call.
pub(super) struct Bell {
    rope: Arc<Rope>,
    /// The task that it wakes.
    wakes: Option<Waker>,
}

#[derive(Default)]
struct Rope {
    has_rung: AtomicBool,
    task: AtomicWaker,
}

impl Wake for Rope {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.has_rung.store(true, Ordering::Release);
        self.task.wake();
    }
}

impl Bell {
    pub(super) fn new() -> Bell {
        Bell {
            rope: Arc::default(),
            wakes: None,
        }
    }

    /// Whether nothing that was given its waker has rung since the last [`Bell::hang`], and that was for this task.
    pub(super) fn is_silent(&self, context: &Context<'_>) -> bool {
        let is_its = |wakes: &Waker| wakes.will_wake(context.waker());
        !self.rope.has_rung.load(Ordering::Acquire) && self.wakes.as_ref().is_some_and(is_its)
    }

    /// Silent from now on, and it wakes this task: the waker that rings it, to be given to what is waited for.
    pub(super) fn hang(&mut self, context: &Context<'_>) -> Waker {
        self.rope.task.register(context.waker());
        self.wakes = Some(context.waker().clone());
        self.rope.has_rung.store(false, Ordering::Release);
        Waker::from(Arc::clone(&self.rope))
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
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn it_wakes_the_task_it_was_hung_for_last_and_is_silent_until_it_rings() {
        let (first, second) = (Arc::new(Woken::default()), Arc::new(Woken::default()));
        let wakers = [Waker::from(Arc::clone(&first)), Waker::from(Arc::clone(&second))];
        let [one, two] = wakers.each_ref().map(Context::from_waker);
        let mut bell = Bell::new();
        assert!(!bell.is_silent(&one), "nothing was given it yet");
        let rings = bell.hang(&one);
        assert!(
            bell.is_silent(&one) && !bell.is_silent(&two),
            "another task has to hang it anew"
        );
        bell.hang(&two);
        rings.wake_by_ref();
        assert!(!bell.is_silent(&two));
        assert_eq!(
            (first.0.load(Ordering::SeqCst), second.0.load(Ordering::SeqCst)),
            (0, 1)
        );
        bell.hang(&two);
        assert!(bell.is_silent(&two));
        rings.wake();
        assert!(!bell.is_silent(&two));
    }
}
