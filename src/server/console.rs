//! The operators' console: its page and the files of that, from the binary. What it does, it does by the operator's API.

use crate::gateway::api::pages::{self, HTML, PageFile, script};

/// The file of this name, if the console has it.
pub(in crate::server) fn file(name: &str) -> Option<&'static PageFile> {
    let shared = pages::FILES.iter().filter(|file| SHARED.contains(&file.name));
    FILES.iter().chain(shared).find(|file| file.name == name)
}

/// The page. It says nothing of anybody: who may see what, the API decides.
pub(in crate::server) static PAGE: PageFile = PageFile {
    name: "console.html",
    media_type: HTML,
    text: include_str!("console/console.html"),
};

static FILES: [PageFile; 13] = [
    script("main.js", include_str!("console/main.js")),
    script("api.js", include_str!("console/api.js")),
    script("forms.js", include_str!("console/forms.js")),
    script("parts.js", include_str!("console/parts.js")),
    script("place.js", include_str!("console/place.js")),
    script("accounts.js", include_str!("console/accounts.js")),
    script("account.js", include_str!("console/account.js")),
    script("credit.js", include_str!("console/credit.js")),
    script("keys.js", include_str!("console/keys.js")),
    script("calls.js", include_str!("console/calls.js")),
    script("catalogue.js", include_str!("console/catalogue.js")),
    script("log.js", include_str!("console/log.js")),
    script("status.js", include_str!("console/status.js")),
];

/// The wallet's files that the console uses too.
const SHARED: [&str; 3] = ["page.css", "dom.js", "chart.js"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_files_are_there_and_nothing_else() {
        for name in FILES.iter().map(|file| file.name).chain(SHARED) {
            assert!(file(name).is_some(), "{name}");
        }
        for name in ["", "wallet.js", "console.html", "../console.rs", "MAIN.JS"] {
            assert!(file(name).is_none(), "{name}");
        }
    }

    /// A file that is imported by another and not served would be a page that does nothing.
    #[test]
    fn every_import_is_served() {
        for file in FILES.iter().chain([&PAGE]) {
            let named = file.text.split('"').filter_map(|text| text.strip_prefix("/console/"));
            for name in named {
                assert!(super::file(name).is_some(), "{} names {name}", file.name);
            }
        }
    }
}
