// All locks: searched, sorted and paged by the server.

import { h, table, card, empty } from "./dom.js";
import { shown, number, duration, who, count } from "./text.js";
import { ask } from "./api.js";
import { address } from "./route.js";

const SORTS = [["name", "name"], ["queue", "longest queue first"], ["age", "held longest first"]];
let typing = 0;

export const locks = {
  title: "Locks",
  every: 2,
  load: (parameters) => ask("locks", parameters),
  render(data, page) {
    const asked = page.parameters;
    const change = (changes) => page.go({ ...asked, page: "", ...changes });
    const later = (key) => (event) => {
      const value = event.target.value;
      clearTimeout(typing);
      typing = setTimeout(() => change({ [key]: value }), 250);
    };
    return [
      h("div", { class: "head" }, h("h1", {}, "Locks"),
        h("p", {}, "Every lock that is held, awaited or closed. One that is not in use does not exist. A token is a fencing token: every exclusive grant has a higher one than all before.")),
      h("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
        h("label", { class: "field" }, "Name contains",
          h("input", { type: "search", id: "contains", value: asked.contains || "", maxlength: 512, autocomplete: "off", spellcheck: "false", oninput: later("contains") })),
        h("label", { class: "field" }, "Begins with",
          h("input", { type: "search", id: "prefix", value: asked.prefix || "", maxlength: 512, autocomplete: "off", spellcheck: "false", oninput: later("prefix") })),
        h("label", { class: "field" }, "Sorted by",
          h("select", { id: "sort", onchange: (event) => change({ sort: event.target.value }) },
            SORTS.map(([value, label]) => h("option", { value: value, selected: (asked.sort || "name") === value }, label))))),
      asked.holder ? h("div", { class: "row" }, h("span", { class: "tag is-accent" }, `held by session ${asked.holder}`),
        h("button", { type: "button", class: "small", onclick: () => change({ holder: "" }) }, "show all")) : null,
      card("Locks", note(data, asked), body(data, asked), pager(data, page)),
    ];
  },
};

function note(data, asked) {
  if (data.matched === null || data.matched === undefined) return null;
  const ranked = data.matched > 1000 && (asked.sort === "queue" || asked.sort === "age");
  return ranked ? `the first 1,000 of ${number(data.matched)}` : count(data.matched, "lock", "locks");
}

function body(data, asked) {
  if (data.locks.length === 0) {
    if (data.next) return empty("None among those looked at so far; go on with “Next page”.");
    return asked.contains || asked.prefix || asked.holder
      ? empty("No lock matches. Only locks in use are listed; shorten the search, or clear it.")
      : empty("No lock is in use. Take one: ", h("code", {}, "holdfast lock demo -- sleep 60"));
  }
  const columns = [{ label: "Name", class: "name" }, { label: "Held by" }, { label: "Mode", class: "fit" },
    { label: "Held for", class: "num" }, { label: "Queue", class: "num" }, { label: "Token", class: "num" }];
  return table(columns, data.locks.map((lock) => ({
    key: lock.name, link: true,
    cells: [
      h("a", { href: address("lock", { name: lock.name }) }, shown(lock.name)),
      lock.holders === 0 ? h("span", { class: "tag is-warn" }, "free, kept or closed")
        : [who(lock.owner, lock.session), lock.holders > 1 ? h("span", { class: "sub" }, ` and ${number(lock.holders - 1)} more`) : null,
          lock.metadata ? h("div", { class: "sub" }, shown(cut(lock.metadata))) : null],
      lock.mode, lock.holders ? duration(lock.held_for_ms) : "",
      lock.waiters ? h("strong", {}, number(lock.waiters)) : "0", lock.token,
    ],
  })), "Locks");
}

function cut(text) {
  return text.length > 80 ? `${text.slice(0, 79)}…` : text;
}

function pager(data, page) {
  const asked = page.parameters;
  if (!data.next && !asked.page) return null;
  return h("div", { class: "pager" },
    asked.page ? h("a", { href: address("locks", { ...asked, page: "" }) }, "First page") : null,
    data.next ? h("a", { href: address("locks", { ...asked, page: data.next }), id: "next" }, "Next page") : h("span", {}, "That was the last page."));
}
