package holdfast.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import holdfast.client.Client;
import holdfast.client.TestNode;
import holdfast.client.errors.LostException;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Lock;
import org.junit.jupiter.api.Test;
import org.springframework.integration.support.locks.LockRegistry;

class HoldfastLockRegistryTest {
  @Test
  void two_registries_exclude_each_other_and_a_loss_is_told_by_unlock() throws Exception {
    try (TestNode node = new TestNode();
        Client here = Client.connect(node.endpoint());
        Client there = Client.connect(node.endpoint())) {
      LockRegistry registry = new HoldfastLockRegistry(here);
      Lock lock = registry.obtain("batch");
      lock.lock();
      Lock elsewhere = new HoldfastLockRegistry(there).obtain("batch");
      assertFalse(elsewhere.tryLock());
      assertFalse(elsewhere.tryLock(50, TimeUnit.MILLISECONDS));
      // Another lock of the same key is the same.
      registry.obtain("batch").unlock();
      assertThrows(IllegalMonitorStateException.class, lock::unlock);
      assertTrue(elsewhere.tryLock(20, TimeUnit.SECONDS));
      elsewhere.unlock();
      assertEquals("done", registry.executeLocked("batch", () -> "done"));

      lock.lock();
      node.breakLock("spring:batch");
      new HoldfastLockRegistry(here)
          .obtain("batch")
          .guard()
          .orElseThrow()
          .awaitLost(Duration.ofSeconds(20));
      assertThrows(LostException.class, lock::unlock);
    }
  }
}
