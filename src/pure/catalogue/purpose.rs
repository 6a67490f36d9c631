//! The purposes that a model may serve: the names of the interface, each of which stands for a default model.

use serde::Deserialize;

/// A named category with a default model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// General chat.
    Chat,
    /// Image analysis.
    Vision,
    /// Writing and reviewing code.
    Code,
    /// Quick, economical answers.
    Fast,
    /// Intent routing.
    Router,
    /// Complex planning.
    Planner,
    /// Task execution.
    Executor,
    /// Vector embeddings.
    Embedding,
    /// Free models.
    Free,
    /// Generating HTML slides.
    Slide,
    /// Slot extraction.
    SlotExtract,
}

impl Purpose {
    /// All eleven, in the interface's order.
    pub const ALL: [Purpose; 11] = [
        Purpose::Chat,
        Purpose::Vision,
        Purpose::Code,
        Purpose::Fast,
        Purpose::Router,
        Purpose::Planner,
        Purpose::Executor,
        Purpose::Embedding,
        Purpose::Free,
        Purpose::Slide,
        Purpose::SlotExtract,
    ];

    /// As the interface writes it.
    pub fn name(self) -> &'static str {
        match self {
            Purpose::Chat => "chat",
            Purpose::Vision => "vision",
            Purpose::Code => "code",
            Purpose::Fast => "fast",
            Purpose::Router => "router",
            Purpose::Planner => "planner",
            Purpose::Executor => "executor",
            Purpose::Embedding => "embedding",
            Purpose::Free => "free",
            Purpose::Slide => "slide",
            Purpose::SlotExtract => "slot_extract",
        }
    }

    /// The purpose of this name, in the interface's spelling.
    pub fn parse(name: &str) -> Option<Purpose> {
        Purpose::ALL.into_iter().find(|purpose| purpose.name() == name)
    }
}

/// What the name of a purpose begins with where a request names a model.
pub const PURPOSE_PREFIX: &str = "purpose/";
