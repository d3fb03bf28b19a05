package holdfast.client.errors;

import java.util.Set;

/** The cluster refused the request. */
public class RejectedException extends HoldfastException {
  /**
   * Limits can have room again later, a freeze ends, and another group may own the lock; a wrong
   * request stays wrong.
   */
  private static final Set<String> RETRYABLE =
      Set.of(
          "too_many_sessions",
          "too_many_holds",
          "too_many_waits",
          "queue_full",
          "too_many_unacknowledged",
          "frozen",
          "quota_exceeded",
          "rate_limited",
          "wrong_group");

  private final String reason;
  private final boolean mayHaveHappened;

  public RejectedException(String reason, String message, boolean mayHaveHappened) {
    super(message.isEmpty() ? reason : message);
    this.reason = reason;
    this.mayHaveHappened = mayHaveHappened;
  }

  /** The cluster's word for it, such as {@code invalid_name}. */
  public String reason() {
    return reason;
  }

  /** Whether the same request may succeed later. */
  public boolean isRetryable() {
    return RETRYABLE.contains(reason);
  }

  public boolean mayHaveHappened() {
    return mayHaveHappened;
  }
}
