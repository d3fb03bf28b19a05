// Elections are locks: the leader is who holds it and publishes a value, the candidates are who wait.

import { h, table, card, empty } from "./dom.js";
import { shown, number, duration, who, clock, count } from "./text.js";
import { live } from "./live.js";
import { ask } from "./api.js";
import { address } from "./route.js";
import { isDivided } from "./groups.js";

let typing = 0;

export const elections = {
  title: "Elections",
  every: 2,
  load: (parameters) => ask("elections", parameters),
  render(data, page) {
    return [
      h("div", { class: "head" }, h("h1", {}, "Elections"),
        h("p", {}, "An election is an exclusive lock whose holder publishes a value: the holder leads, the fencing token is its epoch, those who wait are the candidates. What `holdfast lock` and `holdfast acquire` hold is not listed. A lock that a program holds with metadata looks the same, and is listed; begin the names of elections alike to tell them apart.")),
      h("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
        h("label", { class: "field" }, "Name begins with",
          h("input", { type: "search", id: "prefix", value: page.parameters.prefix || "", maxlength: 512, autocomplete: "off", spellcheck: "false", oninput: (event) => {
            const value = event.target.value;
            clearTimeout(typing);
            typing = setTimeout(() => page.go({ prefix: value }), 250);
          } }))),
      card("Led", `${data.more ? "the first 200 · " : ""}“elected” counts elections, as far back as this node keeps events`, led(data.led)),
      card("Vacant", "had a leader lately, and has none now", vacant(data.vacant)),
      live.now ? card("The cluster itself", null, cluster(live.now)) : null,
    ];
  },
};

function led(list) {
  if (list.length === 0) return empty("There is no leader. Start a candidate: ", h("code", {}, "holdfast elect scheduler --value host-1 -- COMMAND"));
  const columns = [{ label: "Election", class: "name" }, { label: "Leader's value", class: "value" }, { label: "Leader" }, { label: "Epoch", class: "num" },
    { label: "Leads for", class: "num" }, { label: "Candidates", class: "num" }, { label: "Elected", class: "num" }];
  return table(columns, list.map((lock) => ({
    key: lock.name, link: true,
    cells: [h("a", { href: address("lock", { name: lock.name }) }, shown(lock.name)), shown(lock.metadata), who(lock.owner, lock.session),
      h("span", { class: "mono" }, lock.token), duration(lock.held_for_ms), number(lock.waiters), lock.terms ? count(lock.terms, "time", "times") : "not lately"],
  })), "Elections with a leader");
}

function vacant(list) {
  if (list.length === 0) return empty("Every election that had a leader lately has one now.");
  const columns = [{ label: "Election", class: "name" }, { label: "Last leader's value", class: "value" }, { label: "Last epoch", class: "num" }, { label: "How it ended", class: "fit" }, { label: "Vacant since", class: "num mono" }];
  return table(columns, list.map((one) => ({
    key: one.name, link: true,
    cells: [h("a", { href: address("lock", { name: one.name }) }, shown(one.name)), shown(one.last.metadata), h("span", { class: "mono" }, one.last.token),
      one.ended.kind.replaceAll("_", " "), clock(one.ended.unix_ms)],
  })), "Elections without a leader");
}

function cluster(now) {
  if (isDivided(now)) return h("div", { class: "body" }, h("a", { href: address("groups") }, `the leaders of its ${now.groups.length} groups`));
  const fact = (label, value) => [h("dt", {}, label), h("dd", {}, value)];
  return h("div", { class: "body" }, now.groups.map((group) => h("dl", { class: "facts" },
    fact(`Group ${group.group}`, group.leader ? `node ${group.leader} leads in term ${number(group.term)}` : "no leader"),
    fact("Leader changes", `${number(now.leader_changes)} in the last 5 minutes`))));
}
