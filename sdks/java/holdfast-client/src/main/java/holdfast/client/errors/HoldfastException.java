package holdfast.client.errors;

/** The base of all errors of this library. */
public abstract class HoldfastException extends RuntimeException {
  protected HoldfastException(String message) {
    super(message);
  }
}
