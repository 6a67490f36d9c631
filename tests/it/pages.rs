//! The pages for browsers on the public listener: they need no key, say what the configuration says, and are guarded.

use reqwest::Method;

use crate::harness::client::ask;
use crate::harness::{Answer, Gateway, Setup, Upstream};

/// The paths that a page's own text names, as they are asked for below the base path.
fn named(page: &Answer) -> Vec<String> {
    let text = page.text();
    let attributes = text.split('"').filter(|part| part.starts_with("wallet/"));
    attributes.map(|path| format!("/{path}")).collect()
}

#[tokio::test]
async fn pages_need_no_key_and_run_nothing_but_their_own_files() {
    let upstream = Upstream::unused().await;
    let gateway = Gateway::over(&upstream).await;
    let nobody = gateway.http1.with_key("");
    let mut files = vec!["/wallet/dom.js".to_owned(), "/wallet/chart.js".to_owned()];
    for path in ["/wallet", "/prices"] {
        let page = nobody.get(path).await.ok();
        assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
        let text = page.text();
        for inline in ["<style", "style=", "onclick", "onload", "javascript:", "<script>"] {
            assert!(!text.contains(inline), "{path} has {inline}");
        }
        files.extend(named(&page));
    }
    assert!(files.len() >= 6, "{files:?}");
    for path in files.iter().map(String::as_str).chain(["/wallet", "/prices"]) {
        let file = nobody.get(path).await.ok();
        let policy = file.header("content-security-policy");
        for rule in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "connect-src 'self'",
            "form-action 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
        ] {
            assert!(
                policy.split("; ").any(|part| part == rule),
                "{path}: {rule} is not in {policy}"
            );
        }
        assert!(!policy.contains("unsafe"));
        assert_eq!(file.header("x-frame-options"), "DENY");
        assert_eq!(file.header("referrer-policy"), "no-referrer");
        assert_eq!(file.header("x-content-type-options"), "nosniff");
        let tag = file.header("etag").to_owned();
        let again = ask(nobody.request(Method::GET, path).header("if-none-match", tag)).await;
        assert_eq!((again.status, again.body.len()), (304, 0), "{path}");
        let kind = file.header("content-type");
        let fits = path.ends_with(".js") == kind.starts_with("text/javascript")
            && path.ends_with(".css") == kind.starts_with("text/css");
        assert!(fits, "{path}: {kind}");
    }
    for path in [
        "/wallet/wallet.html",
        "/wallet/..%2fwallet",
        "/prices/page.css",
        "/wallet/PAGE.CSS",
    ] {
        nobody.get(path).await.error(404, "not_found_error");
    }
    gateway.check_untouched(&upstream).await;
}

#[tokio::test]
async fn a_page_is_found_with_a_slash_at_its_end_too() {
    let upstream = Upstream::unused().await;
    for base_path in ["/api/v1", ""] {
        let gateway = Setup::over(&upstream)
            .conf(|conf| conf["base_path"] = base_path.into())
            .start()
            .await;
        // Two slashes: the path from the root.
        for path in ["wallet", "prices"] {
            let page = |end: &str| format!("/{base_path}/{path}{end}");
            let there = gateway.http1.get(&page("")).await.ok();
            let moved = gateway.http1.get(&page("/")).await.ok();
            assert_eq!(moved.text(), there.text(), "{base_path} {path}");
        }
    }
}

#[tokio::test]
async fn pages_say_what_the_configuration_says_and_no_markup_of_it() {
    let upstream = Upstream::unused().await;
    let gateway = Setup::over(&upstream)
        .conf(|conf| {
            conf["currency"] = "<b>EUR</b>".into();
            conf["wallet"] = serde_json::json!({
                "name": "A & B\"<script>alert(1)</script>{{top_up_url}}",
                "top_up_url": "https://pay.example/?a=1&b='\"><img>",
            });
        })
        .start()
        .await;
    for path in ["/wallet", "/prices"] {
        let text = gateway.http1.with_key("").get(path).await.ok().text().to_owned();
        assert!(
            text.contains("A &amp; B&quot;&lt;script&gt;alert(1)&lt;/script&gt;&#123;&#123;top_up_url}}"),
            "{text}"
        );
        assert!(text.contains("&lt;b&gt;EUR"), "{text}");
        assert!(
            !text.contains("{{") && !text.contains("<script>") && !text.contains("<img"),
            "{text}"
        );
    }
    let wallet = gateway.http1.with_key("").get("/wallet").await.ok().text().to_owned();
    assert!(
        wallet.contains("data-top-up=\"https://pay.example/?a=1&amp;b=&#39;&quot;&gt;&lt;img&gt;\""),
        "{wallet}"
    );
}

#[tokio::test]
async fn a_reload_changes_what_pages_say() {
    let upstream = Upstream::unused().await;
    let mut gateway = Gateway::over(&upstream).await;
    let before = gateway.http1.get("/wallet").await.ok();
    assert!(before.text().contains("<title>Wallet · Tollgate</title>"));
    let mut conf: serde_json::Value = serde_json::from_str(&gateway.conf_text()).unwrap();
    conf["wallet"] = serde_json::json!({ "name": "Acme AI" });
    gateway.write_conf(&conf.to_string());
    gateway.check_files();
    let after = gateway.http1.get("/wallet").await.ok();
    assert!(after.text().contains("<title>Wallet · Acme AI</title>"));
    assert_ne!(before.header("etag"), after.header("etag"));
}
