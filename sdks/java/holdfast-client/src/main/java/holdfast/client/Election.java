package holdfast.client;

import holdfast.client.errors.TimedOutException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Optional;

/** An election is an exclusive lock. The leader holds it, and its value is the hold's metadata. */
public final class Election {
  private final Client client;
  private final String name;

  Election(Client client, String name) {
    this.client = client;
    this.name = name;
  }

  public String name() {
    return name;
  }

  /** Stands for election, and returns when elected, however long that takes. */
  public Leadership lead(String value) {
    while (true) {
      try {
        return lead(value, Checks.WAIT_MAX);
      } catch (TimedOutException aDayIsOver) {
        continue;
      }
    }
  }

  /** Stands for election for so long. */
  public Leadership lead(String value, Duration wait) {
    LockRequest request =
        client.lock(name).metadata(value.getBytes(StandardCharsets.UTF_8)).waitFor(wait);
    return client.acquire(request, request.request(Actors.ofThread()), Leadership::new);
  }

  /** The present leader first, then each leader, each value and each vacancy. */
  public Observation observe() {
    return new Observation(client.root(), Checks.name(name));
  }

  /** The value of the present leader; empty if there is none. */
  public Optional<String> leader() {
    List<LockStatus.Participant> holders = client.status(name).holders();
    return holders.isEmpty() ? Optional.empty() : Optional.of(holders.get(0).metadataText());
  }
}
