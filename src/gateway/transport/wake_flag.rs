//! A flag that wakes a request's task and remembers that it did. Who waits for many things gives each its waker, and looks only at the
//! flag for as long as that is clear.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

/// The flag of one call.
#[derive(Default)]
pub(super) struct WakeFlag(Option<Arc<Flag>>);

struct Flag {
    is_set: AtomicBool,
    /// The task that it wakes. Another task has a flag of its own, so that none is ever without its waker.
    task: Waker,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_set.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}

impl WakeFlag {
    /// Whether nothing that was given its waker has woken the task since the last [`WakeFlag::arm`], and that was for this task.
    pub(super) fn is_clear(&self, context: &Context<'_>) -> bool {
        let is_clear = |flag: &Arc<Flag>| flag.task.will_wake(context.waker()) && !flag.is_set.load(Ordering::Acquire);
        self.0.as_ref().is_some_and(is_clear)
    }

    /// Clear from now on, and it wakes this task: the waker that sets it. To be called before what is waited for is looked at, so that
    /// it is set by whatever comes after that look.
    pub(super) fn arm(&mut self, context: &Context<'_>) -> Waker {
        let kept = self.0.take().filter(|flag| flag.task.will_wake(context.waker()));
        let flag = kept.unwrap_or_else(|| {
            Arc::new(Flag {
                is_set: AtomicBool::new(false),
                task: context.waker().clone(),
            })
        });
        flag.is_set.store(false, Ordering::Release);
        let waker = Waker::from(Arc::clone(&flag));
        self.0 = Some(flag);
        waker
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
    fn it_wakes_the_task_it_was_hung_for_and_is_clear_until_it_rings() {
        let (first, second) = (Arc::new(Woken::default()), Arc::new(Woken::default()));
        let wakers = [Waker::from(Arc::clone(&first)), Waker::from(Arc::clone(&second))];
        let [one, two] = wakers.each_ref().map(Context::from_waker);
        let mut flag = WakeFlag::default();
        assert!(!flag.is_clear(&one), "nothing was given it yet");
        let waker = flag.arm(&one);
        assert!(
            flag.is_clear(&one) && !flag.is_clear(&two),
            "another task has to arm it anew"
        );
        waker.wake_by_ref();
        assert!(!flag.is_clear(&one));
        flag.arm(&one);
        assert!(flag.is_clear(&one));
        waker.wake_by_ref();
        assert!(
            !flag.is_clear(&one),
            "who has the waker since the first time sets it still"
        );
        let waker = flag.arm(&two);
        waker.wake();
        assert!(!flag.is_clear(&two));
        assert_eq!(
            (first.0.load(Ordering::SeqCst), second.0.load(Ordering::SeqCst)),
            (2, 1)
        );
    }

    #[test]
    fn however_wakes_and_looks_meet_the_last_wake_is_seen() {
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let context = Context::from_waker(&waker);
        let mut flag = WakeFlag::default();
        let waker = flag.arm(&context);
        for _ in 0..1000 {
            let before = woken.0.load(Ordering::SeqCst);
            std::thread::scope(|threads| {
                threads.spawn(|| waker.wake_by_ref());
                flag.arm(&context);
            });
            assert!(
                woken.0.load(Ordering::SeqCst) > before,
                "the task was woken, before the look or after it"
            );
            flag.arm(&context);
            waker.wake_by_ref();
            assert!(!flag.is_clear(&context));
            assert_eq!(woken.0.load(Ordering::SeqCst), before + 2);
        }
    }
}
