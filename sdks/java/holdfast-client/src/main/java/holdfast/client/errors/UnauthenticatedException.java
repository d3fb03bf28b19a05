package holdfast.client.errors;

/**
 * The cluster does not know this client: its certificate or its token is missing, wrong or over.
 */
public final class UnauthenticatedException extends RejectedException {
  public UnauthenticatedException(String reason, String message, boolean mayHaveHappened) {
    super(reason, message, mayHaveHappened);
  }
}
