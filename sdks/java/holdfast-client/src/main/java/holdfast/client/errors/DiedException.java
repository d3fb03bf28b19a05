package holdfast.client.errors;

/** An older actor is in the way. Release what you hold, and ask again with this {@code since}. */
public final class DiedException extends HoldfastException {
  private final long since;

  public DiedException(long since) {
    super("an older actor is in the way; release what you hold and ask again with since " + since);
    this.since = since;
  }

  public long since() {
    return since;
  }
}
