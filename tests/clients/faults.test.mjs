// Upstreams that break their answers: openai-node raises its API error, in time, and what was delivered is billed. The cases are those of
// test_faults.py, in short. What is asked for stands in the message: `FAULT/K`, for a fault that strikes after K bytes of the body.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

const OpenAI = createRequire(join(process.cwd(), 'package.json'))(process.env.OPENAI_CLIENT ?? 'openai');

const root = resolve(dirname(fileURLToPath(import.meta.url)), '../..');
const binary = process.env.TOLLGATE_BIN ?? resolve(root, process.env.CARGO_TARGET_DIR ?? 'target', 'debug/tollgate');
const directory = mkdtempSync(join(tmpdir(), 'tollgate-faults-'));
const log = join(directory, 'gateway.log');

// Deadlines, not pauses. The client's own time-out is far above the gateway's patience with a silent upstream: were it to end a call, the
// call would have hung.
const START_MS_MAX = 30_000;
const STOP_MS_MAX = 20_000;
const EFFECT_MS_MAX = 5_000;
const CALL_MS_MAX = 10_000;
const SILENCE_MS_MAX = 500;

const MODEL = 'faulty/chat';
const TEXTS = ['One', ' two', ' three', ' four'];
const SECRET = 'sk-upstream-secret';
// List prices in 10^-12 credit: the provider's with 15 %.
const [PROMPT_PICO, COMPLETION_PICO] = [1_150_000n, 2_300_000n];

// --- The upstream -------------------------------------------------------------------------------------------------------------------

const chunk = (choices, more) => ({ id: 'chatcmpl-f', object: 'chat.completion.chunk', created: 1, model: 'up', choices, ...more });
const event = (data) => Buffer.from(`data: ${typeof data === 'string' ? data : JSON.stringify(data)}\n\n`);
const USAGE = { prompt_tokens: 11, completion_tokens: 7, total_tokens: 18 };
const EVENTS = [
  ...TEXTS.map((content) => chunk([{ index: 0, delta: { content }, finish_reason: null }])),
  chunk([{ index: 0, delta: {}, finish_reason: 'stop' }]),
  chunk([], { usage: USAGE }),
  '[DONE]',
].map(event);
const STREAM = Buffer.concat(EVENTS);
const ENDS = EVENTS.map((_, count) => Buffer.concat(EVENTS.slice(0, count)).length);
const WHOLE = Buffer.from(
  JSON.stringify({
    id: 'chatcmpl-f',
    object: 'chat.completion',
    created: 1,
    model: 'up',
    choices: [{ index: 0, message: { role: 'assistant', content: TEXTS.join('') }, finish_reason: 'stop' }],
    usage: USAGE,
  }),
);
const ERROR = { error: { message: `overloaded: ${SECRET}`, type: 'server_error', code: 503 } };

const head = (type, ...headers) => Buffer.from(['HTTP/1.1 200 OK', `content-type: ${type}`, ...headers, '', ''].join('\r\n'));
const withLength = (type, body, ...headers) => Buffer.concat([head(type, `content-length: ${body.length}`, ...headers), body]);

function answer(socket, streams, fault, bytes) {
  const [body, type] = streams ? [STREAM, 'text/event-stream'] : [WHOLE, 'application/json'];
  const begun = (whole, sent) => {
    const framed = [head(type, 'transfer-encoding: chunked'), Buffer.from(`${whole.length.toString(16)}\r\n`), whole.subarray(0, sent)];
    return Buffer.concat(sent < whole.length ? framed : [...framed, Buffer.from('\r\n0\r\n\r\n')]);
  };
  const page = Buffer.from(`<!doctype html><p>${SECRET}</p>`);
  const faults = {
    none: () => socket.end(begun(body, body.length)),
    cut: () => socket.end(begun(body, bytes)),
    reset: () => socket.write(begun(body, bytes), () => socket.resetAndDestroy()),
    stall: () => socket.write(begun(body, bytes)),
    'long-length': () => socket.end(Buffer.concat([head(type, `content-length: ${body.length + 100}`), body.subarray(0, bytes)])),
    'short-length': () => socket.end(Buffer.concat([head(type, `content-length: ${bytes}`), body])),
    error: () => socket.end(withLength('application/json', Buffer.from(JSON.stringify(ERROR)))),
    'error-event': () => {
      const said = Buffer.concat([...EVENTS.slice(0, 2), event(ERROR)]);
      socket.end(begun(said, said.length));
    },
    html: () => socket.end(withLength('text/html', page)),
    gzip: () => socket.end(withLength(type, gzipSync(body), 'content-encoding: gzip')),
    nothing: () => socket.end(),
  };
  faults[fault]();
}

const upstream = createServer((socket) => {
  let request = '';
  socket.on('error', () => {});
  socket.on('data', (data) => {
    request += data;
    const [header, body] = request.split('\r\n\r\n', 2);
    const length = /content-length: (\d+)/i.exec(header)?.[1];
    if (body === undefined || body.length < Number(length)) return;
    const asked = JSON.parse(body);
    const [fault, bytes] = asked.messages.at(-1).content.split('/');
    answer(socket, asked.stream === true, fault, Number(bytes ?? 0));
  });
});

// --- The gateway --------------------------------------------------------------------------------------------------------------------

let gateway;
let baseURL;
const conf = join(directory, 'tollgate.yaml');

async function listening(server) {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return server.address().port;
}

async function freePort() {
  const server = createServer();
  const port = await listening(server);
  server.close();
  await once(server, 'close');
  return port;
}

before(async () => {
  const [port, listen, admin] = [await listening(upstream), await freePort(), await freePort()];
  const purposes = 'chat vision code fast router planner executor free slide slot_extract'.split(' ');
  const model = {
    id: MODEL,
    name: 'Faulty',
    provider: 'Faulty',
    description: 'Breaks',
    context_length: 128000,
    max_completion_tokens: 1000,
    modality: 'text->text',
    pricing: { prompt: '0.000001', completion: '0.000002' },
    tier: 'free',
    purposes,
    targets: [{ provider: 'faulty', model: 'up' }],
  };
  // Nobody asks for it, but a catalogue has one.
  const embed = { ...model, id: 'faulty/embed', modality: 'text->embedding', max_completion_tokens: 0, purposes: ['embedding'] };
  const defaults = { ...Object.fromEntries(purposes.map((purpose) => [purpose, MODEL])), embedding: embed.id };
  // JSON is YAML.
  const catalogue = { models: [model, embed], purposes: defaults };
  writeFileSync(join(directory, 'catalogue.yaml'), JSON.stringify(catalogue));
  const configuration = {
    listen: `127.0.0.1:${listen}`,
    admin_listen: `127.0.0.1:${admin}`,
    data_dir: join(directory, 'data'),
    store: `sqlite://${join(directory, 'ledger.db')}`,
    catalogue: join(directory, 'catalogue.yaml'),
    providers: { faulty: { base_url: `http://127.0.0.1:${port}/v1` } },
    timeouts: { idle_ms: SILENCE_MS_MAX, first_byte_ms: SILENCE_MS_MAX },
  };
  writeFileSync(conf, JSON.stringify(configuration));
  baseURL = `http://127.0.0.1:${listen}/api/v1`;
  gateway = spawn(binary, ['serve', '--conf', conf], { cwd: directory, stdio: ['ignore', 'ignore', openSync(log, 'w')] });
  const healthy = () => {
    assert.equal(gateway.exitCode, null, `the gateway ended by itself; its log:\n${readFileSync(log, 'utf8')}`);
    return fetch(`${baseURL}/llm/health`).then((reply) => reply.status, () => 0);
  };
  await waitFor(healthy, (status) => status === 200, () => `a healthy gateway; its log:\n${readFileSync(log, 'utf8')}`, START_MS_MAX);
});

after(async () => {
  try {
    upstream.close();
    assert.equal(gateway.exitCode, null, `the gateway ended by itself; its log:\n${readFileSync(log, 'utf8')}`);
    const exit = once(gateway, 'exit');
    gateway.kill('SIGTERM');
    const [code] = await within(STOP_MS_MAX, exit);
    assert.equal(code, 0, `the gateway's log:\n${readFileSync(log, 'utf8')}`);
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

async function waitFor(read, accept, what, ms = EFFECT_MS_MAX) {
  const deadline = Date.now() + ms;
  for (;;) {
    const value = await read();
    if (accept(value)) return value;
    if (Date.now() > deadline) assert.fail(`waited for ${what()}; last seen: ${JSON.stringify(value)}`);
    await new Promise((wake) => setTimeout(wake, 20));
  }
}

let accounts = 0;
async function newAccount() {
  accounts += 1;
  const run = (...words) => execFileSync(binary, [...words, '--conf', conf, '--json'], { cwd: directory, encoding: 'utf8' });
  run('account', 'create', `node-${accounts}`, '--tier', 'pro');
  run('credits', 'add', `node-${accounts}`, '1', '--reference', `funds-${accounts}`);
  const { key } = JSON.parse(run('key', 'create', '--account', `node-${accounts}`));
  const read = async (path) => {
    const reply = await fetch(baseURL + path, { headers: { authorization: `Bearer ${key}` } });
    return { status: reply.status, text: await reply.text() };
  };
  await waitFor(() => read('/llm/balance'), ({ status, text }) => status === 200 && text.includes('"balance":1,'), () => 'a funded key');
  return { read, client: new OpenAI({ baseURL, apiKey: key, maxRetries: 0, timeout: 2 * CALL_MS_MAX }) };
}

function pico(decimal) {
  const [whole, fraction = ''] = decimal.split('.');
  return BigInt(whole + fraction.padEnd(12, '0'));
}

// What was paid for, of both sides, once nothing is held any more.
async function billed(account) {
  const { text } = await waitFor(
    () => account.read('/llm/balance'),
    (answer) => /"held":0[,}]/.test(answer.text),
    () => 'the end of every hold',
  );
  const cost = pico('1') - pico(/"balance":([0-9.]+)/.exec(text)[1]);
  const total = BigInt(JSON.parse((await account.read('/llm/usage?period=all')).text).total_tokens);
  const completion = (cost - total * PROMPT_PICO) / (COMPLETION_PICO - PROMPT_PICO);
  const prompt = total - completion;
  assert.equal(prompt * PROMPT_PICO + completion * COMPLETION_PICO, cost);
  return { prompt: Number(prompt), completion: Number(completion) };
}

async function checkBill(account, texts) {
  const { prompt, completion } = await billed(account);
  assert.equal(completion, texts);
  assert.ok(texts === 0 ? prompt === 0 : prompt > 6 && prompt < 20, `${prompt} tokens of the prompt`);
}

const asked = (fault, options) => ({ model: MODEL, messages: [{ role: 'user', content: fault }], ...options });

// The text that came before the error, and the error: the client's own, not its time-out, and not one of broken JSON.
async function broken(account, fault, stream) {
  let text = '';
  const reading = (async () => {
    if (!stream) return account.client.chat.completions.create(asked(fault));
    for await (const part of await account.client.chat.completions.create(asked(fault, { stream: true }))) {
      text += part.choices.map((choice) => choice.delta.content ?? '').join('');
    }
  })();
  const error = await within(CALL_MS_MAX, reading.then(() => assert.fail('it ended without an error'), (caught) => caught));
  return { text, error };
}

// --- The tests ----------------------------------------------------------------------------------------------------------------------

test('without a fault', async () => {
  const account = await newAccount();
  const whole = await account.client.chat.completions.create(asked('none'));
  assert.equal(whole.choices[0].message.content, TEXTS.join(''));
  let text = '';
  for await (const part of await account.client.chat.completions.create(asked('none', { stream: true }))) {
    text += part.choices[0].delta.content ?? '';
  }
  assert.equal(text, TEXTS.join(''));
  assert.deepEqual(await billed(account), { prompt: 22, completion: 14 });
});

for (const fault of ['cut', 'stall', 'long-length', 'short-length', 'reset']) {
  test(`a stream that ends early: ${fault}`, async () => {
    for (const [bytes, texts] of [[0, 0], [7, 0], [ENDS[1], 1], [ENDS[2] + 60, 2], [ENDS[4] + 40, 4]]) {
      // A stream of no bytes, or that ends between two events, has a length that is right as far as one can tell.
      if (fault === 'short-length' && texts !== 2) continue;
      const account = await newAccount();
      const { text, error } = await broken(account, `${fault}/${bytes}`, true);
      if (fault === 'reset') {
        // It overtakes what was sent before it, even the head; then there is a status.
        assert.ok(error.constructor === OpenAI.APIError || error.status === 502, String(error));
      } else {
        assert.equal(error.constructor, OpenAI.APIError, String(error));
        assert.equal(error.error.code, 502);
        assert.equal(text, TEXTS.slice(0, texts).join(''));
      }
      assert.equal(error.type, 'upstream_error');
      await checkBill(account, [0, 1, 2, 3, 4].find((count) => TEXTS.slice(0, count).join('') === text));
    }
  });
}

test('a stream with an error event', async () => {
  const account = await newAccount();
  const { text, error } = await broken(account, 'error-event', true);
  assert.equal(error.constructor, OpenAI.APIError, String(error));
  assert.equal(error.error.code, 502);
  assert.ok(!JSON.stringify(error.error).includes(SECRET));
  assert.equal(text, 'One two');
  await checkBill(account, 2);
});

test('an answer that ends early', async () => {
  for (const fault of ['cut', 'stall', 'long-length', 'short-length', 'reset']) {
    const account = await newAccount();
    for (const bytes of [60, WHOLE.length - 1]) {
      const { error } = await broken(account, `${fault}/${bytes}`, false);
      assert.equal(error.constructor, OpenAI.InternalServerError, `${fault}: ${error}`);
      assert.equal(error.status, 502);
    }
    await checkBill(account, 0);
  }
});

test('what is no answer', async () => {
  const account = await newAccount();
  for (const fault of ['error', 'html', 'gzip', 'nothing', 'short-length/0']) {
    for (const stream of [false, true]) {
      const { text, error } = await broken(account, fault, stream);
      assert.equal(error.constructor, OpenAI.InternalServerError, `${fault}: ${error}`);
      assert.equal(error.type, 'upstream_error');
      assert.ok(!String(error).includes(SECRET));
      assert.equal(text, '');
    }
  }
  await checkBill(account, 0);
});
