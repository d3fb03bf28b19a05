package holdfast.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

class ClockTest {
  private static final long MS = 1_000_000;

  private long monotonic = 5_000 * MS;
  private long uptime = 777_770 * MS;
  private long wall = 1_700_000_000_000L * MS;

  private final Clock clock = new Clock(() -> monotonic, () -> uptime, () -> wall);
  private final long start = clock.read();

  private void pass(long ms) {
    monotonic += ms * MS;
    uptime += ms * MS;
    wall += ms * MS;
  }

  private long elapsedMs() {
    return (clock.read() - start) / MS;
  }

  @Test
  void clocks_that_agree_count_once() {
    for (int reading = 0; reading < 1_000; reading++) {
      pass(1);
      clock.read();
    }
    assertEquals(1_000, elapsedMs());
  }

  @Test
  void the_sleep_of_the_machine_counts() {
    pass(100);
    uptime += 60_000 * MS;
    wall += 60_000 * MS;
    assertEquals(60_100, elapsedMs());
  }

  @Test
  void the_sleep_counts_by_the_uptime_alone_within_its_precision() {
    uptime += 60_000 * MS;
    assertTrue(elapsedMs() >= 59_990, () -> "elapsed: " + elapsedMs());
  }

  @Test
  void a_wall_clock_that_is_set_forward_ends_leases_early() {
    wall += 3_600_000 * MS;
    assertEquals(3_600_000, elapsedMs());
    pass(10);
    assertEquals(3_600_010, elapsedMs());
  }

  @Test
  void a_wall_clock_that_is_set_back_neither_stops_nor_hides_time() {
    pass(1_000);
    wall -= 3_600_000 * MS;
    assertEquals(1_000, elapsedMs());
    pass(1_000);
    assertEquals(2_000, elapsedMs());
    wall += 5_000 * MS;
    assertEquals(7_000, elapsedMs());
  }

  @Test
  void the_precision_of_the_uptime_does_not_add_up() {
    long trueUptime = uptime + 9 * MS;
    Clock cut = new Clock(() -> monotonic, () -> uptime, () -> wall);
    long begin = cut.read();
    for (int reading = 0; reading < 10_000; reading++) {
      monotonic += MS;
      wall += MS;
      trueUptime += MS;
      uptime = trueUptime / (10 * MS) * (10 * MS);
      cut.read();
    }
    assertEquals(10_000, (cut.read() - begin) / MS);
  }

  @Test
  void a_pause_between_two_readings_does_not_add_up() {
    int[] calls = {0};
    Clock paused =
        new Clock(
            () -> {
              // Before the last reading of each turn, the thread stands still.
              calls[0]++;
              if (calls[0] % 2 == 1 && calls[0] > 1) {
                pass(20);
              }
              return monotonic;
            },
            () -> uptime,
            () -> wall);
    long begin = paused.read();
    long before = monotonic;
    for (int reading = 0; reading < 100; reading++) {
      paused.read();
    }
    assertEquals((monotonic - before) / MS, (paused.read() - begin) / MS - 20);
  }

  @Test
  void the_systems_clock_runs() throws InterruptedException {
    long first = Clock.now();
    Thread.sleep(20);
    long passed = Clock.now() - first;
    assertTrue(passed >= 19 * MS, () -> "passed: " + passed);
  }
}
