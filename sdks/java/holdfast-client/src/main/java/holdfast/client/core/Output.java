package holdfast.client.core;

/** What the driver of a session has to do. */
public sealed interface Output {
  /** The caller gets its outcome. */
  record Completed(Object caller, Outcome outcome) implements Output {}

  /** The caller's request waits in the queue, at this position. */
  record Queued(Object caller, long position) implements Output {}

  record Connect(String address) implements Output {}

  record Disconnect(boolean withFarewell) implements Output {}
}
