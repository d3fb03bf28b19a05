package holdfast.bench;

import static java.nio.charset.StandardCharsets.UTF_8;

import holdfast.client.Client;
import holdfast.client.Guard;
import holdfast.client.Tier;
import io.etcd.jetcd.ByteSequence;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.TimeUnit;
import java.util.function.ToDoubleFunction;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * What a lock costs one Java program: this library, jetcd and Redisson, in one run on one machine.
 * {@code sdks/bench/run.sh} runs it, and says what it compares.
 */
public final class Compare {
  private Compare() {}

  interface Release {
    void run() throws Exception;
  }

  interface Acquire {
    Release run(String name) throws Exception;
  }

  /** How a lock is taken, and given back. */
  record Service(String name, Acquire acquire) {}

  /** Microseconds. */
  record Turn(double acquire, double release, double both, double both99) {}

  public static void main(String[] arguments) throws Exception {
    int turns = number("TURNS", 7);
    int operations = number("OPERATIONS", 400);
    try (Client client =
            Client.builder(System.getenv("HOLDFAST_ENDPOINTS"))
                .requestTimeout(Duration.ofMinutes(1))
                .build();
        io.etcd.jetcd.Client etcd =
            io.etcd.jetcd.Client.builder()
                .endpoints("http://" + System.getenv("ETCD_ENDPOINT"))
                .build()) {
      Config config = new Config();
      config.useSingleServer().setAddress("redis://" + System.getenv("REDIS_ADDRESS"));
      RedissonClient redisson = Redisson.create(config);
      compare(services(client, etcd, redisson), turns, operations);
      redisson.shutdown();
    }
  }

  private static List<Service> services(
      Client client, io.etcd.jetcd.Client etcd, RedissonClient redisson) throws Exception {
    // One lease for all locks, as a program that knows etcd does it.
    long lease = etcd.getLeaseClient().grant(30).get().getID();
    io.grpc.stub.StreamObserver<io.etcd.jetcd.lease.LeaseKeepAliveResponse> ignored =
        new io.grpc.stub.StreamObserver<>() {
          @Override
          public void onNext(io.etcd.jetcd.lease.LeaseKeepAliveResponse answer) {}

          @Override
          public void onError(Throwable error) {
            // The end of the program. A lease that ends earlier makes the locks fail.
          }

          @Override
          public void onCompleted() {}
        };
    etcd.getLeaseClient().keepAlive(lease, ignored);
    return List.of(
        new Service(
            "holdfast",
            name -> {
              Guard guard = client.lock(name).acquire();
              return guard::close;
            }),
        new Service(
            "holdfast, efficiency tier",
            name -> {
              Guard guard = client.lock(name).tier(Tier.EFFICIENCY).acquire();
              return guard::close;
            }),
        new Service(
            "jetcd",
            name -> {
              ByteSequence bytes = ByteSequence.from(name, UTF_8);
              ByteSequence key = etcd.getLockClient().lock(bytes, lease).get().getKey();
              return () -> etcd.getLockClient().unlock(key).get();
            }),
        new Service(
            "Redisson",
            name -> {
              RLock lock = redisson.getLock(name);
              lock.lock(30, TimeUnit.SECONDS);
              return lock::unlock;
            }));
  }

  private static void compare(List<Service> services, int turns, int operations) throws Exception {
    // The compiler of the JVM needs more calls than those of other languages.
    for (Service service : services) {
      measure(service, 1_000);
    }
    List<List<Turn>> measured = new ArrayList<>();
    services.forEach(service -> measured.add(new ArrayList<>()));
    for (int turn = 0; turn < turns; turn++) {
      for (int number = 0; number < services.size(); number++) {
        // Another one begins each time.
        int at = (number + turn) % services.size();
        measured.get(at).add(measure(services.get(at), operations));
      }
    }
    System.out.printf(
        "Java %s; %d turns of %d operations; p50 and p99 in microseconds%n%n",
        Runtime.version().feature(), turns, operations);
    System.out.println(
        "| client | acquire p50 | release p50 | both p50 | both p99 | both p50 / etcd's |");
    System.out.println("|---|---|---|---|---|---|");
    double ofEtcd = middle(measured.get(2), Turn::both);
    for (int at = 0; at < services.size(); at++) {
      List<Turn> all = measured.get(at);
      double both = middle(all, Turn::both);
      System.out.printf(
          Locale.ROOT,
          "| %s | %.0f | %.0f | %.0f | %.0f | %.2f |%n",
          services.get(at).name(),
          middle(all, Turn::acquire),
          middle(all, Turn::release),
          both,
          middle(all, Turn::both99),
          both / ofEtcd);
    }
  }

  private static Turn measure(Service service, int operations) throws Exception {
    double[] acquires = new double[operations];
    double[] releases = new double[operations];
    double[] both = new double[operations];
    String name = "compare/java/" + service.name();
    for (int number = 0; number < operations; number++) {
      long began = System.nanoTime();
      Release release = service.acquire().run(name);
      long held = System.nanoTime();
      release.run();
      long ended = System.nanoTime();
      acquires[number] = (held - began) / 1e3;
      releases[number] = (ended - held) / 1e3;
      both[number] = (ended - began) / 1e3;
    }
    return new Turn(share(acquires, 50), share(releases, 50), share(both, 50), share(both, 99));
  }

  private static double share(double[] numbers, int percent) {
    Arrays.sort(numbers);
    return numbers[numbers.length * percent / 100];
  }

  private static double middle(List<Turn> turns, ToDoubleFunction<Turn> of) {
    return share(turns.stream().mapToDouble(of).toArray(), 50);
  }

  private static int number(String variable, int otherwise) {
    String text = System.getenv(variable);
    return text == null ? otherwise : Integer.parseInt(text);
  }
}
