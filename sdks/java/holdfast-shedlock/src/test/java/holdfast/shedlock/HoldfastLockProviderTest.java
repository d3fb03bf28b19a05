package holdfast.shedlock;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import holdfast.client.Client;
import holdfast.client.TestNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
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

  @Test
  void a_lock_that_was_broken_is_not_extended() throws Exception {
    try (TestNode node = new TestNode();
        Client client = Client.connect(node.endpoint())) {
      LockProvider provider = new HoldfastLockProvider(client);
      SimpleLock lock = provider.lock(configuration("known", 60_000, 0)).orElseThrow();
      node.breakLock("shedlock:known");
      // Once another caller has the lock, the client knows of the loss.
      provider.lock(configuration("known", 60_000, 0)).orElseThrow().unlock();
      assertTrue(lock.extend(Duration.ofMinutes(2), Duration.ZERO).isEmpty());
    }
  }

  @Test
  void an_extension_that_meets_the_loss_of_its_lock_is_empty() throws Exception {
    try (TestNode node = new TestNode();
        Client client = Client.connect(node.endpoint())) {
      LockProvider provider = new HoldfastLockProvider(client);
      SimpleLock lock = provider.lock(configuration("met", 60_000, 0)).orElseThrow();
      CompletableFuture<Void> broken =
          CompletableFuture.runAsync(
              () -> {
                try {
                  node.breakLock("shedlock:met");
                } catch (IOException error) {
                  throw new UncheckedIOException(error);
                }
              });
      Optional<SimpleLock> extended = Optional.of(lock);
      while (extended.isPresent()) {
        assertFalse(broken.isCompletedExceptionally());
        extended = extended.get().extend(Duration.ofMinutes(2), Duration.ZERO);
      }
      broken.join();
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
