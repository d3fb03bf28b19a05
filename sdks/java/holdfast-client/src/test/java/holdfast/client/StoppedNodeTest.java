package holdfast.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import holdfast.client.errors.LossReason;
import holdfast.client.errors.LostException;
import holdfast.client.errors.UnavailableException;
import java.time.Duration;
import org.junit.jupiter.api.Test;

/** A node that hangs: nothing is refused, and nothing answers. */
class StoppedNodeTest {
  @Test
  void a_guard_of_a_cluster_that_hangs_is_lost_within_its_lease_and_the_client_recovers()
      throws Exception {
    Duration ttl = Duration.ofSeconds(2);
    try (TestNode node = new TestNode();
        Client client = Client.builder(node.endpoint()).ttl(ttl).requestTimeout(ttl).build()) {
      Guard guard = client.lock("a").acquire();
      node.stop();
      try {
        long stopped = System.nanoTime();
        LossReason reason = guard.awaitLost(Duration.ofSeconds(20)).orElseThrow();
        assertEquals(LossReason.EXPIRED, reason);
        assertTrue(System.nanoTime() - stopped < ttl.toNanos() * 2);
        assertThrows(LostException.class, guard::token);
        assertThrows(UnavailableException.class, () -> client.lock("b").acquire());
      } finally {
        node.goOn();
      }
      // The circuit is open until the node serves again.
      while (!client.isServed()) {
        Thread.sleep(20);
      }
      assertThrows(LostException.class, guard::token);
      // The cluster may not have ended the hold: it stood still itself.
      assertThrows(LostException.class, guard::close);
      client.lock("a").waitFor(Duration.ofSeconds(20)).acquire().close();
    }
  }
}
