//! Writes that end: within a time, and when the process stops and no longer waits. And the errors by which waits end.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use pingora::{Error, ErrorSource, ErrorType, Result};
use tokio::time::Sleep;

/// Does `write`, which is to a client. The clock is looked at, and `is_cut` asked, only while it has to wait.
///
/// # Errors
/// Those of `write`; of the client when it takes longer than `at_most`; and of the process when `is_cut` has said so while it waits, for which
/// something else has to wake the task, and it still waits [`CUT_WRITE_MAX`] later: [`has_cut_a_write`]. `write` is dropped then, and may be half
/// done, so nothing more can be written.
pub(in crate::gateway) async fn write_within<T>(
    at_most: Option<Duration>,
    mut is_cut: impl FnMut() -> bool,
    mut write: Pin<&mut impl Future<Output = Result<T>>>,
) -> Result<T> {
    let mut timer: Option<Pin<Box<Sleep>>> = None;
    let mut cut: Option<Pin<Box<Sleep>>> = None;
    poll_fn(|context| {
        if let Poll::Ready(written) = write.as_mut().poll(context) {
            return Poll::Ready(written);
        }
        if is_cut() || cut.is_some() {
            // Behind half an event nobody can be told why it ends.
            let cut = cut.get_or_insert_with(|| Box::pin(tokio::time::sleep(CUT_WRITE_MAX)));
            if cut.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(Error::new_in(ErrorType::Custom(STOPPED_WRITING))));
            }
        }
        let Some(at_most) = at_most else { return Poll::Pending };
        let timer = timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(at_most)));
        timer.as_mut().poll(context).map(|()| Err(not_taken()))
    })
    .await
}

/// The process stops and no longer waits for this request.
pub(in crate::gateway) fn stopped() -> Box<Error> {
    Error::new_in(ErrorType::Custom(STOPPED))
}

/// Whether an error is [`stopped`], or [`has_cut_a_write`].
pub(in crate::gateway) fn is_stopped(error: &Error) -> bool {
    *error.etype() == ErrorType::Custom(STOPPED) || has_cut_a_write(error)
}

/// Whether the process has stopped within a write to the client.
pub(in crate::gateway) fn has_cut_a_write(error: &Error) -> bool {
    *error.etype() == ErrorType::Custom(STOPPED_WRITING)
}

/// The client has left, and its upstream is not read on.
pub(super) fn left() -> Box<Error> {
    Error::explain(ErrorType::ConnectionClosed, "the client has left").into_down()
}

/// The upstream has said nothing for too long.
pub(super) fn silent() -> Box<Error> {
    Error::explain(ErrorType::ReadTimedout, "the upstream is silent").into_up()
}

/// Whether the upstream took or said nothing for too long.
pub(super) fn has_timed_out(error: &Error) -> bool {
    *error.esource() == ErrorSource::Upstream
        && matches!(error.etype(), ErrorType::ReadTimedout | ErrorType::WriteTimedout)
}

/// The call has to end, though neither of its sides has.
pub(in crate::gateway) fn ended() -> Box<Error> {
    Error::new_in(ErrorType::Custom(ENDED))
}

/// Whether an error is [`ended`].
pub(in crate::gateway) fn is_ended(error: &Error) -> bool {
    *error.etype() == ErrorType::Custom(ENDED)
}

fn not_taken() -> Box<Error> {
    Error::explain(ErrorType::WriteTimedout, "the client took nothing in time").into_down()
}

/// How long a write that waits when the process no longer does may take: a stop is not held up for long by who does not read.
const CUT_WRITE_MAX: Duration = Duration::from_millis(500);
const STOPPED: &str = "GatewayStopping";
const STOPPED_WRITING: &str = "GatewayStoppingWithinAWrite";
const ENDED: &str = "CallEnded";

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    #[tokio::test]
    async fn a_write_that_is_done_is_done_also_when_the_process_stops() {
        let written = write_within(Some(Duration::ZERO), || true, pin!(async { Ok(7) })).await;
        assert_eq!(written.unwrap(), 7);
    }

    #[tokio::test]
    async fn a_write_that_is_not_taken_is_the_clients_failure() {
        let never = pin!(std::future::pending::<Result<()>>());
        let error = write_within(Some(Duration::from_millis(1)), || false, never)
            .await
            .unwrap_err();
        assert_eq!(*error.etype(), ErrorType::WriteTimedout);
        assert_eq!(*error.esource(), ErrorSource::Downstream);
    }

    #[tokio::test]
    async fn a_stop_ends_a_write_that_waits() {
        let never = pin!(std::future::pending::<Result<()>>());
        let error = write_within(None, || true, never).await.unwrap_err();
        assert!(is_stopped(&error) && has_cut_a_write(&error));
    }

    /// It was dropped half done, and the end that the client was told stood within an event.
    #[tokio::test]
    async fn a_write_that_a_stop_finds_waiting_goes_on_for_a_moment() {
        let mut polls = 0;
        let write = pin!(poll_fn(|context| {
            polls += 1;
            context.waker().wake_by_ref();
            if polls > 3 { Poll::Ready(Ok(7)) } else { Poll::Pending }
        }));
        assert_eq!(write_within(None, || true, write).await.unwrap(), 7);
    }
}
