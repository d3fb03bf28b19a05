package holdfast.client;

import java.util.concurrent.Executor;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/** The program's own code runs in a thread of its own: it may block. */
final class Callbacks implements Executor {
  private final ThreadPoolExecutor thread =
      new ThreadPoolExecutor(
          1,
          1,
          10,
          TimeUnit.SECONDS,
          new LinkedBlockingQueue<>(),
          task -> {
            Thread thread = new Thread(task, "holdfast-callbacks");
            thread.setDaemon(true);
            return thread;
          });

  Callbacks() {
    thread.allowCoreThreadTimeOut(true);
  }

  @Override
  public void execute(Runnable callback) {
    thread.execute(
        () -> {
          try {
            callback.run();
          } catch (RuntimeException error) {
            System.getLogger("holdfast")
                .log(System.Logger.Level.ERROR, "a callback of the program failed", error);
          }
        });
  }
}
