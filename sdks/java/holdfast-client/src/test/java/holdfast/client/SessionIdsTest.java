package holdfast.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;

import java.util.Set;
import java.util.function.Supplier;
import org.junit.jupiter.api.Test;

class SessionIdsTest {
  @Test
  void groups_share_the_newest_id_and_no_group_sees_one_again() {
    SessionIds ids = new SessionIds();
    Supplier<String> one = ids.ofOneGroup();
    Supplier<String> other = ids.ofOneGroup();
    String first = one.get();
    assertEquals(32, first.length());
    assertEquals(first, other.get());
    // Both lose their sessions, one of them twice.
    String second = one.get();
    String third = one.get();
    assertEquals(3, Set.of(first, second, third).size());
    assertEquals(third, other.get());
    assertEquals(third, ids.ofOneGroup().get());
    assertNotEquals(third, other.get());
  }
}
