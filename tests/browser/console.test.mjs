// The operators' console in a real browser, on a real gateway with 10,000 accounts: by keyboard alone at two widths, by role, by a double click.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { askOperatorApi, demo, fill, focused, goToAccount, isAccount, isSound, launch, pageOf, press, ROWS, SCRIPT, shot, signInto, tabTo, told, viewIs } from "./support.mjs";

const ACCOUNTS = Number(process.env.TOLLGATE_CONSOLE_ACCOUNTS ?? 10_000), AT_ONCE = 32;
let gateway, browser;

const api = (...request) => askOperatorApi(gateway, ...request);
const signIn = (page, token) => signInto(page, gateway, token);
const toAccount = (page, name) => goToAccount(page, gateway, name);

const call = (key, model, content = "Tell me a short story.") => fetch(`${gateway.base_url}/llm/chat`, {
  method: "POST", headers: { authorization: `Bearer ${key}`, "content-type": "application/json" }, body: JSON.stringify({ model, messages: [{ role: "user", content }] }),
}).then(async answer => ({ status: answer.status, text: await answer.text() }));

const shop = number => `shop-${String(number).padStart(5, "0")}`;

before(async () => {
  gateway = await demo("--with-traffic");
  let next = 0;
  const worker = async () => {
    for (let number = next++; number < ACCOUNTS; number = next++) {
      const { status, body } = await api("POST", "/v1/accounts", { name: shop(number), tier: "pro" });
      assert.equal(status, 201, JSON.stringify(body));
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  browser = await launch();
});

after(async () => {
  await browser?.close();
  await gateway?.stop();
});

// On paper an account is its statement, without what can be pressed there.
async function isPrinted(page, balance, name) {
  await page.emulateMedia({ media: "print" });
  const text = await page.evaluate(() => document.querySelector("main").innerText);
  for (const there of ["Statement", `Closing balance\n${balance}`, "Debits by day and model", "As of "]) assert.ok(text.includes(there), `${there} is not in\n${text}`);
  for (const other of ["Keys", "Add credit", "Newest calls", "Show these days", "Print it"]) assert.ok(!text.includes(other), `${other} is in\n${text}`);
  await shot(page, name);
  await page.emulateMedia({ media: "screen" });
}

// The model that fails is called by no other step and at no other width: a breaker that is open would refuse those.
for (const [width, number, failing] of [[1280, 4217, "simulated/mini"], [400, 7331, "simulated/vendor/model:free"]]) {
  test(`by keyboard alone, at ${width} pixels`, async () => {
    const { page, problems } = await pageOf(browser, width), name = shop(number % ACCOUNTS);
    const step = async (title, act) => {
      try { await act(); } catch (error) { throw new Error(`${title}: ${error.message}`, { cause: error }); }
    };
    let key, second;

    await step("sign in", async () => {
      await page.goto(gateway.console);
      await viewIs(page, "sign-in");
      await isSound(page, "console-sign-in");
      await fill(page, "Operator's token", "tgop_wrong");
      await page.keyboard.press("Enter");
      await page.waitForSelector("[role=alert]:not(:empty), .error:not(:empty)");
      await isSound(page, "console-sign-in-wrong");
      await fill(page, "Operator's token", gateway.operator_token);
      await page.keyboard.press("Enter");
      await viewIs(page, "accounts");
      assert.equal((await focused(page)).tag, "h1");
      await isSound(page, "console-accounts");
      // What scripts can read is nothing without the cookie.
      assert.deepEqual(await page.evaluate(() => [document.cookie, Object.keys(localStorage), sessionStorage.length]), ["", ["tollgate-csrf"], 0]);
      const kept = await page.evaluate(() => localStorage.getItem("tollgate-csrf"));
      assert.match(kept, /^[0-9a-f]{64}$/);
      assert.equal((await fetch(new URL("/v1/session", gateway.console), { headers: { "x-csrf-token": kept } })).status, 401);
    });

    await step("find an account", async () => {
      await fill(page, "Search by name", "nobody");
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => document.querySelector("tbody").textContent.includes("nobody"));
      await isSound(page, "console-accounts-none");
      await fill(page, "Search by name", name.slice(0, 4).toUpperCase() + name.slice(4));
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => document.querySelectorAll("tbody tr:not(.more)").length === 1);
      await press(page, name, "a");
      await isAccount(page, name);
      await isSound(page, "console-account-new");
    });

    await step("add credit, with a mistake first", async () => {
      await press(page, "Add credit");
      await page.waitForSelector("dialog[open]");
      await isSound(page, "console-add-credit");
      await fill(page, "Amount", "1,5");
      await page.keyboard.press("Enter");
      const { name: field } = await focused(page);
      assert.equal(field, "Amount", "the focus is at the field with the mistake");
      assert.equal(await page.getAttribute("dialog input[name=amount]", "aria-invalid"), "true");
      await isSound(page, "console-add-credit-wrong");
      await fill(page, "Amount", "25.5");
      await page.keyboard.press("Enter");
      await told(page, "The balance is 25.5.");
    });

    await step("correct it", async () => {
      await press(page, "Correct credit");
      await fill(page, "Amount", "-30");
      await page.keyboard.press("Enter");
      await page.waitForSelector("dialog [role=alert]:not(:empty), dialog .error:not(:empty)");
      await fill(page, "Amount", "-5.25");
      await fill(page, "Note", SCRIPT);
      await press(page, "Post it");
      await told(page, "The balance is 20.25.");
      assert.ok((await page.textContent("[data-part=credit]")).includes(SCRIPT));
    });

    await step("create a key", async () => {
      await press(page, "Create a key");
      await fill(page, "Label", SCRIPT.slice(0, 60));
      await page.keyboard.press("Enter");
      await page.waitForSelector("[data-secret]");
      await isSound(page, "console-new-key");
      key = (await page.textContent("[data-secret]")).trim();
      await press(page, "I have kept it");
      await told(page, "is made.");
      assert.ok(!(await page.content()).includes(key), "the key is shown once");
      assert.equal((await call(key, "simulated/chat")).status, 200);
      assert.equal((await call(key, "simulated/pro")).status, 200);
    });

    await step("rotate it", async () => {
      const id = await page.textContent("[data-part=keys] tbody code");
      await press(page, `Rotate ${id}`);
      await page.keyboard.press("Enter");
      await page.waitForSelector("[data-secret]");
      second = (await page.textContent("[data-secret]")).trim();
      await press(page, "I have kept it");
      await told(page, "takes the place of");
      assert.notEqual(key, second);
      for (const one of [key, second]) assert.equal((await call(one, "simulated/chat")).status, 200);
    });

    await step("revoke it", async () => {
      const { body } = await api("GET", `/v1/accounts/${name}/keys`);
      const newest = body.data.find(one => one.state === "active" && one.expires_at === null);
      await press(page, `Revoke ${newest.id}`);
      await page.waitForSelector("dialog[open]");
      await isSound(page, "console-revoke");
      await page.keyboard.press("Escape");
      await page.waitForSelector("dialog", { state: "detached" });
      assert.equal((await focused(page)).name, `Revoke ${newest.id}`, "Escape leads back");
      await page.keyboard.press("Enter");
      await press(page, "Revoke", "button");
      await told(page, "is revoked.");
      assert.equal((await call(second, "simulated/chat")).status, 401);
    });

    await step("read a statement", async () => {
      const [year, month, day] = new Date().toISOString().slice(0, 10).split("-");
      await tabTo(page, "First day (UTC)");
      await page.keyboard.type(`${month}${day}${year}`);
      await press(page, "Show these days");
      // The view of these days, and not the one before it.
      await page.waitForSelector(`[data-part=statement][data-from="${year}-${month}-${day}"]`);
      await viewIs(page, "accounts");
      assert.equal((await focused(page)).name, "Statement");
      await isSound(page, "console-account");
      const text = await page.textContent("[data-part=statement]");
      const { body } = await api("GET", `/v1/accounts/${name}`);
      assert.ok(text.includes(`Closing balance${body.balance}`), text);
      assert.ok(text.includes("Credit entries20.25"));
      await tabTo(page, "Download it as CSV");
      const [download] = await Promise.all([page.waitForEvent("download"), page.keyboard.press("Enter")]);
      const csv = readFileSync(await download.path(), "utf8");
      assert.match(csv, /^row,time,kind,amount,balance,reference,/);
      assert.match(csv.trimEnd().split("\r\n").at(-1), new RegExp(`^closing,[^,]*,,,${body.balance},`));
      await isPrinted(page, body.balance, `console-statement-printed-${width}`);
    });

    await step("filter calls", async () => {
      await press(page, "Calls", "a");
      await viewIs(page, "calls");
      await fill(page, "Account", name);
      await fill(page, "Model", "simulated/pro");
      await page.keyboard.press("Enter");
      await page.waitForSelector(`${ROWS} td`);
      const rows = await page.$$eval(ROWS, rows => rows.map(row => row.textContent));
      assert.equal(rows.length, 1, rows.join("\n"));
      assert.ok(rows[0].includes("simulated/pro"));
      await isSound(page, "console-calls");
      const { body } = await api("GET", `/v1/accounts/${name}/keys`), revoked = body.data.find(one => one.state === "revoked");
      await fill(page, "Model", "");
      await fill(page, "Key's id", revoked.id);
      await page.keyboard.press("Enter");
      await page.waitForFunction(([rows, id]) => document.querySelectorAll(rows).length === 1 && document.querySelector(`${rows} code`)?.textContent === id, [ROWS, revoked.id]);
    });

    await step("see a breaker open", async () => {
      // For as long as the provider asks: it is open yet when somebody looks.
      await call(gateway.key, failing, "simulate:429=120 please");
      await press(page, "Providers", "a");
      await viewIs(page, "providers");
      assert.ok((await page.textContent("tbody")).includes(`${failing.replace("simulated/", "")}: breaker open`), await page.textContent("tbody"));
      await isSound(page, "console-providers");
    });

    await step("the other pages", async () => {
      for (const [title, view] of [["Models", "models"], ["Log", "log"], ["Operators", "operators"], ["Status", "status"]]) {
        await press(page, title, "a");
        await viewIs(page, view);
        assert.equal(await page.textContent("h1"), title);
        await isSound(page, `console-${view}`);
      }
      const status = await page.textContent("main");
      assert.ok(status.includes("The booksbalance"), status);
      // The demo's day has raised some, and has no webhook that takes them.
      assert.match(status, /Events for webhooks[1-9]\d*kept until webhooks have them/);
      await press(page, "Audit the books now");
      await page.waitForFunction(() => [...document.querySelectorAll("main p")].some(one => /^The books balance: [\d,]+ accounts? audited now\.$/.test(one.textContent)));
      await isSound(page, "console-status-audited");
      await toAccount(page, "acme");
      await isSound(page, "console-account-busy");
    });

    await step("no answer, and one again", async () => {
      await page.context().setOffline(true);
      await press(page, "Models", "a");
      await page.waitForSelector("main [role=alert]:not(:empty)");
      assert.equal(await page.textContent("main [role=alert]"), "There is no answer. Try again in a moment.");
      await isSound(page, "console-no-answer");
      await page.context().setOffline(false);
      await press(page, "Try again");
      await page.waitForFunction(() => document.querySelectorAll("main tbody tr").length > 1);
    });

    await step("sign out", async () => {
      // One that does not reach the gateway leaves the session to whoever comes next: it is not told as done.
      await page.context().setOffline(true);
      await press(page, "Sign out");
      await page.waitForFunction(() => document.querySelector("#notice").textContent.startsWith("You may still be signed in: There is no answer"));
      assert.ok(await page.locator("#who").isVisible());
      await page.context().setOffline(false);
      await press(page, "Sign out");
      await viewIs(page, "sign-in");
      assert.equal((await page.evaluate(() => fetch("/v1/accounts").then(answer => answer.status))), 401);
    });
    assert.deepEqual(problems, []);
    assert.equal(await page.evaluate(() => window.broken), undefined, "text was taken for markup");
    await page.context().close();
  });
}

test("what may have been done is not said to be safe to do again, but for credit", async () => {
  const name = shop(5), { page, context, problems } = await pageOf(browser, 1280);
  await signIn(page);
  await toAccount(page, name);
  await page.click("text=Create a key");
  await context.setOffline(true);
  await page.click("dialog button[type=submit]");
  await page.waitForSelector("dialog [role=alert]:not(:empty)");
  assert.match(await page.textContent("dialog [role=alert]"), /whether it was done is not known.*log/);
  await page.click('dialog button:text-is("Cancel")');
  await told(page, "Look into the log before it is done again.");
  await context.setOffline(false);
  await page.click('main button:text-is("Try again")');
  await told(page, "Look into the log before it is done again.");
  await isAccount(page, name);
  await context.setOffline(true);
  await page.click("text=Add credit");
  await page.fill("dialog input[name=amount]", "7");
  await page.click("dialog button[type=submit]");
  await page.waitForSelector("dialog [role=alert]:not(:empty)");
  assert.match(await page.textContent("dialog [role=alert]"), /its reference counts once/);
  await context.setOffline(false);
  await page.click("dialog button[type=submit]");
  await told(page, "The balance is 7.");
  assert.deepEqual(problems, []);
  await context.close();
});

test("a role is offered what it may do, and nothing else", async () => {
  const acts = { read: [], support: ["Suspend", "Create a key"], billing: ["Add credit", "Correct credit"], admin: ["Add credit", "Correct credit", "Suspend", "Change terms", "Close", "Create a key"] };
  for (const [role, offered] of Object.entries(acts)) {
    const { body: { token } } = await api("POST", "/v1/operators", { name: `of ${role}`, role });
    const { page, problems } = await pageOf(browser, 1280);
    await signIn(page, token);
    await toAccount(page, shop(1));
    const buttons = await page.$$eval("main button", all => all.map(one => one.textContent).filter(text => !["Show these days", "Download it as CSV", "Print it"].includes(text)));
    assert.deepEqual(buttons, offered, role);
    assert.equal(await page.locator("nav a", { hasText: "Operators" }).count(), role === "admin" ? 1 : 0);
    assert.deepEqual(problems, []);
    // A revocation ends the session.
    const { body: { data } } = await api("GET", "/v1/operators");
    await api("DELETE", `/v1/operators/${data.find(one => one.name === `of ${role}` && one.state === "active").id}`);
    await page.reload();
    await viewIs(page, "sign-in");
    await page.context().close();
  }
});

test("a double click posts once, and an account is suspended, resumed and closed", async () => {
  const name = shop(2), { page, problems } = await pageOf(browser, 1280);
  await signIn(page);
  await toAccount(page, name);
  await page.click("text=Add credit");
  await page.fill("dialog input[name=amount]", "3");
  await page.dblclick("dialog button[type=submit]");
  await told(page, "The balance is 3.");
  assert.equal((await api("GET", `/v1/accounts/${name}/credits`)).body.data.length, 1);
  for (const [act, status] of [["Suspend", "suspended"], ["Resume", "active"], ["Close", "closed"]]) {
    await page.click(`main button:text-is("${act}")`);
    await page.click(`dialog button:text-is("${act}")`);
    await told(page, `${name} is ${status}.`);
    assert.equal((await api("GET", `/v1/accounts/${name}`)).body.status, status);
  }
  assert.equal(await page.locator("main button", { hasText: "Add credit" }).count(), 0);
  assert.deepEqual(problems, []);
  await page.context().close();
});

test("terms and metadata are changed, and are text wherever they are shown", async () => {
  const name = shop(3), { page, problems } = await pageOf(browser, 1280);
  // No line NAME=VALUE can show it: it stays as it is.
  await api("PATCH", `/v1/accounts/${name}`, { metadata: { "a=b": "c" } });
  await signIn(page);
  await toAccount(page, name);
  await page.click("text=Change terms");
  await page.fill("dialog input[name=low_balance]", "2.5");
  await page.fill("dialog input[name=monthly_quota]", "40");
  await page.fill("dialog textarea[name=metadata]", `owner=${SCRIPT}\n${SCRIPT.slice(0, 20)}=x`);
  await page.click("dialog button[type=submit]");
  await told(page, "The terms are saved.");
  const { body } = await api("GET", `/v1/accounts/${name}`);
  assert.deepEqual([body.low_balance, body.monthly_quota, body.own_quota, body.metadata.owner, body.metadata["a=b"]], ["2.5", "40", true, SCRIPT, "c"]);
  assert.ok((await page.textContent("main")).includes(SCRIPT));
  // Opened and saved as it is, nothing changes.
  await page.click("text=Change terms");
  await page.click("dialog button[type=submit]");
  await told(page, "The terms are saved.");
  assert.deepEqual((await api("GET", `/v1/accounts/${name}`)).body, body);
  assert.equal(await page.evaluate(() => window.broken), undefined, "text was taken for markup");
  assert.deepEqual(problems, []);
  await page.context().close();
});
