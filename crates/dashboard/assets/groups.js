// The Raft groups of a cluster that has several, in words. With one group, the page says “the leader” and means its own.

const NAMED_MAX = 12;

export function isDivided(now) {
  return Boolean(now) && now.groups.length > 1;
}

export function withoutLeader(groups) {
  return groups.filter((group) => group.leader === 0).map((group) => group.group);
}

// “group 3”, “groups 2 and 3”.
export function named(numbers) {
  if (numbers.length === 1) return `group ${numbers[0]}`;
  const more = numbers.length - NAMED_MAX;
  const all = more > 0 ? [...numbers.slice(0, NAMED_MAX), `${more} more`] : numbers;
  return `groups ${all.slice(0, -1).join(", ")} and ${all[all.length - 1]}`;
}

// What has to be seen first; empty if all is well.
export function warning(groups) {
  const missing = withoutLeader(groups);
  if (missing.length === 0) return "";
  if (missing.length === groups.length) return "No group has a leader: nothing is granted until leaders are elected.";
  const names = named(missing);
  return missing.length === 1
    ? `No leader: ${names}. None of its locks is granted until one is elected. The other groups go on.`
    : `No leader: ${names}. None of their locks is granted until leaders are elected. The other groups go on.`;
}

export function ledBy(groups, node) {
  return groups.filter((group) => group.leader === node).length;
}
