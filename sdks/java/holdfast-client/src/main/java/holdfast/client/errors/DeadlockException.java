package holdfast.client.errors;

import java.util.List;
import java.util.stream.Collectors;

/** To wait would have closed a cycle of waits. Release what you hold, and begin again. */
public final class DeadlockException extends HoldfastException {
  /**
   * One wait of the cycle. The next link is in its way.
   *
   * @param session the public id of the session that waits
   * @param actor the task of the session that waits
   * @param waitsFor the name of the lock
   */
  public record Link(String session, long actor, String waitsFor) {}

  private final transient List<Link> cycle;

  public DeadlockException(List<Link> cycle) {
    super("to wait would be a deadlock: " + words(cycle) + "; release what you hold");
    this.cycle = List.copyOf(cycle);
  }

  public List<Link> cycle() {
    return cycle;
  }

  private static String words(List<Link> cycle) {
    return cycle.stream()
        .map(link -> "session " + link.session() + " waits for " + link.waitsFor())
        .collect(Collectors.joining(", "));
  }
}
