package holdfast.jedis;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import holdfast.client.Client;
import holdfast.client.Guard;
import holdfast.client.TestNode;
import holdfast.client.TestPrograms;
import holdfast.client.errors.FenceRefusedException;
import org.junit.jupiter.api.Test;
import redis.clients.jedis.JedisPooled;

/** A late write is refused by a real Redis. */
class FencedKeyTest {
  @Test
  void a_late_write_is_refused() throws Exception {
    int port = TestPrograms.freePort();
    Process redis =
        TestPrograms.start(
            "Ready to accept connections",
            TestPrograms.command(
                TestPrograms.find("redis-server"),
                "--port",
                String.valueOf(port),
                "--bind",
                "127.0.0.1",
                "--save",
                ""));
    try (TestNode node = new TestNode();
        Client client = Client.connect(node.endpoint());
        JedisPooled jedis = new JedisPooled("127.0.0.1", port)) {
      FencedKey key = FencedKey.of("order:42");
      String late;
      try (Guard guard = client.lock("order:42").acquire()) {
        late = guard.fence();
        assertEquals("OK", key.run(jedis, guard, "SET", key.data(), "the first"));
      }
      try (Guard guard = client.lock("order:42").acquire()) {
        key.run(jedis, guard, "SET", key.data(), "the second");
        FenceRefusedException refused =
            assertThrows(
                FenceRefusedException.class, () -> key.run(jedis, late, "SET", key.data(), "late"));
        assertEquals(FenceRefusedException.Kind.STALE, refused.kind());
        assertEquals(guard.token(), refused.highest().orElseThrow());
      }
      assertEquals("the second", jedis.get("order:42"));
    } finally {
      redis.destroyForcibly();
    }
  }

  @Test
  void the_mark_lies_in_the_hash_slot_of_the_data() {
    assertEquals("holdfast:mark:{order:42}", FencedKey.of("order:42").mark());
    assertEquals("holdfast:mark:a{order}b", FencedKey.of("a{order}b").mark());
    assertThrows(IllegalArgumentException.class, () -> FencedKey.of("a{}b"));
    assertThrows(IllegalArgumentException.class, () -> FencedKey.of("a}b"));
  }
}
