/** The library's answers to the vectors of `crates/conformance/vectors`. */

import { Endpoints } from "#dist/core/endpoints.js";
import { Leases, MS } from "#dist/core/lease.js";
import { slotOf } from "#dist/core/slots.js";
import { FenceRefused, InvalidEndpoints } from "#dist/errors.js";
import { admit, HighWaterMark } from "#dist/fence.js";

const HOLDS = [0n, 1n, 2n];

interface Times {
  sent_at: number;
  logical_ms: number;
}

interface Step extends Partial<Times> {
  do: string;
  hold?: number;
  renewal?: number;
  deadline_ms?: number | null;
  ttl_ms?: number | null;
}

interface LeaseCase {
  ttl_ms: number;
  linger_ms: number;
  opened: Times;
  steps: Step[];
}

const big = (number: number | undefined) => BigInt(number ?? 0);
const bigOrNone = (number: number | null | undefined) => (number == null ? undefined : BigInt(number));

function play(leases: Leases, step: Step): void {
  const [hold, renewal, deadline] = [big(step.hold), big(step.renewal), bigOrNone(step.deadline_ms)];
  const [sentAt, logicalMs, ttlMs] = [big(step.sent_at), big(step.logical_ms), bigOrNone(step.ttl_ms)];
  const steps: Record<string, () => void> = {
    answered: () => leases.answered(sentAt, logicalMs),
    answered_best_effort: () => leases.answeredBestEffort(sentAt, logicalMs),
    granted: () => leases.granted(hold, deadline),
    granted_best_effort: () => leases.granted(hold, deadline, true),
    renewal_sent: () => leases.renewalSent(hold, renewal, sentAt, ttlMs === undefined ? undefined : ttlMs * MS),
    renewed: () => leases.renewed(hold, renewal, deadline),
    renewal_refused: () => leases.renewalRefused(hold, renewal),
    ended: () => leases.ended(hold),
    best_effort_restarts: () => leases.bestEffortRestarts(),
    leader_lost: () => leases.leaderLost(),
  };
  const does = steps[step.do];
  if (does === undefined) throw new Error(`no step '${step.do}'`);
  does();
}

function lease({ opened, ttl_ms, linger_ms, steps }: LeaseCase): unknown {
  const leases = new Leases(big(opened.sent_at), big(opened.logical_ms), big(ttl_ms) * MS, big(linger_ms) * MS);
  for (const step of steps) play(leases, step);
  const holds = HOLDS.filter((hold) => leases.validUntil(hold) !== undefined).map((hold) => [
    hold.toString(),
    {
      valid_until: Number(leases.validUntil(hold)),
      at_risk_from: Number(leases.atRiskFrom(hold)),
      ends_before_session: leases.endsBeforeSession(hold),
    },
  ]);
  return {
    session_valid_until: Number(leases.sessionValidUntil()),
    heartbeat_due: Number(leases.heartbeatDue()),
    holds: Object.fromEntries(holds),
  };
}

interface FenceCase {
  accepts: string;
  fence: string | null;
  mark: string;
  resource: string;
}

function fence({ accepts, fence, mark, resource }: FenceCase): unknown {
  try {
    const claim = admit(fence, resource, { acceptsBestEffort: accepts === "best_effort" });
    new HighWaterMark(BigInt(mark)).raiseTo(claim);
    return { token: claim.token.toString() };
  } catch (error) {
    if (error instanceof FenceRefused) return { error: error.kind };
    throw error;
  }
}

function endpoints({ text }: { text: string }): unknown {
  try {
    return { addresses: new Endpoints(text).addresses };
  } catch (error) {
    if (!(error instanceof InvalidEndpoints)) throw error;
    return error.kind === "empty" ? { error: "empty" } : { error: error.kind, part: error.part };
  }
}

const ANSWERS: Record<string, (input: never) => unknown> = {
  lease,
  fence,
  endpoints,
  slots: ({ name }: { name: string }) => ({ slot: slotOf(name) }),
};

export function answer(kind: string, input: unknown): unknown {
  const answerOf = ANSWERS[kind];
  if (answerOf === undefined) throw new Error(`no vectors of '${kind}'`);
  return answerOf(input as never);
}
