// Asking the node.

export class Failed extends Error {
  constructor(words, reason, mayHaveHappened) {
    super(words);
    this.reason = reason;
    this.mayHaveHappened = mayHaveHappened;
  }
}

const PATIENCE_MS = 8000;

export async function ask(path, parameters) {
  const given = Object.entries(parameters || {}).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const query = given.length ? `?${new URLSearchParams(given)}` : "";
  return answer(fetch(`/api/${path}${query}`, { signal: AbortSignal.timeout(PATIENCE_MS), credentials: "omit" }));
}

export async function act(action, secret, body) {
  return answer(fetch(`/api/actions/${action}`, {
    method: "POST",
    credentials: "omit",
    signal: AbortSignal.timeout(PATIENCE_MS),
    headers: { "content-type": "application/json", "holdfast-action": "1", "holdfast-secret": encodeSecret(secret) },
    body: JSON.stringify(body),
  }));
}

// A header takes bytes; the secret's are those of UTF-8.
function encodeSecret(secret) {
  return String.fromCharCode(...new TextEncoder().encode(secret));
}

async function answer(asked) {
  let response;
  try {
    response = await asked;
  } catch (error) {
    const words = error.name === "TimeoutError" ? "the node did not answer in time" : "the node cannot be reached";
    throw new Failed(words, "unreachable", true);
  }
  const body = await response.json().catch(() => null);
  if (response.ok && body) return body;
  const told = body && body.error;
  throw new Failed(told ? told.words : `the node answered ${response.status}`, told ? told.reason : "unknown", told ? told.may_have_happened : false);
}
