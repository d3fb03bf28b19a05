package holdfast.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

class CollectionPauseTest {
  @Test
  void a_long_garbage_collection_loses_the_lock_before_its_token_is_used() throws Exception {
    try (TestNode node = new TestNode()) {
      String classes =
          System.getProperty("surefire.test.class.path", System.getProperty("java.class.path"));
      List<String> command = new ArrayList<>();
      command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
      command.addAll(List.of(PausedHolder.OPTIONS));
      command.addAll(List.of("-cp", classes, PausedHolder.class.getName(), node.endpoint()));
      List<String> lines = TestPrograms.run(command).lines().toList();
      assertEquals("held", lines.get(0));
      assertEquals("lost", lines.get(1));
      // Otherwise nothing was shown.
      long gap = Long.parseLong(lines.get(2));
      assertTrue(gap > PausedHolder.TTL.toMillis(), () -> "all threads stood still for ms: " + gap);
    }
  }
}
