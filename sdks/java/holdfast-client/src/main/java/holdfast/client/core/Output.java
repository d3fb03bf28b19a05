package holdfast.client.core;

import holdfast.client.errors.LossReason;

/** What the driver of a session has to do. */
public sealed interface Output {
  /** The caller gets its outcome. */
  record Completed(Object caller, Outcome outcome) implements Output {}

  /** The caller's request waits in the queue, at this position. */
  record Queued(Object caller, long position) implements Output {}

  record Connect(String address) implements Output {}

  record Disconnect(boolean withFarewell) implements Output {}

  /** A node has told the groups of the cluster. */
  record RoutesLearned(Routes routes) implements Output {}

  /**
   * The session is over, with all its locks. {@code words} are those of the node, if it said some.
   */
  record Ended(LossReason reason, String words) implements Output {}
}
