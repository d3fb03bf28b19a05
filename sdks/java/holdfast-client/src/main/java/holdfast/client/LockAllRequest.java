package holdfast.client;

import holdfast.client.core.Request;
import holdfast.v1.AcquireAllRequest;
import holdfast.v1.Member;
import holdfast.v1.Operation;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** Several locks that are about to be taken, all at one moment or none. */
public final class LockAllRequest extends Terms<LockAllRequest> {
  private final Client client;
  private final List<String> names;

  LockAllRequest(Client client, List<String> names) {
    this.client = client;
    this.names = List.copyOf(names);
  }

  @Override
  LockAllRequest self() {
    return this;
  }

  /** Takes the locks. It throws as {@link LockRequest#acquire} does. */
  public GuardAll acquire() {
    return client.acquire(this, request(Actors.ofThread()), GuardAll::new);
  }

  /** As {@link LockRequest#acquireAsync}. */
  public CompletableFuture<GuardAll> acquireAsync() {
    return client.acquireAsync(this, request(Actors.next()), GuardAll::new);
  }

  private Request request(long defaultActor) {
    AcquireAllRequest.Builder acquire =
        AcquireAllRequest.newBuilder()
            .setWaitMs(wait.toMillis())
            .setMetadata(metadata)
            .setPolicy(policy.wire())
            .setPreemptible(isPreemptible)
            .setTier(tier.wire())
            .setTraceparent(client.traceparent(traceparent))
            .setActor(actorOr(defaultActor));
    for (String name : names) {
      acquire.addMembers(
          Member.newBuilder().setName(Checks.name(name)).setMode(Mode.EXCLUSIVE.wire()));
    }
    if (ttl != null) {
      acquire.setTtlMs(ttl.toMillis());
    }
    if (maxHold != null) {
      acquire.setMaxHoldMs(maxHold.toMillis());
    }
    if (lockDelay != null) {
      acquire.setLockDelayMs(lockDelay.toMillis());
    }
    if (since != null) {
      acquire.setSinceMs(since);
    }
    return Request.renewing(Operation.newBuilder().setAcquireAll(acquire).build(), renewedTtl());
  }
}
