// The Raft groups of a cluster that has several: who leads each, which of them are busy.

import { h, table, card, bar, empty } from "./dom.js";
import { shown, number, count } from "./text.js";
import { ask } from "./api.js";

export const groups = {
  title: "Groups",
  load: () => ask("groups"),
  render(data) {
    const head = h("div", { class: "head" }, h("h1", {}, "Groups"),
      h("p", {}, "The locks are divided among Raft groups by their names. Each group has a leader, a log, tokens and sessions of its own; a client has a session in each group whose locks it uses."));
    if (data.groups.length < 2) return [head, card("Groups", null, empty("This cluster has one group. The overview shows all of it."))];
    return [head, leaders(data), all(data)];
  },
};

function leaders(data) {
  const most = Math.max(1, ...data.nodes.map((node) => node.leads.length));
  const columns = [{ label: "Node" }, { label: "State", class: "fit" }, { label: "Leads", class: "num" }, { label: "Groups that it leads" }];
  return card("Leaders by node", "leaders spread by themselves within seconds", table(columns, data.nodes.map((node) => ({
    key: String(node.id),
    cells: [
      [h("strong", {}, `node ${node.id}`), " ", h("span", { class: "sub mono" }, shown(node.address))],
      h("span", { class: `tag ${node.up ? "is-good" : "is-bad"}` }, node.up ? "up" : "not answering"),
      [bar(node.leads.length / most), number(node.leads.length)],
      node.leads.length ? node.leads.join(", ") : h("span", { class: "sub" }, "none"),
    ],
  })), "How many groups each node leads"));
}

function all(data) {
  const differ = data.groups.some((group) => group.other_roles.length > 0);
  const most = Math.max(1, ...data.groups.map((group) => group.grants_per_second || 0));
  const columns = [{ label: "Group" }, { label: "Leader", class: "fit" }, { label: "Grants /s", class: "num" }, { label: "Locks", class: "num" },
    { label: "Waiters", class: "num" }, { label: "Sessions", class: "num" }, { label: "Term", class: "num" }, { label: "Committed", class: "num" },
    { label: "Applied", class: "num" }, ...(differ ? [{ label: "Not as in group 1", class: "fit" }] : [])];
  const rows = data.groups.map((group) => ({
    key: String(group.group),
    class: group.leader === 0 ? "alarm" : "",
    cells: [
      [h("strong", {}, `group ${group.group}`), group.group === 1 ? [" ", h("span", { class: "sub" }, "members, rights")] : null],
      leader(group),
      [bar((group.grants_per_second || 0) / most), number(group.grants_per_second)],
      number(group.locks), group.waiters ? h("strong", {}, number(group.waiters)) : "0", number(group.sessions),
      number(group.term), number(group.commit_index), number(group.applied_index),
      ...(differ ? [roles(group.other_roles)] : []),
    ],
  }));
  const note = `${count(data.groups.length, "group", "groups")} · grants of the last 5 s · locks are held or awaited`;
  return card("Groups", note, table(columns, rows, "Raft groups"));
}

function leader(group) {
  if (group.leader === 0) return h("span", { class: "tag is-bad" }, "no leader");
  if (!group.leader_answers) return h("span", { class: "tag is-warn" }, `node ${group.leader} does not answer`);
  return `node ${group.leader}`;
}

// A change of members reaches group 1 first.
function roles(others) {
  const words = { none: "no member", learner: "learner", voter: "voter", entering: "entering", leaving: "leaving" };
  return others.map((other) => h("div", {}, `node ${other.node}: ${words[other.role] || other.role}`));
}
