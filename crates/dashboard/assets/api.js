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
  return answer(fetch(`/api/${path}${query}`, { signal: AbortSignal.timeout(PATIENCE_MS), credentials: "same-origin" }));
}

export async function act(action, secret, body) {
  return post(`actions/${action}`, { "holdfast-secret": encodeSecret(secret) }, body);
}

// A cookie that no script can read stands for the token from then on.
export async function logIn(token) {
  return post("login", {}, { token });
}

export async function logOut() {
  return post("logout", {}, {});
}

async function post(path, headers, body) {
  return answer(fetch(`/api/${path}`, {
    method: "POST",
    credentials: "same-origin",
    signal: AbortSignal.timeout(PATIENCE_MS),
    headers: { "content-type": "application/json", "holdfast-action": "1", ...headers },
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
  const text = await response.text().catch(() => "");
  const body = parsed(text);
  if (response.ok && body) return body;
  const told = body && body.error;
  if (!told && response.status === 401) throw new Failed(text.trim(), "unauthenticated", false);
  if (!told && text && response.status < 500) throw new Failed(text.trim(), "refused", false);
  throw new Failed(told ? told.words : `the node answered ${response.status}`, told ? told.reason : "unknown", told ? told.may_have_happened : false);
}

function parsed(text) {
  try { return JSON.parse(text); } catch { return null; }
}
