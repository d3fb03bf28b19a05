// Who is behind a session that an event names by its id alone. Each is asked for once, many at a time; what is
// drawn with the next beat shows the answer.

import { ask } from "./api.js";

const ASKED_MAX = 100;
const KNOWN_MAX = 2000;
const SOON_MS = 50;

// By session; null: not known.
const known = new Map();
let wanted = new Set();
let asking = false;

export function ownerOf(session) {
  if (!known.has(session)) {
    wanted.add(session);
    if (!asking) {
      asking = true;
      setTimeout(learn, SOON_MS);
    }
  }
  return known.get(session) || null;
}

async function learn() {
  const sessions = [...wanted].slice(0, ASKED_MAX);
  // Those that are still shown are wanted again when they are drawn.
  wanted = new Set();
  try {
    const { owners } = await ask("owners", { sessions: sessions.join(",") });
    if (known.size > KNOWN_MAX) known.clear();
    for (const session of sessions) known.set(session, owners[session] || null);
  } catch {
    // The next draw asks again.
  } finally {
    asking = false;
  }
}
