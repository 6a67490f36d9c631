// What the tests of the pages share: a demo of the real binary, a real browser, axe, and hands that know a keyboard only.
// playwright-core and axe-core are resolved from the working directory, which is where tests/run has installed them.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import path from "node:path";
import readline from "node:readline";

const installed = createRequire(path.join(process.cwd(), "package.json"));
const { chromium } = installed("playwright-core");
const AXE = readFileSync(installed.resolve("axe-core/axe.min.js"), "utf8");
const root = path.resolve(import.meta.dirname, "../..");
const BINARY = process.env.TOLLGATE_BIN ?? path.resolve(root, process.env.CARGO_TARGET_DIR ?? "target", "debug/tollgate");
export const SHOTS = path.join(process.cwd(), "screenshots");
export const SCHEMES = ["light", "dark"];
const TABS_MAX = 400, UNTIL_MS_MAX = 30_000;

// A demo in a folder of its own, with what it greets with.
export async function demo(...words) {
  const folder = mkdtempSync(path.join(tmpdir(), "tollgate-pages-")), log = path.join(folder, "gateway.log");
  mkdirSync(SHOTS, { recursive: true });
  const env = { ...process.env, OPENAI_API_KEY: "", OPENROUTER_API_KEY: "" };
  const gateway = spawn(BINARY, ["demo", "--simulated", "--json", "--listen", "127.0.0.1:0", "--data-dir", path.join(folder, "data"), ...words], { stdio: ["ignore", "pipe", openSync(log, "w")], env });
  const lines = readline.createInterface({ input: gateway.stdout });
  const [line] = await Promise.race([once(lines, "line"), once(gateway, "exit").then(() => [""])]);
  assert.ok(line, `the demo does not start:\n${readFileSync(log, "utf8")}`);
  const stop = async () => {
    const ended = gateway.exitCode === null ? once(gateway, "exit") : null;
    gateway.kill("SIGTERM");
    await ended;
    rmSync(folder, { recursive: true, force: true });
  };
  return { ...JSON.parse(line), folder, stop };
}

// Would show itself if any of it were taken for markup.
export const SCRIPT = "<img src=x onerror=window.broken=1><script>window.broken=1</script>";

// Puts a model into the demo's catalogue whose id, name and provider are not to be trusted; the gateway sees it by itself.
export function sellModel(gateway, id) {
  const catalogue = path.join(path.dirname(gateway.conf), "catalogue.yaml"), text = JSON.stringify(SCRIPT);
  const entry = `  - { id: ${JSON.stringify(id)}, name: ${text}, provider: ${text}, description: x, context_length: 1000, max_completion_tokens: 100, modality: "text->text", pricing: { prompt: "0", completion: "0" }, tier: free, purposes: [chat], targets: [ { provider: simulated, model: chat } ] }`;
  writeFileSync(catalogue, readFileSync(catalogue, "utf8").replace("models:\n", `models:\n${entry}\n`));
}

export const launch = () => chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] });

// A page, and what its scripts complained of: refused requests are the browser's own words and no complaint.
export async function pageOf(browser, width, height = 900) {
  const context = await browser.newContext({ viewport: { width, height }, acceptDownloads: true });
  const page = await context.newPage(), problems = [];
  page.on("pageerror", error => problems.push(String(error)));
  page.on("console", message => message.type() === "error" && !message.text().startsWith("Failed to load resource") && problems.push(message.text()));
  return { context, page, problems };
}

// What axe finds. By the debugger: the page's own policy lets no script of a test in.
export async function barriers(page) {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => axe.run());
  return violations.map(one => `${one.id}: ${one.nodes.map(node => node.html).join(" | ")}`);
}

// axe finds nothing in either colour scheme, and nothing is wider than the window.
export async function isSound(page, name) {
  for (const colorScheme of SCHEMES) {
    await page.emulateMedia({ colorScheme });
    assert.deepEqual(await barriers(page), [], `${name}, ${colorScheme}`);
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
    assert.ok(overflow <= 0, `${name} is ${overflow} pixels wider than the window`);
    assert.deepEqual(await clipped(page), [], `${name}: what does not fit in its place`);
    await shot(page, `${name}-${page.viewportSize().width}-${colorScheme}`);
  }
  await page.emulateMedia({ colorScheme: "light" });
}

// Of a dialog what the window shows, of a page all of it.
export async function shot(page, name) {
  await page.screenshot({ path: path.join(SHOTS, `${name}.png`), fullPage: (await page.locator("dialog[open]").count()) === 0 });
}

// Tables that can be read only by moving them, and buttons whose words are cut.
const clipped = page => page.$$eval(".scroll, button, .button", boxes => boxes.filter(box => box.checkVisibility() && box.scrollWidth > box.clientWidth + 1).map(box => box.getAttribute("aria-label") ?? box.textContent));

// The rows of tables; what a narrow screen has below them is no row of its own.
export const ROWS = "tbody tr:not(.more)";

// Asks until it is so; files are looked at every few seconds.
export async function until(isSo) {
  for (const end = Date.now() + UNTIL_MS_MAX; !(await isSo()); await new Promise(resolve => setTimeout(resolve, 50))) assert.ok(Date.now() < end, `not within ${UNTIL_MS_MAX} ms: ${isSo}`);
}

// What has the focus: its name as it is read out, roughly.
export const focused = page => page.evaluate(() => {
  const one = document.activeElement;
  const label = one.getAttribute("aria-label") ?? one.labels?.[0]?.textContent ?? one.textContent;
  const box = one.getBoundingClientRect();
  return { tag: one.tagName.toLowerCase(), id: one.id, name: (label ?? "").trim(), shown: box.width > 0 && box.height > 0, ring: getComputedStyle(one).outlineStyle };
});

// Goes on with the Tab key until what has the focus is called so; it must be seen there.
export async function tabTo(page, name, tag) {
  for (let tabs = 0; tabs < TABS_MAX; tabs += 1) {
    const now = await focused(page);
    if (now.name === name && (tag === undefined || now.tag === tag)) {
      assert.ok(now.shown, `${name} has the focus and is not seen`);
      assert.notEqual(now.ring, "none", `${name} has the focus, and nothing around it says so`);
      return;
    }
    await page.keyboard.press("Tab");
  }
  assert.fail(`the Tab key does not lead to ${name}`);
}

export async function press(page, name, tag) {
  await tabTo(page, name, tag);
  await page.keyboard.press("Enter");
}

// Types into a field that the Tab key leads to, in place of what stands there.
export async function fill(page, name, text) {
  await tabTo(page, name);
  await page.keyboard.press("Control+a");
  if (text === "") await page.keyboard.press("Delete"); else await page.keyboard.type(text);
}

// The operators' interface, beside the console: by the demo's own token where no other is given.
export async function askOperatorApi(gateway, method, path, body, token = gateway.operator_token) {
  const answer = await fetch(new URL(path, gateway.console), { method, headers: { authorization: `Bearer ${token}`, "content-type": "application/json" }, body: body && JSON.stringify(body) });
  const text = await answer.text();
  return { status: answer.status, body: text ? JSON.parse(text) : null };
}

// The same, which must be answered with this status; what was answered.
export async function madeByApi(gateway, status, ...request) {
  const answer = await askOperatorApi(gateway, ...request);
  assert.equal(answer.status, status, JSON.stringify(answer.body));
  return answer.body;
}

// The console shows this view, all its parts included.
export const viewIs = (page, view) => page.waitForSelector(`body[data-view=${view}]`);

// What was done is told and has the focus, and the view is as it is after it.
export async function told(page, words) {
  await page.waitForFunction(words => {
    const notice = document.querySelector("#notice");
    return notice?.textContent.includes(words) && !document.querySelector("dialog") && document.activeElement === notice && document.body.dataset.view;
  }, words);
}

export async function signInto(page, gateway, token = gateway.operator_token) {
  await page.goto(gateway.console);
  await viewIs(page, "sign-in");
  await fill(page, "Operator's token", token);
  await page.keyboard.press("Enter");
  await viewIs(page, "accounts");
}

export const isAccount = (page, name) => page.waitForFunction(name => document.querySelector("h1")?.textContent === name && document.body.dataset.view, name);

export async function goToAccount(page, gateway, name) {
  await page.goto(`${gateway.console}#/accounts/${name}`);
  await isAccount(page, name);
}

// A page at an account of this name, which is made.
export async function atNewAccount(browser, gateway, name, width, token) {
  await madeByApi(gateway, 201, "POST", "/v1/accounts", { name, tier: "pro" });
  const opened = await pageOf(browser, width);
  await signInto(opened.page, gateway, token);
  await goToAccount(opened.page, gateway, name);
  return opened;
}

export const goToHash = (page, hash) => page.evaluate(hash => { location.hash = hash; }, hash);

export async function escape(page, times) {
  for (let time = 0; time < times; time += 1) await page.keyboard.press("Escape");
}

export const SENDING = 'dialog [role=status]:text-is("Sending…")';
export const isDialogOpen = async page => (await page.locator("dialog[open]").count()) === 1;
// Whether the browser would ask before the page is loaded anew or its tab closed.
export const isGuarded = page => page.evaluate(() => !dispatchEvent(new Event("beforeunload", { cancelable: true })));
