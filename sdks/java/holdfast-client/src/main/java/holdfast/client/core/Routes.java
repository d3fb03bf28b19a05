package holdfast.client.core;

import holdfast.client.errors.SeveralGroupsException;
import holdfast.v1.GroupMap;
import holdfast.v1.GroupRoute;
import holdfast.v1.Member;
import holdfast.v1.SlotRun;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * In which group of the cluster each lock is, as a node has told it. It can be outdated: then the
 * group that is asked refuses with {@code wrong_group}, and has not carried the request out.
 */
public final class Routes {
  /** The group that every cluster has. It serves the efficiency tier, whatever the name. */
  public static final int ROOT = 1;

  /** A cluster with one group tells no map. */
  public static final Routes ONE_GROUP = new Routes(0, null, Map.of());

  private static final int GROUPS_MAX = 64;

  private final long epoch;

  /** The group of each slot; null if all are in the root group. */
  private final int[] owners;

  private final Map<Integer, String> leaders;

  private Routes(long epoch, int[] owners, Map<Integer, String> leaders) {
    this.epoch = epoch;
    this.owners = owners;
    this.leaders = leaders;
  }

  /** Null if the message does not give each slot to exactly one group. */
  public static Routes of(GroupMap told) {
    int[] owners = new int[Slots.COUNT];
    Map<Integer, String> leaders = new HashMap<>();
    int last = 0;
    for (GroupRoute route : told.getGroupsList()) {
      int group = route.getGroup();
      if (group <= last || group > GROUPS_MAX) {
        return null;
      }
      last = group;
      leaders.put(group, route.getLeader());
      for (SlotRun run : route.getSlotsList()) {
        if (!give(owners, run, group)) {
          return null;
        }
      }
    }
    boolean isComplete = Arrays.stream(owners).noneMatch(owner -> owner == 0);
    return isComplete ? new Routes(told.getEpoch(), owners, leaders) : null;
  }

  private static boolean give(int[] owners, SlotRun run, int group) {
    long first = Integer.toUnsignedLong(run.getFirst());
    long end = first + Integer.toUnsignedLong(run.getCount());
    if (first == end || end > owners.length) {
      return false;
    }
    for (int slot = (int) first; slot < end; slot++) {
      if (owners[slot] != 0) {
        return false;
      }
      owners[slot] = group;
    }
    return true;
  }

  /** Of two with one epoch only the leaders can differ, and the later one counts. */
  public Routes newerOf(Routes later) {
    if (isOneGroup()) {
      return later;
    }
    int order = Long.compareUnsigned(epoch, later.epoch);
    boolean isNewer = order < 0 || (order == 0 && Arrays.equals(owners, later.owners));
    return isNewer ? later : this;
  }

  public boolean isOneGroup() {
    return owners == null;
  }

  public long epoch() {
    return epoch;
  }

  public boolean isOlderThan(long otherEpoch) {
    return Long.compareUnsigned(epoch, otherEpoch) < 0;
  }

  /** The client address of the group's leader; empty if it is not known. */
  public String leaderOf(int group) {
    return leaders.getOrDefault(group, "");
  }

  /**
   * The group to which a request for new locks, or a read of a lock, has to be sent. What is about
   * a hold goes to the session that has the hold.
   *
   * @throws SeveralGroupsException if no single group has all the locks
   */
  public int groupOf(Request request) {
    if (isOneGroup() || request.isBestEffort()) {
      return ROOT;
    }
    return switch (request.kind()) {
      case ACQUIRE -> groupOf(request.template().getAcquire().getName());
      case ACQUIRE_ALL -> groupOfAll(request.template().getAcquireAll().getMembersList());
      case STATUS -> groupOf(request.template().getStatus().getName());
      default -> throw new IllegalArgumentException("only what names locks has a route");
    };
  }

  int groupOf(String name) {
    return isOneGroup() ? ROOT : owners[Slots.of(name)];
  }

  /** A node refuses a request without names. */
  private int groupOfAll(List<Member> members) {
    if (members.isEmpty()) {
      return ROOT;
    }
    String first = members.get(0).getName();
    int group = groupOf(first);
    for (Member member : members) {
      int other = groupOf(member.getName());
      if (other != group) {
        throw SeveralGroupsException.of(first, group, member.getName(), other);
      }
    }
    return group;
  }
}
