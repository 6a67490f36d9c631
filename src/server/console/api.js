// The operator's API from its own page: a session in a cookie that no script can read, and its token in each request. The cookie goes to every port
// of the host; the token stays with this origin, for all its tabs, and is nothing without the cookie.

import { exact } from "/console/dom.js";

let csrf = "";
let who = null;
let rights = [];
let unit = "";
let onLoss = () => {};

export const operator = () => who;
export const currency = () => unit;
export const whenLost = act => { onLoss = act; };

// `after`: in how many seconds the answer says that it can be asked for again. `isInDoubt`: what was sent may have been done all the same.
export class Refused extends Error {
  constructor(status, message, { field, after, isInDoubt = false } = {}) {
    super(message);
    Object.assign(this, { status, field, after, isInDoubt });
  }
}

// What the role may do, as the session says it; the API decides, this only keeps from offering what it would refuse.
export const may = right => rights.includes(right);

// Longest wait for an answer, in milliseconds. The gateway's own bound is 60 s from a request's head to its answer: what takes longer is held by
// something in between, or by a gateway that is frozen.
const ANSWER_MS_MAX = 90_000;

async function request(method, path, body, reads, { isText = false, token = csrf } = {}) {
  const headers = {};
  if (body !== undefined) headers["content-type"] = "application/json";
  if (token) headers["x-csrf-token"] = token;
  let answer, text;
  try {
    answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), cache: "no-store", credentials: "same-origin", signal: AbortSignal.timeout(ANSWER_MS_MAX) });
    // It can break off after its head, too.
    text = await answer.text();
  } catch {
    throw new Refused(0, reads ? "There is no answer. Try again in a moment." : notKnown("There is no answer", body), { isInDoubt: !reads });
  }
  let read = null;
  try { read = isText && answer.ok ? text : text ? exact(text) : {}; } catch { /* An answer of something in between. */ }
  if (answer.ok && read !== null) return read;
  // Of a proxy's own answer nobody can say what the gateway did; of a success that cannot be read neither.
  const isInDoubt = !reads && (answer.ok || answer.status >= 500), status = `The answer has the status ${answer.status}`;
  throw new Refused(answer.status, read?.error?.message ?? (isInDoubt ? notKnown(status, body) : `${status}.`),
    { field: read?.error?.metadata?.field, after: Number(answer.headers.get("retry-after")) || undefined, isInDoubt });
}

// Of what writes, credit alone has a reference by which it counts once.
function notKnown(what, body) {
  return `${what}: whether it was done is not known. ${body?.reference ? "The same form can be sent again: its reference counts once." : "Look into the log before it is sent again."}`;
}

// `reads`: whether it changes nothing. `isText`: its answer is no JSON.
export async function ask(method, path, body, reads = method === "GET", isText = false) {
  let by = csrf;
  try {
    try {
      return await request(method, path, body, reads, { isText });
    } catch (error) {
      if (who === null || !isOtherSession(error)) throw error;
      await renew(by);
    }
    by = csrf;
    return await request(method, path, body, reads, { isText });
  } catch (error) {
    // What was asked in an earlier session says nothing of this one.
    if (error.status === 401 && who !== null && csrf === by) {
      forget();
      onLoss(reads);
    }
    throw error;
  }
}

// The 403 of a token that is not the session's. The role's 403 has the same type and no code; its message names no header.
const isOtherSession = error => error.status === 403 && error.message.includes("X-CSRF-Token");

// A sign-in in another tab gives the cookie, which all tabs share, another session with another token. Takes that token, if the session is the
// same operator's; otherwise this page's session is over. `by`: the token that was refused.
async function renew(by) {
  // Until it is known whose session it is, nothing else is sent in it.
  const token = kept(), other = () => new Refused(401, "Somebody has signed in elsewhere in this browser.");
  if (!token || token === by) throw other();
  let session;
  try {
    session = await request("GET", "/v1/session", undefined, true, { token });
  } catch (error) {
    throw isOtherSession(error) ? other() : error;
  }
  if (session.operator.id !== who?.id) throw other();
  if (csrf === by) signed(session);
}

export const get = (path, query = {}) => {
  const set = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return ask("GET", set.length ? `${path}?${new URLSearchParams(set)}` : path);
};

// A link cannot bring the session's token: what is to be saved is read here.
export async function save(path, name) {
  const text = await ask("GET", path, undefined, true, true), at = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  Object.assign(document.createElement("a"), { href: at, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(at), SAVED_MS_MAX);
}

// How long a browser may take to begin to save.
const SAVED_MS_MAX = 60_000, AGAIN_SECONDS_MAX = 5;

// A report of an account. On Redis one of them is read at a time: where another is under way yet, it is asked for once more.
export async function report(path, query) {
  try {
    return await get(path, query);
  } catch (error) {
    if (error.status !== 429 || !(error.after <= AGAIN_SECONDS_MAX)) throw error;
    await new Promise(resolve => setTimeout(resolve, error.after * 1000));
    return get(path, query);
  }
}

// A command of the ledger that reads: for what no path of its own tells yet.
export async function command(op) {
  const { Ok: reply } = await ask("POST", "/v1/commands", op, true);
  if (reply === undefined) throw new Refused(503, "The ledger does not say it right now.");
  return reply;
}
export const account = name => `/v1/accounts/${encodeURIComponent(name)}`;

// Where the browser keeps nothing, the token lasts as long as the page.
const PLACE = "tollgate-csrf";
function kept() { try { return localStorage.getItem(PLACE) ?? ""; } catch { return ""; } }
function keep(token) { try { if (token) localStorage.setItem(PLACE, token); else localStorage.removeItem(PLACE); } catch { /* It is in this page. */ } }

// Another tab may have signed in since: its token stays.
function forget() { if (kept() === csrf) keep(""); csrf = ""; who = null; rights = []; }
function signed(session) { ({ csrf, operator: who, rights, currency: unit } = session); keep(csrf); return who; }

// The session of before, when the page was loaded anew; null when there is none.
export async function resume() {
  csrf = kept();
  try {
    return signed(await ask("GET", "/v1/session"));
  } catch (error) {
    if (error.status !== 401 && !isOtherSession(error)) throw error;
    forget();
    return null;
  }
}
// It changes nothing of what operators keep: it can be sent again without a look into the log.
export async function signIn(token) { return signed(await ask("POST", "/v1/session", { token }, true)); }
// Where that fails the session goes on, for whoever comes to this browser next: this page shows it still.
export async function signOut() {
  await ask("DELETE", "/v1/session", undefined, true);
  forget();
}

// A reference that no other form has: made once for a form, so that what it posts counts once.
export function reference() {
  const bytes = crypto.getRandomValues(new Uint8Array(10));
  return "console-" + [...bytes].map(byte => byte.toString(16).padStart(2, "0")).join("");
}
