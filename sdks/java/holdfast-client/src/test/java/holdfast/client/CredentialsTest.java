package holdfast.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import holdfast.client.errors.LossReason;
import holdfast.client.errors.LostException;
import holdfast.client.errors.QuotaExceededException;
import holdfast.client.errors.UnauthenticatedException;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.logging.LogRecord;
import java.util.logging.SimpleFormatter;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Users that an administrator limits or turns away, on a real node. */
class CredentialsTest {
  private static TestNode node;

  @BeforeAll
  static void startNode() throws IOException {
    node = new TestNode(true);
  }

  @AfterAll
  static void stopNode() {
    if (node != null) {
      node.close();
    }
  }

  /** The file with the token of a new user. */
  private static Path user(String name) throws IOException {
    Path file = node.file(name + ".token");
    node.command(
        "access", "user", "create", "token:" + name, "--role", "user", "--to", file.toString());
    return file;
  }

  private static ClientBuilder client(Path token) {
    return Client.builder(node.endpoint()).ca(node.file("certs/ca.pem")).authFile(token);
  }

  @Test
  void a_caller_that_does_not_wait_as_long_as_a_rate_demands_is_told_when_to_come_back()
      throws IOException {
    ClientBuilder builder = client(user("greedy")).requestTimeout(Duration.ofSeconds(1));
    try (Client client = builder.build()) {
      client.lock("g").acquire().release();
      node.command("access", "quota", "set", "token:greedy", "--rate", "1", "--burst", "1");
      QuotaExceededException refused =
          assertThrows(
              QuotaExceededException.class,
              () -> {
                for (int round = 0; round < 20; round++) {
                  client.lock("g").acquire().release();
                }
              });
      assertEquals("rate_limited", refused.reason());
      assertTrue(refused.isRetryable());
      assertFalse(refused.mayHaveHappened());
      Duration told = refused.retryAfter().orElseThrow();
      assertTrue(told.toMillis() >= 1 && told.toMillis() <= 1_000, told::toString);
      // A caller that waits longer gets the lock later.
      client.lock("g").waitFor(Duration.ofSeconds(10)).acquire().release();
    }
  }

  @Test
  void a_used_up_quota_is_told_at_once() throws IOException {
    try (Client client = client(user("hoarder")).build()) {
      node.command("access", "quota", "set", "token:hoarder", "--locks", "1");
      Guard guard = client.lock("first").acquire();
      LockRequest second = client.lock("second").waitFor(Duration.ofMinutes(1));
      QuotaExceededException refused = assertThrows(QuotaExceededException.class, second::acquire);
      assertEquals("quota_exceeded", refused.reason());
      assertEquals(Optional.empty(), refused.retryAfter());
      assertTrue(guard.isHeld());
      guard.release();
    }
  }

  @Test
  void a_client_whose_token_is_revoked_loses_its_locks_with_its_next_heartbeat() throws Exception {
    Duration ttl = Duration.ofSeconds(6);
    Path file = user("revoked");
    try (LogRecords logged = new LogRecords();
        Client client = client(file).ttl(ttl).build()) {
      Guard guard = client.lock("revoked").acquire();
      node.command("access", "token", "revoke", Files.readString(file).split("_")[1]);
      long began = System.nanoTime();
      assertEquals(Optional.of(LossReason.DENIED), guard.awaitLost(ttl.multipliedBy(10)));
      // The lease alone would have told it after 98 % of the TTL.
      assertTrue(System.nanoTime() - began < ttl.toNanos() * 9 / 10);
      began = System.nanoTime();
      LostException lost = assertThrows(LostException.class, guard::release);
      assertEquals(LossReason.DENIED, lost.reason());
      assertThrows(UnauthenticatedException.class, client.lock("another")::acquire);
      client.close();
      assertTrue(System.nanoTime() - began < TimeUnit.SECONDS.toNanos(2));
      LogRecord record = logged.await("the session ended");
      assertEquals(List.of("denied"), List.of(record.getParameters()).subList(0, 1));
      String text = new SimpleFormatter().formatMessage(record);
      assertTrue(text.contains("may have been revoked") && text.endsWith(" (denied)"), text);
    }
  }

  @Test
  void a_client_whose_token_has_expired_resumes_with_the_one_that_its_file_has_then()
      throws Exception {
    Path lasting = user("rotated");
    // The token lives for longer than a client needs to take a lock on this machine.
    long began = System.nanoTime();
    try (Client warm = client(lasting).build()) {
      warm.lock("rotated").acquire().release();
    }
    Duration valid = Duration.ofSeconds(2).plusNanos(4 * (System.nanoTime() - began));
    Path file = node.file("short.token");
    String create = "access token create token:rotated --to " + file + " --expires ";
    node.command((create + valid.toMillis() + "ms").split(" "));
    long expires = System.nanoTime() + valid.toNanos();
    try (Client client = client(file).build()) {
      Guard guard = client.lock("rotated").acquire();
      long token = guard.token();
      Files.move(lasting, file, StandardCopyOption.REPLACE_EXISTING);
      // The node ends the stream then.
      Duration rest = Duration.ofNanos(expires - System.nanoTime()).plusMillis(200);
      assertEquals(Optional.empty(), guard.awaitLost(rest));
      client.lock("after").waitFor(Duration.ofSeconds(5)).acquire().release();
      assertEquals(token, guard.token());
      guard.release();
    }
  }
}
