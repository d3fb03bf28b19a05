package holdfast.client.core;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;

class SlotsTest {
  private static final Path VECTORS =
      Path.of("..", "..", "..", "crates", "core", "tests", "vectors", "slots.txt");

  @Test
  void the_slots_of_names_are_those_of_the_cluster() throws IOException {
    int count = 0;
    for (String line : Files.readString(VECTORS).split("\n")) {
      if (!line.startsWith("#")) {
        String[] slotAndName = line.split("\t", 2);
        assertEquals(Integer.parseInt(slotAndName[0]), Slots.of(slotAndName[1]), slotAndName[1]);
        count++;
      }
    }
    assertTrue(count > 20, "only " + count + " vectors");
  }
}
