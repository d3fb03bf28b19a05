package holdfast.client;

import holdfast.client.errors.LostException;
import java.time.Duration;

/**
 * A program that holds a lock while a garbage collection stops all its threads. Its first act
 * afterwards is to ask for the token.
 */
public final class PausedHolder {
  /** The loop of {@link #spin} has no safepoint, if the machine was told so. */
  static final String[] OPTIONS = {
    "-XX:+UseSerialGC", "-XX:-UseCountedLoopSafepoints", "-XX:LoopStripMiningIter=0"
  };

  static final Duration TTL = Duration.ofSeconds(2);

  private static volatile double spun;
  private static volatile long longestGap;
  private static volatile long ticks;

  private PausedHolder() {}

  public static void main(String[] arguments) throws Exception {
    // Until the loop is compiled, each turn could be stopped.
    double perTurn = Double.MAX_VALUE;
    for (int round = 0; round < 60; round++) {
      int turns = 2_000_000;
      long began = System.nanoTime();
      spun = spin(turns);
      perTurn = Math.min(perTurn, (double) (System.nanoTime() - began) / turns);
    }
    Client client = Client.builder(arguments[0]).ttl(TTL).build();
    Guard guard = client.lock("a").acquire();
    System.out.println("held");
    daemon(PausedHolder::noticeGaps);
    daemon(
        () -> {
          while (true) {
            System.gc();
          }
        });
    spun = spin((int) Math.min(Integer.MAX_VALUE, TTL.toNanos() * 2 / perTurn));
    String token;
    try {
      token = "token " + guard.token();
    } catch (LostException lost) {
      token = "lost";
    }
    // The other thread notices the pause when it runs again.
    for (long tick = ticks; ticks < tick + 2; ) {
      Thread.onSpinWait();
    }
    System.out.println(token);
    System.out.println(longestGap / 1_000_000);
    System.exit(0);
  }

  private static void noticeGaps() {
    for (long last = System.nanoTime(); ; ticks++) {
      try {
        Thread.sleep(5);
      } catch (InterruptedException interrupted) {
        return;
      }
      long now = System.nanoTime();
      longestGap = Math.max(longestGap, now - last);
      last = now;
    }
  }

  private static void daemon(Runnable work) {
    Thread thread = new Thread(work);
    thread.setDaemon(true);
    thread.start();
  }

  private static double spin(int turns) {
    double sum = 1;
    for (int turn = 0; turn < turns; turn++) {
      sum = sum / 1.000001 + 1;
    }
    return sum;
  }
}
