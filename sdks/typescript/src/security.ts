/**
 * How a client reaches a cluster that speaks TLS, and proves who it is.
 *
 * A node's certificate says what it is for in a URI: `holdfast://CLUSTER/node/3`. A client compares the cluster with
 * that of its authority, `holdfast://CLUSTER/ca`, so a certificate holds wherever its node moves.
 */

import { X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { isIP } from "node:net";
import { checkServerIdentity, createSecureContext, type PeerCertificate } from "node:tls";
import { type ChannelCredentials, type ChannelOptions, credentials, Metadata } from "@grpc/grpc-js";
import { MS } from "./core/lease.js";
import { HandshakePatience } from "./core/pacing.js";

const NODE = /^holdfast:\/\/([^/]+)\/node\/[1-9][0-9]*$/;
const CREDENTIAL_TIMEOUT_MS = 10_000;
const AUTHORITY = /^holdfast:\/\/([^/]+)\/ca$/;

/** TLS and credentials. With `ca`, the client speaks TLS, and nothing else. */
export interface SecurityOptions {
  /** The file of the authority that signed the nodes' certificates. */
  ca?: string;
  /** The file of the client's own certificate, and that of its key. */
  cert?: string;
  key?: string;
  /** What is compared in a node's certificate: the cluster (by default), or the host name. */
  verify?: "cluster" | "host";
  /** A token instead of a certificate, or a function that returns one. It is asked for at each connection. */
  credential?: string | (() => string | Promise<string>);
  /** The file of a token. It is read at each connection. */
  authFile?: string;
}

export class Security {
  /** Shared by all connections of a client. */
  readonly handshakePatience: HandshakePatience;

  constructor(
    private readonly options: SecurityOptions,
    ttlMs: number,
  ) {
    this.handshakePatience = new HandshakePatience(BigInt(Math.floor(ttlMs)) * MS);
    const { ca, cert, key, verify = "cluster", credential, authFile } = options;
    // Mistakes are told at once, and not when a node is dialled.
    if (verify !== "cluster" && verify !== "host") throw new TypeError("verify is 'cluster' or 'host'");
    if ((cert === undefined) !== (key === undefined)) throw new TypeError("cert and key belong together: give both");
    if (credential !== undefined && authFile !== undefined) throw new TypeError("give credential or authFile");
    if (ca === undefined && cert !== undefined) {
      throw new TypeError("a certificate is of no use without TLS: give ca, the file of the cluster's authority");
    }
    if (authFile !== undefined) readFileSync(authFile);
    this.channel("");
  }

  /** TLS names hosts, and no addresses. */
  channelOptions(address: string): ChannelOptions {
    const isNamed = !this.hasTls || isIP(hostOf(address)) === 0;
    return isNamed ? {} : { "grpc.ssl_target_name_override": "holdfast" };
  }

  /** The files are read again for each connection: certificates are replaced while programs run. */
  channel(address: string): ChannelCredentials {
    const { ca, cert, key, verify } = this.options;
    if (ca === undefined) return credentials.createInsecure();
    const authorities = readFileSync(ca, "utf8");
    const context = createSecureContext({
      ca: authorities,
      ...(cert !== undefined && key !== undefined && { cert: readFileSync(cert), key: readFileSync(key) }),
      minVersion: "TLSv1.3",
    });
    if (verify === "host") {
      const check = (_name: string, certificate: PeerCertificate) => checkServerIdentity(hostOf(address), certificate);
      return credentials.createFromSecureContext(context, { checkServerIdentity: check });
    }
    const clusters = clustersOf(authorities);
    if (clusters.length === 0) {
      throw new TypeError(
        `${ca} does not say of which cluster it is: use the authority that \`holdfast cert ca\` made, or compare the ` +
          "host with verify: 'host'",
      );
    }
    return credentials.createFromSecureContext(context, {
      checkServerIdentity: (_name: string, certificate: PeerCertificate) => {
        const uris = urisOf(certificate.subjectaltname);
        if (uris.some((uri) => clusters.includes(NODE.exec(uri)?.[1] ?? ""))) return undefined;
        return new Error(`the certificate is none of a node of ${clusters.join(", ")}; check the endpoints`);
      },
    });
  }

  get hasTls(): boolean {
    return this.options.ca !== undefined;
  }

  /** What each call carries. */
  async metadata(): Promise<Metadata> {
    const { credential, authFile } = this.options;
    const metadata = new Metadata();
    const shown = typeof credential === "function" ? await withinLimit(credential) : credential;
    const token = authFile === undefined ? shown : readFileSync(authFile, "utf8");
    if (token !== undefined) metadata.set("authorization", `Bearer ${token.trim()}`);
    return metadata;
  }
}

/** A program's own function that never answers must not stop the session. */
async function withinLimit(credential: () => string | Promise<string>): Promise<string> {
  let giveUp: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    const fail = () =>
      reject(new Error(`the function for the credential took longer than ${CREDENTIAL_TIMEOUT_MS} ms`));
    giveUp = setTimeout(fail, CREDENTIAL_TIMEOUT_MS);
  });
  try {
    return await Promise.race([credential(), late]);
  } finally {
    clearTimeout(giveUp);
  }
}

function hostOf(address: string): string {
  return address.slice(0, Math.max(0, address.lastIndexOf(":"))).replace(/^\[|\]$/g, "");
}

function clustersOf(authorities: string): string[] {
  const pems = authorities.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
  const uris = pems.flatMap((pem) => urisOf(new X509Certificate(pem).subjectAltName));
  return uris.flatMap((uri) => AUTHORITY.exec(uri)?.[1] ?? []);
}

function urisOf(names: string | undefined): string[] {
  return (names ?? "").split(", ").flatMap((name) => (name.startsWith("URI:") ? name.slice(4) : []));
}
