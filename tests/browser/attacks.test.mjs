// The console and the wallet under attack, in a real browser on a real gateway: what another page forges, frames that would hide what is
// pressed, and markup in every text that somebody else writes. Nothing runs, nothing is posted.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import { askOperatorApi, demo, fill, launch, pageOf, SCRIPT, sellModel, until } from "./support.mjs";

const MODEL = "evil/<img/src=x/onerror=window.broken=1>";
// Names of keys, operators and references have less room.
const SHORT = "<img src=x onerror=window.broken=1>";
let gateway, browser, attacker;

const api = (...request) => askOperatorApi(gateway, ...request);

before(async () => {
  gateway = await demo();
  browser = await launch();
  attacker = createServer((request, answer) => answer.setHeader("content-type", "text/html").end(page(new URL(request.url, "http://x"))));
  attacker.listen(0, "127.0.0.1");
  await once(attacker, "listening");
});

after(async () => {
  attacker?.close();
  await browser?.close();
  await gateway?.stop();
});

// What the attacker serves: a frame, or a form that is sent by a press of its button, as whoever was lured there would.
function page(url) {
  const set = name => (url.searchParams.get(name) ?? "").replaceAll("&", "&amp;").replaceAll('"', "&quot;");
  if (url.pathname === "/frame") return `<iframe src="${set("of")}"></iframe>`;
  const [name, value] = [set("name"), set("value")];
  return `<form method="post" enctype="${set("as")}" action="${set("to")}"><input type="hidden" name="${name}" value="${value}"><button>Win a prize</button></form>`;
}

// Of the same site, since ports are not told apart there: the browser does send the cookie. Of another site: it does not.
const origins = () => ["127.0.0.1", "evil.localhost"].map(host => `http://${host}:${attacker.address().port}`);
const isBroken = page => page.evaluate(() => window.broken);

async function signIn(page) {
  await page.goto(gateway.console);
  await page.waitForSelector("body[data-view=sign-in]");
  await fill(page, "Operator's token", gateway.operator_token);
  await page.keyboard.press("Enter");
  await page.waitForSelector("body[data-view=accounts]");
}

async function view(page, hash) {
  await page.goto("about:blank");
  await page.goto(`${gateway.console}#/${hash}`);
  await page.waitForSelector(`body[data-view="${hash.split(/[/?]/)[0]}"]`);
}

test("a form of another page posts nothing", async () => {
  const name = "forged", { page, context } = await pageOf(browser, 1280);
  assert.equal((await api("POST", "/v1/accounts", { name, tier: "pro" })).status, 201);
  await signIn(page);
  const target = new URL(`/v1/accounts/${name}/credits`, gateway.console).href;
  const body = JSON.stringify({ amount: "1000", reference: "forged", kind: "top_up" });
  const session = new URL("/v1/session", gateway.console).href, token = JSON.stringify({ token: gateway.operator_token });
  // A text/plain form can be made to look like JSON; the others are what forms are.
  const forms = [[target, "text/plain", `${body.slice(0, -1)},"note":"`, '"}'], [target, "application/x-www-form-urlencoded", "amount", "1000"], [target, "multipart/form-data", "amount", "1000"],
    // Signed in as somebody else, an operator would work in another's name.
    [session, "text/plain", `${token.slice(0, -1)},"x":"`, '"}']];
  for (const origin of origins()) {
    const evil = await context.newPage();
    for (const [to, as, field, value] of forms) {
      await evil.goto(`${origin}/form?${new URLSearchParams({ to, as, name: field, value })}`);
      const [posted] = await Promise.all([evil.waitForResponse(to), evil.click("button")]);
      assert.ok([400, 401, 403, 415].includes(posted.status()), `${as} from ${origin} was answered ${posted.status()}`);
      assert.equal(posted.headers()["set-cookie"], undefined);
    }
    await evil.goto(`${origin}/form`);
    for (const [method, path, text] of [["POST", `/v1/accounts/${name}/credits`, body], ["PATCH", `/v1/accounts/${name}`, '{"status":"closed"}'], ["PUT", "/v1/maintenance", '{"on":true}'],
      ["DELETE", "/v1/session", undefined], ["GET", "/v1/accounts", undefined], ["GET", "/v1/session", undefined]]) {
      for (const mode of ["cors", "no-cors"]) {
        const read = await evil.evaluate(async ({ url, method, mode, text }) => {
          try {
            const answer = await fetch(url, { method, mode, credentials: "include", headers: mode === "cors" ? { "content-type": "application/json" } : {}, body: text });
            return await answer.text();
          } catch (error) { return null; }
        }, { url: new URL(path, gateway.console).href, method, mode, text });
        assert.ok(!read, `${method} ${path} can be read at ${origin}: ${read}`);
      }
    }
    await evil.close();
  }
  // With its cookie but without its token, not even a page of its own may write.
  const without = await page.evaluate(url => fetch(url, { method: "POST", headers: { "content-type": "application/json" }, body: '{"amount":"1","reference":"x"}' }).then(answer => answer.status), target);
  assert.equal(without, 403);
  const { body: facts } = await api("GET", `/v1/accounts/${name}`);
  assert.deepEqual([facts.balance, facts.status], ["0", "active"]);
  assert.deepEqual((await api("GET", `/v1/accounts/${name}/credits`)).body.data, []);
  assert.equal((await api("GET", "/v1/maintenance")).body.on, false);
  const withToken = () => fetch("/v1/session", { headers: { "x-csrf-token": localStorage.getItem("tollgate-csrf") } }).then(answer => answer.status);
  assert.equal(await page.evaluate(withToken), 200, "the session is there yet");
  // Nor may whoever gets the cookie, as the server of another port of the same host does.
  const cookie = (await context.cookies(gateway.console)).map(one => `${one.name}=${one.value}`).join("; ");
  assert.match(cookie, /^tollgate-[0-9]+=/);
  for (const path of ["/v1/session", "/v1/accounts"]) assert.equal((await fetch(new URL(path, gateway.console), { headers: { cookie } })).status, 403);
  await context.close();
});

test("no page stands in a frame of another", async () => {
  const { page, context } = await pageOf(browser, 1280);
  await signIn(page);
  for (const origin of origins()) {
    for (const of of [gateway.console, gateway.wallet, `${gateway.base_url}/prices`]) {
      await page.goto(`${origin}/frame?${new URLSearchParams({ of })}`);
      const [, frame] = page.frames();
      assert.equal(await frame.$("#main"), null, `${of} stands in a frame of ${origin}`);
    }
  }
  await context.close();
});

// The policy itself: what markup would do, were it ever to get into a page.
test("a page runs no script that is not its own file, and says what it refused", async () => {
  for (const [url, ready] of [[gateway.console, "body[data-view=sign-in]"], [gateway.wallet, "#key"], [`${gateway.base_url}/prices`, "body[data-ready]"]]) {
    const { page, context } = await pageOf(browser, 1280), [origin] = origins();
    await page.goto(url);
    await page.waitForSelector(ready);
    const refused = await page.evaluate(async ({ origin, script }) => {
      const seen = new Set(), wanted = ["script-src-elem", "script-src-attr", "script-src", "style-src-attr", "style-src-elem", "img-src", "connect-src", "form-action", "base-uri", "frame-src"];
      const all = new Promise(resolve => addEventListener("securitypolicyviolation", event => { seen.add(event.effectiveDirective); if (wanted.every(one => seen.has(one))) resolve(); }));
      const add = (name, set) => document.body.append(Object.assign(document.createElement(name), set));
      add("script", { textContent: "window.broken = 1" });
      add("script", { src: `${origin}/evil.js` });
      add("style", { textContent: "body { background: red }" });
      add("img", { src: `${origin}/pixel` });
      add("iframe", { src: `${origin}/frame` });
      add("base", { href: origin });
      add("div", { innerHTML: `${script}<p style="color: red">x</p>` });
      setTimeout("window.broken = 1");
      try { await fetch(`${origin}/tell`); } catch { /* Refused, as is told. */ }
      const form = Object.assign(document.createElement("form"), { method: "post", action: `${origin}/take` });
      document.body.append(form);
      form.submit();
      await all;
      return [...seen].sort();
    }, { origin, script: SCRIPT });
    assert.ok(refused.includes("script-src-elem"), url);
    assert.equal(await isBroken(page), undefined);
    assert.equal(new URL(page.url()).href.replace(/\/$/, ""), new URL(url).href.replace(/\/$/, ""), "the form led away");
    await context.close();
  }
});

test("markup in a name, a note, a reference, metadata, a label, a model, an address is text in the console", async () => {
  const name = "texts", { page, context, problems } = await pageOf(browser, 1280);
  const done = async (status, answer) => { const { status: got, body } = await answer; assert.equal(got, status, JSON.stringify(body)); return body; };
  // No account can be called so: the console says it at the field.
  await signIn(page);
  await page.click("text=Create an account");
  await page.fill("dialog input[name=name]", SHORT);
  await page.click("dialog button[type=submit]");
  await page.waitForSelector("dialog .error:not(:empty), dialog [role=alert]:not(:empty)");
  await page.keyboard.press("Escape");
  await done(201, api("POST", "/v1/accounts", { name, tier: "pro" }));
  await done(200, api("PATCH", `/v1/accounts/${name}`, { metadata: { owner: SCRIPT, "<b>x": SHORT } }));
  await done(201, api("POST", `/v1/accounts/${name}/credits`, { amount: "5", reference: SHORT, kind: "top_up", note: SCRIPT }));
  await done(201, api("POST", "/v1/operators", { name: SHORT, role: "read" }));
  const { key } = await done(201, api("POST", `/v1/accounts/${name}/keys`, { label: SHORT }));
  sellModel(gateway, MODEL);
  await until(async () => (await fetch(`${gateway.base_url}/llm/public/models?per_page=500`).then(answer => answer.text())).includes("window.broken"));
  const called = await fetch(`${gateway.base_url}/llm/chat`, { method: "POST", headers: { authorization: `Bearer ${key}`, "content-type": "application/json" }, body: JSON.stringify({ model: MODEL, user: SCRIPT, messages: [{ role: "user", content: SCRIPT }] }) });
  assert.equal(called.status, 200, await called.text());
  for (const [hash, texts] of [[`accounts/${name}`, [SCRIPT, SHORT, "<b>x", MODEL]], [`accounts?search=${encodeURIComponent(SCRIPT)}`, [SCRIPT]], [`calls?account=${name}`, [MODEL]],
    [`calls?account=${name}&model=${encodeURIComponent(MODEL)}`, [MODEL]], ["models", [MODEL, SCRIPT]], ["log", [SHORT]], ["operators", [SHORT]], ["providers", []], ["status", []]]) {
    await view(page, hash);
    const shown = await page.evaluate(() => document.querySelector("main").textContent);
    for (const text of texts) assert.ok(shown.includes(text), `${text} is not shown at ${hash}`);
    // What is folded away is markup no less.
    await page.$$eval("details", all => all.forEach(one => { one.open = true; }));
    assert.equal(await page.locator("main img, main script, main b:not(.tile b)").count(), 0, `markup at ${hash}`);
  }
  // Addresses that name nothing.
  for (const hash of [SCRIPT, `accounts/${SCRIPT}`, `accounts/${encodeURIComponent(SCRIPT)}`, "accounts/%", `log?account=${encodeURIComponent(SCRIPT)}`, `calls?account=${encodeURIComponent(SCRIPT)}`, "__proto__", "constructor"]) {
    await page.goto("about:blank");
    await page.goto(`${gateway.console}#/${hash}`);
    await page.waitForSelector("body[data-view] main > *");
    assert.equal(await page.locator("main img, main script").count(), 0, `markup at ${hash}`);
  }
  assert.equal(await isBroken(page), undefined, "text was taken for markup");

  // And in the wallet of that account.
  await page.goto(gateway.wallet);
  await fill(page, "API key", key);
  await page.keyboard.press("Enter");
  await page.waitForSelector("body[data-ready]");
  const shown = await page.textContent("#wallet");
  for (const text of [SHORT, MODEL, SCRIPT]) assert.ok(shown.includes(text), `${text} is not in the wallet`);
  await page.goto(`${gateway.base_url}/prices`);
  await page.waitForSelector("body[data-ready]");
  assert.ok((await page.textContent("main")).includes(MODEL));
  assert.equal(await isBroken(page), undefined, "text was taken for markup");
  // No page of ours ever asks for what the policy refuses.
  assert.deepEqual(problems, []);
  await context.close();
});
