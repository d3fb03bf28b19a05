package holdfast.client;

import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.logging.Handler;
import java.util.logging.Level;
import java.util.logging.LogRecord;
import java.util.logging.Logger;

/** What the library logs, at every level, until this is closed. */
final class LogRecords extends Handler implements AutoCloseable {
  private final Logger logger = Logger.getLogger("holdfast");
  private final Level level = logger.getLevel();
  private final BlockingQueue<LogRecord> records = new LinkedBlockingQueue<>();

  LogRecords() {
    logger.setLevel(Level.ALL);
    logger.addHandler(this);
  }

  /** The first record from now on whose format begins so. */
  LogRecord await(String prefix) throws InterruptedException {
    long giveUp = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
    while (true) {
      // A client that finds no node goes on to log.
      LogRecord next = records.poll(giveUp - System.nanoTime(), TimeUnit.NANOSECONDS);
      if (next == null || System.nanoTime() > giveUp) {
        throw new AssertionError("nothing was logged that begins with " + prefix);
      }
      if (next.getMessage().startsWith(prefix)) {
        return next;
      }
    }
  }

  @Override
  public void publish(LogRecord record) {
    records.add(record);
  }

  @Override
  public void flush() {}

  @Override
  public void close() {
    logger.removeHandler(this);
    logger.setLevel(level);
  }
}
