package holdfast.client.errors;

/** The program closed the client. */
public final class ClosedException extends HoldfastException {
  public ClosedException() {
    super("the client is closed; open another one");
  }
}
