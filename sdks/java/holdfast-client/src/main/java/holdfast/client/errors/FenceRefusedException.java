package holdfast.client.errors;

import java.util.Locale;
import java.util.OptionalLong;

/** A resource refused a fencing token. */
public final class FenceRefusedException extends HoldfastException {
  /** What is wrong with the token. */
  public enum Kind {
    /** A later holder was there. The lock was lost: do not send this write again. */
    STALE,
    MISSING,
    MALFORMED,
    ZERO,
    OTHER_RESOURCE,
    /** The resource takes no token of the efficiency tier. */
    BEST_EFFORT,
    /** The resource takes tokens of the efficiency tier only. */
    NOT_BEST_EFFORT,
    /** A permit has no token in full form. */
    NOT_FENCEABLE;

    /** The name that all libraries share. */
    public String code() {
      return name().toLowerCase(Locale.ROOT);
    }
  }

  private final Kind kind;
  private final Long highest;

  public FenceRefusedException(Kind kind, String message) {
    this(kind, message, null);
  }

  public FenceRefusedException(Kind kind, String message, Long highest) {
    super(message);
    this.kind = kind;
    this.highest = highest;
  }

  public Kind kind() {
    return kind;
  }

  /** The highest token that the resource has seen, if it is known. */
  public OptionalLong highest() {
    return highest == null ? OptionalLong.empty() : OptionalLong.of(highest);
  }
}
