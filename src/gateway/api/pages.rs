//! Pages for browsers from the binary: what a page consists of, the wallet and the list of prices, and the headers that keep a page from
//! running or showing what is not its own. The operator's console takes its shared files from here.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use super::document::Document;
use crate::config::Config;

/// A file that pages consist of.
#[derive(Debug)]
pub(crate) struct PageFile {
    /// Its name below the page's folder.
    pub(crate) name: &'static str,
    /// What it is.
    pub(crate) media_type: &'static str,
    /// Its text.
    pub(crate) text: &'static str,
}

/// What is shown at a path of the public listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    /// `{base}/wallet`: an account's money, for who has a key.
    Wallet,
    /// `{base}/prices`: the public list.
    Prices,
    /// `{base}/wallet/…`: a file of both, by its place in [`FILES`].
    File(usize),
}

/// The pages as they are served: rendered once for a configuration.
#[derive(Debug)]
pub(crate) struct Pages {
    wallet: Document,
    prices: Document,
    files: Vec<Document>,
}

impl Page {
    /// The file of this name.
    pub(crate) fn file(name: &str) -> Option<Page> {
        FILES.iter().position(|file| file.name == name).map(Page::File)
    }
}

impl Pages {
    /// Puts the configuration's words into the pages.
    pub(crate) fn render(config: &Config) -> Pages {
        let page = |text: &str| Document::new(filled(text, config));
        Pages {
            wallet: page(include_str!("pages/wallet.html")),
            prices: page(include_str!("pages/prices.html")),
            files: FILES.iter().map(|file| Document::new(file.text.to_owned())).collect(),
        }
    }

    /// What is shown, and its media type.
    pub(crate) fn get(&self, page: Page) -> Option<(&Document, &'static str)> {
        match page {
            Page::Wallet => Some((&self.wallet, HTML)),
            Page::Prices => Some((&self.prices, HTML)),
            Page::File(place) => Some((self.files.get(place)?, FILES.get(place)?.media_type)),
        }
    }
}

/// Adds what a browser must know of a page: it runs and shows nothing but its own files, in no frame, and tells nobody where it was.
pub(crate) fn guard(headers: &mut HeaderMap) {
    for (name, value) in GUARDS {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// A page with the configuration's words in their places.
fn filled(text: &str, config: &Config) -> String {
    let pay = config.wallet.top_up_url.as_deref();
    text.replace("{{name}}", &escaped(&config.wallet.name))
        .replace("{{currency}}", &escaped(&config.currency))
        .replace("{{top_up_url}}", &escaped(pay.unwrap_or_default()))
}

/// A text as it stands in HTML, also within quotes.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // Two of them would be a place for a word.
            '{' => escaped.push_str("&#123;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The files of the wallet and the list of prices, and those that the console shares with them.
pub(crate) static FILES: [PageFile; 5] = [
    style("page.css", include_str!("pages/page.css")),
    script("dom.js", include_str!("pages/dom.js")),
    script("chart.js", include_str!("pages/chart.js")),
    script("wallet.js", include_str!("pages/wallet.js")),
    script("prices.js", include_str!("pages/prices.js")),
];

/// A stylesheet.
pub(crate) const fn style(name: &'static str, text: &'static str) -> PageFile {
    PageFile {
        name,
        media_type: "text/css; charset=utf-8",
        text,
    }
}

/// A module of a script.
pub(crate) const fn script(name: &'static str, text: &'static str) -> PageFile {
    PageFile {
        name,
        media_type: "text/javascript; charset=utf-8",
        text,
    }
}

/// The media type of a page.
pub(crate) const HTML: &str = "text/html; charset=utf-8";

const GUARDS: [(HeaderName, &str); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; form-action 'self'; \
         frame-ancestors 'none'; base-uri 'none'",
    ),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configurations_words_are_text_and_no_markup() {
        assert_eq!(
            escaped("</title><script>'\"&{{currency}}"),
            "&lt;/title&gt;&lt;script&gt;&#39;&quot;&amp;&#123;&#123;currency}}"
        );
    }

    #[test]
    fn every_file_is_found_by_its_name() {
        for (place, file) in FILES.iter().enumerate() {
            assert_eq!(Page::file(file.name), Some(Page::File(place)));
        }
        assert_eq!(Page::file("../wallet.html"), None);
    }
}
