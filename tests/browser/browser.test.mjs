// Pages in a real browser (headless Chromium) call the gateway across origins, with keys that are locked to a domain.
// playwright-core is resolved from the working directory, which is where tests/run has installed it; CHROMIUM names the browser.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { createServer, request } from 'node:http';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';

const { chromium } = createRequire(join(process.cwd(), 'package.json'))('playwright-core');

const root = resolve(dirname(fileURLToPath(import.meta.url)), '../..');
const binary = process.env.TOLLGATE_BIN ?? resolve(root, process.env.CARGO_TARGET_DIR ?? 'target', 'debug/tollgate');
const directory = mkdtempSync(join(tmpdir(), 'tollgate-browser-'));
const log = join(directory, 'gateway.log');

// Deadlines, not pauses.
const START_MS_MAX = 60_000;
const CALL_MS_MAX = 20_000;

// Names below localhost lead to this machine in Chromium, without any resolver.
const ALLOWED = 'app.localhost';
const WILDCARD = '*.wild.localhost';
const FLAGS = [
  '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update',
  '--disable-sync',
];

let gateway;
let ready;
let pages;
let context;
let locked;

before(async () => {
  for (const name of ['OPENAI_API_KEY', 'OPENROUTER_API_KEY']) delete process.env[name];
  const demo = ['demo', '--listen', '127.0.0.1:0', '--data-dir', join(directory, 'data'), '--json'];
  gateway = spawn(binary, demo, { cwd: directory, stdio: ['ignore', 'pipe', openSync(log, 'w')] });
  const lines = createInterface({ input: gateway.stdout });
  const first = await within(START_MS_MAX, Promise.race([once(lines, 'line'), once(gateway, 'exit').then(() => [''])]));
  ready = JSON.parse(first[0] || 'null');
  assert.ok(ready, `the gateway does not start; its log:\n${readFileSync(log, 'utf8')}`);
  locked = command('key', 'create', '--account', ready.account, '--domain', ALLOWED, '--domain', WILDCARD).key;
  pages = createServer((_, answer) => answer.setHeader('content-type', 'text/html').end('<title>page</title>'));
  pages.listen(0, '127.0.0.1');
  await once(pages, 'listening');
  context = await chromium.launchPersistentContext(join(directory, 'profile'), {
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', headless: true, args: FLAGS, timeout: START_MS_MAX,
  });
});

after(async () => {
  try {
    await context?.close();
    pages?.close();
    if (gateway === undefined) return;
    assert.equal(gateway.exitCode, null, `the gateway ended by itself; its log:\n${readFileSync(log, 'utf8')}`);
    const exit = once(gateway, 'exit');
    gateway.kill('SIGTERM');
    assert.deepEqual(await within(CALL_MS_MAX, exit), [0, null]);
  } finally {
    gateway?.kill('SIGKILL');
    rmSync(directory, { recursive: true, force: true });
  }
});

async function within(ms, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not within ${ms} ms`)), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

function command(...words) {
  const text = execFileSync(binary, [...words, '--conf', ready.conf, '--json'], { cwd: directory, encoding: 'utf8', timeout: CALL_MS_MAX });
  return JSON.parse(text);
}

// A page of this host, and how many preflights it has sent.
async function pageOf(host) {
  const page = await context.newPage();
  const preflights = [];
  const devtools = await context.newCDPSession(page);
  await devtools.send('Network.enable');
  devtools.on('Network.requestWillBeSent', (event) => {
    if (event.request.method === 'OPTIONS') preflights.push(event.request.url);
  });
  await page.goto(`http://${host}:${pages.address().port}/`);
  return { page, preflights };
}

// Calls the gateway from the page's own script; what the script could read, or the error that the browser raised.
function callFrom(page, path, key, body) {
  return within(CALL_MS_MAX, page.evaluate(async ({ url, key, body }) => {
    const headers = { authorization: `Bearer ${key}` };
    if (body) headers['content-type'] = 'application/json';
    try {
      const answer = await fetch(url, { method: body ? 'POST' : 'GET', headers, body: body && JSON.stringify(body) });
      return { status: answer.status, headers: Object.fromEntries(answer.headers), text: await answer.text() };
    } catch (error) {
      return { error: String(error) };
    }
  }, { url: ready.base_url + path, key, body }));
}

const hello = (stream) => ({ model: 'simulated/chat', messages: [{ role: 'user', content: 'Say hello to the reader, please.' }], stream });

function checkReadable({ status, headers, text, error }, expected) {
  assert.equal(error, undefined);
  assert.equal(status, expected, text);
  assert.match(headers['x-request-id'], /^[0-9a-f]{8}-[0-9a-f]{4}-7/);
}

test('a page of an allowed origin gets its answer, after a preflight', async () => {
  const { page, preflights } = await pageOf(ALLOWED);
  const answer = await callFrom(page, '/llm/chat', locked, hello(false));
  checkReadable(answer, 200);
  assert.equal(JSON.parse(answer.text).object, 'chat.completion');
  assert.equal(preflights.length, 1, 'the browser asked first');
  for (const what of ['requests', 'tokens']) {
    for (const which of ['limit', 'remaining', 'reset']) assert.ok(answer.headers[`x-ratelimit-${which}-${what}`], `${which} ${what}`);
  }
  checkReadable(await callFrom(page, '/llm/balance', locked), 200);
  checkReadable(await callFrom(page, '/llm/models?purpose=chat', locked), 200);
});

test('a page of a subdomain of the wildcard is allowed, the apex and its look-alikes are not', async () => {
  for (const [host, status] of [['a.wild.localhost', 200], ['a.b.wild.localhost', 200], ['wild.localhost', 403], ['notwild.localhost', 403]]) {
    const { page } = await pageOf(host);
    checkReadable(await callFrom(page, '/llm/balance', locked), status);
    await page.close();
  }
});

test('a page of another origin is refused, and its script can read why', async () => {
  const { page } = await pageOf('evil.localhost');
  for (const body of [undefined, hello(false), hello(true)]) {
    const answer = await callFrom(page, body ? '/llm/chat' : '/llm/balance', locked, body);
    checkReadable(answer, 403);
    const { error } = JSON.parse(answer.text);
    assert.deepEqual([error.code, error.type], [403, 'permission_error']);
    assert.match(error.message, /domain/);
    assert.equal(answer.headers['x-should-retry'], 'false');
  }
});

test('a page without an origin of its own is refused', async () => {
  const { page } = await pageOf(ALLOWED);
  await page.setContent('<iframe sandbox="allow-scripts" srcdoc="<title>opaque</title>"></iframe>');
  const [, frame] = page.frames();
  assert.equal(await frame.evaluate(() => origin), 'null');
  checkReadable(await callFrom(frame, '/llm/balance', locked), 403);
  // A key without a lock works there.
  checkReadable(await callFrom(frame, '/llm/balance', ready.key), 200);
});

test('a request that no page sends, without Origin and Referer, is refused', async () => {
  const asked = request(`${ready.base_url}/llm/balance`, { headers: { authorization: `Bearer ${locked}` } }).end();
  const [answer] = await within(CALL_MS_MAX, once(asked, 'response'));
  assert.equal(answer.statusCode, 403);
  answer.resume();
});

test('a script reads a stream event by event, as it comes', async () => {
  const { page } = await pageOf(ALLOWED);
  const seen = await within(CALL_MS_MAX, page.evaluate(async ({ url, key, body }) => {
    const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
    const answer = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body) });
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    const [pieces, times] = [[], []];
    for (let read = await reader.read(); !read.done; read = await reader.read()) {
      pieces.push(read.value);
      times.push(performance.now());
    }
    return { status: answer.status, type: answer.headers.get('content-type'), id: answer.headers.get('x-request-id'), text: pieces.join(''), times };
  }, { url: `${ready.base_url}/llm/chat/stream`, key: locked, body: hello(true) }));
  assert.deepEqual([seen.status, seen.type], [200, 'text/event-stream']);
  assert.ok(seen.id);
  assert.ok(seen.text.endsWith('data: [DONE]\n\n'));
  // The simulated provider pauses between its events: whatever held them back would bring them together.
  assert.ok(seen.times.length >= 3, `${seen.times.length} pieces`);
  assert.ok(seen.times.at(-1) - seen.times[0] > 20, `all within ${seen.times.at(-1) - seen.times[0]} ms`);
});

test('a script that leaves its stream ends it', async () => {
  const { page } = await pageOf(ALLOWED);
  const status = await within(CALL_MS_MAX, page.evaluate(async ({ url, key, body }) => {
    const leave = new AbortController();
    const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
    const answer = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body), signal: leave.signal });
    await answer.body.getReader().read();
    leave.abort();
    return answer.status;
  }, { url: `${ready.base_url}/llm/chat/stream`, key: locked, body: hello(true) }));
  assert.equal(status, 200);
  checkReadable(await callFrom(page, '/llm/balance', locked), 200);
});

test('a script reads a refused key, an unknown path, and when to come back', async () => {
  const { page } = await pageOf(ALLOWED);
  const wrong = await callFrom(page, '/llm/balance', 'tg_wrong');
  checkReadable(wrong, 401);
  assert.equal(JSON.parse(wrong.text).error.type, 'authentication_error');
  checkReadable(await callFrom(page, '/llm/nothing', locked), 404);
  checkReadable(await callFrom(page, '/llm/chat', locked, { model: 'simulated/chat' }), 400);

  const { key } = command('key', 'create', '--account', ready.account, '--domain', ALLOWED, '--rpm', '1');
  checkReadable(await callFrom(page, '/llm/chat', key, hello(false)), 200);
  const limited = await callFrom(page, '/llm/chat', key, hello(false));
  checkReadable(limited, 429);
  assert.ok(Number(limited.headers['retry-after']) > 0, JSON.stringify(limited.headers));
  assert.equal(limited.headers['x-ratelimit-limit-requests'], '1');
  assert.equal(limited.headers['x-ratelimit-remaining-requests'], '0');
});
