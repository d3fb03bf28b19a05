package holdfast

import (
	"context"

	pb "holdfast/sdks/go/holdfastv1"
	"holdfast/sdks/go/internal/core"
	"holdfast/sdks/go/internal/engine"
)

// Status says who holds a lock and who waits for it: how many, and the first ten of each.
type Status struct {
	Name                     string
	Holders, Waiters         []Participant
	HolderCount, WaiterCount uint64
}

// Participant is a holder or a waiter.
type Participant struct {
	// Session is the public id of a session.
	Session string
	Mode    Mode
	// Token is 0 for a waiter.
	Token             uint64
	Metadata          []byte
	Application, Host string
}

// Status reads a lock. The answer is linearizable.
func (c *Client) Status(ctx context.Context, name string) (*Status, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	outcome, isComplete := c.engine.Run(ctx, &core.Status{Name: name}, engine.Options{})
	outcome, err := resultOf(ctx, outcome, isComplete)
	if err != nil {
		return nil, err
	}
	told := outcome.Status
	status := &Status{Name: name, HolderCount: told.GetHolderCount(), WaiterCount: told.GetWaiterCount()}
	for _, it := range told.GetHolders() {
		one := participant(it.GetPublicSessionId(), it.GetMode(), it.GetOwner())
		one.Token, one.Metadata = it.GetToken(), it.GetMetadata()
		status.Holders = append(status.Holders, one)
	}
	for _, it := range told.GetWaiters() {
		status.Waiters = append(status.Waiters, participant(it.GetPublicSessionId(), it.GetMode(), it.GetOwner()))
	}
	return status, nil
}

func participant(session string, mode pb.Mode, owner *pb.Owner) Participant {
	return Participant{
		Session: session, Mode: modeOf(mode), Application: owner.GetApplication(), Host: owner.GetHost(),
	}
}
