package holdfast.client;

/** With what a client that speaks TLS compares the certificate of a node. */
public enum Verify {
  /** With the cluster of the authority. A certificate holds wherever its node moves. */
  CLUSTER,
  /** With the host that was dialled. */
  HOST
}
