package engine

import "testing"

func TestGroupsShareTheNewestIDAndNoGroupSeesOneAgain(t *testing.T) {
	var ids sessionIDs
	one, other := ids.ofOneGroup(), ids.ofOneGroup()
	first := one()
	if len(first) != 32 || other() != first {
		t.Fatal("the sessions of a client have different ids")
	}
	// Both lose their sessions, one of them twice.
	second := one()
	third := one()
	if second == first || third == first || third == second {
		t.Fatal("an id is used again", first, second, third)
	}
	if other() != third || ids.ofOneGroup()() != third {
		t.Fatal("a group does not take the newest id")
	}
}
