package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	holdfast "holdfast/sdks/go"
)

// items are those that a watch or an observation has told, and the suite has not asked for yet.
type items struct {
	mu     sync.Mutex
	told   []answer
	err    error
	isMore chan struct{}
	end    context.CancelFunc
}

func (i *items) put(item answer, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err != nil {
		i.err = err
	} else {
		i.told = append(i.told, item)
	}
	select {
	case i.isMore <- struct{}{}:
	default:
	}
}

// take waits until there is something.
func (i *items) take() (answer, error) {
	for {
		i.mu.Lock()
		told, err := i.told, i.err
		i.told = nil
		i.mu.Unlock()
		if len(told) > 0 {
			return answer{"items": told}, nil
		}
		if err != nil {
			return nil, err
		}
		<-i.isMore
	}
}

func (d *driver) watch(it *request) (answer, error) {
	client, err := d.client(it)
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(context.Background())
	into := &items{isMore: make(chan struct{}, 1), end: end}
	d.mu.Lock()
	d.watches[it.As] = into
	d.mu.Unlock()
	if it.Op == "observe" {
		go observe(ctx, client.Election(it.Name), into)
		return answer{}, nil
	}
	var options []holdfast.WatchOption
	if it.Snapshot != nil && !*it.Snapshot {
		options = append(options, holdfast.WithoutSnapshot())
	}
	go func() {
		for update, err := range client.Watch(ctx, it.Prefix, options...) {
			into.put(itemOf(update), err)
		}
	}()
	return answer{}, nil
}

func observe(ctx context.Context, election *holdfast.Election, into *items) {
	for observed, err := range election.Observe(ctx) {
		item := answer{"vacant": true}
		if observed.IsMissed {
			item = answer{"missed": true}
		} else if leader := observed.Leader; leader != nil {
			epoch := strconv.FormatUint(leader.Epoch, 10)
			item = answer{"leader": answer{"value": string(leader.Value), "epoch": epoch}}
		}
		into.put(item, err)
	}
}

func itemOf(update holdfast.Update) answer {
	switch {
	case update.Lock != nil:
		lock := update.Lock
		return answer{"lock": answer{"name": lock.Name, "holders": lock.HolderCount, "waiters": lock.WaiterCount}}
	case update.Event != nil:
		event := update.Event
		token := strconv.FormatUint(event.Token, 10)
		return answer{"event": answer{"kind": event.Kind, "names": event.Names, "token": token}}
	case update.IsRestarted:
		return answer{"restarted": true}
	default:
		return answer{"snapshot_complete": true}
	}
}

func (d *driver) readWatch(it *request) (answer, error) {
	d.mu.Lock()
	from := d.watches[it.Watch]
	d.mu.Unlock()
	if from == nil {
		return nil, fmt.Errorf("no watch %q", it.Watch)
	}
	if it.Op == "next" {
		return from.take()
	}
	from.end()
	return answer{}, nil
}
