// The operators' console in a real browser, on a real gateway with 10,000 accounts: by keyboard alone at two widths, and under attack.

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { once } from "node:events";
import path from "node:path";
import { after, before, test } from "node:test";
import { demo, fill, focused, isSound, launch, pageOf, press, tabTo, until } from "./support.mjs";

const ACCOUNTS = Number(process.env.TOLLGATE_CONSOLE_ACCOUNTS ?? 10_000), AT_ONCE = 32;
// Would show itself if any of it were taken for markup.
const SCRIPT = "<img src=x onerror=window.broken=1><script>window.broken=1</script>";
const MODEL = "evil/<img/src=x/onerror=window.broken=1>";
let gateway, browser;

async function api(method, path, body, token = gateway.operator_token) {
  const answer = await fetch(new URL(path, gateway.console), { method, headers: { authorization: `Bearer ${token}`, "content-type": "application/json" }, body: body && JSON.stringify(body) });
  const text = await answer.text();
  return { status: answer.status, body: text ? JSON.parse(text) : null };
}

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

const viewIs = (page, view) => page.waitForSelector(`body[data-view=${view}]`);
const notice = page => page.textContent("#notice");

// What was done is told, and has the focus.
async function told(page, words) {
  await page.waitForFunction(words => {
    const notice = document.querySelector("#notice");
    return notice?.textContent.includes(words) && !document.querySelector("dialog") && document.activeElement === notice;
  }, words);
}

async function signIn(page, token = gateway.operator_token) {
  await page.goto(gateway.console);
  await viewIs(page, "sign-in");
  await fill(page, "Operator's token", token);
  await page.keyboard.press("Enter");
  await viewIs(page, "accounts");
}

const toAccount = async (page, name) => {
  await page.goto(`${gateway.console}#/accounts/${name}`);
  await page.waitForFunction(name => document.querySelector("h1")?.textContent === name && document.body.dataset.view, name);
};

for (const [width, number] of [[1280, 4217], [400, 7331]]) {
  test(`by keyboard alone, at ${width} pixels`, async () => {
    const { page, problems } = await pageOf(browser, width), name = shop(Math.min(number, ACCOUNTS - 1));
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
      await fill(page, "Operator's token", gateway.operator_token);
      await page.keyboard.press("Enter");
      await viewIs(page, "accounts");
      assert.equal((await focused(page)).tag, "h1");
      await isSound(page, "console-accounts");
      // What scripts can read holds no secret.
      assert.deepEqual(await page.evaluate(() => [document.cookie, localStorage.length, sessionStorage.length]), ["", 0, 0]);
    });

    await step("find an account", async () => {
      await fill(page, "Search by name", name.slice(0, 4).toUpperCase() + name.slice(4));
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 1);
      await press(page, name, "a");
      await viewIs(page, "accounts");
      await page.waitForFunction(name => document.querySelector("h1").textContent === name, name);
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
      await tabTo(page, "First day (UTC)");
      await press(page, "Show these days");
      await viewIs(page, "accounts");
      await page.waitForSelector("[data-part=statement]");
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
    });

    await step("filter calls", async () => {
      await press(page, "Calls", "a");
      await viewIs(page, "calls");
      await fill(page, "Account", name);
      await fill(page, "Model", "simulated/pro");
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => [...document.querySelectorAll("tbody tr")].some(row => row.textContent.includes("simulated/pro")));
      const rows = await page.$$eval("tbody tr", rows => rows.map(row => row.textContent));
      assert.equal(rows.length, 1, rows.join("\n"));
      await isSound(page, "console-calls");
    });

    await step("see a breaker open", async () => {
      for (let round = 0; round < 12; round += 1) await call(gateway.key, "simulated/chat", "simulate:500 please");
      await press(page, "Providers", "a");
      await page.waitForFunction(() => document.body.dataset.view === "providers" && document.querySelector("tbody").textContent.includes(" open"));
      await isSound(page, "console-providers");
    });

    await step("the other pages", async () => {
      for (const [title, view] of [["Models", "models"], ["Log", "log"], ["Operators", "operators"], ["Status", "status"]]) {
        await press(page, title, "a");
        await viewIs(page, view);
        assert.equal(await page.textContent("h1"), title);
        await isSound(page, `console-${view}`);
      }
      assert.ok((await page.textContent("main")).includes("balance"));
      await toAccount(page, "acme");
      await isSound(page, "console-account-busy");
    });

    await step("sign out", async () => {
      await press(page, "Sign out");
      await viewIs(page, "sign-in");
      assert.equal((await page.evaluate(() => fetch("/v1/accounts").then(answer => answer.status))), 401);
    });
    assert.deepEqual(problems, []);
    assert.equal(await page.evaluate(() => window.broken), undefined, "text was taken for markup");
    await page.context().close();
  });
}

test("a role is offered what it may do, and nothing else", async () => {
  const acts = { read: [], support: ["Suspend", "Create a key"], billing: ["Add credit", "Correct credit"], admin: ["Add credit", "Correct credit", "Suspend", "Change terms", "Close", "Create a key"] };
  for (const [role, offered] of Object.entries(acts)) {
    const { body: { token } } = await api("POST", "/v1/operators", { name: `of ${role}`, role });
    const { page, problems } = await pageOf(browser, 1280);
    await signIn(page, token);
    await toAccount(page, shop(1));
    const buttons = await page.$$eval("main button", all => all.map(one => one.textContent).filter(text => text !== "Show these days"));
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
  await signIn(page);
  await toAccount(page, name);
  await page.click("text=Change terms");
  await page.fill("dialog input[name=low_balance]", "2.5");
  await page.fill("dialog input[name=monthly_quota]", "40");
  await page.fill("dialog textarea[name=metadata]", `owner=${SCRIPT}\n${SCRIPT.slice(0, 20)}=x`);
  await page.click("dialog button[type=submit]");
  await told(page, "The terms are saved.");
  const { body } = await api("GET", `/v1/accounts/${name}`);
  assert.deepEqual([body.low_balance, body.monthly_quota, body.own_quota, body.metadata.owner], ["2.5", "40", true, SCRIPT]);
  assert.ok((await page.textContent("main")).includes(SCRIPT));
  // Opened and saved as it is, nothing changes.
  await page.click("text=Change terms");
  await page.click("dialog button[type=submit]");
  await told(page, "The terms are saved.");
  assert.deepEqual((await api("GET", `/v1/accounts/${name}`)).body, body);
  const catalogue = path.join(path.dirname(gateway.conf), "catalogue.yaml"), known = readFileSync(catalogue, "utf8");
  const entry = `models:\n  - { id: ${JSON.stringify(MODEL)}, name: ${JSON.stringify(SCRIPT)}, provider: ${JSON.stringify(SCRIPT)}, description: x, context_length: 1000, max_completion_tokens: 100, modality: "text->text", pricing: { prompt: "0", completion: "0" }, tier: free, purposes: [chat], targets: [ { provider: simulated, model: chat } ] }\n`;
  writeFileSync(catalogue, known.replace("models:\n", entry));
  const isListed = async () => (await fetch(`${gateway.base_url}/llm/public/models?per_page=500`).then(answer => answer.json())).models.some(model => model.id === MODEL);
  await until(isListed);
  assert.equal((await call(gateway.key, MODEL)).status, 200);
  for (const [view, query] of [["models", ""], ["log", ""], ["calls", `?account=${gateway.account}`], [`accounts/${gateway.account}`, ""]]) {
    await page.goto(`${gateway.console}#/${view}${query}`);
    await viewIs(page, view.split("/")[0]);
    await page.waitForFunction(words => words.some(word => document.querySelector("main").textContent.includes(word)), [MODEL, SCRIPT]);
  }
  assert.equal(await page.evaluate(() => window.broken), undefined, "text was taken for markup");
  assert.deepEqual(problems, []);
  await page.context().close();
});

test("another page can neither act nor frame the console", async () => {
  const name = shop(4), { page, context } = await pageOf(browser, 1280);
  await signIn(page);
  const target = new URL(`/v1/accounts/${name}/credits`, gateway.console).href;
  const body = JSON.stringify({ amount: "1000", reference: "forged", kind: "top_up" });
  const attacker = createServer((request, answer) => answer.setHeader("content-type", "text/html").end(request.url === "/frame"
    ? `<iframe src="${gateway.console}"></iframe>`
    : `<form method="post" enctype="text/plain" action="${target}"><input name='${body.slice(0, -1)},"note":"' value='"}'></form>`));
  attacker.listen(0, "127.0.0.1");
  await once(attacker, "listening");
  // Of the same site, since ports are not told apart there: the browser does send the cookie.
  const origin = `http://127.0.0.1:${attacker.address().port}`;
  const evil = await context.newPage();
  await evil.goto(`${origin}/form`);
  const [posted] = await Promise.all([evil.waitForResponse(target), evil.waitForURL(target), evil.evaluate(() => document.forms[0].submit())]);
  assert.ok([400, 401, 403, 415].includes(posted.status()), `the form was answered ${posted.status()}`);
  await evil.goto(`${origin}/form`);
  for (const [method, path, text] of [["POST", `/v1/accounts/${name}/credits`, body], ["PATCH", `/v1/accounts/${name}`, '{"status":"closed"}'], ["PUT", "/v1/maintenance", '{"on":true}'], ["DELETE", "/v1/session", undefined], ["GET", "/v1/accounts", undefined], ["GET", "/v1/session", undefined]]) {
    for (const mode of ["cors", "no-cors"]) {
      const read = await evil.evaluate(async ({ url, method, mode, text }) => {
        try {
          const answer = await fetch(url, { method, mode, credentials: "include", headers: mode === "cors" ? { "content-type": "application/json" } : {}, body: text });
          return await answer.text();
        } catch (error) { return null; }
      }, { url: new URL(path, gateway.console).href, method, mode, text });
      assert.ok(!read, `${method} ${path} can be read elsewhere: ${read}`);
    }
  }
  // With its cookie but without its token, not even a page of its own may write.
  const without = await page.evaluate(url => fetch(url, { method: "POST", headers: { "content-type": "application/json" }, body: '{"amount":"1","reference":"x"}' }).then(answer => answer.status), target);
  assert.equal(without, 403);
  const { body: facts } = await api("GET", `/v1/accounts/${name}`);
  assert.deepEqual([facts.balance, facts.status], ["0", "active"]);
  assert.equal((await api("GET", "/v1/maintenance")).body.on, false);

  await evil.goto(`${origin}/frame`);
  await evil.waitForLoadState("load");
  const [, frame] = evil.frames();
  assert.equal(await frame.$("#main"), null, "the console stands in another page's frame");
  assert.equal(await page.evaluate(() => fetch("/v1/session").then(answer => answer.status)), 200, "the session is there yet");
  attacker.close();
  await context.close();
});
