// What the node that serves the page knows by itself. Shown when no leader can be asked, and marked as old.

import { h, table, card, empty } from "./dom.js";
import { shown, number, duration, who, count, clock } from "./text.js";

export function ownView(own, why) {
  return [
    h("div", { class: "head" }, h("h1", {}, "Overview"), h("span", { class: "grow" }),
      h("span", { class: "note" }, `version ${own.version} · as node ${own.node} sees it`)),
    card("No leader answers", null, h("div", { class: "body" }, h("dl", { class: "facts" },
      fact("Leader", leader(own)),
      fact("Voters", `${own.voters_reachable} of ${own.voters} reachable from node ${own.node}, ${own.voters_needed} needed`),
      fact("Meaning", "No lock is granted or released. Holders keep their locks until their leases end."),
      own.disk_full ? fact("Disk", `the disk of node ${own.node} is full; make room on it`) : null,
      why ? fact("Answer", shown(why)) : null))),
    nodes(own),
    locks(own),
    own.freezes.length ? freezes(own) : null,
  ];
}

function fact(label, value) {
  return [h("dt", {}, label), h("dd", {}, value)];
}

function leader(own) {
  if (own.groups.length > 1) return leaders(own);
  if (own.leader !== 0) return `node ${own.leader} leads as far as node ${own.node} knows, but does not answer`;
  if (!own.leaderless_since_unix_ms) return "none is known";
  const since = own.leaderless_since_unix_ms;
  return `none since ${clock(since).slice(0, 8)}, for ${duration(Math.max(0, own.unix_ms - since))}`;
}

function leaders(own) {
  const known = own.groups.filter((group) => group.leader !== 0);
  if (known.length === 0) return `of ${own.groups.length} groups, none has one`;
  return `of ${own.groups.length} groups, ${known.length} have one as far as node ${own.node} knows, but not all of them answer`;
}

function nodes(own) {
  const rows = own.nodes.map((node) => ({
    key: String(node.id),
    cells: [
      [h("strong", {}, `node ${node.id}`), " ", h("span", { class: "sub mono" }, node.address)],
      node.votes ? "voter" : "learner",
      h("span", { class: `tag ${node.is_this ? "is-accent" : node.reachable ? "is-good" : "is-bad"}` },
        node.is_this ? "this node" : node.reachable ? "reachable" : "not reachable"),
    ],
  }));
  const columns = [{ label: "Node" }, { label: "Role", class: "fit" }, { label: `From node ${own.node}`, class: "fit" }];
  return card("Nodes", own.groups.length > 1 ? null : `term ${number(own.term)}`, table(columns, rows, "Nodes of the cluster"));
}

function stale(own) {
  const when = own.last_event_unix_ms ? `, last event at ${clock(own.last_event_unix_ms).slice(0, 8)}` : "";
  const entry = own.groups.length > 1 ? "" : `: as of log entry ${number(own.applied_index)}`;
  return h("span", { class: "tag is-warn" }, `may be old${entry}${when}`);
}

function locks(own) {
  const columns = [{ label: "Name", class: "name" }, { label: "Held by" }, { label: "Mode", class: "fit" },
    { label: "Queue", class: "num" }, { label: "Token", class: "num" }];
  const rows = own.locks.map((lock) => ({
    key: lock.name,
    cells: [shown(lock.name), lock.holders ? who(lock.owner, lock.session) : "free", lock.mode, number(lock.waiters), lock.token],
  }));
  const known = [count(own.lock_count, "lock", "locks"), count(own.waiter_count, "waiter", "waiters"), count(own.session_count, "session", "sessions")].join(", ");
  const more = own.locks_are_cut ? h("p", { class: "empty" }, `The first ${number(own.locks.length)} by name are shown.`) : null;
  return card("Locks that this node last knew", stale(own),
    h("p", { class: "empty" }, known), rows.length ? table(columns, rows, "Locks that this node last knew") : empty("No lock was in use."), more);
}

function freezes(own) {
  const rows = own.freezes.map((freeze) => ({
    key: freeze.prefix,
    cells: [freeze.prefix ? shown(freeze.prefix) : "everything", shown(freeze.reason), shown(freeze.by)],
  }));
  return card("Frozen prefixes that this node last knew", stale(own),
    table([{ label: "Prefix", class: "name" }, { label: "Reason" }, { label: "By" }], rows, "Frozen prefixes"));
}
