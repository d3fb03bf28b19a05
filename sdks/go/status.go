package holdfast

import (
	"context"

	pb "holdfast/sdks/go/holdfastv1"
)

// participantsMax is how many holders and waiters a status shows. A node that is called tells more.
const participantsMax = 10

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
	outcome, isComplete := c.sessions.Status(ctx, name)
	outcome, err := resultOf(ctx, outcome, isComplete)
	if err != nil {
		return nil, err
	}
	told := outcome.Status
	status := &Status{Name: name, HolderCount: told.GetHolderCount(), WaiterCount: told.GetWaiterCount()}
	for _, it := range firstOf(told.GetHolders()) {
		one := participant(it.GetPublicSessionId(), it.GetMode(), it.GetOwner())
		one.Token, one.Metadata = it.GetToken(), it.GetMetadata()
		status.Holders = append(status.Holders, one)
	}
	for _, it := range firstOf(told.GetWaiters()) {
		status.Waiters = append(status.Waiters, participant(it.GetPublicSessionId(), it.GetMode(), it.GetOwner()))
	}
	return status, nil
}

func firstOf[P any](participants []P) []P {
	return participants[:min(len(participants), participantsMax)]
}

func participant(session string, mode pb.Mode, owner *pb.Owner) Participant {
	return Participant{
		Session: session, Mode: modeOf(mode), Application: owner.GetApplication(), Host: owner.GetHost(),
	}
}
