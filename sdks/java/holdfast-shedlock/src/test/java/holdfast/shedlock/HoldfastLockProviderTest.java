package holdfast.shedlock;

import static org.junit.jupiter.api.Assertions.assertTrue;

import holdfast.client.Client;
import holdfast.client.TestNode;
import java.time.Duration;
import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import org.junit.jupiter.api.Test;

class HoldfastLockProviderTest {
  private static LockConfiguration configuration(String name, long atMostMs, long atLeastMs) {
    return new LockConfiguration(
        ClockProvider.now(), name, Duration.ofMillis(atMostMs), Duration.ofMillis(atLeastMs));
  }

  @Test
  void a_task_runs_once_for_its_times() throws Exception {
    try (TestNode node = new TestNode();
        Client here = Client.connect(node.endpoint());
        Client there = Client.connect(node.endpoint())) {
      LockProvider provider = new HoldfastLockProvider(here);
      LockProvider other = new HoldfastLockProvider(there);
      SimpleLock lock = provider.lock(configuration("report", 60_000, 0)).orElseThrow();
      assertTrue(other.lock(configuration("report", 60_000, 0)).isEmpty());
      assertTrue(provider.lock(configuration("report", 60_000, 0)).isEmpty());
      lock.unlock();
      lock = other.lock(configuration("report", 60_000, 0)).orElseThrow();
      lock = lock.extend(Duration.ofMinutes(2), Duration.ZERO).orElseThrow();
      lock.unlock();

      // It is done at once, and yet held for its least time.
      provider.lock(configuration("least", 60_000, 1_500)).orElseThrow().unlock();
      assertTrue(other.lock(configuration("least", 60_000, 0)).isEmpty());
      awaitFree(other, "least");

      // It is never done, and free after its most time.
      provider.lock(configuration("most", 300, 0)).orElseThrow();
      awaitFree(other, "most");
    }
  }

  private static void awaitFree(LockProvider provider, String name) throws InterruptedException {
    while (true) {
      var lock = provider.lock(configuration(name, 60_000, 0));
      if (lock.isPresent()) {
        lock.get().unlock();
        return;
      }
      Thread.sleep(20);
    }
  }
}
