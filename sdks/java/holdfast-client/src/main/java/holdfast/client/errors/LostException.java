package holdfast.client.errors;

/** The lock is no longer held. */
public final class LostException extends HoldfastException {
  private final LossReason reason;

  public LostException(LossReason reason) {
    super("the lock is lost: " + reason.words());
    this.reason = reason;
  }

  public LossReason reason() {
    return reason;
  }
}
