// Who is connected, and when they were last heard of.

import { h, table, card, empty } from "./dom.js";
import { shown, number, duration, who, count } from "./text.js";
import { ask } from "./api.js";
import { address } from "./route.js";
import { actionButton, actionsNote, confirm } from "./dialog.js";

const SORTS = [["holds", "most holds first"], ["age", "oldest first"], ["heard", "nearest to its end first"]];
let typing = 0;

export const sessions = {
  title: "Sessions",
  every: 2,
  load: (parameters) => ask("sessions", parameters),
  render(data, page) {
    const asked = page.parameters;
    const change = (changes) => page.go({ ...asked, page: "", ...changes });
    return [
      h("div", { class: "head" }, h("h1", {}, "Sessions"),
        h("p", {}, "A session is one client. If it is not heard of for its TTL it ends, and its locks are freed.")),
      h("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
        h("label", { class: "field" }, "Owner or id contains",
          h("input", { type: "search", id: "contains", value: asked.contains || "", autocomplete: "off", spellcheck: "false", oninput: (event) => {
            const value = event.target.value;
            clearTimeout(typing);
            typing = setTimeout(() => change({ contains: value }), 250);
          } })),
        h("label", { class: "field" }, "Sorted by",
          h("select", { id: "sort", onchange: (event) => change({ sort: event.target.value }) },
            SORTS.map(([value, label]) => h("option", { value: value, selected: (asked.sort || "holds") === value }, label))))),
      card("Sessions", `${count(data.matched, "session", "sessions")}${data.cut ? ", of the first 20,000" : ""}`, body(data, asked, page), pager(data, asked)),
      actionsNote(),
    ];
  },
};

function body(data, asked, page) {
  if (data.sessions.length === 0) return asked.contains ? empty("No session matches.") : empty("No client is connected. Every ", h("code", {}, "holdfast lock"), " and every client library opens a session.");
  const columns = [{ label: "Owner" }, { label: "Session", class: "fit" }, { label: "Age", class: "num" }, { label: "Last heard", class: "num" },
    { label: "Ends if silent for", class: "num" }, { label: "Holds", class: "num" }, { label: "Waits", class: "num" }, { label: "", class: "fit" }];
  return table(columns, data.sessions.map((session) => ({
    key: session.session,
    cells: [
      [known(session.owner) ? who(session.owner, session.session) : h("span", { class: "sub" }, "says nothing about itself"),
        session.owner && session.owner.note ? h("div", { class: "sub" }, shown(session.owner.note)) : null,
        session.connected ? null : [" ", h("span", { class: "tag is-warn" }, "no stream open")]],
      h("span", { class: "mono" }, session.session), duration(session.age_ms), `${duration(session.heard_ms_ago)} ago`,
      late(session), session.holds ? h("a", { href: address("locks", { holder: session.session }) }, number(session.holds)) : "0",
      number(session.waits), actionButton("Close…", { class: "small danger" }, () => close(session, page)),
    ],
  })), "Sessions");
}

function known(owner) {
  return owner && (owner.application || owner.host);
}

function late(session) {
  const text = duration(session.remaining_ms);
  return session.remaining_ms * 3 < session.ttl_ms ? h("span", { class: "tag is-warn" }, text) : text;
}

function pager(data, asked) {
  if (!data.next && !asked.page) return null;
  return h("div", { class: "pager" },
    asked.page ? h("a", { href: address("sessions", { ...asked, page: "" }) }, "First page") : null,
    data.next ? h("a", { href: address("sessions", { ...asked, page: data.next }) }, "Next page") : null);
}

function close(session, page) {
  confirm({
    action: "close-session", title: "Close this session", confirm: "Close the session", danger: true,
    means: [h("p", { class: "subject" }, who(session.owner, session.session), h("div", { class: "sub mono" }, session.session)),
      h("p", {}, `It loses ${count(session.holds, "lock", "locks")} and ${count(session.waits, "place", "places")} in queues at once, and its program is told.`)],
    body: () => ({ session: session.session }),
    done: () => "the session is closed",
  }, page.refresh);
}
