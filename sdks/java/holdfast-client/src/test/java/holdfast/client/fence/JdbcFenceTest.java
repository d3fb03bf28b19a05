package holdfast.client.fence;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import holdfast.client.Client;
import holdfast.client.Guard;
import holdfast.client.TestNode;
import holdfast.client.TestPrograms;
import holdfast.client.errors.FenceRefusedException;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

/** A late write is refused by a real PostgreSQL. */
class JdbcFenceTest {
  @Test
  void a_late_write_is_refused() throws Exception {
    try (Postgres postgres = new Postgres();
        TestNode node = new TestNode();
        Client client = Client.connect(node.endpoint());
        Connection connection = DriverManager.getConnection(postgres.url())) {
      connection.setAutoCommit(false);
      JdbcFence fence = Fences.jdbc(connection);
      fence.migrate();
      fence.migrate();
      execute(connection, "CREATE TABLE orders (paid_by text)");
      connection.commit();
      String late;
      try (Guard guard = client.lock("order:42").acquire()) {
        late = guard.fence();
      }
      try (Guard guard = client.lock("order:42").acquire()) {
        fence.check(guard);
        execute(connection, "INSERT INTO orders VALUES ('the second')");
        connection.commit();
        FenceRefusedException refused =
            assertThrows(FenceRefusedException.class, () -> fence.check("order:42", late));
        assertEquals(FenceRefusedException.Kind.STALE, refused.kind());
        assertEquals(guard.token(), refused.highest().orElseThrow());
        connection.rollback();
        refused =
            assertThrows(FenceRefusedException.class, () -> fence.check("order:43", guard.fence()));
        assertEquals(FenceRefusedException.Kind.OTHER_RESOURCE, refused.kind());
        connection.rollback();
        connection.setAutoCommit(true);
        assertThrows(IllegalStateException.class, () -> fence.check(guard));
      }
    }
  }

  private static void execute(Connection connection, String statement) throws SQLException {
    try (Statement executed = connection.createStatement()) {
      executed.execute(statement);
    }
  }

  /** A server of its own. As root it runs as the user `postgres`, since PostgreSQL refuses root. */
  private static final class Postgres implements AutoCloseable {
    private final Path directory = Files.createTempDirectory(Path.of("/tmp"), "holdfast-pg-");
    private final int port = TestPrograms.freePort();
    private final Process process;

    Postgres() throws IOException {
      String initdb = TestPrograms.find("initdb");
      String data = directory.resolve("data").toString();
      if (isRoot()) {
        TestPrograms.run(TestPrograms.command("chown", "postgres", directory.toString()));
      }
      TestPrograms.run(
          asUser(initdb, "-D", data, "-A", "trust", "-U", "tester", "--no-sync", "-E", "UTF8"));
      process =
          TestPrograms.start(
              "ready to accept connections",
              asUser(
                  TestPrograms.find("postgres"),
                  "-D",
                  data,
                  "-p",
                  String.valueOf(port),
                  "-k",
                  directory.toString(),
                  "-c",
                  "listen_addresses=127.0.0.1",
                  "-c",
                  "fsync=off"));
    }

    private static boolean isRoot() {
      return "root".equals(System.getProperty("user.name"));
    }

    private static List<String> asUser(String... command) {
      List<String> words = new ArrayList<>();
      if (isRoot()) {
        words.addAll(List.of("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"));
      }
      words.addAll(List.of(command));
      return words;
    }

    String url() {
      return "jdbc:postgresql://127.0.0.1:" + port + "/postgres?user=tester";
    }

    @Override
    public void close() {
      process.destroy();
      process.onExit().join();
      TestPrograms.delete(directory);
    }
  }
}
