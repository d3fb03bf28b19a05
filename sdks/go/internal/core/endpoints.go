package core

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// toldMax is more nodes than a cluster has.
const toldMax = 64

// InvalidEndpoints says why a list of endpoints cannot be used.
type InvalidEndpoints struct {
	// Part is what is no endpoint; empty if there is none at all.
	Part    string
	IsEmpty bool
}

func (e *InvalidEndpoints) Error() string {
	if e.IsEmpty {
		return "no endpoint given; write one or more host:port, separated by commas"
	}
	return fmt.Sprintf("%q is not an endpoint; write host:port, for example 127.0.0.1:7420", e.Part)
}

// Endpoints knows which node to try next: the leader if a node has named one, else the known nodes in turn.
type Endpoints struct {
	addresses  []string
	configured []string
	told       []string
	next       int
	leaderHint string
	// unreachable is a node that could not be reached. Followers may name a dead leader for a while.
	unreachable      string
	unreachableCount int
	isFixed          bool
}

// ParseEndpoints reads `host:port`, several separated by commas.
func ParseEndpoints(text string, discover bool) (*Endpoints, error) {
	var addresses []string
	for _, part := range strings.Split(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		address, ok := checkAddress(part)
		if !ok {
			return nil, &InvalidEndpoints{Part: part}
		}
		addresses = append(addresses, address)
	}
	if len(addresses) == 0 {
		return nil, &InvalidEndpoints{IsEmpty: true}
	}
	return &Endpoints{addresses: addresses, configured: slices.Clone(addresses), isFixed: !discover}, nil
}

// checkAddress takes a scheme off, since people copy addresses with one.
func checkAddress(text string) (string, bool) {
	address := strings.TrimRight(strings.TrimPrefix(text, "http://"), "/")
	colon := strings.LastIndexByte(address, ':')
	if colon < 0 || !isHost(address[:colon]) {
		return "", false
	}
	port, err := strconv.ParseUint(strings.TrimPrefix(address[colon+1:], "+"), 10, 16)
	return address, err == nil && port > 0
}

func isHost(text string) bool {
	if strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]") && len(text) > 2 {
		ip, err := netip.ParseAddr(text[1 : len(text)-1])
		return err == nil && ip.Is6() && ip.Zone() == ""
	}
	if text == "" {
		return false
	}
	return !strings.ContainsFunc(text, func(r rune) bool {
		isLetter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		return !isLetter && (r < '0' || r > '9') && !strings.ContainsRune("-._~", r)
	})
}

// ofGroup returns the same nodes, for a session in another group, which this node leads; an empty address is none.
func (e *Endpoints) ofGroup(leader string) *Endpoints {
	others := &Endpoints{
		addresses: slices.Clone(e.addresses), configured: e.configured, told: e.told, next: e.next, isFixed: e.isFixed,
	}
	others.followLeader(leader)
	return others
}

// All returns the known addresses.
func (e *Endpoints) All() []string { return slices.Clone(e.addresses) }

func (e *Endpoints) nextAddress() string {
	if leader := e.leaderHint; leader != "" {
		e.leaderHint = ""
		return leader
	}
	address := e.addresses[e.next%len(e.addresses)]
	e.next = (e.next + 1) % len(e.addresses)
	return address
}

func (e *Endpoints) followLeader(leader string) {
	if e.mayFollow(leader) {
		e.leaderHint = leader
	}
}

func (e *Endpoints) mayFollow(leader string) bool {
	_, ok := checkAddress(leader)
	return ok && !e.hasFixed() && leader != e.unreachable
}

func (e *Endpoints) couldNotReach(address string) {
	e.unreachable = address
	e.unreachableCount++
	place := slices.Index(e.addresses, address)
	if place < 0 || len(e.told) == 0 || slices.Contains(e.told, address) {
		return
	}
	isTold := func(known string) bool { return slices.Contains(e.told, known) }
	if slices.ContainsFunc(e.addresses[place+1:], isTold) {
		// The cluster does not report it either, so the other nodes are tried first.
		e.addresses = append(slices.Delete(e.addresses, place, place+1), address)
		if e.next > place {
			e.next--
		}
	}
}

func (e *Endpoints) reached() {
	e.unreachable, e.unreachableCount = "", 0
}

func (e *Endpoints) hasTriedAll() bool { return e.unreachableCount >= len(e.addresses) }

// hasFixed says whether only the configured addresses are used.
func (e *Endpoints) hasFixed() bool { return e.isFixed || IsPlanted(IgnoreMembers) }

// learn takes in the nodes that the cluster has reported.
func (e *Endpoints) learn(told []string) {
	if e.hasFixed() {
		return
	}
	e.told = nil
	for _, address := range told {
		if _, ok := checkAddress(address); ok && len(e.told) < toldMax {
			e.told = append(e.told, address)
		}
	}
	following := ""
	if e.next < len(e.addresses) {
		following = e.addresses[e.next]
	}
	var known []string
	for _, address := range e.addresses {
		if slices.Contains(e.configured, address) || slices.Contains(e.told, address) {
			known = append(known, address)
		}
	}
	for _, address := range e.told {
		if !slices.Contains(known, address) {
			known = append(known, address)
		}
	}
	e.addresses = known
	e.next = max(0, slices.Index(known, following))
}
