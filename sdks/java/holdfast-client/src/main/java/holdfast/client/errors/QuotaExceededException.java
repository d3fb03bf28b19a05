package holdfast.client.errors;

import java.time.Duration;
import java.util.Optional;

/**
 * The caller, or all that use the names with a prefix, have what their quota allows, or ask more
 * often.
 */
public final class QuotaExceededException extends RejectedException {
  private final Duration retryAfter;

  /** {@code retryAfter} is null if the cluster does not know it. */
  public QuotaExceededException(
      String reason, String message, boolean mayHaveHappened, Duration retryAfter) {
    super(reason, message, mayHaveHappened);
    this.retryAfter = retryAfter;
  }

  /** When the cluster would take the request, if it knows: it does for a rate. */
  public Optional<Duration> retryAfter() {
    return Optional.ofNullable(retryAfter);
  }
}
