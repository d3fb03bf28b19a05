package holdfast.client;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** A cluster of real nodes on loopback; of one node, unless it says otherwise. */
public final class TestNode implements AutoCloseable {
  private final String binary = TestPrograms.holdfast();
  private final Path directory;
  private final Process process;
  private final String endpoint;
  private final boolean isSecure;

  public TestNode() throws IOException {
    this(false);
  }

  /** One that is secure speaks TLS and demands credentials. */
  public TestNode(boolean isSecure) throws IOException {
    this(isSecure, 1, 1);
  }

  /** A cluster with several groups. */
  public TestNode(int nodes, int groups) throws IOException {
    this(false, nodes, groups);
  }

  private TestNode(boolean isSecure, int nodes, int groups) throws IOException {
    this.isSecure = isSecure;
    directory = Files.createTempDirectory("holdfast-junit-");
    int port = TestPrograms.freePort(nodes);
    endpoint = "127.0.0.1:" + port;
    String shape = " dev --nodes " + nodes + (groups > 1 ? " --groups " + groups : "");
    String dev = binary + shape + " --no-http --port " + port + " --data-dir " + file("");
    String command = isSecure ? dev + " --secure" : dev;
    process = TestPrograms.start("ready", TestPrograms.command(command.split(" ")));
  }

  public String endpoint() {
    return endpoint;
  }

  /** A file of the node. */
  public Path file(String name) {
    return directory.resolve("data").resolve(name);
  }

  /** Runs {@code holdfast} against the node, as its administrator. Returns what it prints. */
  public String command(String... arguments) throws IOException {
    List<String> command = new ArrayList<>(List.of(binary));
    command.addAll(List.of(arguments));
    if (isSecure) {
      return TestPrograms.run(command, "HOLDFAST_CONFIG", file("client.toml").toString());
    }
    return TestPrograms.run(command, "HOLDFAST_ENDPOINTS", endpoint);
  }

  /** An operator takes the lock away from its holder. */
  public void breakLock(String name) throws IOException {
    command("break", name, "--reason", "a test");
  }

  /** The node stands still, as a machine that hangs does. */
  public void stop() throws IOException {
    TestPrograms.run(TestPrograms.command("kill", "-STOP", String.valueOf(process.pid())));
  }

  public void goOn() throws IOException {
    TestPrograms.run(TestPrograms.command("kill", "-CONT", String.valueOf(process.pid())));
  }

  @Override
  public void close() {
    process.destroyForcibly();
    process.onExit().join();
    if (Files.exists(directory)) {
      TestPrograms.delete(directory);
    }
  }
}
