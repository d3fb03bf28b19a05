package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"holdfast/sdks/go/fence"
	"holdfast/sdks/go/internal/core"
)

const vectorHolds = 3

// answerVector gives the library's answer to a case of crates/conformance/vectors.
func answerVector(kind string, text json.RawMessage) (any, error) {
	switch kind {
	case "lease":
		return answerLease(text)
	case "fence":
		return answerFence(text)
	case "endpoints":
		return answerEndpoints(text)
	case "slots":
		return answerSlot(text)
	default:
		return nil, fmt.Errorf("no vectors of the kind %q", kind)
	}
}

type leaseStep struct {
	Do         string    `json:"do"`
	SentAt     core.Time `json:"sent_at"`
	LogicalMs  uint64    `json:"logical_ms"`
	Hold       uint64    `json:"hold"`
	Renewal    uint64    `json:"renewal"`
	DeadlineMs *uint64   `json:"deadline_ms"`
	TTLMs      *int64    `json:"ttl_ms"`
}

func answerLease(text json.RawMessage) (any, error) {
	var it struct {
		TTLMs    int64       `json:"ttl_ms"`
		LingerMs int64       `json:"linger_ms"`
		Opened   leaseStep   `json:"opened"`
		Steps    []leaseStep `json:"steps"`
	}
	if err := json.Unmarshal(text, &it); err != nil {
		return nil, err
	}
	ttl, linger := time.Duration(it.TTLMs)*time.Millisecond, time.Duration(it.LingerMs)*time.Millisecond
	leases := core.NewLeases(it.Opened.SentAt, it.Opened.LogicalMs, ttl, linger)
	for _, step := range it.Steps {
		if err := play(leases, step); err != nil {
			return nil, err
		}
	}
	holds := map[string]any{}
	for hold := range uint64(vectorHolds) {
		if until, isKnown := leases.ValidUntil(hold); isKnown {
			atRisk, _ := leases.AtRiskFrom(hold)
			holds[strconv.FormatUint(hold, 10)] = map[string]any{
				"valid_until": until, "at_risk_from": atRisk, "ends_before_session": leases.EndsBeforeSession(hold),
			}
		}
	}
	return map[string]any{
		"session_valid_until": leases.SessionValidUntil(), "heartbeat_due": leases.HeartbeatDue(), "holds": holds,
	}, nil
}

func play(leases *core.Leases, step leaseStep) error {
	switch step.Do {
	case "answered":
		leases.Answered(step.SentAt, step.LogicalMs)
	case "answered_best_effort":
		leases.AnsweredBestEffort(step.SentAt, step.LogicalMs)
	case "granted":
		leases.Granted(step.Hold, step.DeadlineMs, false)
	case "granted_best_effort":
		leases.Granted(step.Hold, step.DeadlineMs, true)
	case "renewal_sent":
		var ttl *time.Duration
		if step.TTLMs != nil {
			span := time.Duration(*step.TTLMs) * time.Millisecond
			ttl = &span
		}
		leases.RenewalSent(step.Hold, step.Renewal, step.SentAt, ttl)
	case "renewed":
		leases.Renewed(step.Hold, step.Renewal, step.DeadlineMs)
	case "renewal_refused":
		leases.RenewalRefused(step.Hold, step.Renewal)
	case "ended":
		leases.Ended(step.Hold)
	case "best_effort_restarts":
		leases.BestEffortRestarts()
	case "leader_lost":
		leases.LeaderLost()
	default:
		return fmt.Errorf("no step %q", step.Do)
	}
	return nil
}

func answerFence(text json.RawMessage) (any, error) {
	var it struct {
		Resource string  `json:"resource"`
		Accepts  string  `json:"accepts"`
		Mark     string  `json:"mark"`
		Fence    *string `json:"fence"`
	}
	if err := json.Unmarshal(text, &it); err != nil {
		return nil, err
	}
	mark, err := strconv.ParseUint(it.Mark, 10, 64)
	if err != nil {
		return nil, err
	}
	accepts := fence.Linearizable
	if it.Accepts == "best_effort" {
		accepts = fence.BestEffortTokens
	}
	claim, err := fence.Admit(it.Fence, it.Resource, accepts)
	if err == nil {
		err = fence.NewHighWaterMark(mark).Raise(claim)
	}
	var refused *fence.RefusedError
	if errors.As(err, &refused) {
		return map[string]any{"error": refused.Kind}, nil
	}
	return map[string]any{"token": strconv.FormatUint(claim.Token, 10)}, err
}

func answerEndpoints(text json.RawMessage) (any, error) {
	var it struct {
		Text string `json:"text"`
	}
	if err := json.Unmarshal(text, &it); err != nil {
		return nil, err
	}
	endpoints, err := core.ParseEndpoints(it.Text, true)
	var invalid *core.InvalidEndpoints
	if errors.As(err, &invalid) {
		if invalid.IsEmpty {
			return map[string]any{"error": "empty"}, nil
		}
		return map[string]any{"error": "not_host_and_port", "part": invalid.Part}, nil
	}
	return map[string]any{"addresses": endpoints.All()}, nil
}

func answerSlot(text json.RawMessage) (any, error) {
	var it struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal(text, &it); err != nil {
		return nil, err
	}
	return map[string]any{"slot": core.SlotOf(it.Name)}, nil
}
