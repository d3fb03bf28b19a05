package holdfast.client.core;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.BiConsumer;
import java.util.function.Predicate;

/**
 * The requests of a session that have no answer yet.
 *
 * <p>Ids start at 1 and rise by one. {@code ackedThrough} tells the servers which answers they may
 * drop. An acquire that is known to wait counts as answered: the servers find it by its wait, and
 * later by its hold.
 */
public class InFlight {
  private long lastId;

  /** In the order of their ids. */
  private final LinkedHashMap<Long, Request> row = new LinkedHashMap<>();

  private final Map<Long, Request> waiting = new HashMap<>();
  private final TreeSet<Long> staged = new TreeSet<>();

  /** No answer is due before then. It may be too early, and is set right when it is reached. */
  private long answersDueFrom = Long.MAX_VALUE;

  public long lastId() {
    return lastId;
  }

  long reserveId() {
    return ++lastId;
  }

  long stage(Request request) {
    long id = park(request);
    stageAgain(id);
    return id;
  }

  /** A new request that must not go out yet. */
  long park(Request request) {
    long id = reserveId();
    request.isParked = true;
    row.put(id, request);
    return id;
  }

  void stageAgain(long id) {
    Request request = get(id);
    if (request != null) {
      request.isParked = false;
      request.answerDue = Request.NEVER;
      staged.add(id);
    }
  }

  void stageAllAgain() {
    answersDueFrom = Long.MAX_VALUE;
    staged.clear();
    forEach(
        (id, request) -> {
          if (!request.isParked) {
            request.answerDue = Request.NEVER;
            request.wasSentBefore |= request.wasSent();
            staged.add(id);
          }
        });
  }

  /** The next of those that are staged, in the order of their ids, as far as their names go. */
  Map<Long, Request> takeStaged(int namesMax, Predicate<Request> mayGo) {
    Map<Long, Request> taken = new LinkedHashMap<>();
    int names = 0;
    for (long id : staged) {
      Request request = get(id);
      if (!mayGo.test(request)) {
        continue;
      }
      names += request.nameCount();
      if (names > namesMax && !taken.isEmpty()) {
        break;
      }
      taken.put(id, request);
    }
    taken.keySet().forEach(staged::remove);
    return taken;
  }

  boolean isEmpty() {
    return row.isEmpty() && waiting.isEmpty();
  }

  boolean hasStaged() {
    return !staged.isEmpty();
  }

  void markSent(Request request, long now, long answerDue) {
    if (!request.wasSent()) {
      request.firstSentAt = now;
    }
    request.answerDue = answerDue;
    answersDueFrom = Math.min(answersDueFrom, answerDue);
  }

  void markWaiting(long id) {
    Request request = row.remove(id);
    if (request != null) {
      waiting.put(id, request);
    }
  }

  boolean isWaiting(long id) {
    return waiting.containsKey(id);
  }

  /** Removes a request that was answered, or whose answer is no longer needed; null if unknown. */
  Request settle(long id) {
    staged.remove(id);
    Request request = row.remove(id);
    if (request == null) {
      request = waiting.remove(id);
    }
    if (isEmpty()) {
      answersDueFrom = Long.MAX_VALUE;
    }
    return request;
  }

  List<Request> takeOut(Predicate<Request> isMeant) {
    List<Request> taken = new ArrayList<>();
    idsOf(isMeant).forEach(id -> taken.add(settle(id)));
    return taken;
  }

  /** In rising order. */
  protected final List<Long> idsOf(Predicate<Request> isMeant) {
    TreeMap<Long, Request> meant = new TreeMap<>();
    forEach(
        (id, request) -> {
          if (isMeant.test(request)) {
            meant.put(id, request);
          }
        });
    return List.copyOf(meant.keySet());
  }

  /** Null if it is not known. */
  Request get(long id) {
    Request request = row.get(id);
    return request == null ? waiting.get(id) : request;
  }

  void forEach(BiConsumer<Long, Request> visit) {
    waiting.forEach(visit);
    row.forEach(visit);
  }

  /** 0 if there is none. */
  long findCall(long call) {
    Request request = get(call);
    if (request != null && request.call == call) {
      return call;
    }
    List<Long> found = idsOf(it -> it.call == call);
    return found.isEmpty() ? 0 : found.get(0);
  }

  boolean isAnswerOverdue(long now) {
    if (answersDueFrom <= now) {
      long[] due = {Long.MAX_VALUE};
      forEach(
          (id, request) -> {
            if (request.answerDue != Request.NEVER) {
              due[0] = Math.min(due[0], request.answerDue);
            }
          });
      answersDueFrom = due[0];
    }
    return answersDueFrom <= now;
  }

  /** {@code Long.MAX_VALUE} if no answer is owed. */
  long answersDueFrom() {
    return answersDueFrom;
  }

  protected long ackedThrough() {
    return row.isEmpty() ? lastId : row.keySet().iterator().next() - 1;
  }
}
