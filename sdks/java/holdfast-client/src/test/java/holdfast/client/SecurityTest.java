package holdfast.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import holdfast.client.errors.PermissionDeniedException;
import holdfast.client.errors.UnauthenticatedException;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** TLS and credentials against a real node that demands both. */
class SecurityTest {
  private static final String CONFIGURATION =
      """
      cluster = "test"
      node = 1
      data_dir = "%1$s/data"
      [tls]
      cert = "%1$s/certs/node-1.pem"
      key = "%1$s/certs/node-1-key.pem"
      client_ca = "%1$s/certs/ca.pem"
      [auth]
      mode = "required"
      [[nodes]]
      id = 1
      client = "127.0.0.1:%2$d"
      peer = "127.0.0.1:%3$d"
      """;

  @TempDir static Path directory;
  private static Process process;
  private static String endpoint;
  private static String token;

  @BeforeAll
  static void startNode() throws IOException {
    String holdfast = TestPrograms.holdfast();
    String certificates = directory.resolve("certs").toString();
    for (String arguments :
        new String[] {"ca --cluster test", "node --id 1 --host 127.0.0.1", "client billing"}) {
      String command = holdfast + " cert " + arguments + " --dir " + certificates;
      TestPrograms.run(TestPrograms.command(command.split(" ")));
    }
    int port = TestPrograms.freePort();
    endpoint = "127.0.0.1:" + port;
    Path file = directory.resolve("node.toml");
    Files.writeString(file, String.format(CONFIGURATION, directory, port, port + 1));
    process =
        TestPrograms.start(
            "serving clients",
            TestPrograms.command(holdfast, "server", "--config", file.toString()));
    token = Files.readString(directory.resolve("data").resolve("bootstrap"));
  }

  @AfterAll
  static void stopNode() {
    if (process != null) {
      process.destroyForcibly();
      process.onExit().join();
    }
  }

  private static Path file(String name) {
    return directory.resolve("certs").resolve(name);
  }

  private static ClientBuilder client() {
    return Client.builder(endpoint).ca(file("ca.pem")).requestTimeout(Duration.ofSeconds(5));
  }

  @Test
  void a_token_opens_a_session_and_is_asked_for_at_each_connection() {
    AtomicInteger asked = new AtomicInteger();
    ClientBuilder builder =
        client()
            .credential(
                () -> {
                  asked.incrementAndGet();
                  return token;
                });
    try (Client client = builder.build()) {
      assertEquals(Released.RELEASED, client.lock("a").acquire().release());
    }
    assertTrue(asked.get() > 1);
    try (Client client = client().credential(() -> token).verify(Verify.HOST).build()) {
      assertEquals(Released.RELEASED, client.lock("a").acquire().release());
    }
  }

  @Test
  void a_certificate_without_a_role_is_known_and_may_do_nothing() {
    Path cert = file("client-billing.pem");
    try (Client client = client().certificate(cert, file("client-billing-key.pem")).build()) {
      PermissionDeniedException denied =
          assertThrows(PermissionDeniedException.class, () -> client.lock("a").acquire());
      assertTrue(denied.getMessage().contains("cert:billing"), denied::getMessage);
    }
  }

  @Test
  void a_client_without_a_right_credential_is_told_so() {
    try (Client nameless = client().build()) {
      assertThrows(UnauthenticatedException.class, () -> nameless.lock("a").acquire());
    }
    String wrong = "hft_" + "0".repeat(16) + "_" + "0".repeat(43);
    try (Client stranger = client().credential(() -> wrong).build()) {
      assertThrows(UnauthenticatedException.class, () -> stranger.lock("a").acquire());
    }
  }

  @Test
  void a_node_of_another_authority_is_not_trusted(@TempDir Path other) throws IOException {
    String command = TestPrograms.holdfast() + " cert ca --cluster test --dir " + other;
    TestPrograms.run(TestPrograms.command(command.split(" ")));
    ClientBuilder builder = client().credential(() -> token).ca(other.resolve("ca.pem"));
    try (Client client = builder.build()) {
      assertThrows(UnauthenticatedException.class, () -> client.lock("a").acquire());
    }
  }

  @Test
  void wrong_files_are_told_at_once() {
    ClientBuilder missing = Client.builder("a:1").ca(file("nothing.pem"));
    assertThrows(IllegalArgumentException.class, missing::build);
    Path cert = file("client-billing.pem");
    ClientBuilder useless = Client.builder("a:1").certificate(cert, cert);
    String words = assertThrows(IllegalArgumentException.class, useless::build).getMessage();
    assertTrue(words.contains("of no use without TLS"), words);
    ClientBuilder nameless = Client.builder("a:1").ca(cert);
    words = assertThrows(IllegalArgumentException.class, nameless::build).getMessage();
    assertTrue(words.contains("does not say of which cluster"), words);
    ClientBuilder unread = client().authFile(file("nothing.token"));
    words = assertThrows(IllegalArgumentException.class, unread::build).getMessage();
    assertTrue(words.contains("the credential cannot be read"), words);
  }
}
