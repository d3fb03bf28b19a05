package holdfast.client.errors;

/** No node answered in time. */
public final class UnavailableException extends HoldfastException {
  private final boolean mayHaveHappened;

  public UnavailableException(String message, boolean mayHaveHappened) {
    super("no answer from the cluster in time: " + message);
    this.mayHaveHappened = mayHaveHappened;
  }

  public boolean mayHaveHappened() {
    return mayHaveHappened;
  }
}
