//! The head of a whole answer, which waits for the first bytes that follow it. Until then it may turn out that there is no answer, and
//! another target is asked, or the client gets another status. `buffered` writes what leaves here.

use pingora::protocols::http::HttpTask;

use crate::pure::chat::ResponseMode;

/// The head of one attempt's answer.
pub(super) struct Head {
    waits: bool,
    waiting: Vec<HttpTask>,
}

impl Head {
    /// The head of a stream never waits.
    pub(super) fn new(mode: ResponseMode) -> Head {
        Head {
            waits: mode == ResponseMode::Whole,
            waiting: Vec::new(),
        }
    }

    /// What can be written of the answer, with `tasks` as its next part; `None`: nothing yet.
    pub(super) fn gather(&mut self, mut tasks: Vec<HttpTask>) -> Option<Vec<HttpTask>> {
        if !self.waits {
            return Some(tasks);
        }
        let decides = |task: &HttpTask| match task {
            HttpTask::Header(_, ends) => *ends,
            HttpTask::Body(data, ends) | HttpTask::UpgradedBody(data, ends) => {
                *ends || data.as_ref().is_some_and(|data| !data.is_empty())
            }
            HttpTask::Trailer(_) | HttpTask::Done | HttpTask::Failed(_) => true,
        };
        match tasks.iter().find(|task| decides(task)) {
            None => {
                self.waiting.append(&mut tasks);
                return None;
            }
            // It failed before anything came that could be passed on.
            Some(HttpTask::Failed(_)) => tasks.retain(|task| matches!(task, HttpTask::Failed(_))),
            Some(_) => {
                self.waits = false;
                tasks.splice(0..0, std::mem::take(&mut self.waiting));
            }
        }
        Some(tasks)
    }
}
