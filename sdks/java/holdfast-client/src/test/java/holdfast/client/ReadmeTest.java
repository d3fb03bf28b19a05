package holdfast.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The README and the packages agree with the rest of the repository. */
class ReadmeTest {
  private static final Pattern VERSION = Pattern.compile("<version>.*</version>");

  @Test
  void the_version_is_that_of_the_cluster() throws IOException {
    String cargo = Files.readString(Path.of("..", "..", "..", "Cargo.toml"));
    Matcher found = Pattern.compile("^version = \"(.+)\"$", Pattern.MULTILINE).matcher(cargo);
    assertTrue(found.find());
    String version = "<version>" + found.group(1) + "</version>";
    // The modules name the version of pom.xml: Maven checks that.
    List<Path> files = List.of(Path.of("..", "pom.xml"), Path.of("..", "README.md"));
    for (Path file : files) {
      Matcher first = VERSION.matcher(Files.readString(file));
      assertTrue(first.find());
      assertEquals(version, first.group(), "the first version in " + file);
    }
  }

  @Test
  void the_ten_lines_run(@TempDir Path directory) throws Exception {
    String readme = Files.readString(Path.of("..", "README.md"));
    Matcher block = Pattern.compile("```java\n(.*?)```", Pattern.DOTALL).matcher(readme);
    assertTrue(block.find());
    String printed = run(block.group(1), "127.0.0.1:7420", directory);
    assertTrue(printed.contains("held, with the fencing token"), printed);
  }

  @Test
  void the_line_that_dev_prints_runs(@TempDir Path directory) throws Exception {
    String dev = Files.readString(Path.of("..", "..", "..", "crates", "cli", "src", "dev.rs"));
    Matcher line = Pattern.compile("\\(\"Java\", \"(.*)\"\\)").matcher(dev);
    assertTrue(line.find());
    String main = "public static void main(String[] arguments) { ";
    String program =
        "import holdfast.client.Client; public class Locks { "
            + main
            + line.group(1).replace("\\\"", "\"")
            + " System.exit(0); } }";
    String printed = run(program, "ADDRESS", directory);
    assertTrue(printed.startsWith("hf1.L."), printed);
  }

  @Test
  void the_lines_in_the_readme_of_the_product_run(@TempDir Path directory) throws Exception {
    String readme = Files.readString(Path.of("..", "..", "..", "README.md"));
    Matcher block = Pattern.compile("```java\n(.*?)```", Pattern.DOTALL).matcher(readme);
    assertTrue(block.find());
    String program =
        "import holdfast.client.Client; import java.time.Duration; public class Locks { "
            + "public static void main(String[] arguments) { "
            + block.group(1)
            + " } }";
    String printed = run(program, "127.0.0.1:7420", directory);
    assertTrue(printed.startsWith("send this fence with each write: hf1.L."), printed);
  }

  /** What the program {@code Locks} prints beside a node of its own. */
  private static String run(String program, String address, Path directory) throws Exception {
    try (TestNode node = new TestNode()) {
      Path source = directory.resolve("Locks.java");
      Files.writeString(source, program.replace(address, node.endpoint()));
      String classes = System.getProperty("java.class.path");
      int compiled =
          ToolProvider.getSystemJavaCompiler()
              .run(null, null, null, "-proc:none", "-cp", classes, source.toString());
      assertEquals(0, compiled);
      String java = ProcessHandle.current().info().command().orElseThrow();
      return TestPrograms.run(List.of(java, "-cp", classes + ":" + directory, "Locks"));
    }
  }
}
