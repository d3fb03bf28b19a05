package holdfast.client.errors;

import java.util.Locale;

/** Why a lock is no longer held. */
public enum LossReason {
  /** By the client's own clock. */
  EXPIRED("no heartbeat was answered within the session's TTL, so the lock may have ended"),
  /** By the client's own clock. */
  OWN_TIME_OVER("the hold's own time, its TTL or its maximum, is over"),
  HOLD_TTL("the hold's own TTL passed without a renewal"),
  MAX_HOLD("the hold reached its maximum time"),
  SESSION_EXPIRED("the session expired"),
  SESSION_CLOSED("the session was closed"),
  DISCONNECTED("the connection broke and did not come back within the linger time"),
  WOUNDED("an older actor took the lock away"),
  BROKEN("an operator broke the lock"),
  SESSION_KILLED("an operator ended the session"),
  TRANSFERRED("the lock was handed to another session"),
  LEADER_CHANGED("the leader changed, and with it ended what was held in the efficiency tier"),
  LEADER_UNREACHABLE(
      "the connection to the leader was lost, and with it what was held in the efficiency tier"),
  DENIED(
      "no node accepts this client any more, so it can neither keep the lock nor release it; the"
          + " cluster ends the lock when the session's TTL is over, or before. Give the client"
          + " another credential"),
  RELEASED("the lock was released"),
  ENDED("the cluster ended the hold");

  private final String words;

  LossReason(String words) {
    this.words = words;
  }

  /** The name that all libraries share, such as {@code own_time_over}. */
  public String code() {
    return name().toLowerCase(Locale.ROOT);
  }

  /** A sentence for people. */
  public String words() {
    return words;
  }
}
