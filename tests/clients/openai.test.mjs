// openai-node, given only baseURL and a key, against the real binary. The cases are those of test_openai_python.py, in short.
// The client is resolved from the working directory, which is where tests/run has installed it; OPENAI_CLIENT names another version of it.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';

const OpenAI = createRequire(join(process.cwd(), 'package.json'))(process.env.OPENAI_CLIENT ?? 'openai');

const root = resolve(dirname(fileURLToPath(import.meta.url)), '../..');
const binary = process.env.TOLLGATE_BIN ?? resolve(root, process.env.CARGO_TARGET_DIR ?? 'target', 'debug/tollgate');
const directory = mkdtempSync(join(tmpdir(), 'tollgate-clients-'));
const log = join(directory, 'gateway.log');

// Deadlines, not pauses: each wait ends as soon as what it waits for is there.
const START_MS_MAX = 30_000;
const STOP_MS_MAX = 20_000;
const EFFECT_MS_MAX = 5_000;
const CALL_MS_MAX = 20_000;

const CHAT = 'simulated/chat';
const FREE_OF_CHARGE = 'simulated/mini';
const ENTERPRISE = 'simulated/enterprise';
const EMBED = 'simulated/embed';
const NESTED = 'simulated/vendor/model:free';
const HELLO = [{ role: 'user', content: 'Say hello to the reader, please.' }];
const WEATHER_TOOL = {
  type: 'function',
  function: { name: 'read_weather', parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] } },
};

let gateway;
let ready;
let client;

before(async () => {
  // With these the demo would serve the real provider, and the client would send them.
  for (const name of ['OPENAI_API_KEY', 'OPENROUTER_API_KEY', 'OPENAI_BASE_URL', 'OPENAI_ORG_ID', 'OPENAI_PROJECT_ID']) {
    delete process.env[name];
  }
  const demo = ['demo', '--listen', '127.0.0.1:0', '--data-dir', join(directory, 'data'), '--json'];
  gateway = spawn(binary, demo, { cwd: directory, stdio: ['ignore', 'pipe', openSync(log, 'w')] });
  const lines = createInterface({ input: gateway.stdout });
  const first = await within(START_MS_MAX, Promise.race([once(lines, 'line'), once(gateway, 'exit').then(() => [''])]));
  try {
    ready = JSON.parse(first[0]);
  } catch {
    gateway.kill('SIGKILL');
    throw new Error(`tollgate demo --json printed ${JSON.stringify(first)} as its first line; its log:\n${readFileSync(log, 'utf8')}`);
  }
  client = clientOf(ready.key);
});

after(async () => {
  try {
    if (gateway === undefined) return;
    assert.equal(gateway.exitCode, null, `the gateway ended by itself; its log:\n${readFileSync(log, 'utf8')}`);
    const exit = once(gateway, 'exit');
    gateway.kill('SIGTERM');
    const [code, signal] = await within(STOP_MS_MAX, exit);
    assert.deepEqual([code, signal], [0, null], `the gateway's log:\n${readFileSync(log, 'utf8')}`);
  } finally {
    gateway?.kill('SIGKILL');
    rmSync(directory, { recursive: true, force: true });
  }
});

// --- What the tests say -------------------------------------------------------------------------------------------------------------

// No retries: a test that passes at the second try would hide the first.
function clientOf(apiKey, options = {}) {
  return new OpenAI({ baseURL: ready.base_url, apiKey, maxRetries: 0, timeout: CALL_MS_MAX, ...options });
}

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
  return text.trim() === '' ? undefined : JSON.parse(text);
}

async function ask(key, path) {
  const answer = await fetch(ready.base_url + path, { headers: { authorization: `Bearer ${key}` } });
  return { status: answer.status, text: await answer.text() };
}

async function waitFor(read, accept, what) {
  const deadline = Date.now() + EFFECT_MS_MAX;
  for (;;) {
    const value = await read();
    if (accept(value)) return value;
    if (Date.now() > deadline) assert.fail(`waited for ${what}; last seen: ${JSON.stringify(value)}`);
    await new Promise((wake) => setTimeout(wake, 50));
  }
}

let accounts = 0;
async function newKey({ tier = 'pro', credits = '1', keyOptions = [] } = {}) {
  accounts += 1;
  const name = `node-${accounts}`;
  command('account', 'create', name, '--tier', tier);
  if (credits !== '0') command('credits', 'add', name, credits, '--reference', `funds-of-${name}`);
  const { key } = command('key', 'create', '--account', name, ...keyOptions);
  await waitFor(() => ask(key, '/llm/balance'), ({ status }) => status === 200, `the key of ${name}`);
  return key;
}

// Amounts as integers of 10^-12, read from the text: a JavaScript number would round them.
function pico(decimal) {
  const [whole, fraction = ''] = decimal.split('.');
  assert.ok(fraction.length <= 12, decimal);
  return BigInt(whole + fraction.padEnd(12, '0'));
}

async function amount(key, path, field) {
  const { text } = await ask(key, path);
  const found = new RegExp(`"${field}":\\s*(-?[0-9.]+)[,}]`).exec(text);
  assert.ok(found, text);
  return pico(found[1]);
}

async function collect(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

const textOf = (chunks) => chunks.flatMap((chunk) => chunk.choices.map((choice) => choice.delta.content ?? '')).join('');

async function refused(kind, status, type, call) {
  const error = await call().then(() => assert.fail('was not refused'), (caught) => caught);
  assert.equal(error.constructor, kind, String(error));
  assert.equal(error.status, status);
  assert.equal(error.type, type);
  assert.equal(error.code, status);
  assert.equal(error.error.code, status);
  assert.ok(error.error.message);
  assert.equal(error.requestID, error.headers.get('x-request-id'));
  assert.match(error.requestID, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  return error;
}

// --- Chat ---------------------------------------------------------------------------------------------------------------------------

test('chat', async () => {
  const answer = await client.chat.completions.create({ model: CHAT, messages: HELLO });
  assert.equal(answer.object, 'chat.completion');
  assert.equal(answer.choices[0].message.role, 'assistant');
  assert.ok(answer.choices[0].message.content);
  assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens);
  assert.ok(answer._request_id);
});

test('a stream gets no usage chunk that it did not ask for', async () => {
  const chunks = await collect(await client.chat.completions.create({ model: CHAT, messages: HELLO, stream: true }));
  assert.equal(new Set(chunks.map((chunk) => chunk.id)).size, 1);
  assert.ok(chunks.every((chunk) => chunk.object === 'chat.completion.chunk' && chunk.choices.length === 1));
  assert.equal(chunks[0].choices[0].delta.role, 'assistant');
  assert.equal(chunks.at(-1).choices[0].finish_reason, 'stop');
  const whole = await client.chat.completions.create({ model: CHAT, messages: HELLO });
  assert.equal(textOf(chunks), whole.choices[0].message.content);
});

test('a stream with include_usage ends with the usage', async () => {
  const asked = { model: CHAT, messages: HELLO, stream: true, stream_options: { include_usage: true } };
  const chunks = await collect(await client.chat.completions.create(asked));
  assert.deepEqual(chunks.at(-1).choices, []);
  assert.ok(chunks.at(-1).usage.completion_tokens > 0);
  assert.ok(chunks.slice(0, -1).every((chunk) => chunk.choices.length === 1 && !chunk.usage));
});

test('tool-call deltas', async () => {
  const asked = {
    model: CHAT,
    messages: [{ role: 'user', content: 'What is the weather in Nairobi?' }],
    tools: [WEATHER_TOOL],
    tool_choice: 'required',
  };
  const chunks = await collect(await client.chat.completions.create({ ...asked, stream: true }));
  const deltas = chunks.flatMap((chunk) => chunk.choices.flatMap((choice) => choice.delta.tool_calls ?? []));
  assert.ok(deltas[0].id);
  assert.equal(deltas[0].function.name, 'read_weather');
  assert.ok(deltas.every((delta) => delta.index === 0));
  JSON.parse(deltas.map((delta) => delta.function.arguments ?? '').join(''));
  assert.equal(chunks.at(-1).choices[0].finish_reason, 'tool_calls');
  // The client's own accumulator reads them too.
  const final = await client.chat.completions.stream(asked).finalChatCompletion();
  assert.equal(final.choices[0].message.tool_calls[0].function.name, 'read_weather');
});

test('a stream that the client leaves does not hold the gateway up', async () => {
  const messages = [{ role: 'user', content: 'simulate:tokens=400 Go on.' }];
  const stream = await client.chat.completions.create({ model: CHAT, messages, stream: true });
  for await (const chunk of stream) {
    assert.equal(chunk.object, 'chat.completion.chunk');
    break;
  }
  assert.ok((await client.chat.completions.create({ model: CHAT, messages: HELLO })).choices[0].message.content);
});

// --- Embeddings and models ----------------------------------------------------------------------------------------------------------

test('embeddings of one and of several texts, which the client asks for in base64', async () => {
  const one = await client.embeddings.create({ model: EMBED, input: 'a river' });
  assert.equal(one.data.length, 1);
  assert.equal(one.data[0].embedding.length, 1536);
  assert.ok(one.usage.prompt_tokens > 0);
  const several = await client.embeddings.create({ model: EMBED, input: ['a toll gate', 'a river', 'a railway'] });
  assert.deepEqual(several.data.map((item) => item.index), [0, 1, 2]);
  assert.ok(several.data.every((item) => item.embedding.length === 1536));
  assert.deepEqual([...several.data[1].embedding], [...one.data[0].embedding]);
});

test('models.list and models.retrieve of an id with slashes', async () => {
  const ids = (await collect(await client.models.list())).map((model) => model.id);
  assert.ok(ids.includes(CHAT) && ids.includes(NESTED));
  assert.ok(!ids.includes(ENTERPRISE));
  assert.equal((await client.models.retrieve(NESTED)).id, NESTED);
});

// --- Errors arrive as the client's exceptions ---------------------------------------------------------------------------------------

test('refusals', async () => {
  const chat = (options) => client.chat.completions.create({ model: CHAT, messages: HELLO, ...options });
  const wrong = clientOf('tg_wrong');
  await refused(OpenAI.AuthenticationError, 401, 'authentication_error', () =>
    wrong.chat.completions.create({ model: CHAT, messages: HELLO }),
  );
  await refused(OpenAI.NotFoundError, 404, 'not_found_error', () => chat({ model: 'simulated/none' }));
  await refused(OpenAI.NotFoundError, 404, 'not_found_error', () => client.models.retrieve('simulated/vendor/none'));
  await refused(OpenAI.BadRequestError, 400, 'invalid_request_error', () => chat({ messages: undefined }));
  await refused(OpenAI.BadRequestError, 400, 'invalid_request_error', () => chat({ messages: [] }));
  await refused(OpenAI.PermissionDeniedError, 403, 'permission_error', () => chat({ model: ENTERPRISE }));
});

test('no credit is not tried again', async () => {
  let calls = 0;
  const counting = (...request) => {
    calls += 1;
    return fetch(...request);
  };
  const poor = clientOf(await newKey({ credits: '0' }), { maxRetries: 2, fetch: counting });
  await refused(OpenAI.APIError, 402, 'insufficient_credits', () => poor.chat.completions.create({ model: CHAT, messages: HELLO }));
  assert.equal(calls, 1);
  assert.ok((await poor.chat.completions.create({ model: FREE_OF_CHARGE, messages: HELLO })).choices[0].message.content);
});

test('a shortage by running calls is tried again', async () => {
  const tokensMax = 4_000;
  const { models } = JSON.parse((await ask(ready.key, '/llm/models')).text);
  const price = pico(models.find((model) => model.id === CHAT).pricing.completion);
  // For one such call and half of another: a prompt's bound is far less than half of the maximum.
  const credits = (price * BigInt(tokensMax) * 3n) / 2n;
  const key = await newKey({ credits: `0.${String(credits).padStart(12, '0')}` });
  const say = (content) => ({ model: CHAT, messages: [{ role: 'user', content }], max_tokens: tokensMax });
  const running = await clientOf(key).chat.completions.create({ ...say('simulate:stall=3 Go on.'), stream: true });
  const chunks = running[Symbol.asyncIterator]();
  await chunks.next();
  const statuses = [];
  const leaving = async (...request) => {
    const answer = await fetch(...request);
    statuses.push(answer.status);
    if (answer.status === 402) {
      await chunks.return();
      await waitFor(async () => String(await amount(key, '/llm/balance', 'held')), (held) => held === '0', 'the end of the hold');
    }
    return answer;
  };
  const answer = await clientOf(key, { maxRetries: 2, fetch: leaving }).chat.completions.create(say('Hello'));
  assert.deepEqual(statuses, [402, 200]);
  assert.ok(answer.choices[0].message.content);
});

test('rate limit', async () => {
  const limited = clientOf(await newKey({ keyOptions: ['--rpm', '2'] }));
  const call = () => limited.chat.completions.create({ model: FREE_OF_CHARGE, messages: HELLO });
  const errors = [];
  let answers = 0;
  // More calls than two windows allow, so that a window which ends meanwhile changes nothing.
  for (let i = 0; i < 6; i += 1) {
    try {
      await call();
      answers += 1;
    } catch (error) {
      errors.push(error);
    }
  }
  assert.ok(answers >= 2 && errors.length > 0, `${answers} answers; ${errors}`);
  const error = await refused(OpenAI.RateLimitError, 429, 'rate_limit_error', () => Promise.reject(errors[0]));
  assert.ok(Number(error.headers.get('retry-after')) > 0);
});

test('failures of the provider', async () => {
  const say = (content, options) => client.chat.completions.create({ model: CHAT, messages: [{ role: 'user', content }], ...options });
  const limited = await refused(OpenAI.RateLimitError, 429, 'rate_limit_error', () => say('simulate:429=7 Hello'));
  assert.ok(Number(limited.headers.get('retry-after')) > 0);
  await refused(OpenAI.InternalServerError, 500, 'upstream_error', () => say('simulate:500 Hello'));
  await refused(OpenAI.InternalServerError, 502, 'upstream_error', () => say('simulate:cut=0 Hello', { stream: true }));
});

test('a stream that the provider cuts raises an error after what was delivered', async () => {
  const messages = [{ role: 'user', content: 'simulate:cut=5 Tell me a story.' }];
  const stream = await client.chat.completions.create({ model: CHAT, messages, stream: true });
  const chunks = [];
  const reading = (async () => {
    for await (const chunk of stream) chunks.push(chunk);
  })();
  const error = await within(CALL_MS_MAX, reading.then(() => assert.fail('it ended without an error'), (caught) => caught));
  // An event in the stream, not a torn connection and not a status.
  assert.equal(error.constructor, OpenAI.APIError, String(error));
  assert.equal(error.error.code, 502);
  assert.equal(error.error.type, 'upstream_error');
  assert.ok(textOf(chunks));
});

// --- Billing ------------------------------------------------------------------------------------------------------------------------

test('the balance falls by the formula, to the last digit', async () => {
  const key = await newKey();
  const payer = clientOf(key);
  const { models } = JSON.parse((await ask(key, '/llm/models')).text);
  const pricing = models.find((model) => model.id === CHAT).pricing;
  const whole = await payer.chat.completions.create({ model: CHAT, messages: HELLO });
  const asked = { model: CHAT, messages: HELLO, stream: true, stream_options: { include_usage: true } };
  const streamed = (await collect(await payer.chat.completions.create(asked))).at(-1);
  const cost = [whole.usage, streamed.usage]
    .map((usage) => BigInt(usage.prompt_tokens) * pico(pricing.prompt) + BigInt(usage.completion_tokens) * pico(pricing.completion))
    .reduce((sum, part) => sum + part, 0n);
  assert.ok(cost > 0n);
  await waitFor(
    () => ask(key, '/llm/usage?period=all'),
    ({ text }) => JSON.parse(text).total_requests === 2,
    'two settled requests',
  );
  assert.equal(await amount(key, '/llm/balance', 'balance'), pico('1') - cost);
  assert.equal(await amount(key, '/llm/usage?period=all', 'total_cost'), cost);
  // Each call told its own cost, streamed or whole.
  const told = [whole.usage, streamed.usage].map((usage) => BigInt(Math.round(usage.cost * 1e12)));
  assert.equal(told[0] + told[1], cost);
});
