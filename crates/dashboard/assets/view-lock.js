// One lock: who has it, who wants it, what stands in the way, what happened.

import { h, table, card, empty } from "./dom.js";
import { shown, number, duration, who, count } from "./text.js";
import { ask } from "./api.js";
import { address } from "./route.js";
import { eventTable } from "./view-events.js";
import { actionButton, actionsNote, confirm } from "./dialog.js";

export const lock = {
  title: "Lock",
  keyed: true,
  async load(parameters) {
    return ask("lock", { name: parameters.name || "" });
  },
  render(data, page) {
    const { lock: status, why, history } = data;
    return [
      h("div", { class: "head" }, h("a", { href: "#/locks" }, "Locks"), h("span", { class: "note", "aria-hidden": true }, "/"),
        h("h1", { class: "name", id: "lock-name" }, shown(status.name)), tags(status), h("span", { class: "grow" }),
        status.holder_count > 0 ? actionButton("Break…", { class: "danger", id: "break" }, () => breakHolds(status, page)) : null),
      card(status.holder_count === 1 ? "Holder" : `Holders (${number(status.holder_count)})`, null, holders(status, page)),
      h("div", { class: "columns" },
        card("What is in the way?", estimate(why), h("div", { class: "body" }, whyList(status, why))),
        card("Hold times lately", null, times(why))),
      card(`Queue (${number(status.waiter_count)})`, "the first in line is served next", queue(status, page)),
      card("Recent history", "as far back as this node keeps events", history.length ? eventTable(history, true) : empty("No event of this lock is kept any more.")),
      actionsNote(),
    ];
  },
};

function tags(status) {
  const tag = (tone, words) => h("span", { class: `tag ${tone}` }, words);
  return [
    status.holder_count > 0 ? tag("is-accent", `held, ${status.holders[0].mode}`) : tag("is-good", status.waiter_count > 0 ? "free, but kept" : "free"),
    status.frozen ? tag("is-bad", "frozen") : null,
    status.closed_for_ms !== null ? tag("is-warn", `closed for ${duration(status.closed_for_ms)}`) : null,
    status.permits ? tag("", `${number(status.permits)} permits set`) : null,
  ];
}

function holders(status, page) {
  if (status.holder_count === 0) {
    return empty("No session holds it. Take it: ", h("code", {}, "holdfast lock NAME -- COMMAND"));
  }
  const columns = [{ label: "Who" }, { label: "Reason", class: "value" }, { label: "Token", class: "num" },
    { label: "Held for", class: "num" }, { label: "Ends by itself" }, { label: "", class: "fit" }];
  return table(columns, status.holders.map((holder) => ({
    key: `${holder.session}-${holder.token}-${holder.actor}`,
    cells: [
      [who(holder.owner, holder.session), note(holder.owner), sessionLine(holder.session)],
      holder.metadata ? shown(holder.metadata) : h("span", { class: "sub" }, "none given"),
      h("span", { class: "mono" }, holder.token), duration(holder.held_for_ms), ends(holder),
      status.holder_count > 1 ? actionButton("Break…", { class: "small danger" }, () => breakHolds(status, page, holder)) : null,
    ],
  })), "Holders");
}

function note(owner) {
  return owner && owner.note ? h("div", { class: "sub" }, shown(owner.note)) : null;
}

function sessionLine(session) {
  return h("div", { class: "sub" }, "session ", h("a", { class: "own mono", href: address("sessions", { contains: session }) }, session));
}

function ends(holder) {
  const silent = `if its client stays silent for ${duration(holder.session_remaining_ms)}`;
  if (holder.remaining_ms === null) return silent;
  return [`in ${duration(holder.remaining_ms)}`, h("div", { class: "sub" }, `or ${silent}`)];
}

function queue(status, page) {
  if (status.waiter_count === 0) return empty("No request waits for it.");
  const columns = [{ label: "Place", class: "fit" }, { label: "Who" }, { label: "Wants it", class: "fit" }, { label: "Waiting", class: "num" },
    { label: "Gives up in", class: "num" }, { label: "", class: "fit" }];
  const rows = status.waiters.map((waiter) => ({
    key: `${waiter.session}-${waiter.actor}-${waiter.position}`,
    cells: [
      `#${number(waiter.position)}`,
      [who(waiter.owner, waiter.session), waiter.metadata ? h("div", { class: "sub" }, shown(waiter.metadata)) : null,
        waiter.also.length ? h("div", { class: "sub" }, "together with ", waiter.also.slice(0, 5).map((name, at) => [at ? ", " : "", shown(name)]),
          waiter.also.length > 5 ? ` and ${number(waiter.also.length - 5)} more` : "") : null],
      waiter.converts ? "exclusive, has it shared" : waiter.mode,
      duration(waiter.waiting_for_ms), duration(waiter.remaining_ms),
      canTake(status, waiter) ? actionButton("Hand over…", { class: "small" }, () => transfer(status, waiter, page)) : null,
    ],
  }));
  const more = status.waiter_count - status.waiters.length;
  return [table(columns, rows, "Queue"), more > 0 ? h("p", { class: "pager" }, `and ${number(more)} more behind them`) : null];
}

function canTake(status, waiter) {
  return status.holder_count === 1 && status.holders[0].mode === "exclusive" && waiter.mode === "exclusive" && waiter.also.length === 0 && !waiter.converts;
}

function estimate(why) {
  return why.estimated_wait_ms === null ? null : `a new request would wait about ${duration(why.estimated_wait_ms)}`;
}

function whyList(status, why) {
  const lines = [];
  const named = (name) => h("a", { class: "name", href: address("lock", { name }) }, shown(name));
  if (status.frozen) {
    lines.push(h("li", { class: "deep" }, "An operator has frozen ", status.frozen.prefix ? shown(status.frozen.prefix, { class: "name" }) : "everything", ": “", shown(status.frozen.reason), "”, by ",
      shown(status.frozen.by), `. It ends in ${duration(status.frozen.remaining_ms)}, or when it is thawed.`));
  }
  if (status.closed_for_ms !== null) lines.push(h("li", { class: "deep" }, `A lock delay keeps it closed for ${duration(status.closed_for_ms)}, so that the last holder can notice its loss. "holdfast reopen ${status.name} --reason TEXT" opens it now.`));
  const first = status.holders[0];
  if (first) {
    lines.push(h("li", {}, who(first.owner, first.session), status.holder_count > 1 ? ` and ${number(status.holder_count - 1)} more hold it ` : " holds it ",
      `${first.mode}, for ${duration(first.held_for_ms)} now.`));
  }
  if (status.waiter_count > 0) lines.push(h("li", {}, `The next request stands behind ${count(status.waiter_count, "request", "requests")}.`));
  for (const link of why.chain) {
    const holder = link.holders[0];
    lines.push(h("li", { class: "deep" }, link.waiter ? who(link.waiter.owner, link.waiter.session) : "a request", ", in the way of ", named(link.in_the_way_of), ", waits itself for ",
      named(link.waits_for), holder ? [", held by ", who(holder.owner, holder.session)] : null, "."));
  }
  if (why.chain_is_cut) lines.push(h("li", {}, "There is more of this chain."));
  for (const reserved of why.reserved) {
    lines.push(h("li", {}, named(reserved.name), " is free, and kept for ", who(reserved.owner, reserved.session), ", who needs both at once."));
  }
  if (lines.length === 0) lines.push(h("li", {}, "It is free: the next request gets it at once."));
  return h("ul", { class: "why" }, lines);
}

function times(why) {
  if (!why.hold_times) return empty("No hold of it both began and ended lately.");
  const fact = (label, value) => [h("dt", {}, label), h("dd", {}, value)];
  return h("div", { class: "body" }, h("dl", { class: "facts" }, fact("Median", duration(why.hold_times.median_ms)),
    fact("Longest", duration(why.hold_times.longest_ms)), fact("Of the last", count(why.hold_times.holds, "hold", "holds"))));
}

function breakHolds(status, page, only) {
  const all = !only && status.holder_count > 1;
  const holder = only || status.holders[0];
  confirm({
    action: "break", title: all ? `Break all ${number(status.holder_count)} holds` : "Break this hold", confirm: "Break", danger: true,
    means: [h("p", { class: "subject name" }, shown(status.name)),
      h("p", {}, all ? "All holders lose it" : [who(holder.owner, holder.session), " loses it"],
        ", and the next in line gets it. A holder that goes on all the same does harm unless the resource checks fencing tokens.")],
    body: () => ({ name: status.name, token: all ? "0" : holder.token }),
    done: (answer) => `broke ${count(answer.holds, "hold", "holds")}`,
  }, page.refresh);
}

function transfer(status, waiter, page) {
  confirm({
    action: "transfer", title: "Hand the lock over", confirm: "Hand over", danger: true,
    means: [h("p", { class: "subject name" }, shown(status.name)),
      h("p", {}, who(status.holders[0].owner, status.holders[0].session), " loses it; ", who(waiter.owner, waiter.session),
        ` gets it at once, though ${count(waiter.position - 1, "request stands", "requests stand")} before it.`)],
    body: () => ({ name: status.name, token: status.holders[0].token, to: waiter.session }),
    done: (answer) => `handed over, under token ${answer.token}`,
  }, page.refresh);
}
