// The wallet and the list of prices in a real browser, on a real gateway with a day of traffic: by keyboard alone at two widths.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { demo, fill, focused, isSound, launch, pageOf, press, ROWS, SCRIPT, sellModel, tabTo, until } from "./support.mjs";

const run = promisify(execFile);
// A model's id that wants to be markup, and a shell's command.
const MODEL = "evil/<img/src=x/onerror=window.broken=1>'$(touch${IFS}broken)'`touch<broken`";
// OpenAI's clients, as tests/run has installed them.
const MODULES = process.env.TOLLGATE_NODE_MODULES ?? path.resolve("..", "node-clients/node_modules"), PYTHON = process.env.TOLLGATE_PYTHON ?? path.resolve("..", "venv-clients/bin/python");
let gateway, browser, lines;

before(async () => {
  gateway = await demo("--with-traffic");
  browser = await launch();
  lines = path.join(gateway.folder, "lines");
  mkdirSync(lines);
  symlinkSync(MODULES, path.join(lines, "node_modules"));
});

after(async () => {
  await browser?.close();
  await gateway?.stop();
});

const ask = (path, key = gateway.key) => fetch(`${gateway.base_url}${path}`, { headers: { authorization: `Bearer ${key}` } }).then(answer => answer.text());

async function open(page) {
  await page.goto(gateway.wallet);
  await fill(page, "API key", gateway.key);
  await page.keyboard.press("Enter");
  await page.waitForSelector("body[data-ready]");
}

// Runs lines as somebody does who has pasted them: into a shell, or into a file. What they print.
async function paste(name, text) {
  const env = { ...process.env, OPENAI_API_KEY: "", OPENAI_BASE_URL: "" };
  if (name === "curl") return (await run("sh", ["-c", text], { cwd: lines, env })).stdout;
  const file = name === "Python" ? "pasted.py" : "pasted.mjs";
  writeFileSync(path.join(lines, file), text);
  return (await run(name === "Python" ? PYTHON : process.execPath, [file], { cwd: lines, env })).stdout;
}

for (const width of [1280, 400]) {
  test(`the wallet by keyboard alone, at ${width} pixels`, async () => {
    const { page, context, problems } = await pageOf(browser, width), asked = [];
    page.on("request", request => asked.push(request.url()));
    await page.goto(gateway.wallet);
    await isSound(page, "wallet-closed");
    await fill(page, "API key", "tg_wrong");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.querySelector("#key-error").textContent);
    await isSound(page, "wallet-wrong-key");
    assert.equal((await focused(page)).id, "key");
    assert.equal(await page.getAttribute("#key", "aria-invalid"), "true");
    await fill(page, "API key", gateway.key);
    await page.keyboard.press("Enter");
    await page.waitForSelector("body[data-ready]");
    assert.equal((await focused(page)).id, "title");
    await isSound(page, "wallet");

    // As exact as the answers are.
    const balance = /"balance":([\d.]+)/.exec(await ask("/llm/balance"))[1];
    assert.ok((await page.textContent("#tiles")).includes(`${balance} USD`));
    const usage = await ask("/llm/usage?period=30d"), total = /"total_cost":([\d.]+)/.exec(usage)[1];
    assert.ok((await page.textContent("#by-day figcaption")).includes(`${total} USD`), await page.textContent("#by-day figcaption"));
    assert.ok(await page.locator("#by-day rect").count() > 0);
    await press(page, "The figures as a table");
    assert.ok(await page.locator("#by-day tbody tr").count() >= 1);
    // Each row has its call's cost, with all its digits: as the answer writes it, for a number of JavaScript may have fewer.
    const calls = JSON.parse((await ask("/llm/generations?limit=20")).replace(/"total_cost":([\d.]+)/g, '"total_cost":"$1"')).data;
    const column = place => page.locator(`#calls tbody tr:not(.more) td:nth-child(${place})`);
    assert.match(await page.textContent("#calls thead th:nth-child(5)"), /^Cost, USD$/);
    assert.deepEqual(await column(5).allTextContents(), calls.map(call => call.total_cost));
    assert.deepEqual(await column(2).allTextContents(), calls.map(call => call.model));
    assert.ok(calls.length === 20 && calls.some(call => call.total_cost.length > 8), "costs with many digits are among them");
    assert.ok(await column(5).first().isVisible());
    await press(page, "Older calls");
    await page.waitForFunction(() => document.querySelectorAll("#calls tbody tr:not(.more)").length === 40);
    await tabTo(page, "Only of the model");
    await page.keyboard.type("simulated/pro");
    await page.waitForFunction(() => [...document.querySelectorAll("#calls tbody tr:not(.more) td:nth-child(2)")].every(cell => cell.textContent === "simulated/pro"));

    // Lines that are copied work where they are pasted.
    await context.grantPermissions(["clipboard-read", "clipboard-write"]);
    await press(page, "Copy the curl lines");
    await page.waitForFunction(() => document.querySelector("[data-snippet=curl] button").textContent === "Copied");
    const copied = await page.evaluate(() => navigator.clipboard.readText());
    assert.ok(copied.includes(gateway.base_url) && copied.includes(gateway.key));
    assert.equal(JSON.parse(await paste("curl", copied)).object, "chat.completion");
    await tabTo(page, "with my key in the lines");
    await page.keyboard.press("Space");
    assert.ok(!(await page.textContent("#snippets")).includes(gateway.key));

    // The key stands in no address and no store, and is gone when it is forgotten.
    const places = await page.evaluate(() => [location.href, document.cookie, JSON.stringify(localStorage), JSON.stringify(sessionStorage)]);
    for (const text of [...places, ...asked]) assert.ok(!text.includes(gateway.key), text);
    for (const url of asked) assert.ok(url.startsWith(gateway.base_url) || url.startsWith("data:"), `the page asked for ${url}`);
    await isSound(page, "wallet-filtered");
    await press(page, "Forget the key");
    assert.equal((await focused(page)).id, "key");
    assert.ok(!(await page.content()).includes(gateway.key));
    assert.deepEqual(problems, []);
    await context.close();
  });

  test(`the prices, without a key, at ${width} pixels`, async () => {
    const { page, context, problems } = await pageOf(browser, width);
    await page.goto(`${gateway.base_url}/prices`);
    await page.waitForSelector("body[data-ready]");
    await isSound(page, "prices");
    const { models } = JSON.parse(await ask("/llm/public/models?per_page=500", ""));
    assert.equal(await page.locator(ROWS).count(), models.length);
    assert.ok((await page.textContent("tbody")).includes("17.25"), "a million completion tokens of simulated/pro");
    await fill(page, "Search", "embed");
    await page.waitForFunction(() => document.querySelectorAll("tbody tr:not(.more)").length === 1);
    assert.deepEqual(problems, []);
    await context.close();
  });
}

test("an answer that is late for its filter, or for a key that is forgotten, is not shown", async () => {
  const { page, context, problems } = await pageOf(browser, 1280), held = [];
  const [first, second] = new Set(JSON.parse(await ask("/llm/generations?limit=20")).data.map(call => call.model));
  assert.ok(second, "calls of two models are among the newest");
  // Which answers the page has read: what it does with one is done when anybody else is told.
  await page.addInitScript(() => {
    const { text } = Response.prototype;
    window.answersRead = [];
    Response.prototype.text = async function () {
      const said = await text.call(this);
      window.answersRead.push(new URL(this.url).searchParams.get("model"));
      return said;
    };
  });
  await page.route(url => url.pathname.endsWith("/llm/generations") && url.searchParams.get("model") === first, route => { held.push(route); });
  const filter = async model => {
    await page.selectOption("#of-model", model);
    if (model === first) await until(() => held.length === 1);
  };
  const release = async times => {
    await held.shift().continue();
    await page.waitForFunction(([model, times]) => window.answersRead.filter(one => one === model).length === times, [first, times]);
  };
  const isShown = model => page.waitForFunction(model => {
    const cells = [...document.querySelectorAll("#calls tbody tr:not(.more) td:nth-child(2)")];
    return cells.length > 0 && cells.every(cell => cell.textContent === model);
  }, model);
  await open(page);
  await filter(first);
  await filter(second);
  await isShown(second);
  const shown = await page.textContent("#calls");
  await release(1);
  assert.equal(await page.textContent("#calls"), shown);

  await filter(first);
  await page.click("#forget");
  await release(2);
  assert.equal(await page.textContent("#calls"), "");
  assert.deepEqual(problems, []);
  await context.close();
});

test("names are text in pages and in shells, and the operator's link leads to where credit is paid", async () => {
  const conf = readFileSync(gateway.conf, "utf8");
  writeFileSync(gateway.conf, `${conf}\nwallet: { name: ${JSON.stringify(SCRIPT.slice(0, 60))}, top_up_url: "https://pay.example/?a=1&b=2" }\n`);
  sellModel(gateway, MODEL);
  const { page, context, problems } = await pageOf(browser, 1280);
  const isThere = async () => (await ask("/llm/public/models?per_page=500", "")).includes("window.broken") && (await ask("/wallet")).includes("pay.example");
  await until(isThere);
  await open(page);
  assert.equal(await page.textContent(".brand"), SCRIPT.slice(0, 60));
  assert.equal(await page.getAttribute("#tiles a", "href"), "https://pay.example/?a=1&b=2");
  assert.ok((await page.textContent("#models")).includes(SCRIPT));
  // Of every kind of model, in every language, with a name that is a command in one of them.
  for (const model of ["simulated/chat", "simulated/embed", MODEL]) {
    await page.selectOption("#model", model);
    for (const name of ["curl", "Python", "Node"]) {
      const told = await paste(name, await page.textContent(`[data-snippet=${name.toLowerCase()}] pre`));
      const wanted = model === "simulated/embed" ? (name === "curl" ? /"object":"list"/ : /^2 vectors of \d+\n$/) : name === "curl" ? /"object":"chat.completion"/ : /^This is Tollgate.s simulated provider/;
      assert.match(told, wanted, `${name}, ${model}`);
    }
  }
  assert.deepEqual(readdirSync(lines).sort(), ["node_modules", "pasted.mjs", "pasted.py"], "a name was taken for a command");
  await page.goto(`${gateway.base_url}/prices`);
  await page.waitForSelector("body[data-ready]");
  assert.ok((await page.textContent("tbody")).includes(MODEL));
  assert.equal(await page.evaluate(() => window.broken), undefined, "text was taken for markup");
  assert.deepEqual(problems, []);

  // In no other page's frame.
  await page.setContent(`<iframe src="${gateway.wallet}"></iframe>`);
  await page.waitForLoadState("load");
  const [, frame] = page.frames();
  assert.equal(await frame.$("#main"), null);
  await context.close();
});
