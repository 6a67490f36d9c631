// Whether the books balance, whether calls are taken, and how the gateway does.

import { count, counted, el, moment, table, tile } from "/console/dom.js";
import { ask, command, get, may } from "/console/api.js";
import { confirmDialog } from "/console/forms.js";
import { partOf } from "/console/parts.js";
import { done } from "/console/place.js";
import { openBreakers } from "/console/catalogue.js";

// The audit that runs, and its answer. No section has it: the page may be drawn anew before it ends.
let running = null;
const audited = () => (running ??= get("/v1/audit").finally(() => { running = null; }));

export async function statusView() {
  // It may end while this view is made, and is shown all the same.
  const audit = auditSection(running);
  const [maintenance, providers, now, events] = await Promise.all([get("/v1/maintenance"), get("/v1/providers"), get("/v1/status"), command({ op: "event", event_op: "count" })]);
  const open = providers.data.reduce((all, one) => all + openBreakers(one), 0);
  const turn = async () => {
    const on = !maintenance.on;
    const sure = await confirmDialog(on ? "Begin maintenance?" : "End maintenance?", on ? "New calls of all accounts are refused with 503 until it ends. Running ones go on." : "Calls are taken again.", on ? "Begin" : "End",
      () => ask("PUT", "/v1/maintenance", { on }));
    if (sure) await done(on ? "Maintenance has begun." : "Maintenance has ended.");
  };
  return { title: "Status", nodes: [
    el("h2", { class: "vh", text: "Now" }), el("div", { class: "tiles" },
      books(now.ledger),
      tile("Calls", maintenance.on ? "are refused" : "are taken", look(!maintenance.on), maintenance.on ? "maintenance is on" : "maintenance is off"),
      tile("Breakers open", String(open), look(open === 0), open === 0 ? "every target is asked" : "targets that are passed over"),
      tile("In flight", count(now.in_flight), {}, `${counted(now.ledger.holds_open, "hold")} of ${now.ledger.held} ${now.currency}`),
      tile("Requests", count(now.totals.requests), {}, `${counted(now.totals.errors, "error")}, ${count(now.totals.denials)} refused, since this gateway started`),
      tile("Spent", now.totals.cost, { unit: now.currency }, "since this gateway started"),
      tile("Events for webhooks", count(events.open), events.dropped > 0 ? look(false) : {}, events.open > 0 ? `kept until webhooks have them, for three days at most; the oldest is of ${moment(events.oldest)} UTC` : events.is_partial ? "" : "none waits",
        ...(events.is_partial ? ["there may be more: a part of the ledger did not answer"] : []),
        ...(events.dropped > 0 ? [`${counted(events.dropped, "event")} dropped before every webhook had them`] : []))),
    now.alarms.length ? el("ul", { class: "plain" }, ...now.alarms.map(text => el("li", { class: "notice bad", text }))) : el("p", { class: "notice", text: "No alarm." }),
    may("manage") ? el("div", { class: "acts" }, el("button", { type: "button", class: maintenance.on ? "main" : "danger", text: maintenance.on ? "End maintenance" : "Begin maintenance", on: { click: turn } })) : null,
    audit.section,
    el("p", { class: "dim", text: `Gateway ${now.version}, the one at this address. Its status page, at admin_listen, has traffic and latencies by provider and model.` }),
  ].filter(Boolean), load: audit.resume };
}

const look = good => ({ look: good ? "good" : "bad" });
const span = secs => (secs < 120 ? `${secs} s` : secs < 7200 ? `${Math.floor(secs / 60)} min` : `${Math.floor(secs / 3600)} h`);

// What the gateway's last audit found; its age is that of the last one that checked all accounts. A new one reads them all, which may take a
// minute, and nothing here waits for it.
function books({ audit_findings: findings, audit_unchecked: unchecked, audit_age_secs: age }) {
  if (age === null) return tile("The books", "not known", {}, "this gateway does not audit them");
  if (findings === null) return tile("The books", "not known", {}, "no audit has succeeded yet");
  if (findings === 0 && unchecked > 0) return tile("The books", "not known", {}, `${counted(unchecked, "account")} could not be audited: no audit was complete for ${span(age)}`);
  return tile("The books", findings > 0 ? "do not balance" : "balance", look(findings === 0), `audited ${span(age)} ago${findings > 0 ? `: ${counted(findings, "finding")}` : ""}`);
}

// `begun`: the audit that ran when this view was begun, if one did.
function auditSection(begun) {
  const read = () => {
    const audit = begun ?? audited();
    begun = null;
    return audit;
  };
  const audit = partOf(read, { Audit: found });
  const start = () => { if (running === null) audit.load(); };
  // Nobody waits for it: the view is there before.
  const resume = () => { if (begun ?? running) audit.load(); };
  const section = el("section", {}, el("h2", { tabindex: -1, text: "Audit" }),
    el("div", { class: "acts" }, el("button", { type: "button", text: "Audit the books now", on: { click: start } })), el("div", { "aria-live": "polite" }, audit.places.Audit));
  return { section, resume };
}

function found({ accounts, findings, unchecked, why_unchecked: why }) {
  const columns = [{ title: "Account", of: row => row.account }, { title: "Rule", of: row => row.rule }, { title: "Expected", number: true, of: row => row.expected }, { title: "Found", number: true, of: row => row.found }];
  const says = findings.length ? "The books do not balance" : unchecked ? "Whether the books balance is not known" : "The books balance";
  return [
    el("p", { class: findings.length || unchecked ? "notice bad" : "notice", text: `${says}: ${counted(accounts, "account")} audited now.` }),
    unchecked ? el("p", { class: "notice bad", text: `${counted(unchecked, "account")} could not be audited: ${why[0]}` }) : null,
    findings.length ? table("What does not balance", columns, findings) : null,
  ].filter(Boolean);
}
