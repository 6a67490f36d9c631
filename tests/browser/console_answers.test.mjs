// The operators' console where an answer is late, lost or refused: what is being sent can be neither left nor done twice, one part that cannot
// be read hides no other, and the log tells of no change that never was.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { askOperatorApi, atNewAccount, demo, escape, focused, goToAccount, goToHash, isAccount, isDialogOpen, isGuarded, isSound, launch, madeByApi, press, ROWS, SENDING, told, until, viewIs } from "./support.mjs";

const JSON_TYPE = "application/json", AUDIT_LOADS = 'section [aria-busy=true] p:text-is("Loading…")';
let gateway, browser;

const api = (...request) => askOperatorApi(gateway, ...request);
const made = (...expected) => madeByApi(gateway, ...expected);
const at = (...where) => atNewAccount(browser, gateway, ...where);

before(async () => {
  gateway = await demo();
  browser = await launch();
});

after(async () => {
  await browser?.close();
  await gateway?.stop();
});

// Holds back what is sent so, before the gateway has it; the answer lets it go.
async function hold(page, method, path) {
  let letGo;
  const go = new Promise(resolve => { letGo = resolve; });
  await page.route(url => url.pathname === path, async route => {
    if (route.request().method() !== method) return route.fallback();
    await go;
    return route.fallback();
  });
  return letGo;
}

test("credit that is being posted is neither cancelled nor left, and counts once", async () => {
  const name = "held", { page, context, problems } = await at(name, 400), path = `/v1/accounts/${name}/credits`;
  const letGo = await hold(page, "POST", path);
  await page.click('main button:text-is("Add credit")');
  await page.fill("dialog input[name=amount]", "7");
  assert.equal(await isGuarded(page), false);
  await page.keyboard.press("Enter");
  await page.waitForSelector(SENDING);
  assert.equal(await page.locator('dialog button:text-is("Cancel")').isDisabled(), true);
  assert.equal(await page.getAttribute("dialog button[type=submit]", "aria-busy"), "true");
  // A browser lets a page prevent no more than the first; and the key comes from within the dialog, or from the page.
  await escape(page, 3);
  assert.ok(await isDialogOpen(page));
  await page.locator("dialog").click({ position: { x: 30, y: 5 } });
  await escape(page, 3);
  assert.ok(await isDialogOpen(page));
  await isSound(page, "console-sending");
  assert.equal(await isGuarded(page), true);
  await goToHash(page, "#/models");
  await viewIs(page, "models");
  assert.ok(await isDialogOpen(page), "another view does not hide what is under way");
  letGo();
  await told(page, `Posted to ${name}. The balance is 7.`);
  assert.equal(await isGuarded(page), false);
  assert.equal((await made(200, "GET", path)).data.length, 1);

  // A form that is not being sent goes with its view.
  await goToAccount(page, gateway, name);
  await page.click('main button:text-is("Add credit")');
  await goToHash(page, "#/models");
  await page.waitForSelector("dialog", { state: "detached" });
  await viewIs(page, "models");
  assert.deepEqual(problems, []);
  await context.close();
});

test("the text of a rotated key is shown, whatever is pressed before and after its answer", async () => {
  const name = "rotated", { page, context, problems } = await at(name, 1280);
  const { id } = await made(201, "POST", `/v1/accounts/${name}/keys`, { label: "kept" });
  await page.reload();
  await viewIs(page, "accounts");
  const letGo = await hold(page, "POST", `/v1/keys/${id}/rotate`);
  await page.click('main button:text-is("Rotate")');
  await page.fill("dialog input[name=overlap]", "0s");
  await page.keyboard.press("Enter");
  await page.waitForSelector(SENDING);
  await escape(page, 2);
  letGo();
  await page.waitForSelector("[data-secret]");
  await escape(page, 2);
  assert.ok((await page.textContent("[data-secret]")).length > 20);
  assert.equal(await isGuarded(page), true);
  await page.click('dialog button:text-is("I have kept it")');
  await told(page, `takes the place of ${id}.`);
  const { data } = await made(200, "GET", `/v1/accounts/${name}/keys`);
  assert.equal(data.filter(key => key.state === "active").length, 1);
  assert.deepEqual(problems, []);
  await context.close();
});

test("credit whose answer is lost is sent again under the same reference, and counts once", async () => {
  const name = "lost", { page, context, problems } = await at(name, 1280), path = `/v1/accounts/${name}/credits`, references = [];
  await page.route(url => url.pathname === path, async route => {
    if (route.request().method() !== "POST") return route.fallback();
    const body = route.request().postDataJSON();
    references.push(body.reference);
    if (references.length > 1) return route.fallback();
    // It is posted; nobody is told.
    assert.equal((await api("POST", path, body)).status, 201);
    return route.abort();
  });
  await page.click('main button:text-is("Add credit")');
  await page.fill("dialog input[name=amount]", "7");
  await page.keyboard.press("Enter");
  await page.waitForSelector("dialog [role=alert]:not(:empty)");
  assert.match(await page.textContent("dialog [role=alert]"), /its reference counts once/);
  assert.equal(await page.locator('dialog button:text-is("Cancel")').isDisabled(), false);
  assert.equal(await page.textContent("dialog [role=status]"), "");
  assert.equal(await isGuarded(page), true, "its reference would be gone");
  await page.click("dialog button[type=submit]");
  await told(page, `nothing was added to ${name}. The balance is 7.`);
  assert.equal(references.length, 2);
  assert.equal(references[0], references[1]);
  assert.equal((await made(200, "GET", path)).data.length, 1);
  assert.deepEqual(problems, []);
  await context.close();
});

test("the state is shown at once, and waits for no audit, whose answer is shown though maintenance has begun and ended meanwhile", async () => {
  const { page, context, problems } = await at("audited", 1280), path = "/v1/audit";
  await until(async () => (await made(200, "GET", "/v1/status")).ledger.audit_findings === 0);
  const letGo = await hold(page, "GET", path);
  let audits = 0;
  page.on("request", request => { audits += new URL(request.url()).pathname === path ? 1 : 0; });
  await goToHash(page, "#/status");
  await viewIs(page, "status");
  assert.match(await page.textContent("main"), /The booksbalanceaudited \d+ (s|min) ago/);
  const [asked] = await Promise.all([page.waitForRequest(request => new URL(request.url()).pathname === path), page.click('main button:text-is("Audit the books now")')]);
  await page.waitForSelector(AUDIT_LOADS);
  await page.click('main button:text-is("Begin maintenance")');
  await page.click("dialog button[type=submit]");
  await told(page, "Maintenance has begun.");
  await page.waitForSelector(AUDIT_LOADS);
  await page.click('main button:text-is("End maintenance")');
  await page.click("dialog button[type=submit]");
  await told(page, "Maintenance has ended.");
  await page.waitForSelector(AUDIT_LOADS);
  await page.click('main button:text-is("Audit the books now")');
  letGo();
  assert.equal((await asked.response()).status(), 200);
  await page.waitForSelector('main p.notice:has-text("The books balance: ")');
  assert.equal(audits, 1, "another is sent while one runs");
  assert.deepEqual(problems, []);
  await context.close();
});

test("the answer of an audit that ends while the page is drawn anew is shown", async () => {
  const { page, context, problems } = await at("redrawn", 1280);
  const letAuditGo = await hold(page, "GET", "/v1/audit");
  await goToHash(page, "#/status");
  await viewIs(page, "status");
  const letStatusGo = await hold(page, "GET", "/v1/status");
  await page.click('main button:text-is("Audit the books now")');
  await page.waitForSelector(AUDIT_LOADS);
  await goToHash(page, "#/status?again=1");
  await page.waitForSelector("body:not([data-view])");
  letAuditGo();
  await page.waitForSelector('main p.notice:has-text("The books balance: ")');
  letStatusGo();
  await viewIs(page, "status");
  await page.waitForSelector('main p.notice:has-text("The books balance: ")');
  assert.deepEqual(problems, []);
  await context.close();
});

test("an audit that failed can be asked for again, and one is sent at a time", async () => {
  const { page, context, problems } = await at("reaudited", 1280);
  let audits = 0, letGo;
  const go = new Promise(resolve => { letGo = resolve; });
  await page.route(url => url.pathname === "/v1/audit", async route => {
    audits += 1;
    if (audits === 1) return route.fulfill({ status: 503, contentType: JSON_TYPE, body: JSON.stringify({ error: { message: "No audit now." } }) });
    await go;
    return route.fallback();
  });
  await goToHash(page, "#/status");
  await viewIs(page, "status");
  await page.click('main button:text-is("Audit the books now")');
  await page.waitForSelector('section [role=alert]:text-is("No audit now.")');
  await press(page, "Try again: Audit");
  await page.waitForSelector(AUDIT_LOADS);
  assert.equal((await focused(page)).name, "Audit");
  await page.click('main button:text-is("Audit the books now")');
  letGo();
  await page.waitForSelector('main p.notice:has-text("The books balance: ")');
  assert.equal(audits, 2, "another is sent while one runs");
  assert.deepEqual(problems, []);
  await context.close();
});

test("the books are shown as not known to balance while audits pass accounts over", async () => {
  const { page, context, problems } = await at("passed-over", 1280), path = "/v1/status";
  const state = await made(200, "GET", path);
  let ledger = {};
  await page.route(url => url.pathname === path, route => route.fulfill({ contentType: JSON_TYPE, body: JSON.stringify({ ...state, ledger: { ...state.ledger, ...ledger } }) }));
  for (const [findings, unchecked, expected] of [[0, 0, "balanceaudited 7 s ago"], [0, 3, "not known3 accounts could not be audited: no audit was complete for 7 s"],
    [2, 3, "do not balanceaudited 7 s ago: 2 findings"]]) {
    ledger = { audit_findings: findings, audit_unchecked: unchecked, audit_age_secs: 7 };
    await goToHash(page, "#/models");
    await viewIs(page, "models");
    await goToHash(page, "#/status");
    await viewIs(page, "status");
    const shown = await page.textContent("main");
    assert.ok(shown.includes(`The books${expected}`), shown);
  }
  assert.deepEqual(problems, []);
  await context.close();
});

test("a session that ends while a form is sent leads to the sign-in, which says that it was not done", async () => {
  const name = "ended", { token, id } = await made(201, "POST", "/v1/operators", { name: "of a short stay", role: "admin" });
  const { page, context, problems } = await at(name, 1280, token);
  const letGo = await hold(page, "POST", `/v1/accounts/${name}/keys`);
  await page.click('main button:text-is("Create a key")');
  await page.click("dialog button[type=submit]");
  await page.waitForSelector(SENDING);
  const { status } = await api("DELETE", `/v1/operators/${id}`);
  assert.ok(status < 300, String(status));
  letGo();
  await page.waitForSelector("dialog", { state: "detached" });
  await viewIs(page, "sign-in");
  assert.equal(await page.textContent("#notice"), "The session has ended, and what was sent was not done. Sign in again.");
  await page.waitForFunction(() => document.activeElement?.name === "token");
  assert.deepEqual((await made(200, "GET", `/v1/accounts/${name}/keys`)).data, []);
  assert.deepEqual(problems, []);
  await context.close();
});

test("what was refused changed nothing in the log, and a rotation tells the new key and the old one's end", async () => {
  const name = "logged", { page, context, problems } = await at(name, 1280);
  await made(201, "POST", `/v1/accounts/${name}/credits`, { amount: "5", reference: "logged-1", kind: "top_up" });
  const refused = await api("POST", `/v1/accounts/${name}/credits`, { amount: "-30", reference: "logged-2", kind: "correction" });
  assert.ok(refused.status >= 400, JSON.stringify(refused));
  const { id } = await made(201, "POST", `/v1/accounts/${name}/keys`, { label: "kept" });
  const rotated = await api("POST", `/v1/keys/${id}/rotate`, { overlap: "24h" });
  assert.ok(rotated.status < 300, JSON.stringify(rotated));
  await goToHash(page, `#/log?account=${name}`);
  await viewIs(page, "log");
  const rows = await page.$$eval(ROWS, rows => rows.map(({ cells }) => ({
    act: cells[2].querySelector("code").textContent, isRefused: cells[2].querySelector(".bad") !== null, text: cells[4].textContent, lines: [...cells[4].querySelectorAll("li")].map(line => line.textContent),
  })));
  assert.deepEqual(rows.filter(row => row.isRefused).map(row => [row.act, row.text]), [["credits.post", "–"]]);
  const [first, ...others] = rows.find(row => row.act === "key.rotate").lines;
  assert.equal(first, `new key: ${rotated.body.id}`);
  assert.deepEqual(others.map(line => line.split(":")[0]), ["expires_at"], others.join("\n"));
  assert.ok(rows.some(row => row.act === "account.create" && row.lines.length > 0), "what was done is told");
  assert.deepEqual(problems, []);
  await context.close();
});

test("a part of an account that cannot be read says so and can be asked for again, and the rest is there", async () => {
  const name = "parts", { page, context, problems } = await at(name, 400), failing = new Set(["statement", "credits", "keys", "generations"]);
  await made(201, "POST", `/v1/accounts/${name}/keys`, { label: "kept" });
  await page.route(url => failing.has(url.pathname.split("/").at(-1)), route => {
    const part = new URL(route.request().url()).pathname.split("/").at(-1);
    return route.fulfill({ status: 503, contentType: JSON_TYPE, body: JSON.stringify({ error: { message: `No ${part} now.` } }) });
  });
  await page.reload();
  await isAccount(page, name);
  for (const [part, message] of [["statement", "No statement now."], ["credit", "No credits now."], ["keys", "No keys now."], ["calls", "No generations now."]]) {
    assert.equal(await page.textContent(`[data-part=${part}] [role=alert]`), message);
  }
  for (const act of ["Add credit", "Suspend", "Close", "Create a key", "Show these days"]) assert.equal(await page.locator(`main button:text-is("${act}")`).isVisible(), true, act);
  assert.ok((await page.textContent(".tiles")).includes("Balance"));
  await isSound(page, "console-account-failed");

  failing.delete("statement");
  await press(page, "Try again: Statement");
  await page.waitForSelector("[data-part=statement] dl.sum");
  assert.equal((await focused(page)).name, "Statement");
  assert.equal(await page.locator("main [role=alert]").count(), 3, "what was not asked for again stands as it was");
  failing.delete("keys");
  await press(page, "Try again: Keys");
  await page.waitForSelector("[data-part=keys] tbody code");
  assert.deepEqual(problems, []);
  await context.close();
});

test("an account can be worked with before its reports are there, which are asked for one after the other", async () => {
  const name = "waits", { page, context, problems } = await at(name, 1280), asked = [];
  let letGo;
  const go = new Promise(resolve => { letGo = resolve; });
  await page.route(url => /\/(statement|credits|generations)$/.test(url.pathname), async route => {
    const report = new URL(route.request().url()).pathname.split("/").at(-1), isFirst = !asked.includes(report);
    asked.push(report);
    if (report === "credits") await go;
    // As on Redis, where somebody else reads a report of the account.
    if (report === "statement" && isFirst) return route.fulfill({ status: 429, headers: { "retry-after": "1" }, contentType: JSON_TYPE, body: '{"error":{"message":"Too many."}}' });
    return route.fallback();
  });
  await goToHash(page, "#/models");
  await viewIs(page, "models");
  await goToHash(page, `#/accounts/${name}`);
  await page.waitForSelector('main button:text-is("Suspend")');
  await page.waitForSelector("[data-part=keys] table");
  await until(() => asked.length > 0);
  assert.equal(await page.textContent("[data-part=credit] [aria-busy=true]"), "Loading…");
  assert.deepEqual(asked, ["credits"]);
  letGo();
  await isAccount(page, name);
  assert.deepEqual(asked, ["credits", "statement", "statement", "generations"]);
  assert.equal(await page.locator("main [role=alert]").count(), 0);
  await page.waitForSelector("[data-part=statement] dl.sum");
  assert.deepEqual(problems, []);
  await context.close();
});
