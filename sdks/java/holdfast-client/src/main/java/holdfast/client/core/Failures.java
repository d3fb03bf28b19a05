package holdfast.client.core;

import holdfast.client.errors.HoldfastException;
import holdfast.client.errors.PermissionDeniedException;
import holdfast.client.errors.QuotaExceededException;
import holdfast.client.errors.RejectedException;
import holdfast.client.errors.SeveralGroupsException;
import holdfast.client.errors.UnauthenticatedException;
import holdfast.v1.Failure;
import holdfast.v1.Reason;
import java.time.Duration;
import java.util.Locale;
import java.util.function.Supplier;

/** Failures of the protocol as errors of the library. */
public final class Failures {
  private static final String PREFIX = "REASON_";

  /** A node that tells more is asked again: its quota may be another one by then. */
  private static final long RETRY_AFTER_MS_MAX = 60_000;

  private Failures() {}

  public static Failure retryable(String message) {
    return Failure.newBuilder().setMessage(message).setRetryable(true).build();
  }

  /** The connection was made, and the node does not accept this client or is not the right one. */
  public static Failure denied(String message) {
    return Failure.newBuilder()
        .setMessage(message)
        .setReason(Reason.REASON_UNAUTHENTICATED)
        .build();
  }

  /** Such as {@code invalid_name}; {@code unspecified} for one that this version does not know. */
  static String reasonName(Reason reason) {
    if (reason == Reason.UNRECOGNIZED) {
      return "unspecified";
    }
    return reason.name().substring(PREFIX.length()).toLowerCase(Locale.ROOT);
  }

  /** The other way round. */
  public static Reason reasonNamed(String name) {
    try {
      return Reason.valueOf(PREFIX + name.toUpperCase(Locale.ROOT));
    } catch (IllegalArgumentException unknown) {
      return Reason.REASON_UNSPECIFIED;
    }
  }

  public static Supplier<HoldfastException> rejected(Failure failure) {
    String reason = reasonName(failure.getReason());
    String message = failure.getMessage();
    boolean mayHaveHappened = failure.getMayHaveHappened();
    return switch (failure.getReason()) {
      case REASON_UNAUTHENTICATED, REASON_CREDENTIAL_EXPIRED ->
          () -> new UnauthenticatedException(reason, message, mayHaveHappened);
      case REASON_PERMISSION_DENIED ->
          () -> new PermissionDeniedException(reason, message, mayHaveHappened);
      case REASON_QUOTA_EXCEEDED, REASON_RATE_LIMITED -> {
        long told = retryAfter(failure);
        Duration retryAfter = told == 0 ? null : Duration.ofNanos(told);
        yield () -> new QuotaExceededException(reason, message, mayHaveHappened, retryAfter);
      }
      case REASON_SEVERAL_GROUPS -> () -> new SeveralGroupsException(message, mayHaveHappened);
      default -> () -> new RejectedException(reason, message, mayHaveHappened);
    };
  }

  /** For how long the node refuses the same request; 0 if it does not say. */
  static long retryAfter(Failure failure) {
    // The number has no sign on the wire.
    long ms = failure.getRetryAfterMs();
    return (ms < 0 ? RETRY_AFTER_MS_MAX : Math.min(ms, RETRY_AFTER_MS_MAX)) * Leases.MS;
  }

  /** Whether the node does not accept the client, or does not allow the request. */
  static boolean isDenial(Failure failure) {
    return switch (failure.getReason()) {
      case REASON_PERMISSION_DENIED, REASON_UNAUTHENTICATED, REASON_CREDENTIAL_EXPIRED -> true;
      default -> false;
    };
  }

  static Outcome unknown(String words) {
    return Outcome.error(() -> new RejectedException("unspecified", words, true));
  }
}
