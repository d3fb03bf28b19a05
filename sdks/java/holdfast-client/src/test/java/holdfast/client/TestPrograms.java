package holdfast.client;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Assertions;

/** Programs that tests start, in directories of their own. */
public final class TestPrograms {
  private static final int PORT_MAX = 65_535;

  private TestPrograms() {}

  /** The program, wherever it is. Without it the test is skipped; in CI it fails. */
  public static String find(String program) {
    List<Path> directories = new ArrayList<>();
    for (String entry : System.getenv("PATH").split(File.pathSeparator)) {
      directories.add(Path.of(entry));
    }
    try (Stream<Path> versions = Files.list(Path.of("/usr/lib/postgresql"))) {
      versions.forEach(version -> directories.add(version.resolve("bin")));
    } catch (IOException notInstalled) {
      // Then PATH is all there is.
    }
    Optional<Path> found =
        directories.stream().map(it -> it.resolve(program)).filter(Files::isExecutable).findFirst();
    return found
        .map(Path::toString)
        .orElseGet(() -> skip("the program " + program + " is missing"));
  }

  /** The program {@code holdfast}, which HOLDFAST_BIN names. */
  public static String holdfast() {
    String named = System.getenv("HOLDFAST_BIN");
    return named == null ? find("holdfast") : named;
  }

  private static String skip(String words) {
    if ("true".equals(System.getenv("CI"))) {
      Assertions.fail(words);
    }
    assumeTrue(false, words);
    return "";
  }

  /** Starts a program, and waits until it prints a line with this text. */
  public static Process start(String awaited, List<String> command) throws IOException {
    Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
    StringBuilder printed = new StringBuilder();
    BufferedReader lines = process.inputReader();
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      printed.append(line).append('\n');
      if (line.contains(awaited)) {
        Thread reader = new Thread(() -> readToEnd(lines));
        reader.setDaemon(true);
        reader.start();
        return process;
      }
    }
    throw new IOException(command + " did not start: " + printed);
  }

  /** A program that cannot write what it prints would stand still. */
  private static void readToEnd(BufferedReader lines) {
    try {
      while (lines.readLine() != null) {}
    } catch (IOException ended) {
      // The test has ended the program.
    }
  }

  /** Runs a program to its end, and returns what it prints. */
  public static String run(List<String> command, String... environment) throws IOException {
    ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
    for (int at = 0; at < environment.length; at += 2) {
      builder.environment().put(environment[at], environment[at + 1]);
    }
    Process process = builder.start();
    String printed = new String(process.getInputStream().readAllBytes());
    try {
      if (!process.waitFor(60, TimeUnit.SECONDS) || process.exitValue() != 0) {
        throw new IOException(command + " failed: " + printed);
      }
    } catch (InterruptedException interrupted) {
      throw new IOException(interrupted);
    }
    return printed;
  }

  public static List<String> command(String... words) {
    return Arrays.asList(words);
  }

  /** A port that is free, and the one after it, which peers use. */
  public static int freePort() throws IOException {
    return freePort(1);
  }

  /**
   * As above, for several nodes: each has ports that are 10 higher than those of the one before.
   */
  public static int freePort(int nodes) throws IOException {
    while (true) {
      int port = randomPort();
      if (port + 10 * nodes <= PORT_MAX && areFree(port, nodes)) {
        return port;
      }
    }
  }

  private static int randomPort() throws IOException {
    try (ServerSocket any = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      return any.getLocalPort();
    }
  }

  private static boolean areFree(int port, int nodes) {
    InetAddress loopback = InetAddress.getLoopbackAddress();
    for (int of = port; of < port + 10 * nodes; of += 10) {
      try (ServerSocket first = new ServerSocket(of, 1, loopback);
          ServerSocket second = new ServerSocket(of + 1, 1, loopback)) {
        continue;
      } catch (IOException taken) {
        return false;
      }
    }
    return true;
  }

  public static void delete(Path directory) {
    try (Stream<Path> files = Files.walk(directory)) {
      files.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }
}
