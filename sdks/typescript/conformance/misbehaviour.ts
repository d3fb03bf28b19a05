/** Rules of the protocol that the driver can be told to break. The library itself has no such code. */

import { readFileSync } from "node:fs";
import { createSecureContext } from "node:tls";
import { credentials } from "@grpc/grpc-js";
import { Denials } from "#dist/core/denials.js";
import { Endpoints } from "#dist/core/endpoints.js";
import { InFlight } from "#dist/core/in-flight.js";
import { earliest, Leases, margin } from "#dist/core/lease.js";
import { Routes } from "#dist/core/routes.js";
import { Session } from "#dist/core/session.js";
import { State } from "#dist/core/state.js";
import { HeldLocks } from "#dist/index.js";
import { Security, type SecurityOptions } from "#dist/security.js";

/** A watch that is begun again after each answer, without the position that it was told. */
export const forgets = { position: false };

export const MODES: Record<string, () => void> = {
  /** Leases are trusted for their whole time. */
  "no-margin": () => {
    margin.percent = margin.slack = 0n;
  },

  /** What had no answer when the stream broke goes out again under another id. */
  "retry-new-id": () => {
    const { streamBroke } = State.prototype;
    State.prototype.streamBroke = function (this: State) {
      streamBroke.call(this);
      this.askAgainUnderNewIds(() => true);
    };
  },

  /** A request is acknowledged once it was sent, before its answer came. */
  "ack-early": () => {
    InFlight.prototype.ackedThrough = function (this: InFlight) {
      const unsent = this.entries().filter(([, entry]) => entry.firstSentAt === undefined);
      return earliest([this.lastId, ...unsent.map(([id]) => id - 1n)]) ?? 0n;
    };
  },

  /** A request whose caller is gone is not cancelled. */
  "forget-cancel": () => {
    State.prototype.stageCancel = () => undefined;
  },

  /** Only the configured endpoints are used, whatever the cluster says. */
  "ignore-members": () => {
    Endpoints.prototype.learn = () => undefined;
    Endpoints.prototype.mayFollow = () => false;
  },

  /** All locks are taken for those of the root group. */
  "ignore-map": () => {
    Routes.prototype.learn = () => false;
  },

  "forget-position": () => {
    forgets.position = true;
  },

  /** No certificate of a node is checked. */
  "trust-any-node": () => {
    Security.prototype.channel = function (this: Security) {
      const { ca, cert, key } = (this as unknown as { options: SecurityOptions }).options;
      if (ca === undefined) return credentials.createInsecure();
      const own = cert !== undefined && key !== undefined && { cert: readFileSync(cert), key: readFileSync(key) };
      const lax = { rejectUnauthorized: false, checkServerIdentity: () => undefined };
      return credentials.createFromSecureContext(createSecureContext({ ...own, minVersion: "TLSv1.3" }), lax);
    };
  },

  /** A refusal is taken for a sign of life. */
  "count-failures": () => {
    const { handleFrame } = Session.prototype;
    Session.prototype.handleFrame = function (this: Session, now, frame) {
      for (const { requestId, result } of frame.answers) {
        const sentAt = this.state.requests.get(requestId)?.firstSentAt;
        if (result.case === "failure" && sentAt !== undefined) this.state.leases?.answered(sentAt, 0n);
      }
      handleFrame.call(this, now, frame);
    };
    Denials.prototype.note = () => false;
  },

  /** Guards do not read the clock. */
  "no-clock": () => {
    HeldLocks.prototype.check = () => undefined;
  },

  /** Heartbeats go out more often than they have to. */
  chatty: () => {
    const { heartbeatDue } = Leases.prototype;
    Leases.prototype.heartbeatDue = function (this: Leases) {
      return heartbeatDue.call(this) - (this.span * 19n) / 60n;
    };
  },

  /** The credential is read once. */
  "credential-once": () => {
    const { metadata } = Security.prototype;
    const read = new WeakMap<Security, ReturnType<typeof metadata>>();
    Security.prototype.metadata = function (this: Security) {
      const first = read.get(this) ?? metadata.call(this);
      read.set(this, first);
      return first;
    };
  },
};
