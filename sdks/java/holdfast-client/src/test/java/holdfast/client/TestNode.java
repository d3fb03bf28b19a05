package holdfast.client;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** A cluster of one real node on loopback. */
public final class TestNode implements AutoCloseable {
  private final String binary = TestPrograms.holdfast();
  private final Path directory;
  private final Process process;
  private final String endpoint;

  public TestNode() throws IOException {
    directory = Files.createTempDirectory("holdfast-junit-");
    int port = TestPrograms.freePort();
    endpoint = "127.0.0.1:" + port;
    process =
        TestPrograms.start(
            "ready",
            TestPrograms.command(
                binary,
                "dev",
                "--nodes",
                "1",
                "--no-http",
                "--port",
                String.valueOf(port),
                "--data-dir",
                directory.resolve("data").toString()));
  }

  public String endpoint() {
    return endpoint;
  }

  /** An operator takes the lock away from its holder. */
  public void breakLock(String name) throws IOException {
    TestPrograms.run(
        TestPrograms.command(binary, "break", name, "--reason", "a test"),
        "HOLDFAST_ENDPOINTS",
        endpoint);
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
    TestPrograms.delete(directory);
  }
}
