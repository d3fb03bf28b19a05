package holdfast.client;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.Map;

/**
 * The guards that one thread holds by views of {@link HoldfastLock}; the latest of a name first.
 */
final class ThreadGuards {
  private final Map<String, Deque<Guard>> byName = new HashMap<>();

  void push(String name, Guard guard) {
    byName.computeIfAbsent(name, it -> new ArrayDeque<>()).push(guard);
  }

  /** Null if there is none. */
  Guard peek(String name) {
    Deque<Guard> guards = byName.get(name);
    return guards == null ? null : guards.peek();
  }

  /** Null if there is none. */
  Guard poll(String name) {
    Deque<Guard> guards = byName.get(name);
    if (guards == null) {
      return null;
    }
    Guard latest = guards.poll();
    if (guards.isEmpty()) {
      byName.remove(name);
    }
    return latest;
  }
}
