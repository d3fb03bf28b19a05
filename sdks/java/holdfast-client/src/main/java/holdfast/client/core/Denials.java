package holdfast.client.core;

import holdfast.v1.Failure;
import holdfast.v1.Reason;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;

/**
 * When a client that the nodes deny gives its session up.
 *
 * <p>One denial proves little. A node that does not lead may not know the newest credentials yet. A
 * program that renews its credential may be late by a moment. So a client gives its session up only
 * when the latest answer of each known node, if it gave one, is a denial, at least one of these
 * denials is final, which is what the leader's is, and denials have gone on for the patience,
 * without a node that served the session.
 *
 * <p>An answer that is older than the patience does not count: the node may say something else by
 * now.
 */
final class Denials {
  /** Long enough to replace a credential that has ended. */
  private static final long PATIENCE_MAX = 5_000 * Leases.MS;

  private static final long NEVER = Long.MAX_VALUE;

  private record NodeAnswer(long at, boolean denies, boolean isFinal) {}

  private final long patience;

  /**
   * The latest answer of each known node. It has no other addresses, so leader hints do not make it
   * grow.
   */
  private final Map<String, NodeAnswer> answers = new HashMap<>();

  /** When the first of the denials came that have gone on since. */
  private long since = NEVER;

  Denials(long ttl) {
    patience = Math.min(PATIENCE_MAX, ttl / 3);
  }

  /** A node serves the session, or the session has ended. */
  void clear() {
    answers.clear();
    since = NEVER;
  }

  /** A node has not let the client resume. True if the client has to give its session up. */
  boolean note(long now, String address, Failure failure, Collection<String> known) {
    answers.values().removeIf(answer -> now - answer.at() > patience);
    answers.keySet().retainAll(known);
    if (!hasDenial()) {
      since = NEVER;
    }
    boolean denies = Failures.isDenial(failure);
    // A connection that broke is no answer of a node.
    if (failure.getReason() != Reason.REASON_UNSPECIFIED && known.contains(address)) {
      answers.put(address, new NodeAnswer(now, denies, !failure.getRetryable()));
    }
    if (!hasDenial()) {
      since = NEVER;
      return false;
    }
    since = Math.min(since, now);
    boolean byAll = answers.values().stream().allMatch(NodeAnswer::denies);
    boolean isSure = answers.values().stream().anyMatch(NodeAnswer::isFinal);
    return denies && byAll && isSure && now - since >= patience;
  }

  private boolean hasDenial() {
    return answers.values().stream().anyMatch(NodeAnswer::denies);
  }
}
