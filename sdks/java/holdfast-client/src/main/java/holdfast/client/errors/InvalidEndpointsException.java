package holdfast.client.errors;

/** The list of endpoints cannot be used. */
public final class InvalidEndpointsException extends HoldfastException {
  /** What is wrong with the list. */
  public enum Kind {
    EMPTY,
    NOT_HOST_AND_PORT
  }

  private final Kind kind;
  private final String part;

  public InvalidEndpointsException(Kind kind, String part) {
    super(
        kind == Kind.EMPTY
            ? "no endpoint given; write one or more host:port, separated by commas"
            : "'" + part + "' is not an endpoint; write host:port, for example 127.0.0.1:7420");
    this.kind = kind;
    this.part = part;
  }

  public Kind kind() {
    return kind;
  }

  /** The endpoint that cannot be read. */
  public String part() {
    return part;
  }
}
