package holdfast.client.core;

import holdfast.client.errors.InvalidEndpointsException;
import holdfast.client.errors.InvalidEndpointsException.Kind;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Pattern;

/** Which node to try next: the leader if a node has named one, else the known nodes in turn. */
public final class Endpoints {
  /** No cluster has more nodes. */
  private static final int TOLD_MAX = 64;

  private static final Pattern HOST = Pattern.compile("[A-Za-z0-9\\-._~]+");
  private static final Pattern PORT = Pattern.compile("\\+?[0-9]+");

  private final List<String> configured;
  private final boolean isFixed;
  private final List<String> addresses;
  private List<String> told = List.of();
  private int next;
  private String leaderHint;

  /** Followers may name a dead leader for a while. */
  private String unreachable;

  private int unreachableCount;

  /** With {@code discover}, the client also learns the addresses of the other nodes. */
  public Endpoints(String text, boolean discover) {
    List<String> parsed = new ArrayList<>();
    for (String part : text.split(",", -1)) {
      if (!part.isBlank()) {
        parsed.add(checked(part.strip()));
      }
    }
    if (parsed.isEmpty()) {
      throw new InvalidEndpointsException(Kind.EMPTY, "");
    }
    configured = List.copyOf(parsed);
    addresses = parsed;
    isFixed = !discover;
  }

  private Endpoints(
      List<String> configured, List<String> addresses, boolean isFixed, List<String> told) {
    this.configured = configured;
    this.addresses = new ArrayList<>(addresses);
    this.isFixed = isFixed;
    this.told = told;
  }

  /** The same nodes, for a session in another group, which this node leads; it may be empty. */
  public Endpoints ledBy(String leader) {
    Endpoints others = new Endpoints(configured, addresses, isFixed, told);
    others.followLeader(leader);
    return others;
  }

  public List<String> addresses() {
    return List.copyOf(addresses);
  }

  /** {@code host:port}. A scheme is taken off, since people copy addresses with one. */
  private static String checked(String text) {
    String address = text.startsWith("http://") ? text.substring(7) : text;
    while (address.endsWith("/")) {
      address = address.substring(0, address.length() - 1);
    }
    int colon = address.lastIndexOf(':');
    if (colon < 0
        || !isHost(address.substring(0, colon))
        || !isPort(address.substring(colon + 1))) {
      throw new InvalidEndpointsException(Kind.NOT_HOST_AND_PORT, text);
    }
    return address;
  }

  private static boolean isPort(String text) {
    if (!PORT.matcher(text).matches()) {
      return false;
    }
    try {
      int port = Integer.parseInt(text);
      return port > 0 && port < 65_536;
    } catch (NumberFormatException tooLong) {
      return false;
    }
  }

  private static boolean isHost(String text) {
    if (!text.startsWith("[") || !text.endsWith("]")) {
      return HOST.matcher(text).matches();
    }
    try {
      // What stands in brackets is never looked up.
      return text.indexOf(':') > 0 && text.indexOf('%') < 0 && InetAddress.getByName(text) != null;
    } catch (UnknownHostException notAnAddress) {
      return false;
    }
  }

  private static boolean isAddress(String text) {
    try {
      checked(text);
      return true;
    } catch (InvalidEndpointsException invalid) {
      return false;
    }
  }

  public String nextAddress() {
    if (leaderHint != null) {
      String leader = leaderHint;
      leaderHint = null;
      return leader;
    }
    String address = addresses.get(next % addresses.size());
    next = (next + 1) % addresses.size();
    return address;
  }

  public void followLeader(String leader) {
    if (mayFollow(leader)) {
      leaderHint = leader;
    }
  }

  boolean mayFollow(String leader) {
    return !isFixed && !leader.equals(unreachable) && isAddress(leader);
  }

  public void couldNotReach(String address) {
    unreachable = address;
    unreachableCount++;
    boolean wasReplaced = !told.isEmpty() && !told.contains(address);
    int place = addresses.indexOf(address);
    if (!wasReplaced || place < 0) {
      return;
    }
    if (addresses.subList(place + 1, addresses.size()).stream().anyMatch(told::contains)) {
      // The cluster does not report it either, so the other nodes are tried first.
      addresses.add(addresses.remove(place));
      if (next > place) {
        next--;
      }
    }
  }

  public void reached() {
    unreachable = null;
    unreachableCount = 0;
  }

  public boolean hasTriedAll() {
    return unreachableCount >= addresses.size();
  }

  /** The cluster has reported its nodes. */
  void learn(List<String> reported) {
    if (isFixed) {
      return;
    }
    told = reported.stream().filter(Endpoints::isAddress).limit(TOLD_MAX).toList();
    String following = next < addresses.size() ? addresses.get(next) : null;
    addresses.removeIf(it -> !configured.contains(it) && !told.contains(it));
    told.stream().filter(it -> !addresses.contains(it)).forEach(addresses::add);
    next = Math.max(0, addresses.indexOf(following));
  }
}
