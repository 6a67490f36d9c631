// The status page in a real browser, on a real gateway under load: it reads well at both widths, and its figures are those of /metrics.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import path from "node:path";
import readline from "node:readline";
import { after, before, test } from "node:test";
import { barriers, SCHEMES } from "../browser/support.mjs";

// The client is installed in the directory that the test is started in.
const { chromium } = createRequire(path.join(process.cwd(), "package.json"))("playwright-core");
const BINARY = process.env.TOLLGATE_BIN;
const SHOTS = path.join(process.cwd(), "screenshots");

let folder, gateway, browser, greeting, admin;

before(async () => {
  assert.ok(BINARY, "TOLLGATE_BIN names the binary");
  folder = mkdtempSync(path.join(tmpdir(), "tollgate-status-"));
  mkdirSync(SHOTS, { recursive: true });
  const log = path.join(folder, "gateway.log");
  gateway = spawn(BINARY, ["demo", "--simulated", "--json", "--listen", "127.0.0.1:0", "--data-dir", path.join(folder, "data")], { stdio: ["ignore", "pipe", openSync(log, "w")] });
  const line = (await readline.createInterface({ input: gateway.stdout })[Symbol.asyncIterator]().next()).value;
  assert.ok(line, `the demo does not start:\n${readFileSync(log, "utf8")}`);
  greeting = JSON.parse(line);
  admin = "http://" + /^admin_listen: "?([^"\n]+)/m.exec(readFileSync(greeting.conf, "utf8"))[1];
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] });
});

after(async () => {
  await browser?.close();
  if (gateway) {
    const ended = gateway.exitCode === null ? new Promise(resolve => gateway.once("exit", resolve)) : null;
    gateway.kill("SIGTERM");
    await ended;
  }
  rmSync(folder, { recursive: true, force: true });
});

function call(body, key = greeting.key) {
  return fetch(`${greeting.base_url}/llm/chat`, {
    method: "POST", headers: { authorization: `Bearer ${key}`, "content-type": "application/json" }, body: JSON.stringify(body),
  }).then(answer => answer.text());
}

const chat = (text, stream = false) => ({ model: "simulated/chat", stream, messages: [{ role: "user", content: text }] });

// The sum of a metric's samples.
async function metric(page, name) {
  const lines = page.split("\n").filter(line => line.startsWith(name + "{") || line.startsWith(name + " "));
  assert.ok(lines.length, name);
  return lines.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(" "))), 0);
}

async function load(rounds) {
  const one = async worker => {
    for (let round = 0; round < rounds; round++) {
      await call(chat(round % 5 === 4 ? "simulate:500 please" : "Tell me a short story.", worker % 2 === 0));
      if (round % 3 === 0) await call(chat("hello"), "tg_wrong");
    }
  };
  await Promise.all(Array.from({ length: 6 }, (_, worker) => one(worker)));
}

async function figures(page) {
  return page.$$eval("[data-figure]", boxes => Object.fromEntries(boxes.map(box => [box.dataset.figure, box.dataset.value])));
}

// Words of a table's first column that do not stand on one line.
function brokenWords(page) {
  return page.$$eval("td:first-child", cells => cells.flatMap(cell => {
    const text = cell.firstChild, words = [...(text?.textContent ?? "").matchAll(/[a-z]{3,18}/g)];
    return words.filter(({ index, 0: word }) => {
      const range = document.createRange();
      range.setStart(text, index);
      range.setEnd(text, index + word.length);
      return range.getClientRects().length > 1;
    }).map(([word]) => word);
  }));
}

// Open breakers as the tile has them, and as the table of the same moment has them.
function breakers(page) {
  return page.evaluate(() => {
    const tile = Number(document.querySelector("[data-figure=breakers_open]").dataset.value);
    const rows = [...document.querySelectorAll("#providers td:last-child")].map(cell => Number(/^\d+(?= of)/.exec(cell.textContent) ?? 0));
    return [tile, rows.reduce((sum, open) => sum + open, 0)];
  });
}

test("the page tells an audit that has not succeeded yet from one that found nothing", async () => {
  const page = await browser.newPage();
  await page.goto(admin + "/");
  await page.waitForSelector("body[data-at]");
  for (const [age, findings, unchecked, expected] of [[7, null, null, "no alarm · no audit of the books has succeeded yet"],
    [7, 0, 0, "no alarm · the books were audited 7 s ago and balance"], [null, null, null, "no alarm"],
    [7, 0, 3, "no alarm · whether the books balance is not known: the last audit could not check 3 of the accounts"]]) {
    const shown = await page.evaluate(async ([audit_age_secs, audit_findings, audit_unchecked]) => {
      const state = exact(await (await fetch("status.json")).text());
      show({ ...state, alarms: [], ledger: { ...state.ledger, audit_age_secs, audit_findings, audit_unchecked } });
      return document.getElementById("alarms").textContent;
    }, [age, findings, unchecked]);
    assert.equal(shown, expected);
  }
  await page.close();
});

test("the page tells a ledger that changes hands from a stop", async () => {
  const page = await browser.newPage();
  await page.goto(admin + "/");
  await page.waitForSelector("body[data-at]");
  for (const [ready, away, maintenance, expected] of [[true, false, false, "ready"], [true, false, true, "maintenance"],
    [false, false, false, "stopping"], [false, true, false, "the ledger changes hands"]]) {
    const shown = await page.evaluate(async ([ready, away, maintenance]) => {
      const state = exact(await (await fetch("status.json")).text());
      show({ ...state, ready, maintenance, ledger: { ...state.ledger, away } });
      return document.getElementById("state").textContent;
    }, [ready, away, maintenance]);
    assert.equal(shown, expected);
  }
  await page.close();
});

for (const [width, height] of [[1280, 900], [500, 860], [400, 860]]) {
  test(`the page reads well at ${width} pixels, and its figures are those of /metrics`, async () => {
    const page = await browser.newPage({ viewport: { width, height } });
    const problems = [];
    page.on("pageerror", error => problems.push(String(error)));
    page.on("console", message => message.type() === "error" && problems.push(message.text()));
    await page.goto(admin + "/");
    await page.waitForSelector("body[data-at]");
    const busy = load(12);
    // Under load: two samples, so that there is a trend.
    await page.waitForFunction(() => document.querySelectorAll("#models tr").length > 1 && document.body.dataset.at);
    await page.screenshot({ path: path.join(SHOTS, `status-${width}-load.png`), fullPage: true });
    await busy;
    // A model that fails again and again is passed over.
    for (let round = 0; round < 12; round++) await call(chat("simulate:500 please"));
    for (let [tile, rows] = [0, 0]; tile === 0;) {
      [tile, rows] = await breakers(page);
      assert.equal(tile, rows, "open breakers of the tile and of the table");
      await page.waitForFunction(before => document.body.dataset.at !== before, await page.getAttribute("body", "data-at"));
    }
    assert.deepEqual(await brokenWords(page), []);
    for (const colorScheme of SCHEMES) {
      await page.emulateMedia({ colorScheme });
      assert.deepEqual(await barriers(page), [], colorScheme);
      await page.screenshot({ path: path.join(SHOTS, `status-${width}-${colorScheme}.png`), fullPage: true });
    }

    const metrics = async () => (await fetch(admin + "/metrics")).text();
    // Debits are committed in groups: the figures stand still once none is left.
    let text = await metrics();
    while (await metric(text, "tollgate_unsettled_debits") + await metric(text, "tollgate_holds_open") + await metric(text, "tollgate_requests_in_flight") > 0)
      text = await metrics();
    const at = await page.getAttribute("body", "data-at");
    await page.waitForFunction(before => document.body.dataset.at !== before, at);
    await page.waitForFunction(before => document.body.dataset.at !== before, await page.getAttribute("body", "data-at"));
    const shown = await figures(page);
    for (const [figure, name] of [["requests", "tollgate_requests_total"], ["cost", "tollgate_debited_credits_total"], ["tokens", "tollgate_tokens_total"],
      ["debits", "tollgate_debits_total"], ["denials", "tollgate_denials_total"], ["holds", "tollgate_holds_open"], ["in_flight", "tollgate_requests_in_flight"],
      ["unsettled", "tollgate_unsettled_debits"], ["models", "tollgate_catalogue_models"]]) {
      const expected = await metric(text, name), found = Number(shown[figure]);
      assert.ok(Math.abs(found - expected) < 1e-12, `${figure}: the page has ${found}, ${name} is ${expected}`);
    }
    assert.ok(Number(shown.requests) > 60 && Number(shown.cost) > 0, JSON.stringify(shown));
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
    assert.ok(overflow <= 0, `the page is ${overflow} pixels wider than the window`);
    // A trend needs three samples, which come every five seconds.
    await page.waitForFunction(() => [...document.querySelectorAll("polyline")].some(line => line.getAttribute("points").trim().split(" ").length > 1));
    await page.screenshot({ path: path.join(SHOTS, `status-${width}.png`), fullPage: true });
    assert.deepEqual(problems, []);
    await page.close();
  });
}
