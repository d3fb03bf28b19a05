// A cycle of waits that was refused, in words.

import { h } from "./dom.js";
import { shown, who } from "./text.js";
import { ownerOf } from "./owners.js";
import { address } from "./route.js";

// Longer ones are told up to here.
const LINKS_MAX = 32;

// links: [{ session, waits_for }], the first being the one that was refused.
export function cycleWords(links) {
  const isWhole = links.length < LINKS_MAX;
  return links.map((link, at) => {
    const next = at + 1 < links.length ? links[at + 1] : isWhole ? links[0] : null;
    return [at ? "; " : "", person(link.session), at ? " waits for " : " would wait for ", lock(link.waits_for),
      next === null ? ", and so on" : links.length === 1 ? ", and is in the way itself" : [", where ", person(next.session), " is in the way"]];
  });
}

function person(session) {
  return h("a", { class: "own plain", href: address("sessions", { contains: session }), title: `session ${session}` }, who(ownerOf(session), session.slice(0, 8)));
}

function lock(name) {
  return h("a", { class: "own name", href: address("lock", { name }) }, shown(name));
}
