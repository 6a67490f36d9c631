//! What of a request decides which prices its call can come to.

/// What of a request decides which prices its call can come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asks<'a> {
    /// The tier that it asks to be served by.
    pub tier: Option<&'a str>,
    /// What it asks the provider to keep in its cache.
    pub writes: CacheWrites,
    /// It has sounds or images in it.
    pub has_media: bool,
    /// It asks for sounds or images.
    pub wants_media: bool,
}

/// What a request asks the provider to keep in its cache. Some write without being asked, for their usual time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum CacheWrites {
    /// Nothing.
    #[default]
    Unasked,
    /// Something, for the usual time.
    Usual,
    /// Something, for an hour, or for a time that is not known.
    Hour,
}
