// Whether the books balance, whether calls are taken, and how the gateway does.

import { count, counted, el, moment, table, tile } from "/console/dom.js";
import { ask, command, get, may } from "/console/api.js";
import { confirmDialog } from "/console/forms.js";
import { done } from "/console/place.js";
import { openBreakers } from "/console/catalogue.js";

export async function statusView() {
  const [audit, maintenance, providers, now, events] = await Promise.all([get("/v1/audit").catch(error => ({ failed: error.message })), get("/v1/maintenance"), get("/v1/providers"), get("/v1/status"), command({ op: "event", event_op: "count" })]);
  const findings = audit.findings ?? [], open = providers.data.reduce((all, one) => all + openBreakers(one), 0);
  const look = good => ({ look: good ? "good" : "bad" });
  const columns = [{ title: "Account", of: row => row.account }, { title: "Rule", of: row => row.rule }, { title: "Expected", number: true, of: row => row.expected }, { title: "Found", number: true, of: row => row.found }];
  const turn = async () => {
    const on = !maintenance.on;
    const sure = await confirmDialog(on ? "Begin maintenance?" : "End maintenance?", on ? "New calls of all accounts are refused with 503 until it ends. Running ones go on." : "Calls are taken again.", on ? "Begin" : "End",
      () => ask("PUT", "/v1/maintenance", { on }));
    if (sure) await done(on ? "Maintenance has begun." : "Maintenance has ended.");
  };
  return { title: "Status", nodes: [
    el("h2", { class: "vh", text: "Now" }), el("div", { class: "tiles" },
      audit.failed ? tile("The books", "not known", {}, audit.failed) : tile("The books", findings.length ? "do not balance" : audit.unchecked ? "not known" : "balance", look(audit.balanced), `${counted(audit.accounts, "account")} audited now`, ...(audit.unchecked ? [`${counted(audit.unchecked, "account")} could not be: ${audit.why_unchecked[0]}`] : [])),
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
    findings.length ? table("What does not balance", columns, findings) : null,
    el("p", { class: "dim", text: `Gateway ${now.version}, the one at this address. Its status page, at admin_listen, has traffic and latencies by provider and model.` }),
  ].filter(Boolean) };
}
