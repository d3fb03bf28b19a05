/** Which node to try next: the leader if a node has named one, else the known nodes in turn. */

import { isIPv6 } from "node:net";
import { InvalidEndpoints } from "../errors.js";

/** No cluster has more nodes. */
const TOLD_MAX = 64;
const HOST = /^[A-Za-z0-9\-._~]+$/;
const PORT = /^\+?[0-9]+$/;

/** `host:port`. A scheme is taken off, since people copy addresses with one. */
function checkedAddress(text: string): string {
  const address = (text.startsWith("http://") ? text.slice(7) : text).replace(/\/+$/, "");
  const colon = address.lastIndexOf(":");
  const [host, port] = [address.slice(0, Math.max(0, colon)), address.slice(colon + 1)];
  if (colon < 0 || !isHost(host) || !PORT.test(port) || !(Number(port) > 0 && Number(port) < 65_536)) {
    throw new InvalidEndpoints("not_host_and_port", text);
  }
  return address;
}

function isHost(text: string): boolean {
  if (text.startsWith("[") && text.endsWith("]")) return !text.includes("%") && isIPv6(text.slice(1, -1));
  return HOST.test(text);
}

function isAddress(text: string): boolean {
  try {
    return checkedAddress(text) !== "";
  } catch {
    return false;
  }
}

export class Endpoints {
  addresses: string[];
  private readonly configured: string[];
  private told: string[] = [];
  private next = 0;
  private leaderHint: string | undefined;
  /** Followers may name a dead leader for a while. */
  private unreachable: string | undefined;
  private unreachableCount = 0;

  constructor(
    text: string,
    private readonly discovers = true,
  ) {
    const parts = text.split(",").map((part) => part.trim());
    this.addresses = parts.filter((part) => part !== "").map(checkedAddress);
    if (this.addresses.length === 0) throw new InvalidEndpoints("empty");
    this.configured = [...this.addresses];
  }

  /** The same nodes, for a session in another group, which this node leads; an empty address is none. */
  ofOtherGroup(leader: string): Endpoints {
    const endpoints = new Endpoints(this.configured.join(","), this.discovers);
    endpoints.learn(this.told);
    endpoints.followLeader(leader);
    return endpoints;
  }

  nextAddress(): string {
    const leader = this.leaderHint;
    if (leader !== undefined) {
      this.leaderHint = undefined;
      return leader;
    }
    const address = this.addresses[this.next % this.addresses.length] as string;
    this.next = (this.next + 1) % this.addresses.length;
    return address;
  }

  followLeader(leader: string): void {
    if (this.mayFollow(leader)) this.leaderHint = leader;
  }

  mayFollow(leader: string): boolean {
    return this.discovers && leader !== this.unreachable && isAddress(leader);
  }

  couldNotReach(address: string): void {
    this.unreachable = address;
    this.unreachableCount += 1;
    const place = this.addresses.indexOf(address);
    const wasReplaced = this.told.length > 0 && !this.told.includes(address);
    if (!wasReplaced || place < 0) return;
    if (this.addresses.slice(place + 1).some((known) => this.told.includes(known))) {
      // The cluster does not report it either, so the other nodes are tried first.
      this.addresses.push(...this.addresses.splice(place, 1));
      if (this.next > place) this.next -= 1;
    }
  }

  reached(): void {
    this.unreachable = undefined;
    this.unreachableCount = 0;
  }

  hasTriedAll(): boolean {
    return this.unreachableCount >= this.addresses.length;
  }

  /** The cluster has reported its nodes. */
  learn(told: readonly string[]): void {
    if (!this.discovers) return;
    this.told = told.filter(isAddress).slice(0, TOLD_MAX);
    const following = this.addresses[this.next];
    const known = this.addresses.filter((it) => this.configured.includes(it) || this.told.includes(it));
    this.addresses = [...known, ...this.told.filter((it) => !known.includes(it))];
    this.next = following === undefined ? 0 : Math.max(0, this.addresses.indexOf(following));
  }
}
