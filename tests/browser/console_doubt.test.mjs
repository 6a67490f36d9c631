// The operators' console where it is not known whether what was sent was done: its form stays, with its reference, over a session that ends, over
// an answer that never comes, over a proxy's answer. And what a sign-in in another tab does to a form.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { atNewAccount, demo, escape, focused, goToHash, isAccount, isDialogOpen, isSound, launch, madeByApi, SENDING, told, until, viewIs } from "./support.mjs";

const FAILED = "dialog form [role=alert]:not(:empty)", TOKEN = "dialog input[name=token]";
let gateway, browser;

const made = (...expected) => madeByApi(gateway, ...expected);
const at = (...where) => atNewAccount(browser, gateway, ...where);
const creditsOf = name => `/v1/accounts/${name}/credits`;
const postedTo = async name => (await made(200, "GET", creditsOf(name))).data;

before(async () => {
  gateway = await demo();
  browser = await launch();
});

after(async () => {
  await browser?.close();
  await gateway?.stop();
});

// The first credit that the page posts is posted, and `answer` says what becomes of its answer; later ones go their way. The references of all.
async function loseFirst(page, name, answer) {
  const references = [];
  await page.route(url => url.pathname === creditsOf(name), async route => {
    if (route.request().method() !== "POST") return route.fallback();
    const body = route.request().postDataJSON();
    references.push(body.reference);
    if (references.length > 1) return route.fallback();
    await made(201, "POST", creditsOf(name), body);
    return answer(route);
  });
  return references;
}

async function addCredit(page) {
  await page.click('main button:text-is("Add credit")');
  await page.fill("dialog input[name=amount]", "7");
  await page.keyboard.press("Enter");
}

async function addCreditAndLose(page, name) {
  const references = await loseFirst(page, name, route => route.abort());
  await addCredit(page);
  await page.waitForSelector(FAILED);
  return references;
}

// As a restart of the gateway does, which keeps sessions in memory: whatever the page asks for is a 401.
const endSession = context => context.clearCookies();

async function signInWithin(page, token = gateway.operator_token) {
  await page.fill(TOKEN, token);
  await page.keyboard.press("Enter");
}

test("credit whose answer is lost before its session ends is sent again after a sign-in within its form, and counts once", async () => {
  const name = "kept-form", { page, context, problems } = await at(name, 400);
  const references = await addCreditAndLose(page, name);
  await endSession(context);
  await page.click('dialog button:text-is("Add it")');
  await page.waitForSelector(TOKEN);
  const said = await page.textContent("dialog > div [role=alert]:not(:empty)");
  assert.ok(said.includes(references[0]), said);
  assert.match(said, /^The session has ended, and whether what was sent was done is not known\./);
  assert.equal(await page.textContent("#notice"), "The session has ended. Sign in again.", "nothing says that it was not done");
  assert.equal((await focused(page)).name, "Operator's token");
  await isSound(page, "console-kept-form");
  // Neither the history nor a key leads away from it.
  await goToHash(page, "#/models");
  await viewIs(page, "sign-in");
  await escape(page, 3);
  assert.ok(await isDialogOpen(page));

  await signInWithin(page, "tgop_wrong");
  await page.waitForSelector("dialog > div form [role=alert]:not(:empty)");
  await signInWithin(page);
  await page.waitForSelector(TOKEN, { state: "detached" });
  await viewIs(page, "models");
  assert.equal((await focused(page)).name, "Add it");
  assert.equal(await page.inputValue("dialog input[name=amount]"), "7");
  await page.keyboard.press("Enter");
  await told(page, `nothing was added to ${name}. The balance is 7.`);
  assert.deepEqual(references, Array(3).fill(references[0]), "lost, refused, and counted before");
  assert.equal((await postedTo(name)).length, 1);
  assert.deepEqual(problems, []);
  await context.close();
});

test("a session that is found to have ended by a read keeps the form too, and its Cancel names the reference until it can be looked for", async () => {
  const name = "cancelled", { page, context, problems } = await at(name, 1280);
  const [reference] = await addCreditAndLose(page, name);
  assert.equal(await page.isEditable("dialog input[name=reference]"), false, "by another one it would count twice");
  await endSession(context);
  await goToHash(page, "#/models");
  await page.waitForSelector(TOKEN);
  await viewIs(page, "sign-in");
  await page.click('dialog button:text-is("Cancel")');
  await page.waitForSelector("dialog", { state: "detached" });
  const notice = `“Add credit to ${name}”: whether it was done is not known. Look for the reference ${reference} in the account's credit before anything is posted again.`;
  await page.waitForFunction(notice => document.querySelector("#notice").textContent === notice, notice);
  await page.fill("main input[name=token]", gateway.operator_token);
  await page.keyboard.press("Enter");
  await told(page, notice);
  await viewIs(page, "models");
  assert.deepEqual(problems, []);
  await context.close();
});

test("a form that is being sent cannot be changed, and its reference not after a lost answer either", async () => {
  const name = "unchanged", { page, context, problems } = await at(name, 1280);
  let letGo;
  const go = new Promise(resolve => { letGo = resolve; });
  await loseFirst(page, name, async route => { await go; await route.abort(); });
  await addCredit(page);
  await page.waitForSelector(SENDING);
  const fields = ["amount", "reference", "note"];
  const editable = () => Promise.all(fields.map(field => page.isEditable(`dialog [name=${field}]`)));
  assert.deepEqual(await editable(), [false, false, false]);
  letGo();
  await page.waitForSelector(FAILED);
  assert.deepEqual(await editable(), [true, false, true]);
  assert.deepEqual(problems, []);
  await context.close();
});

test("Cancel of a form whose answer was lost shows the credit as it is by then", async () => {
  const name = "looked-for", { page, context, problems } = await at(name, 1280);
  const [reference] = await addCreditAndLose(page, name);
  await page.click('dialog button:text-is("Cancel")');
  await told(page, `Look for the reference ${reference} `);
  assert.ok((await page.textContent("[data-part=credit] tbody")).includes(reference));
  assert.deepEqual(problems, []);
  await context.close();
});

// Ends the time of each request when the test asks for it, in place of the browser's clock; `limits` are their times, in milliseconds.
async function holdTime(page) {
  await page.addInitScript(() => {
    const limits = [];
    AbortSignal.timeout = ms => {
      const limit = new AbortController();
      limits.push({ ms, end: () => limit.abort(new DOMException("The time is over.", "TimeoutError")) });
      return limit.signal;
    };
    window.endTime = () => { for (const { end } of limits) end(); return limits.map(({ ms }) => ms); };
  });
  await page.reload({ waitUntil: "commit" });
}

async function endTime(page) {
  const limits = await page.evaluate(() => window.endTime());
  assert.ok(limits.length > 0, "no request has an end");
  // The gateway itself takes 60 s at most.
  for (const ms of limits) assert.ok(ms > 60_000 && ms <= 120_000, String(ms));
}

test("a form whose answer never comes can be sent again, and counts once", async () => {
  const name = "frozen", { page, context, problems } = await at(name, 1280);
  let letGo;
  const go = new Promise(resolve => { letGo = resolve; });
  await holdTime(page);
  await isAccount(page, name);
  let isPosted = false;
  const references = await loseFirst(page, name, async route => {
    isPosted = true;
    await go;
    return route.abort();
  });
  await addCredit(page);
  await page.waitForSelector(SENDING);
  await until(() => isPosted);
  await endTime(page);
  await page.waitForSelector(FAILED);
  letGo();
  assert.equal(await page.textContent(FAILED), "There is no answer: whether it was done is not known. The same form can be sent again: its reference counts once.");
  await page.click('dialog button:text-is("Add it")');
  await told(page, `nothing was added to ${name}. The balance is 7.`);
  assert.equal(references[0], references[1]);
  assert.equal((await postedTo(name)).length, 1);
  assert.deepEqual(problems, []);
  await context.close();
});

test("a report whose answer never comes says so, and those behind it are read", async () => {
  const name = "frozen-report", { page, context, problems } = await at(name, 1280);
  let letGo, isAsked = false;
  const go = new Promise(resolve => { letGo = resolve; });
  await page.route(url => url.pathname.endsWith("/statement"), async route => {
    isAsked = true;
    await go;
    return route.abort();
  });
  await holdTime(page);
  await page.waitForSelector("[data-part=credit] table");
  await page.waitForSelector("[data-part=keys] table");
  await until(() => isAsked);
  assert.equal(await page.textContent("[data-part=calls] [aria-busy=true]"), "Loading…");
  await endTime(page);
  await isAccount(page, name);
  letGo();
  assert.equal(await page.textContent("[data-part=statement] [role=alert]"), "There is no answer. Try again in a moment.");
  assert.ok(await page.locator("[data-part=calls] table").isVisible());
  assert.deepEqual(problems, []);
  await context.close();
});

test("a proxy's answer to what was sent says that it is not known whether it was done", async () => {
  const name = "by-proxy", { page, context, problems } = await at(name, 1280);
  const byProxy = status => route => route.fulfill({ status, contentType: "text/html", body: "<h1>Gateway trouble</h1>" });
  const references = await loseFirst(page, name, byProxy(504));
  await addCredit(page);
  await page.waitForSelector(FAILED);
  assert.equal(await page.textContent(FAILED), "The answer has the status 504: whether it was done is not known. The same form can be sent again: its reference counts once.");
  await page.click('dialog button:text-is("Add it")');
  await told(page, `nothing was added to ${name}. The balance is 7.`);
  assert.equal(references[0], references[1]);
  assert.equal((await postedTo(name)).length, 1);

  let keys = 0;
  await page.route(url => url.pathname === `/v1/accounts/${name}/keys`, route => (route.request().method() === "POST" && (keys += 1) === 1 ? byProxy(502)(route) : route.fallback()));
  await page.click('main button:text-is("Create a key")');
  await page.click("dialog button[type=submit]");
  await page.waitForSelector(FAILED);
  assert.equal(await page.textContent(FAILED), "The answer has the status 502: whether it was done is not known. Look into the log before it is sent again.");
  // Once it is done, the first sending may still have been.
  await page.click("dialog button[type=submit]");
  await page.click('dialog button:text-is("I have kept it")');
  await told(page, "is made. An earlier sending of the form may have been done as well: look into the log.");
  assert.deepEqual(problems, []);
  await context.close();
});

// Another tab of the same browser, in which somebody signs out and in again.
async function signInElsewhere(context, token) {
  const other = await context.newPage();
  await other.goto(gateway.console);
  await viewIs(other, "accounts");
  await other.click("#leave");
  await viewIs(other, "sign-in");
  await other.fill("main input[name=token]", token);
  await other.press("main input[name=token]", "Enter");
  await viewIs(other, "accounts");
  await other.close();
}

test("a form that is filled in before the same operator signs in again in another tab is sent in the new session", async () => {
  const name = "two-tabs", { page, context, problems } = await at(name, 1280), answers = [];
  page.on("response", answer => { if (answer.request().method() === "POST" && answer.url().endsWith(creditsOf(name))) answers.push(answer.status()); });
  await page.click('main button:text-is("Add credit")');
  await page.fill("dialog input[name=amount]", "7");
  await signInElsewhere(context, gateway.operator_token);
  await page.click('dialog button:text-is("Add it")');
  await told(page, `Posted to ${name}. The balance is 7.`);
  await until(() => answers.length > 1);
  assert.deepEqual(answers, [403, 201]);
  assert.equal((await postedTo(name)).length, 1);
  assert.deepEqual(problems, []);
  await context.close();
});

test("a form is not sent in the session of another operator, who signed in in another tab", async () => {
  const { token } = await made(201, "POST", "/v1/operators", { name: "of another tab", role: "admin" });
  const sent = "other-operator", first = await at(sent, 1280);
  await first.page.click('main button:text-is("Add credit")');
  await first.page.fill("dialog input[name=amount]", "7");
  await signInElsewhere(first.context, token);
  await first.page.click('dialog button:text-is("Add it")');
  await first.page.waitForSelector("dialog", { state: "detached" });
  await viewIs(first.page, "sign-in");
  assert.equal(await first.page.textContent("#notice"), "The session has ended, and what was sent was not done. Sign in again.");
  assert.deepEqual(await postedTo(sent), []);
  assert.deepEqual(first.problems, []);
  await first.context.close();

  // One that may have been done stays.
  const kept = "other-operator-kept", second = await at(kept, 1280);
  const references = await addCreditAndLose(second.page, kept);
  await signInElsewhere(second.context, token);
  await second.page.click('dialog button:text-is("Add it")');
  await second.page.waitForSelector(TOKEN);
  await signInWithin(second.page);
  await second.page.waitForSelector(TOKEN, { state: "detached" });
  await second.page.click('dialog button:text-is("Add it")');
  await told(second.page, `nothing was added to ${kept}. The balance is 7.`);
  assert.equal(new Set(references).size, 1);
  assert.equal((await postedTo(kept)).length, 1);
  assert.deepEqual(second.problems, []);
  await second.context.close();
});
