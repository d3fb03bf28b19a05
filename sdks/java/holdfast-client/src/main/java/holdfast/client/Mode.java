package holdfast.client;

/** How a lock is held. */
public enum Mode {
  EXCLUSIVE,
  /** Together with other readers, under one token. */
  SHARED,
  /** One of several permits. It has no token in full form. */
  PERMIT;

  static Mode of(holdfast.v1.Mode mode) {
    return switch (mode) {
      case MODE_SHARED -> SHARED;
      case MODE_PERMIT -> PERMIT;
      default -> EXCLUSIVE;
    };
  }

  holdfast.v1.Mode wire() {
    return switch (this) {
      case EXCLUSIVE -> holdfast.v1.Mode.MODE_EXCLUSIVE;
      case SHARED -> holdfast.v1.Mode.MODE_SHARED;
      case PERMIT -> holdfast.v1.Mode.MODE_PERMIT;
    };
  }
}
